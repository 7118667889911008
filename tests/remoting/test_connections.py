"""Connections: many who need the same one."""

import pytest
import trio
from trio.testing import MockClock

from rmqha.errors import RemotingConnectError
from rmqha.remoting.connections import Connections
from rmqha.transport import Stream


class SilentNetwork:
    """The host that is asked has lost power: nothing comes back."""

    def __init__(self) -> None:
        self.attempts = 0

    async def connect(self, host: str, port: int, *, timeout_s: float) -> Stream:
        self.attempts += 1
        await trio.sleep(timeout_s)
        raise TimeoutError(110, f"no connection to {host}:{port} within {timeout_s:g} s")

    async def listen(self, host: str, port: int) -> "SilentListener":
        raise NotImplementedError


class SilentListener:
    port = 0

    async def accept(self) -> Stream:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError


async def test_who_waits_for_the_same_connection_fails_with_it(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The last of a topic's 16 queues was read from the slave 48 s after the master's host had gone."""
    network = SilentNetwork()
    connections = Connections(network, nursery, connect_timeout_s=3)
    failed_at: list[float] = []

    async def get() -> None:
        with pytest.raises(RemotingConnectError, match=r"^10.0.0.1:10911: no connection to 10.0.0.1:10911 within 3 s$"):
            await connections.get("10.0.0.1:10911")
        failed_at.append(trio.current_time() - begun_at)

    for attempts in (1, 2):
        begun_at = trio.current_time()
        async with trio.open_nursery() as callers:
            for _ in range(16):
                callers.start_soon(get)
        assert network.attempts == attempts
        assert max(failed_at) == pytest.approx(3)


async def test_who_waits_behind_one_that_was_cancelled_connects_by_itself(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network = SilentNetwork()
    connections = Connections(network, nursery, connect_timeout_s=3)
    async with trio.open_nursery() as callers:
        callers.start_soon(_get_for_a_second, connections)
        await trio.sleep(0.5)
        with pytest.raises(RemotingConnectError):
            await connections.get("10.0.0.1:10911")
    assert network.attempts == 2


async def _get_for_a_second(connections: Connections) -> None:
    with trio.move_on_after(1):
        await connections.get("10.0.0.1:10911")
