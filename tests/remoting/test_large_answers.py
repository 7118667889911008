"""Large answers that are not taken: they fill no memory, and keep nobody else from getting some."""

import trio
import trio.testing
from trio.testing import MockClock

from rmqha.codec.remoting import RemotingCommand
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.remoting.server import RemotingServer
from rmqha.waiting import FairLock
from tests.fakes import MemoryNetwork, MemoryStream
from tests.reachable import count_entries
from tests.settings import remoting_limits

SIZE = 10_000


async def test_the_oldest_that_is_not_taken_gives_way(autojump_clock: MockClock) -> None:
    network, broker = MemoryNetwork(capacity=4096), RequestDispatcher()
    broker.register(1, lambda _connection, _request: RemotingCommand(0, body=bytes(SIZE)))
    limits = remoting_limits(large_answers_bytes_max=3 * SIZE, outgoing_share_bytes=SIZE // 2)
    server = RemotingServer(broker, limits=limits)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, await network.listen("10.0.0.1", 10911))

        async def ask() -> MemoryStream:
            stream = await network.connect("10.0.0.1", 10911, timeout_s=1)
            await stream.send_all(RemotingCommand(1).encode())
            await trio.testing.wait_all_tasks_blocked()
            return stream

        untaken = [await ask() for _ in range(2)]
        for _ in range(10):
            reader, taken = await ask(), 0
            while taken < SIZE:
                taken += await reader.receive_into(memoryview(bytearray(SIZE)))
        assert not any(stream.incoming.ended for stream in untaken), "what is taken needs no room"
        untaken += [await ask() for _ in range(4)]
        assert [stream.incoming.ended for stream in untaken] == [True] * 2 + [False] * 4
        nursery.cancel_scope.cancel()


async def test_a_host_with_many_connections_keeps_another_waiting_for_one(autojump_clock: MockClock) -> None:
    lock, turns = FairLock(), list[str]()

    async def take_a_turn(host: str) -> None:
        async with lock.turn(host):
            await trio.sleep(1)
            turns.append(host)

    async with trio.open_nursery() as nursery:
        for _ in range(10):
            nursery.start_soon(take_a_turn, "many")
        await trio.sleep(0.5)
        nursery.start_soon(take_a_turn, "one")
    assert (turns.index("one"), len(turns)) in {(1, 11), (2, 11)}
    before = count_entries(lock)
    assert trio.current_time() == 11
    async with trio.open_nursery() as nursery:
        nursery.start_soon(take_a_turn, "one")
        await trio.sleep(0.5)
        with trio.move_on_after(0.1):
            await take_a_turn("two")
    with trio.CancelScope() as cancelled:
        cancelled.cancel()
        await take_a_turn("three")
    assert count_entries(lock) == before
