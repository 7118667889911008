"""Mixed pairs under load: each side is killed and returns, files roll over, and the logs end up byte-identical."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests.e2e.commitlog import HeldMessages, log_end, wait_identical
from tests.e2e.load import LoadProducer, Sends, body_of_size, wait_in_sync
from tests.e2e.processes import Broker, RmqhaBroker, reaping
from tests.interop.feature_table import BROKER
from tests.interop.peers import JavaBroker

MESSAGE_SIZE_MAX = 4 << 20
SIZES = (1, 100, 1_024, 32_768, 163_840, 7, 1 << 20, MESSAGE_SIZE_MAX)
KINDS: dict[str, type[Broker]] = {"rmqha": RmqhaBroker, "java": JavaBroker}
pytestmark = pytest.mark.timeout(600)


@pytest.fixture(params=["rmqha java", "java rmqha"])
def mixed_pair(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Broker, Broker]]:
    """A SYNC_MASTER of one kind and a slave of the other."""
    master_kind, slave_kind = (KINDS[word] for word in request.param.split())
    common = {"mappedFileSizeCommitLog": 6 << 20}
    master = master_kind(tmp_path / "master", {"brokerRole": "SYNC_MASTER", **common})
    slave_conf = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": master.ha_address, **common}
    slave = slave_kind(tmp_path / "slave", slave_conf)
    with reaping(master, slave):
        yield master, slave


@pytest.mark.tries(BROKER, "be master or slave in a pair")
async def test_each_side_is_killed_and_returns(mixed_pair: tuple[Broker, Broker]) -> None:
    """Messages from 1 byte to the maximum; what was acknowledged is in both logs, which are equal."""
    master, slave = mixed_pair
    await master.start()
    await slave.start()
    await wait_in_sync(master.ports.listen)
    load = LoadProducer(master.ports.listen, Sends("orders", body=body_of_size(*SIZES)), window=4)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        await load.wait_acknowledged(60)
        await slave.kill()
        await load.wait_refused(3)
        await slave.start()
        await load.wait_acknowledged(60)
        await master.kill()
        await master.start()
        await load.wait_acknowledged(60)
        load.stop()
    assert load.unexpected == []
    await wait_identical(master.store / "commitlog", slave.store / "commitlog")
    assert len(master.segments()) >= 10
    for broker in (slave, master):
        await broker.stop()
        missing = load.acknowledged - HeldMessages(broker.store / "commitlog", "orders").read(torn=False)
        assert not missing, f"the {broker.directory.name} lacks acknowledged {sorted(missing)[:5]}"


@pytest.mark.tries(BROKER, "be refused as master of another group")
@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ({"brokerName": "other"}, "it has brokerName=pair, this broker has brokerName=other"),
        ({"mappedFileSizeCommitLog": 7 << 20}, "it has mappedFileSizeCommitLog=6291456, this broker has 7340032"),
    ],
)
async def test_a_rocketmq_master_of_another_group_is_not_followed(
    setting: dict[str, object], reason: str, tmp_path: Path
) -> None:
    """Its configuration (26) says who it is."""
    common = {"mappedFileSizeCommitLog": 6 << 20}
    master = JavaBroker(tmp_path / "master", {"brokerRole": "SYNC_MASTER", **common})
    conf = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": master.ha_address, **common, **setting}
    slave = RmqhaBroker(tmp_path / "slave", conf)
    with reaping(master, slave):
        await master.start()
        await slave.start()
        await slave.running.wait_output(f"this master is not followed: {reason}")


@pytest.mark.tries(BROKER, "as an old master with another history be sent nothing")
async def test_an_old_rocketmq_master_that_holds_another_history_counts_for_nothing(tmp_path: Path) -> None:
    """It stored some messages that its slave never had; the slave was made master, and went on further than that."""
    common = {"mappedFileSizeCommitLog": 6 << 20}
    old = JavaBroker(tmp_path / "old", {"brokerRole": "SYNC_MASTER", **common})
    follows = {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": old.ha_address}
    new = RmqhaBroker(tmp_path / "new", common | follows)
    with reaping(old, new):
        await old.start()
        await new.start()
        await wait_in_sync(old.ports.listen)
        sends = Sends("orders", body=body_of_size(1_000, 7))
        load = LoadProducer(old.ports.listen, sends, window=4)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load.run)
            await load.wait_acknowledged(50)
            await new.kill()
            await load.wait_refused(5)
            load.stop()
        await old.kill()
        old_end = log_end(old.store / "commitlog")
        del new.conf["haMasterAddress"]
        new.conf |= {"brokerRole": "SYNC_MASTER", "brokerId": 0, "haPeers": old.ha_address}
        old.conf |= {"brokerRole": "SLAVE", "brokerId": 1, "haMasterAddress": new.ha_address}
        await new.start()
        later = LoadProducer(new.ports.listen, Sends("orders", body=body_of_size(900)), window=4)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(later.run)
            await trio.sleep(3)
            await old.start()
            await new.running.wait_output("slave-unfit")
            await trio.sleep(8)
            later.stop()
        assert later.acknowledged == set(), "nobody but the master holds any of them so that it can be read"
        assert log_end(old.store / "commitlog") == old_end
