"""The yardstick itself: two real brokers replicate, and the tests' own client and reader understand them."""

from pathlib import Path

from tests.e2e.commitlog import HeldMessages, wait_identical
from tests.e2e.load import LoadProducer, Sends, body_of_size, wait_in_sync
from tests.e2e.processes import reaping
from tests.interop.peers import JavaBroker


async def test_a_java_slave_holds_what_its_master_acknowledged(tmp_path: Path) -> None:
    """SEND_OK from a real pair: both logs hold the message, in equal bytes."""
    sizes = {"mappedFileSizeCommitLog": 1 << 20}
    master = JavaBroker(tmp_path / "master", {"brokerRole": "SYNC_MASTER", **sizes})
    slave_conf = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": master.ha_address}
    slave = JavaBroker(tmp_path / "slave", {**slave_conf, **sizes})
    with reaping(master, slave):
        await master.start()
        await slave.start()
        await wait_in_sync(master.ports.listen)  # an empty Java slave begins at its master's last file
        load = LoadProducer(master.ports.listen, Sends("TopicTest", body=body_of_size(10_000)))
        await load.send(1_000)
        assert load.unexpected == []
        await wait_identical(master.store / "commitlog", slave.store / "commitlog")
    assert load.acknowledged <= HeldMessages(slave.store / "commitlog", "TopicTest").read(torn=False)
    assert len(slave.segments()) > 5
