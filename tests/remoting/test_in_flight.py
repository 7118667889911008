"""The account of requests not answered yet: nobody gets another's answer, and nothing stays on the account."""

import gc
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from rmqha.codec.frame_decoder import FrameDecoder
from rmqha.codec.remoting import FLAG_RESPONSE, RemotingCommand
from rmqha.codec.usual.sends import Request
from rmqha.errors import RemotingTimeoutError
from rmqha.memory import BytesLike
from rmqha.remoting.client import RemotingClient, open_remoting_client
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.remoting.in_flight import REQUEST_BYTES
from rmqha.remoting.limits import RemotingLimits
from rmqha.remoting.response_table import Outcome
from rmqha.remoting.server import RemotingServer
from rmqha.remoting.turns import REQUESTS_A_TURN
from tests.fakes import MemoryNetwork, MemoryPipe, MemoryStream
from tests.settings import remoting_limits

HELD, TOGETHER = 2, 6


class Broker(RequestDispatcher):
    """Holds requests 2, and answers requests 6 together: each as many at once as arrived."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[tuple[Connection, RemotingCommand]] = []
        self.together: list[int] = []
        self.register(HELD, lambda connection, request: self.held.append((connection, request)))
        self.register_batch([TOGETHER], self._answer_together)

    def _answer_together(self, connection: Connection, requests: list[Request]) -> None:
        self.together.append(len(requests))
        frames = [RemotingCommand(0, one.opaque, FLAG_RESPONSE).encode() for one in requests]
        connection.send_responses(frames, sum(one.size for one in requests))

    def echo_held(self) -> None:
        """Answer what is held by its own body, oldest first."""
        held, self.held = self.held, []
        for connection, request in held:
            connection.respond(request, 0, body=bytes(request.body))


@asynccontextmanager
async def connected(limits: RemotingLimits) -> AsyncIterator[tuple[Broker, RemotingServer, RemotingClient]]:
    network, broker = MemoryNetwork(), Broker()
    server = RemotingServer(broker, limits=limits)
    with trio.fail_after(1000):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.serve, await network.listen("10.0.0.1", 10911))
            async with open_remoting_client(network, "10.0.0.1:10911") as client:
                yield broker, server, client
            nursery.cancel_scope.cancel()


async def test_a_late_answer_is_never_taken_for_another_requests(autojump_clock: MockClock) -> None:
    """Neither that of a request that was cancelled, nor of one that timed out, nor of one that was forgotten."""
    async with connected(remoting_limits()) as (broker, _, client):

        async def cancelled() -> None:
            with trio.move_on_after(1):
                await client.invoke(RemotingCommand(HELD, body=b"cancelled"), timeout_s=30)

        async def timed_out() -> None:
            with pytest.raises(RemotingTimeoutError):
                await client.invoke(RemotingCommand(HELD, body=b"timed out"), timeout_s=1)

        async def forgotten() -> None:
            request = RemotingCommand(HELD, body=b"forgotten")
            request.opaque = client.expect(trio.current_time() + 30, lambda _: None)
            client.put_nowait(request.encode())
            client.forget(request.opaque)
            await trio.testing.wait_all_tasks_blocked()

        for given_up in (cancelled, timed_out, forgotten):
            await given_up()
            assert client.in_flight == 0
            outcomes: list[Outcome] = []
            for body in (b"first", b"second"):
                request = RemotingCommand(HELD, body=body)
                client.invoke_nowait(request, deadline=trio.current_time() + 30, on_outcome=outcomes.append)
            await trio.testing.wait_all_tasks_blocked()
            assert len(broker.held) == 3
            broker.echo_held()
            await trio.testing.wait_all_tasks_blocked()
            assert [one.body for one in outcomes if isinstance(one, RemotingCommand)] == [b"first", b"second"]


async def test_answers_sent_together_release_as_many_requests(autojump_clock: MockClock) -> None:
    """Else a few rounds fill the connection's account, and nothing more is read of it."""
    in_flight_max = 8
    limits = remoting_limits(max_in_flight_bytes_per_connection=in_flight_max * REQUEST_BYTES)
    async with connected(limits) as (broker, server, client):
        for _ in range(10):
            answers: list[Outcome] = []
            for _ in range(in_flight_max - 1):
                deadline = trio.current_time() + 3
                request = RemotingCommand(TOGETHER)
                request.opaque = client.expect(deadline, answers.append)
                client.put(request.encode())
            await trio.testing.wait_all_tasks_blocked()
            assert [type(answer) for answer in answers] == [RemotingCommand] * (in_flight_max - 1)
            assert server.capacity.used_bytes == 0
            assert [connection.in_flight.requests for connection in server.connections] == [0]
        assert set(broker.together) == {in_flight_max - 1}, "they did arrive together"


class LongAnswers:
    """Answers each request with 1,000 bytes, and counts them."""

    def __init__(self) -> None:
        self.count = 0

    def server(self, **limits: Any) -> RemotingServer:
        """With little room for answers that nobody takes."""
        broker = RequestDispatcher()
        broker.register(1, self._answer)
        small = {"connection_outgoing_bytes_max": 10_000, "outgoing_share_bytes": 3_000}
        return RemotingServer(broker, limits=remoting_limits(**small, **limits))

    def _answer(self, _connection: Connection, _request: RemotingCommand) -> RemotingCommand:
        self.count += 1
        return RemotingCommand(0, body=bytes(1000))


@pytest.mark.parametrize(("others_owe_much", "count_max"), [(False, 16), (True, 9)])
async def test_small_requests_for_large_answers_wait_until_those_are_taken(
    others_owe_much: bool, count_max: int, autojump_clock: MockClock
) -> None:
    """However many arrive together: what nobody takes would fill the memory, and sooner if others take little, too."""
    network, long_answers = MemoryNetwork(capacity=4096), LongAnswers()
    server = long_answers.server()
    if others_owe_much:
        server.capacity.owed.size += remoting_limits().outgoing_bytes_max
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, await network.listen("10.0.0.1", 10911))
        stream = await network.connect("10.0.0.1", 10911, timeout_s=1)
        asked = 30
        await stream.send_all(b"".join(RemotingCommand(1, opaque).encode() for opaque in range(asked)))
        await trio.testing.wait_all_tasks_blocked()
        assert long_answers.count <= count_max, "those that the line and 10,000 bytes, or its share, hold"
        answers: list[RemotingCommand] = []
        decoder, buffer = FrameDecoder(), memoryview(bytearray(4096))
        while len(answers) < asked:
            answers += decoder.on_received(buffer, await stream.receive_into(decoder.space(buffer)))
        assert [answer.opaque for answer in answers] == list(range(asked))
        assert server.capacity.used_bytes == 0
        nursery.cancel_scope.cancel()


async def test_nothing_more_is_handled_for_who_took_no_answers_in_time(autojump_clock: MockClock) -> None:
    """2,000 that are ended together each had another turn of 5 ms, all in one pass of the event loop."""
    network, long_answers = MemoryNetwork(capacity=4096), LongAnswers()
    server = long_answers.server(write_timeout_s=5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, await network.listen("10.0.0.1", 10911))
        stream = await network.connect("10.0.0.1", 10911, timeout_s=1)
        await stream.send_all(b"".join(RemotingCommand(1, opaque).encode() for opaque in range(30)))
        await trio.sleep(1)
        before = long_answers.count
        await trio.sleep(10)
        assert (long_answers.count, len(server.connections), server.capacity.used_bytes) == (before, 0, 0)
        nursery.cancel_scope.cancel()


async def test_requests_that_take_long_do_not_share_a_turn(autojump_clock: MockClock) -> None:
    """Of those that arrived together one at a time is handled, if it takes longer than a turn."""
    network, others = MemoryNetwork(), 0
    handled: list[int] = []

    def take_long(_connection: Connection, _request: RemotingCommand) -> RemotingCommand:
        handled.append(others)
        autojump_clock.jump(0.1)
        return RemotingCommand(0)

    async def count_turns() -> None:
        nonlocal others
        while True:
            await trio.lowlevel.checkpoint()
            others += 1

    broker = RequestDispatcher()
    broker.register(1, take_long)
    server = RemotingServer(broker, limits=remoting_limits())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, await network.listen("10.0.0.1", 10911))
        stream = await network.connect("10.0.0.1", 10911, timeout_s=1)
        await stream.send_all(b"".join(RemotingCommand(1, opaque).encode() for opaque in range(20)))
        nursery.start_soon(count_turns)
        while len(handled) < 20:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert max(Counter(handled).values()) <= 2, "trio lets tasks go on in no fixed order, but all of them"


async def test_nothing_is_kept_of_requests_that_are_handled(autojump_clock: MockClock) -> None:
    """However many arrived together: thousands of clients have their turns one after the other."""
    network, kept, asked, code = MemoryNetwork(), list[int](), 20, 60_001  # nobody else's

    def take_long(_connection: Connection, _request: RemotingCommand) -> RemotingCommand:
        gc.collect()
        kept.append(sum(isinstance(one, RemotingCommand) and one.code == code for one in gc.get_objects()))
        autojump_clock.jump(0.1)
        return RemotingCommand(0)

    broker = RequestDispatcher()
    broker.register(code, take_long)
    server = RemotingServer(broker, limits=remoting_limits())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, await network.listen("10.0.0.1", 10911))
        stream = await network.connect("10.0.0.1", 10911, timeout_s=1)
        await stream.send_all(b"".join(RemotingCommand(code, opaque).encode() for opaque in range(asked)))
        while len(kept) < asked:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert kept == [*range(asked, 0, -1)]


async def test_who_left_in_the_middle_of_a_request_counts_against_nobody(autojump_clock: MockClock) -> None:
    """Else those who began before him would give way for bytes that nobody holds any more."""
    network, begun = MemoryNetwork(), RemotingCommand(HELD, body=bytes(5000)).encode()
    server = RemotingServer(Broker(), limits=remoting_limits(owed_bytes_max=10_000))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, await network.listen("10.0.0.1", 10911))
        patient = await network.connect("10.0.0.1", 10911, timeout_s=1)
        await patient.send_all(begun[:4000])
        await trio.testing.wait_all_tasks_blocked()
        for _ in range(3):
            leaves = await network.connect("10.0.0.1", 10911, timeout_s=1)
            await leaves.send_all(begun[:4000])
            await trio.testing.wait_all_tasks_blocked()
            assert server.capacity.owed.size == 8000
            leaves.close()
            await trio.testing.wait_all_tasks_blocked()
        assert len(server.connections) == 1
        await patient.send_all(begun[4000:])
        await trio.testing.wait_all_tasks_blocked()
        assert (server.capacity.used_bytes, server.capacity.owed.size) == (len(begun) + REQUEST_BYTES, 0)
        nursery.cancel_scope.cancel()


async def test_who_finished_a_request_and_began_another_is_the_youngest(autojump_clock: MockClock) -> None:
    """He sends honestly; so he does not give way to who began after his first one."""
    network, frame = MemoryNetwork(), RemotingCommand(HELD, body=bytes(5000)).encode()
    server = RemotingServer(Broker(), limits=remoting_limits(owed_bytes_max=10_000))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, await network.listen("10.0.0.1", 10911))
        honest, oldest, latest = [await network.connect("10.0.0.1", 10911, timeout_s=1) for _ in range(3)]
        for stream, data in (
            (honest, frame[:4000]),
            (oldest, frame[:4000]),
            (honest, frame[4000:] + frame[:4000]),
            (latest, frame[:4000]),
        ):
            await stream.send_all(data)
            await trio.sleep(0.1)
        assert [stream.incoming.ended for stream in (honest, oldest, latest)] == [False, True, False]
        nursery.cancel_scope.cancel()


async def _leave_at_the_end(stream: MemoryStream) -> None:
    buffer = memoryview(bytearray(4096))
    while await stream.receive_into(buffer):
        pass
    stream.close()


async def test_what_had_no_turn_before_the_shutdown_is_not_waited_for(autojump_clock: MockClock) -> None:
    """Nobody will answer it any more."""
    network = MemoryNetwork()

    def take_long(_connection: Connection, _request: RemotingCommand) -> RemotingCommand:
        autojump_clock.jump(0.1)
        return RemotingCommand(0)

    broker = RequestDispatcher()
    broker.register(1, take_long)
    server = RemotingServer(broker, limits=remoting_limits())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, await network.listen("10.0.0.1", 10911))
        stream = await network.connect("10.0.0.1", 10911, timeout_s=1)
        await stream.send_all(b"".join(RemotingCommand(1, opaque).encode() for opaque in range(100)))
        while not server.capacity.used_bytes:
            await trio.lowlevel.checkpoint()
        begun_at = trio.current_time()
        nursery.start_soon(_leave_at_the_end, stream)
        await server.close(grace_s=60)
        assert trio.current_time() - begun_at < 1
        assert not server.connections
        nursery.cancel_scope.cancel()


async def test_of_what_was_let_go_the_bytes_are_on_nobodys_account_and_it_is_answered_all_the_same(
    autojump_clock: MockClock,
) -> None:
    """Pulls that are held for a minute filled it, and nothing more was read of anybody."""
    async with connected(remoting_limits()) as (broker, server, client):
        outcomes: list[Outcome] = []
        sizes = (5000, 10, 300)
        for size in sizes:
            request = RemotingCommand(HELD, body=bytes(size))
            client.invoke_nowait(request, deadline=trio.current_time() + 99, on_outcome=outcomes.append)
        await trio.testing.wait_all_tasks_blocked()
        left = server.capacity.used_bytes
        kept = list[tuple[Connection, RemotingCommand]]()
        for (connection, held), gone in zip(broker.held, sizes, strict=True):
            kept.append((connection, connection.let_go(held)))
            assert gone < left - server.capacity.used_bytes < gone + 200
            left = server.capacity.used_bytes
        assert (left, connection.in_flight.requests) == (3 * REQUEST_BYTES, 3)
        connection.let_go(kept[0][1])
        assert server.capacity.used_bytes == 3 * REQUEST_BYTES, "it has nothing more to give back"
        broker.held = kept
        async with trio.open_nursery() as stopping:
            stopping.start_soon(partial(server.close, grace_s=60))
            await trio.sleep(5)
            assert not outcomes
            broker.echo_held()
        assert len(outcomes) == 3
        assert server.capacity.used_bytes == 0


async def test_each_answer_gives_back_what_its_own_request_took(autojump_clock: MockClock) -> None:
    """Small ones that were answered gave back shares of a large one, which was still held, in nobody's account."""
    async with connected(remoting_limits()) as (broker, server, client):

        async def ask(size: int) -> int:
            request = RemotingCommand(HELD, body=bytes(size))
            client.invoke_nowait(request, deadline=trio.current_time() + 99, on_outcome=lambda _outcome: None)
            await trio.testing.wait_all_tasks_blocked()
            return broker.held[-1][1].size + REQUEST_BYTES

        taken = [await ask(size) for size in (100_000, 10, 10, 5000)]
        assert server.capacity.used_bytes == sum(taken)
        while broker.held:
            connection, request = broker.held.pop()
            connection.respond(request, 0)
            assert server.capacity.used_bytes == connection.in_flight.size == sum(taken[: len(broker.held)])


async def test_what_was_received_at_once_is_not_decoded_beyond_what_may_be_in_flight(autojump_clock: MockClock) -> None:
    """26,000 of the smallest requests fit into what is received at once, and each takes 2 KiB."""
    limits = remoting_limits(max_in_flight_bytes_per_connection=100 * REQUEST_BYTES)
    async with connected(limits) as (broker, server, client):
        client.put_nowait(b"".join(RemotingCommand(HELD, opaque).encode() for opaque in range(2000)))
        handled = 0
        while handled < 2000:
            await trio.testing.wait_all_tasks_blocked()
            assert 0 < len(broker.held) <= REQUESTS_A_TURN
            handled += len(broker.held)
            broker.echo_held()
        assert (server.capacity.used_bytes, server.capacity.owed.size) == (0, 0)


async def test_answers_to_requests_of_ours_take_nothing(autojump_clock: MockClock) -> None:
    async with connected(remoting_limits()) as (_, server, client):
        answers = b"".join(RemotingCommand(0, number, FLAG_RESPONSE, body=bytes(500)).encode() for number in range(5))
        client.put_nowait(RemotingCommand(HELD, 1, body=b"x").encode() + answers + RemotingCommand(HELD, 2).encode())
        await trio.testing.wait_all_tasks_blocked()
        (connection,) = server.connections
        assert (connection.in_flight.requests, connection.in_flight.size < 2 * REQUEST_BYTES + 500) == (2, True)


async def test_who_takes_no_answers_keeps_nobody_else_from_being_read(autojump_clock: MockClock) -> None:
    """Their requests, which wait until the answers are taken, fill the account of all clients together."""
    network, broker = MemoryNetwork(capacity=4096), RequestDispatcher()
    broker.register(1, lambda _connection, _request: RemotingCommand(0, body=bytes(1000)))
    own = {"connection_outgoing_bytes_max": 3000, "outgoing_share_bytes": 1000}
    limits = remoting_limits(max_in_flight_bytes=20_000, in_flight_share_bytes=1000, **own)
    server = RemotingServer(broker, limits=limits)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, await network.listen("10.0.0.1", 10911))
        for _ in range(20):
            greedy = await network.connect("10.0.0.1", 10911, timeout_s=1)
            await greedy.send_all(
                b"".join(RemotingCommand(1, opaque, body=bytes(100)).encode() for opaque in range(20))
            )
            await trio.testing.wait_all_tasks_blocked()
        assert server.capacity.used_bytes >= limits.max_in_flight_bytes, "it is not full, so nothing is tested"
        async with open_remoting_client(network, "10.0.0.1:10911") as honest:
            for _ in range(5):
                answer = await honest.invoke(RemotingCommand(1, body=bytes(2000)), timeout_s=1)
                assert len(answer.body) == 1000
        nursery.cancel_scope.cancel()


async def test_a_request_in_crumbs_is_read_now_and_then(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand clients that send byte by byte cost as much as with a request in each."""
    network, received = MemoryNetwork(), list[int]()
    take_nowait = MemoryPipe.take_nowait

    def count(pipe: MemoryPipe, buffer: memoryview) -> int:
        received.append(taken := take_nowait(pipe, buffer))
        return taken

    server = RemotingServer(Broker(), limits=remoting_limits())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, await network.listen("10.0.0.1", 10911))
        monkeypatch.setattr(MemoryPipe, "take_nowait", count)
        monkeypatch.setattr(MemoryPipe, "put_nowait", put_behind)
        stream = await network.connect("10.0.0.1", 10911, timeout_s=1)
        for byte in RemotingCommand(TOGETHER, body=bytes(2000)).encode():
            await stream.send_all(bytes([byte]))
            await trio.sleep(0.001)
        await trio.sleep(1)
        assert len(received) < 200
        assert [connection.requests for connection in server.connections] == [1]
        nursery.cancel_scope.cancel()


def put_behind(pipe: MemoryPipe, data: BytesLike) -> int:
    """As a kernel does: what is not received yet is one piece."""
    pipe.chunks.append((pipe.chunks.pop() if pipe.chunks else b"") + bytes(data))
    pipe.size += len(data)
    pipe.wake()
    return len(data)
