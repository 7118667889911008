"""Servers tell systemd when they serve, that they are not stuck, and when they stop."""

import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests.e2e.dledger_groups import Group, running
from tests.e2e.name_servers import RmqhaNameServer
from tests.e2e.processes import Child, RmqhaBroker, reaping

pytestmark = pytest.mark.e2e


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """The states that the servers of a test send, a beat every 0.1 s among them.

    They are taken at once, whatever the test is doing: the kernel keeps ten, and servers do not wait for a place.
    """
    states: list[bytes] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", bound.getsockname())
        monkeypatch.setenv("WATCHDOG_USEC", "200000")
        taking = threading.Thread(target=lambda: states.extend(iter(lambda: bound.recv(100), b"")))
        taking.start()
        try:
            yield states
        finally:
            bound.shutdown(socket.SHUT_RD)
            taking.join()


async def wait_for(state: bytes, told: list[bytes]) -> None:
    """Until it has come."""
    with trio.fail_after(120):
        while state not in told:  # noqa: ASYNC110 - a thread's
            await trio.sleep(0.02)


async def check_life(child: Child, told: list[bytes]) -> None:
    await wait_for(b"READY=1", told)
    await wait_for(b"WATCHDOG=1", told)
    assert b"STOPPING=1" not in told
    assert await child.stop() == 0
    await wait_for(b"STOPPING=1", told)
    assert told.count(b"READY=1") == 1


async def test_a_broker_does(tmp_path: Path, told: list[bytes]) -> None:
    master = RmqhaBroker(tmp_path / "master", {"brokerRole": "ASYNC_MASTER"})
    with reaping(master):
        await check_life(master.launch(), told)


async def test_a_name_server_does(tmp_path: Path, told: list[bytes]) -> None:
    server = RmqhaNameServer(tmp_path / "namesrv")
    try:
        await server.start()
        assert server.child is not None
        await check_life(server.child, told)
    finally:
        server.close()


async def test_a_member_of_a_group_does(tmp_path: Path, told: list[bytes]) -> None:
    with running(Group(tmp_path, 1)) as group:
        group.start()
        await check_life(group.children["n0"], told)
