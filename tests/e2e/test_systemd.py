"""Servers tell systemd when they serve, that they are not stuck, and when they stop."""

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from tests.e2e.dledger_groups import Group, running
from tests.e2e.name_servers import RmqhaNameServer
from tests.e2e.processes import Child, RmqhaBroker, reaping

pytestmark = pytest.mark.e2e


@pytest.fixture
def notify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """Where the servers of a test send their states, a beat every 0.1 s among them."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as bound:
        bound.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", bound.getsockname())
        monkeypatch.setenv("WATCHDOG_USEC", "200000")
        yield bound


async def wait_for(state: bytes, notify: socket.socket) -> None:
    """Until it comes; READY comes once."""
    with trio.fail_after(120):
        while True:
            await trio.lowlevel.wait_readable(notify)
            if notify.recv(100) == state:
                return


async def check_life(child: Child, notify: socket.socket) -> None:
    await wait_for(b"READY=1", notify)
    await wait_for(b"WATCHDOG=1", notify)
    assert await child.stop() == 0
    await wait_for(b"STOPPING=1", notify)


async def test_a_broker_does(tmp_path: Path, notify: socket.socket) -> None:
    master = RmqhaBroker(tmp_path / "master", {"brokerRole": "ASYNC_MASTER"})
    with reaping(master):
        await check_life(master.launch(), notify)


async def test_a_name_server_does(tmp_path: Path, notify: socket.socket) -> None:
    server = RmqhaNameServer(tmp_path / "namesrv")
    try:
        await server.start()
        assert server.child is not None
        await check_life(server.child, notify)
    finally:
        server.close()


async def test_a_member_of_a_group_does(tmp_path: Path, notify: socket.socket) -> None:
    with running(Group(tmp_path, 1)) as group:
        group.start()
        await check_life(group.children["n0"], notify)
