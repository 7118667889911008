"""However many clients have however much to do: a new one is served soon, and the event loop goes round."""

from collections.abc import Iterator
from math import inf

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from rmqha.codec.frame_decoder import FrameDecoder
from rmqha.codec.remoting import FLAG_RESPONSE, RemotingCommand
from rmqha.codec.usual.decoder import RequestDecoder
from rmqha.codec.usual.sends import Request
from rmqha.memory import BytesLike
from rmqha.remoting import limits
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.remoting.in_flight import REQUEST_BYTES
from rmqha.remoting.server import RemotingServer
from rmqha.remoting.turns import PASS_S, REQUESTS_A_TURN, ROUND_S, TURN_S, Turns
from tests.fakes import MemoryNetwork, MemoryStream
from tests.settings import remoting_limits

REQUEST_S = 0.0001
BUSY = 100


async def test_a_client_among_a_hundred_busy_ones_waits_for_a_round_not_for_all_their_turns(
    autojump_clock: MockClock,
) -> None:
    network, passes = MemoryNetwork(), list[float]()

    def take_a_while(_connection: Connection, _request: RemotingCommand) -> RemotingCommand:
        autojump_clock.jump(REQUEST_S)
        return RemotingCommand(0)

    broker = RequestDispatcher()
    broker.register(1, take_a_while)
    server = RemotingServer(broker, limits=remoting_limits())
    frames = b"".join(RemotingCommand(1, opaque).encode() for opaque in range(500))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, await network.listen("10.0.0.1", 10911))
        busy = [await network.connect("10.0.0.1", 10911, timeout_s=1) for _ in range(BUSY)]
        honest = await network.connect("10.0.0.1", 10911, timeout_s=1)
        for stream in busy:
            nursery.start_soon(stream.send_all, frames)
        nursery.start_soon(note_passes, passes)
        waits = []
        for _ in range(10):
            begun_at = trio.current_time()
            await honest.send_all(RemotingCommand(1).encode())
            await honest.receive_into(memoryview(bytearray(1024)))
            waits.append(trio.current_time() - begun_at)
        nursery.cancel_scope.cancel()
    assert max(waits) < 0.15
    assert max(passes) < 0.04


async def note_passes(passes: list[float]) -> None:
    """How long the event loop takes to go round, each time."""
    while True:
        begun_at = trio.current_time()
        await trio.lowlevel.checkpoint()
        passes.append(trio.current_time() - begun_at)


async def test_fewer_clients_go_on_at_once_where_a_request_is_dearer_than_a_turn(autojump_clock: MockClock) -> None:
    """A fifth of those who waited did in each pass: of 200 with a request of 10 ms each that took 0.4 s."""
    network, passes = MemoryNetwork(), list[float]()

    def take_long(_connection: Connection, _request: RemotingCommand) -> RemotingCommand:
        autojump_clock.jump(PASS_S)
        return RemotingCommand(0)

    broker = RequestDispatcher()
    broker.register(1, take_long)
    server = RemotingServer(broker, limits=remoting_limits())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, await network.listen("10.0.0.1", 10911))
        busy = [await network.connect("10.0.0.1", 10911, timeout_s=1) for _ in range(200)]
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(note_passes, passes)
        for stream in busy:
            nursery.start_soon(stream.send_all, 3 * RemotingCommand(1).encode())
        while sum(passes) < 600 * PASS_S - 1e-6:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert max(passes) < 6 * PASS_S


async def test_who_sends_little_does_not_stand_behind_those_who_send_much(autojump_clock: MockClock) -> None:
    """In one line a lone small request waited for 200 large ones of 10 ms each, 2 s."""
    network = MemoryNetwork()

    def take_long(_connection: Connection, _request: RemotingCommand) -> RemotingCommand:
        autojump_clock.jump(PASS_S)
        return RemotingCommand(0)

    broker = RequestDispatcher()
    broker.register(1, take_long)
    broker.register(2, lambda _connection, _request: RemotingCommand(0))
    server = RemotingServer(broker, limits=remoting_limits())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, await network.listen("10.0.0.1", 10911))
        busy = [await network.connect("10.0.0.1", 10911, timeout_s=1) for _ in range(200)]
        honest = await network.connect("10.0.0.1", 10911, timeout_s=1)
        await trio.testing.wait_all_tasks_blocked()
        for stream in busy:
            nursery.start_soon(stream.send_all, 5 * RemotingCommand(1, body=bytes(10_000)).encode())
        waits = []
        for _ in range(20):
            await trio.lowlevel.checkpoint()
            begun_at = trio.current_time()
            await honest.send_all(RemotingCommand(2).encode())
            await honest.receive_into(memoryview(bytearray(1024)))
            waits.append(trio.current_time() - begun_at)
        nursery.cancel_scope.cancel()
    assert max(waits) < 15 * PASS_S


async def test_answers_that_nobody_awaits_are_decoded_in_turns_as_well(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are no requests, and were decoded at once in any case: a flood of them held everybody up."""
    network, passes = MemoryNetwork(), list[float]()

    class SlowDecoder(RequestDecoder):
        def on_received(self, buffer: memoryview, count: int) -> list[Request]:
            return self._slowly(super().on_received(buffer, count))

        def decode_more(self, commands_max: float = inf) -> list[Request]:
            return self._slowly(super().decode_more(commands_max))

        def _slowly(self, commands: list[Request]) -> list[Request]:
            autojump_clock.jump(len(commands) * REQUEST_S)
            return commands

    monkeypatch.setattr(limits, "RequestDecoder", SlowDecoder)
    server = RemotingServer(RequestDispatcher(), limits=remoting_limits())
    answers = b"".join(RemotingCommand(0, opaque, FLAG_RESPONSE).encode() for opaque in range(50))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, await network.listen("10.0.0.1", 10911))
        busy = [await network.connect("10.0.0.1", 10911, timeout_s=1) for _ in range(BUSY)]
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(note_passes, passes)
        for stream in busy:
            nursery.start_soon(stream.send_all, answers)
        for _ in range(500):
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert 5 * PASS_S > max(passes) > 0


async def test_what_one_client_has_sent_is_decoded_a_turn_at_a_time(autojump_clock: MockClock) -> None:
    """26,000 of the smallest requests fit into what is received at once."""
    network, handled = MemoryNetwork(), list[int]()
    broker = RequestDispatcher()
    broker.register_batch([1], lambda connection, requests: handled.append(connection.requests))
    server = RemotingServer(broker, limits=remoting_limits())
    frames = b"".join(RemotingCommand(1, opaque).encode() for opaque in range(1000))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, await network.listen("10.0.0.1", 10911))
        stream = await network.connect("10.0.0.1", 10911, timeout_s=1)
        await stream.send_all(frames)
        await trio.testing.wait_all_tasks_blocked()
        assert handled == [256, 512, 768, 1000], "what is not decoded has not arrived yet"
        assert server.capacity.used_bytes == len(frames) + 1000 * REQUEST_BYTES
        nursery.cancel_scope.cancel()
    assert server.capacity.used_bytes == 0


async def test_what_was_not_decoded_when_its_client_was_cut_is_off_the_account(autojump_clock: MockClock) -> None:
    network, broker = MemoryNetwork(), RequestDispatcher()
    server = RemotingServer(broker, limits=remoting_limits())
    broker.register_batch([1], lambda connection, _requests: connection.close("enough"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, await network.listen("10.0.0.1", 10911))
        stream = await network.connect("10.0.0.1", 10911, timeout_s=1)
        await stream.send_all(b"".join(RemotingCommand(1, opaque).encode() for opaque in range(2 * REQUESTS_A_TURN)))
        await trio.testing.wait_all_tasks_blocked()
        assert (len(server.connections), server.capacity.used_bytes) == (0, 0)
        nursery.cancel_scope.cancel()


async def test_the_more_clients_wait_the_less_of_each_is_decoded_at_once(autojump_clock: MockClock) -> None:
    """Decoding is a part of the turn: 256 small requests of each of 900 clients made a round of seconds."""
    network, decoded_first = MemoryNetwork(), dict[Connection, int]()
    broker = RequestDispatcher()

    def take_a_while(connection: Connection, requests: list[Request]) -> None:
        decoded_first.setdefault(connection, connection.requests)
        autojump_clock.jump(len(requests) * REQUEST_S)
        connection.finish_oneway(len(requests), sum(request.size for request in requests))

    broker.register_batch([1], take_a_while)
    server = RemotingServer(broker, limits=remoting_limits())
    frames = b"".join(RemotingCommand(1, opaque).encode() for opaque in range(REQUESTS_A_TURN))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, await network.listen("10.0.0.1", 10911))
        for stream in [await network.connect("10.0.0.1", 10911, timeout_s=1) for _ in range(BUSY)]:
            nursery.start_soon(stream.send_all, frames)
        await trio.testing.wait_all_tasks_blocked()
        assert [connection.requests for connection in server.connections] == [REQUESTS_A_TURN] * BUSY
        nursery.cancel_scope.cancel()
    assert sum(count == REQUESTS_A_TURN for count in decoded_first.values()) < BUSY / 10, "who finds the loop free"


async def test_what_is_received_and_not_decoded_is_on_the_account(autojump_clock: MockClock) -> None:
    network, in_flight = MemoryNetwork(), list[int]()
    broker = RequestDispatcher()
    server = RemotingServer(broker, limits=remoting_limits())

    def look(connection: Connection, requests: list[Request]) -> None:
        connection.start_soon(note)
        connection.finish_oneway(len(requests), sum(request.size for request in requests))

    async def note() -> None:
        in_flight.append(server.capacity.used_bytes)

    broker.register_batch([1], look)
    frames = [RemotingCommand(1, opaque).encode() for opaque in range(2 * REQUESTS_A_TURN)]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, await network.listen("10.0.0.1", 10911))
        stream = await network.connect("10.0.0.1", 10911, timeout_s=1)
        await stream.send_all(b"".join(frames))
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    assert in_flight == [len(b"".join(frames[REQUESTS_A_TURN:])), 0]


async def test_a_frame_cut_in_its_first_bytes_while_its_client_waits_must_still_be_completed(
    autojump_clock: MockClock,
) -> None:
    network = MemoryNetwork()
    broker = RequestDispatcher()

    def take_a_while(_connection: Connection, _request: RemotingCommand) -> RemotingCommand:
        autojump_clock.jump(2 * PASS_S)
        return RemotingCommand(0)

    broker.register(1, take_a_while)
    server = RemotingServer(broker, limits=remoting_limits())
    frame = RemotingCommand(1).encode()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, await network.listen("10.0.0.1", 10911))
        slow = await network.connect("10.0.0.1", 10911, timeout_s=1)
        await slow.send_all(frame[:5])
        await trio.testing.wait_all_tasks_blocked()
        other = await network.connect("10.0.0.1", 10911, timeout_s=1)
        await other.send_all(frame)
        await other.receive_into(memoryview(bytearray(1024)))
        await slow.send_all(frame[5:12])  # while the turns of this pass are taken
        with trio.fail_after(15):
            assert await slow.receive_into(memoryview(bytearray(1024))) == 0
        nursery.cancel_scope.cancel()


def test_no_more_commands_are_decoded_at_once_than_asked_for() -> None:
    """Nor more than 64 KiB of headers; nothing is lost, and all come in order."""
    small = [RemotingCommand(1, opaque).encode() for opaque in range(10)]
    large = [RemotingCommand(1, opaque, remark="x" * 30_000).encode() for opaque in range(10, 20)]
    frames = b"".join(small + large)
    for cut in (0, 5, 500, len(frames) - 1):
        decoder, pieces = FrameDecoder(commands_max=4), list[list[int]]()
        for part in (frames[:cut], frames[cut:]):
            pieces.append([command.opaque for command in decoder.receive_data(part)])
            while decoder.more:
                pieces.append([command.opaque for command in decoder.decode_more()])
        assert [opaque for piece in pieces for opaque in piece] == list(range(20))
        assert max(map(len, pieces)) == 4
        assert all(len(piece) <= 3 for piece in pieces if piece and piece[0] >= 10)
        assert decoder.pending_size == 0


async def test_turns_are_long_while_nobody_waits_and_short_while_many_do(autojump_clock: MockClock) -> None:
    turns = Turns()
    seen: list[tuple[float, int]] = []

    async def take_turn() -> None:
        await turns.wait()
        seen.append((turns.turn_s, turns.requests))

    for waiting in (1, 10, 1000):
        seen.clear()
        async with trio.open_nursery() as nursery:
            for _ in range(waiting):
                nursery.start_soon(take_turn)
        await trio.testing.wait_all_tasks_blocked()  # the line's keeper has seen that it is empty
        assert seen[0] == (min(TURN_S, ROUND_S / waiting), max(1, min(256, int(2560 / waiting))))
        assert (turns.turn_s, turns.requests, turns.taken_s) == (TURN_S, REQUESTS_A_TURN, 0)


async def test_what_takes_many_steps_is_done_in_turns_and_before_anything_else(autojump_clock: MockClock) -> None:
    network, order, others = MemoryNetwork(), list[str](), 0
    broker = RequestDispatcher()

    def steps(connection: Connection, request: Request) -> Iterator[bool]:
        for step in range(20):
            autojump_clock.jump(TURN_S / 2)
            yield step == 0  # the first finds nothing to do yet
        order.append(f"long, {others} turns of others meanwhile")
        connection.respond(request, 0)

    def take_long(connection: Connection, requests: list[Request]) -> None:
        connection.work(steps(connection, requests[0]))

    def take_short(connection: Connection, requests: list[Request]) -> None:
        order.append("short")
        for request in requests:
            connection.respond(request, 0)

    async def count_turns() -> None:
        nonlocal others
        while True:
            await trio.lowlevel.checkpoint()
            others += 1

    broker.register_batch([1], take_long)
    broker.register_batch([2], take_short)
    server = RemotingServer(broker, limits=remoting_limits())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, await network.listen("10.0.0.1", 10911))
        stream = await network.connect("10.0.0.1", 10911, timeout_s=1)
        await trio.testing.wait_all_tasks_blocked()
        await stream.send_all(RemotingCommand(1, 1).encode() + RemotingCommand(2, 2).encode())
        nursery.start_soon(count_turns)
        while len(order) < 2:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert order[1] == "short"
    turns = int(order[0].split()[1])
    assert 9 <= turns <= 40, "ten turns, and between two of them a pass of the others"


async def test_what_has_been_begun_is_finished_while_the_server_shuts_down(autojump_clock: MockClock) -> None:
    network, finished = MemoryNetwork(), list[bool]()
    broker = RequestDispatcher()

    def steps(connection: Connection, request: Request) -> Iterator[bool]:
        for _ in range(20):
            autojump_clock.jump(TURN_S)
            yield False
        finished.append(True)
        connection.respond(request, 0)

    broker.register_batch([1], lambda connection, requests: connection.work(steps(connection, requests[0])))
    server = RemotingServer(broker, limits=remoting_limits())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, await network.listen("10.0.0.1", 10911))
        stream = await network.connect("10.0.0.1", 10911, timeout_s=1)
        await stream.send_all(RemotingCommand(1, 1).encode())
        while not server.capacity.used_bytes:
            await trio.lowlevel.checkpoint()
        assert not finished
        await server.close(grace_s=10)
        assert finished
        assert await stream.receive_into(memoryview(bytearray(1024))), "and answered"


async def test_what_takes_longer_than_a_shutdown_may_take_ends_with_it(autojump_clock: MockClock) -> None:
    """Batches of 400 clients, who were gone already, kept a broker for 20 s after its store had stopped."""
    network, went_on = MemoryNetwork(), list[float]()
    broker = RequestDispatcher()

    def steps() -> Iterator[bool]:
        for _ in range(10_000):
            autojump_clock.jump(TURN_S)
            went_on.append(trio.current_time())
            yield False

    broker.register_batch([1], lambda connection, _requests: connection.work(steps()))
    server = RemotingServer(broker, limits=remoting_limits())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, await network.listen("10.0.0.1", 10911))
        stream = await network.connect("10.0.0.1", 10911, timeout_s=1)
        await stream.send_all(RemotingCommand(1, 1).encode())
        while not server.capacity.used_bytes:
            await trio.lowlevel.checkpoint()
        await server.close(grace_s=1)
    assert 1 <= went_on[-1] < 2


async def test_when_nobody_waits_turns_are_long_again_and_each_pass_begins_anew(autojump_clock: MockClock) -> None:
    turns = Turns()
    went_on = list[float]()

    async def take_a_turn() -> None:
        await turns.wait()
        went_on.append(turns.taken_s)
        turns.taken_s += turns.turn_s

    for _ in range(2):
        async with trio.open_nursery() as nursery:
            for _ in range(BUSY):
                nursery.start_soon(take_a_turn)
        await trio.testing.wait_all_tasks_blocked()  # the line's keeper has seen that it is empty
        assert (turns.turn_s, turns.requests) == (TURN_S, REQUESTS_A_TURN)
    assert len(went_on) == 2 * BUSY
    assert max(went_on) < 3 * PASS_S, "the keeper of the line may run before those whom it let go on, or after them"


async def test_a_hundred_clients_that_take_large_answers_keep_nobody_from_the_loop(autojump_clock: MockClock) -> None:
    """A thousand had one message of 4 MB each: an honest send took 3.4 s."""
    network, passes = MemoryNetwork(), list[float]()
    broker = RequestDispatcher()
    broker.register(1, lambda _connection, _request: RemotingCommand(0))
    broker.register_batch([2], lambda connection, some: connection.send_response(bytes(3 << 20), size=some[0].size))
    server = RemotingServer(broker, limits=remoting_limits())
    really = MemoryStream.send_nowait

    def take_a_while(stream: MemoryStream, data: BytesLike) -> int:
        autojump_clock.jump(len(data) * 1e-9)
        return really(stream, data)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, await network.listen("10.0.0.1", 10911))
        network.capacity = 4 << 20
        greedy = [await network.connect("10.0.0.1", 10911, timeout_s=1) for _ in range(BUSY)]
        honest = await network.connect("10.0.0.1", 10911, timeout_s=1)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(MemoryStream, "send_nowait", take_a_while)
            nursery.start_soon(note_passes, passes)
            for stream in greedy:
                stream.send_nowait(RemotingCommand(2).encode())
            waits = list[float]()
            while server.capacity.owed.size or not waits:
                begun_at = trio.current_time()
                await honest.send_all(RemotingCommand(1).encode())
                await honest.receive_into(memoryview(bytearray(1024)))
                waits.append(trio.current_time() - begun_at)
        assert [stream.incoming.size >= 3 << 20 for stream in greedy] == [True] * BUSY
        nursery.cancel_scope.cancel()
    assert max(waits) < 0.15
    assert max(passes) < 0.04
