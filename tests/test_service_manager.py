"""What systemd hears of a server, and what it costs where nobody listens."""

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from rmqha import process
from rmqha.service_manager import READY, ServiceManager


@pytest.fixture
def listener(tmp_path: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as bound:
        bound.bind(str(tmp_path / "notify"))
        yield bound


def heard(listener: socket.socket) -> list[bytes]:
    states = []
    while True:
        try:
            states.append(listener.recv(100))
        except BlockingIOError:
            return states


async def test_a_life_is_told_of(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", listener.getsockname())
    monkeypatch.setenv("WATCHDOG_USEC", "120000000")

    async def live(*, task_status: trio.TaskStatus[None]) -> None:
        await trio.sleep(90)
        assert heard(listener) == [b"WATCHDOG=1"] * 2, "it starts: it is neither ready nor stuck"
        task_status.started()
        await trio.sleep(60)
        os.kill(os.getpid(), 15)
        await stopping.wait()

    stopping = trio.Event()
    await process.serve("broker", live, stopping.set)
    assert heard(listener) == [b"READY=1", b"WATCHDOG=1", b"STOPPING=1"]


async def test_who_is_stopped_before_it_serves_is_never_ready(
    listener: socket.socket, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", listener.getsockname())

    async def live(*, task_status: trio.TaskStatus[None]) -> None:
        os.kill(os.getpid(), 15)
        await stopping.wait()
        task_status.started()

    stopping = trio.Event()
    await process.serve("broker", live, stopping.set)
    assert heard(listener) == [b"STOPPING=1"] * 2


@pytest.mark.parametrize("address", ["", "nowhere", "/no/such/socket", "@nobody-listens-here"])
def test_where_nobody_listens_nothing_is_lost(address: str) -> None:
    ServiceManager({"NOTIFY_SOCKET": address}).tell(READY)


def test_a_name_without_a_file_is_understood() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bound:
        bound.bind(f"\0rmqha-test-{os.getpid()}")
        ServiceManager({"NOTIFY_SOCKET": f"@rmqha-test-{os.getpid()}"}).tell(READY)
        assert bound.recv(100) == b"READY=1"


async def test_a_queue_that_is_full_blocks_nobody(listener: socket.socket) -> None:
    manager = ServiceManager({"NOTIFY_SOCKET": listener.getsockname()})
    for _ in range(10_000):
        manager.tell(READY)


@pytest.mark.parametrize(
    "environment", [{}, {"WATCHDOG_USEC": "x"}, {"WATCHDOG_USEC": "-5"}, {"WATCHDOG_USEC": "9", "WATCHDOG_PID": "1"}]
)
async def test_who_is_not_asked_to_beat_does_not(
    environment: dict[str, str], listener: socket.socket, autojump_clock: MockClock
) -> None:
    await ServiceManager(environment | {"NOTIFY_SOCKET": listener.getsockname()}).beat()
    assert heard(listener) == []
