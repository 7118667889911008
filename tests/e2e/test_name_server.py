"""`rmqha namesrv` as a process: brokers that know it alone find each other, and so do clients."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests.e2e.commands import rmqha, wait_status
from tests.e2e.commitlog import wait_identical
from tests.e2e.name_servers import RmqhaNameServer
from tests.e2e.processes import IN_A_TERMINAL, RmqhaBroker, reaping

pytestmark = pytest.mark.e2e


@pytest.fixture
def name_server(tmp_path: Path) -> Iterator[RmqhaNameServer]:
    server = RmqhaNameServer(tmp_path / "namesrv")
    yield server
    server.close()


async def test_a_pair_and_its_clients_know_the_name_server_alone(tmp_path: Path, name_server: RmqhaNameServer) -> None:
    """Also after it was started anew."""
    await name_server.start()
    common = {"namesrvAddr": name_server.address, "mappedFileSizeCommitLog": 1 << 20}
    master = RmqhaBroker(tmp_path / "master", {"brokerRole": "SYNC_MASTER", **common})
    slave = RmqhaBroker(tmp_path / "slave", {"brokerRole": "SLAVE", "brokerId": 1, **common})
    with reaping(master, slave):
        await slave.start()
        await master.start()
        await wait_status(master, 0)
        for stdin in ("one\ntwo\n", "three\n"):
            with trio.fail_after(120):
                while (await rmqha("send", "orders", "-b", name_server.address, stdin=stdin))[0]:
                    pass
            await name_server.restart()
        await wait_identical(master.store / "commitlog", slave.store / "commitlog")
        await wait_status(slave, 0)


async def test_what_keeps_it_from_starting_is_told(tmp_path: Path, name_server: RmqhaNameServer) -> None:
    await name_server.start()
    code, _, err = await rmqha("namesrv", "--listen", name_server.address)
    assert (code, "Address already in use" in err) == (1, True), err
    code, _, err = await rmqha("namesrv", "--listen", "0.0.0.0:0")
    assert (code, "would listen beyond this machine" in err) == (2, True), err
    code, _, err = await rmqha("namesrv", "-c", str(tmp_path / "nowhere"))
    assert code == 2, err


async def test_a_terminal_that_closes_stops_it_in_order(name_server: RmqhaNameServer) -> None:
    name_server.prefix = IN_A_TERMINAL
    await name_server.start()
    assert name_server.child is not None
    name_server.child.signal(signal.SIGHUP)
    assert await name_server.child.wait_exit() == 0
