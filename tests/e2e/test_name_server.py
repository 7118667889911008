"""`rmqha namesrv` as a process: brokers that know it alone find each other, and so do clients."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests.e2e.commands import rmqha, wait_status
from tests.e2e.commitlog import wait_identical
from tests.e2e.name_servers import RmqhaNameServer
from tests.e2e.processes import IN_A_TERMINAL, RmqhaBroker, has_ipv6, reaping

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


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6 loopback")
async def test_all_of_it_by_ipv6(tmp_path: Path) -> None:
    """Brokers write their address without brackets into routes, as RocketMQ's do."""
    name_server = RmqhaNameServer(tmp_path / "namesrv", host="::1")
    common = {"namesrvAddr": name_server.address, "mappedFileSizeCommitLog": 1 << 20, "brokerIP1": "::1"}
    master = RmqhaBroker(tmp_path / "master", {"brokerRole": "SYNC_MASTER", **common})
    slave = RmqhaBroker(tmp_path / "slave", {"brokerRole": "SLAVE", "brokerId": 1, **common})
    try:
        with reaping(master, slave):
            await name_server.start()
            await master.start()
            await slave.start()
            await slave.running.wait_output("ha_client.connected")
            with trio.fail_after(120):
                while (await rmqha("send", "orders", "-b", name_server.address, stdin="one\ntwo\n"))[0]:
                    pass
            for command in (("topics", "list"), ("topics", "describe", "orders")):
                code, out, err = await rmqha(*command, "-b", name_server.address)
                assert code == 0, err
            assert "orders" in out
            _, _, err = await rmqha("status", "-b", name_server.address)
            assert f"[::1]:{master.ports.listen} (" in err, "which can be asked so"
            promote = ("promote", "-c", str(slave.conf_file), "--role", "ASYNC_MASTER")
            code, out, err = await rmqha(*promote)
            assert (code, f"the old master may be alive: [::1]:{master.ports.listen}" in err) == (1, True), err
            await master.kill()
            await slave.running.wait_output(r"ha_client\.disconnected")
            code, out, err = await rmqha(*promote, "--accept-unknown-queue-ends")
            assert (code, "Nothing is in the way" in out) == (0, True), err
    finally:
        name_server.close()


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
