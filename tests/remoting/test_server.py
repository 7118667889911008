"""RemotingServer over the in-memory network: answers, limits, deadlines and its end."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import structlog
import trio
import trio.testing
from trio.testing import MockClock

from rmqha.codec.codes import ResponseCode
from rmqha.codec.frame_decoder import FrameDecoder
from rmqha.codec.remoting import FLAG_ONEWAY, FLAG_RESPONSE, FRAME_SIZE_MAX, RemotingCommand, SerializeType
from rmqha.codec.usual.sends import Request
from rmqha.errors import RemotingSendRequestError, RemotingTimeoutError, StoreError
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.remoting.in_flight import REQUEST_BYTES
from rmqha.remoting.server import RemotingServer
from tests.fakes import MemoryNetwork, MemoryStream
from tests.reachable import count_entries
from tests.settings import remoting_limits

PORT = 10911


@pytest.fixture
def logs() -> Iterator[list[Any]]:
    with structlog.testing.capture_logs() as captured:
        yield captured


class Client:
    """Plain frames in and out, no RemotingClient."""

    def __init__(self, stream: MemoryStream) -> None:
        self.stream = stream
        self.decoder = FrameDecoder()
        self.received: list[RemotingCommand] = []

    async def send(self, *commands: RemotingCommand) -> None:
        await self.stream.send_all(b"".join(command.encode() for command in commands))

    async def receive(self, count: int = 1) -> list[RemotingCommand]:
        buffer = memoryview(bytearray(1 << 16))
        while len(self.received) < count:
            size = await self.stream.receive_into(buffer)
            if size == 0:
                break
            self.received += self.decoder.receive_data(bytes(buffer[:size]))
        taken, self.received = self.received[:count], self.received[count:]
        return taken

    async def is_closed(self) -> bool:
        return await self.receive() == []


class Echo(RequestDispatcher):
    """1: echo at once. 2: hold. 3: fail. 4: hold in batches."""

    def __init__(self) -> None:
        super().__init__()
        self.held: list[tuple[Connection, RemotingCommand]] = []
        self.batches: list[int] = []
        self.ended: list[Connection] = []
        self.register(1, self.echo)
        self.register(2, self.hold)
        self.register(3, self.fail)
        self.register_batch([4, 5], self.take_batch)
        self.on_closed(self.ended.append)

    def echo(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        return RemotingCommand(0, ext_fields=request.ext_fields, body=request.body)

    def hold(self, connection: Connection, request: RemotingCommand) -> None:
        self.held.append((connection, request))

    def fail(self, connection: Connection, request: RemotingCommand) -> None:
        raise StoreError("the disk is on fire")

    def take_batch(self, connection: Connection, requests: list[Request]) -> None:
        self.batches.append(len(requests))
        for request in requests:
            connection.send_response(RemotingCommand(0, request.opaque, FLAG_RESPONSE).encode(), size=request.size)

    def answer_held(self) -> None:
        held, self.held = self.held, []
        for connection, request in held:
            connection.respond(request, 0)


Connect = Callable[[], Any]


@asynccontextmanager
async def serving(
    handler: Echo | None = None, *, capacity: int = 1 << 20, **limits: Any
) -> AsyncIterator[tuple[RemotingServer, Connect]]:
    network = MemoryNetwork(capacity=capacity)
    server = RemotingServer(handler or Echo(), limits=remoting_limits(**limits))
    with trio.fail_after(1000):
        async with trio.open_nursery() as nursery:
            listener = await network.listen("10.0.0.1", PORT)
            nursery.start_soon(server.serve, listener)

            async def connect() -> Client:
                stream = await network.connect("10.0.0.1", PORT, timeout_s=1)
                return Client(stream)

            yield server, connect
            nursery.cancel_scope.cancel()


def request(code: int, opaque: int = 1, **more: Any) -> RemotingCommand:
    return RemotingCommand(code, opaque, **more)


@pytest.mark.parametrize("serialize", SerializeType)
async def test_an_answer_has_the_opaque_and_the_form_of_its_request(
    serialize: SerializeType, autojump_clock: MockClock
) -> None:
    async with serving() as (_, connect):
        client = await connect()
        await client.send(request(1, 77, ext_fields={"k": "v"}, body=b"b", serialize=serialize))
        (answer,) = await client.receive()
        assert (answer.code, answer.opaque, answer.flag, answer.serialize) == (0, 77, 1, serialize)
        assert (answer.ext_fields, answer.body) == ({"k": "v"}, b"b")


async def test_requests_that_arrive_together_are_handled_together_and_all_answered(autojump_clock: MockClock) -> None:
    echo = Echo()
    async with serving(echo) as (server, connect):
        client = await connect()
        await client.send(*(request(4, n) for n in range(50)), request(1, 50), *(request(5, n) for n in range(51, 60)))
        answers = await client.receive(60)
        assert sorted(answer.opaque for answer in answers) == list(range(60))
        assert echo.batches == [50, 9]
        assert server.capacity.used_bytes == 0


async def test_unknown_codes_and_failures_are_answered_one_way_requests_are_not(autojump_clock: MockClock) -> None:
    async with serving() as (_, connect):
        client = await connect()
        oneway = [request(code, 9, flag=FLAG_ONEWAY) for code in (1, 3, 999)]
        await client.send(*oneway, request(999, 1), request(3, 2))
        unknown, failed = await client.receive(2)
        assert (unknown.code, unknown.opaque, unknown.remark) == (3, 1, " request type 999 not supported")
        assert (failed.code, failed.opaque, failed.remark) == (1, 2, "the disk is on fire")


async def test_a_client_that_breaks_the_protocol_is_dropped_and_the_others_are_not(
    logs: list[Any], autojump_clock: MockClock
) -> None:
    echo = Echo()
    async with serving(echo) as (_, connect):
        good, bad = await connect(), await connect()
        await bad.stream.send_all(b"GET / HTTP/1.1\r\n")
        assert await bad.is_closed()
        await good.send(request(1))
        assert len(await good.receive()) == 1
        assert len(echo.ended) == 1
    assert logs[0]["event"] == "remoting_connection.protocol_broken"


async def test_clients_beyond_the_limits_are_refused(logs: list[Any], autojump_clock: MockClock) -> None:
    async with serving(max_connections=5, max_connections_per_address=2) as (server, connect):
        clients = [await connect() for _ in range(2)]
        for client in clients:
            await client.send(request(1))
            await client.receive()
        assert server.crowded(now=trio.current_time()) == ""
        refused = await connect()
        assert await refused.is_closed()
        assert len(server.connections) == 2
        told = server.crowded(now=trio.current_time() + 60.0)
        assert told.startswith("1 connection was turned away since the start, the last 60 s ago: 2 connections from ")
        assert server.crowded(now=trio.current_time() + 3600.0) == "", "long ago"
        clients[0].stream.close()
        await trio.testing.wait_all_tasks_blocked()
        welcome = await connect()
        await welcome.send(request(1))
        assert len(await welcome.receive()) == 1
    assert any(log["event"] == "remoting_connection.refused" for log in logs)


@pytest.mark.parametrize("limits", [{"max_connections": 3}, {"max_connections_per_address": 3}])
async def test_who_never_asked_anything_gives_way_the_oldest_first(
    limits: dict[str, Any], autojump_clock: MockClock
) -> None:
    async with serving(**limits) as (server, connect):
        asking = await connect()
        await asking.send(request(1))
        await asking.receive()
        silent = [await connect() for _ in range(10)]
        assert [await client.is_closed() for client in silent[:8]] == [True] * 8
        await trio.testing.wait_all_tasks_blocked()
        assert len(server.connections) == 3
        await asking.send(request(1))
        assert len(await asking.receive()) == 1


@pytest.mark.parametrize("limits", [{"max_connections": 2}, {"max_connections_per_address": 2}])
async def test_a_place_that_was_given_up_is_free_at_once(limits: dict[str, Any], autojump_clock: MockClock) -> None:
    """Two come together: each gets the place of another one, and neither of them the other's."""
    async with serving(**limits) as (server, connect):
        silent = [await connect() for _ in range(2)]
        await trio.testing.wait_all_tasks_blocked()
        new = [await connect() for _ in range(2)]
        await trio.testing.wait_all_tasks_blocked()
        assert [await client.is_closed() for client in silent] == [True, True]
        assert len(server.connections) == 2
        for client in new:
            await client.send(request(1))
            assert len(await client.receive()) == 1


async def test_of_hosts_that_left_nothing_is_kept(autojump_clock: MockClock) -> None:
    network, server = MemoryNetwork(), RemotingServer(Echo(), limits=remoting_limits())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, await network.listen("10.0.0.1", PORT))
        entries = []
        for number in range(60):
            network.host = f"10.0.8.{number}"
            (await network.connect("10.0.0.1", PORT, timeout_s=1)).close()
            await trio.testing.wait_all_tasks_blocked()
            entries.append(count_entries(server))
        assert entries[-1] < entries[9] + 25
        nursery.cancel_scope.cancel()


async def test_who_never_asked_gives_way_to_his_own_host_only(autojump_clock: MockClock) -> None:
    network, server = MemoryNetwork(), RemotingServer(Echo(), limits=remoting_limits(max_connections_per_address=1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, await network.listen("10.0.0.1", PORT))
        clients = []
        for host in ("10.0.0.8", "10.0.0.9", "10.0.0.9"):
            network.host = host
            clients.append(await network.connect("10.0.0.1", PORT, timeout_s=1))
            await trio.testing.wait_all_tasks_blocked()
        assert [client.incoming.ended for client in clients] == [False, True, False]
        nursery.cancel_scope.cancel()


async def test_strangers_do_not_fill_the_log(logs: list[Any], autojump_clock: MockClock) -> None:
    async with serving() as (_, connect):
        for _ in range(100):
            bad = await connect()
            await bad.stream.send_all(b"GET / HTTP/1.1\r\n")
            assert await bad.is_closed()
        await trio.sleep(2)
        bad = await connect()
        await bad.stream.send_all(b"GET / HTTP/1.1\r\n")
        assert await bad.is_closed()
    loud = [log for log in logs if log["log_level"] != "debug"]
    assert [(log["event"], log["left_out"]) for log in loud] == [
        ("remoting_connection.protocol_broken", 0),
        ("remoting_connection.protocol_broken", 99),
    ]


async def test_requests_begun_together_are_bounded_and_the_oldest_gives_way(autojump_clock: MockClock) -> None:
    echo = Echo()
    async with serving(echo, owed_bytes_max=10_000) as (_, connect):
        frame = request(1, body=bytes(5000)).encode()
        slow = [await connect() for _ in range(3)]
        for client in slow:
            await client.stream.send_all(frame[:4000])
            await trio.testing.wait_all_tasks_blocked()
        assert await slow[0].is_closed()
        assert trio.current_time() == 0
        assert "begun" in echo.ended[0].close_reason
        for client in slow[1:]:
            await client.stream.send_all(frame[4000:])
            assert len(await client.receive()) == 1


async def test_reading_pauses_while_too_much_is_in_flight(autojump_clock: MockClock) -> None:
    echo = Echo()
    async with serving(echo, max_in_flight_bytes_per_connection=10 * REQUEST_BYTES) as (server, connect):
        client = await connect()
        for n in range(30):
            await client.send(request(2, n))
            await trio.testing.wait_all_tasks_blocked()
        assert len(echo.held) == 10
        opaques: set[int] = set()
        while len(opaques) < 30:
            echo.answer_held()
            opaques |= {answer.opaque for answer in await client.receive()}
            await trio.testing.wait_all_tasks_blocked()
        assert opaques == set(range(30))
        assert server.capacity.used_bytes == 0


async def test_reading_pauses_while_all_clients_together_have_too_much_in_flight(autojump_clock: MockClock) -> None:
    echo = Echo()
    async with serving(echo, max_in_flight_bytes=1000, in_flight_share_bytes=0) as (_, connect):
        first, second = await connect(), await connect()
        await trio.testing.wait_all_tasks_blocked()  # both are being read
        await first.send(request(2, 1, body=bytes(2000)))
        await trio.testing.wait_all_tasks_blocked()
        await second.send(request(1, 2))
        await trio.testing.wait_all_tasks_blocked()  # it was waiting for bytes: this one request is taken
        await second.send(request(1, 3))
        assert [answer.opaque for answer in await second.receive()] == [2]
        await trio.testing.wait_all_tasks_blocked()
        assert second.stream.incoming.size == 0
        echo.answer_held()
        assert [answer.opaque for answer in await second.receive()] == [3]


async def test_when_there_is_room_again_everybody_is_read(autojump_clock: MockClock) -> None:
    """The first that paused may have nothing to say, and wakes no other."""
    echo = Echo()
    async with serving(echo, max_in_flight_bytes=1000, in_flight_share_bytes=0) as (_, connect):
        large, silent, waiting = [await connect() for _ in range(3)]
        await trio.testing.wait_all_tasks_blocked()
        await large.send(request(2, 1, body=bytes(2000)))
        for client in (silent, waiting):
            await trio.testing.wait_all_tasks_blocked()
            await client.send(request(1, 2))
            assert len(await client.receive()) == 1
        await waiting.send(request(1, 3))
        await trio.testing.wait_all_tasks_blocked()
        echo.answer_held()
        assert [answer.opaque for answer in await waiting.receive()] == [3]
        assert trio.current_time() == 0


async def test_reading_pauses_while_all_clients_together_take_too_little(autojump_clock: MockClock) -> None:
    """Who has a share waiting is read no further, who has none is; and all is even when they have left."""
    async with serving(capacity=4096, outgoing_bytes_max=20_000, outgoing_share_bytes=3_000) as (server, connect):
        greedy = [await connect() for _ in range(5)]
        for number in range(20):
            for client in greedy:
                if client.stream.outgoing.size == 0:
                    await client.send(request(1, number, body=bytes(2_500)))
                await trio.testing.wait_all_tasks_blocked()
        waiting = server.capacity.owed.size
        assert 20_000 <= waiting < 20_000 + 5 * 2_600
        assert all(client.stream.outgoing.size for client in greedy), "nothing more is read of them"
        modest = await connect()
        await modest.send(request(1, 7))
        assert [answer.opaque for answer in await modest.receive()] == [7]
        before = len(await greedy[0].receive(5))
        assert before == 5, "who takes his answers is served"
        for client in greedy:
            client.stream.close()
        await trio.testing.wait_all_tasks_blocked()
        assert server.capacity.owed.size == 0


@pytest.mark.timeout(20)
@pytest.mark.parametrize("leaves", [True, False])
async def test_who_takes_too_little_and_is_gone_stops_nobody(leaves: bool, autojump_clock: MockClock) -> None:
    """Nothing more was read from it; waiting for it to take its answers would never let the others go on."""
    async with serving(capacity=4096, connection_outgoing_bytes_max=10_000, write_timeout_s=5) as (server, connect):
        greedy = await connect()
        for number in range(5):
            await greedy.send(request(1, number, body=bytes(3_000)))
            await trio.testing.wait_all_tasks_blocked()
        assert server.capacity.owed.size >= 10_000
        if leaves:
            greedy.stream.close()
        else:
            await trio.sleep(6)
        modest = await connect()
        await modest.send(request(1, 7))
        assert [answer.opaque for answer in await modest.receive()] == [7]
        await trio.testing.wait_all_tasks_blocked()
        assert (len(server.connections), server.capacity.owed.size) == (1, 0)


async def test_a_client_that_takes_nothing_is_dropped(autojump_clock: MockClock) -> None:
    echo = Echo()
    async with serving(echo, capacity=4096, write_timeout_s=5, connection_outgoing_bytes_max=10_000) as (_, connect):
        client = await connect()
        await client.send(request(1, 1, body=bytes(3000)))
        await client.send(request(1, 2, body=bytes(3000)))
        await trio.testing.wait_all_tasks_blocked()
        begun_at = trio.current_time()
        await trio.sleep(4.9)
        assert not echo.ended
        await trio.sleep(0.2)
        assert trio.current_time() - begun_at == pytest.approx(5.1)
        assert "slow reader" in echo.ended[0].close_reason


async def test_an_idle_client_is_dropped_after_120_s(autojump_clock: MockClock) -> None:
    echo = Echo()
    async with serving(echo) as (_, connect):
        client = await connect()
        await trio.sleep(100)
        await client.send(request(1))
        await client.receive()
        last_at = trio.current_time()
        assert await client.is_closed()
        assert trio.current_time() - last_at == pytest.approx(120)
        assert echo.ended[0].close_reason == "idle for 120 s"


async def test_what_the_server_sends_keeps_a_connection_alive(autojump_clock: MockClock) -> None:
    echo = Echo()
    async with serving(echo) as (_, connect):
        client = await connect()
        await client.send(request(2))
        await trio.sleep(100)
        echo.answer_held()
        await client.receive()
        await trio.sleep(100)
        assert not echo.ended
        assert await client.is_closed()
        assert trio.current_time() == pytest.approx(220)


async def test_a_frame_begun_must_be_completed_in_10_s(autojump_clock: MockClock) -> None:
    echo = Echo()
    async with serving(echo) as (_, connect):
        client = await connect()
        frame = request(1).encode()
        for at in range(9):
            await client.stream.send_all(frame[at : at + 1])  # one byte a second does not help
            await trio.sleep(1)
        assert await client.is_closed()
        assert trio.current_time() == pytest.approx(10)
        assert "not complete" in echo.ended[0].close_reason


async def test_each_frame_has_its_own_time_though_all_arrive_cut(autojump_clock: MockClock) -> None:
    echo = Echo()
    async with serving(echo) as (_, connect):
        client = await connect()
        frame = request(1).encode()
        await client.stream.send_all(frame[:5])
        for _ in range(30):
            await trio.sleep(1)
            await client.stream.send_all(frame[5:] + frame[:5])
        assert len(await client.receive(30)) == 30
        assert await client.is_closed()
        assert trio.current_time() == pytest.approx(40), "the last one was never completed"
        assert "not complete" in echo.ended[0].close_reason


async def test_a_frame_is_watched_again_after_a_while_without_any(autojump_clock: MockClock) -> None:
    async with serving() as (_, connect):
        client = await connect()
        frame = request(1).encode()
        for begun_at in (0, 20, 40):
            await client.stream.send_all(frame[:5])
            await trio.sleep(1)
            await client.stream.send_all(frame[5:])
            assert len(await client.receive()) == 1
            await trio.sleep_until(begun_at + 20)
        await client.stream.send_all(frame[:5])
        assert await client.is_closed()
        assert trio.current_time() == pytest.approx(70)


async def test_a_frame_begun_before_reading_paused_must_be_completed_after_it(autojump_clock: MockClock) -> None:
    echo = Echo()
    async with serving(echo, max_in_flight_bytes_per_connection=1) as (_, connect):
        client = await connect()
        await client.stream.send_all(request(2).encode() + request(1).encode()[:5])
        await trio.sleep(20)
        assert not echo.ended, "it is the server that does not listen"
        echo.answer_held()
        assert len(await client.receive()) == 1
        assert await client.is_closed()
        assert trio.current_time() == pytest.approx(30)


async def test_while_the_server_does_not_listen_nobody_is_late(autojump_clock: MockClock) -> None:
    """Neither the connection, which would else be idle, nor the frame that follows one that came in pieces."""
    echo, frame = Echo(), request(2).encode()
    async with serving(echo, max_in_flight_bytes_per_connection=1) as (_, connect):
        client = await connect()
        await client.stream.send_all(frame[:5])
        await trio.sleep(1)
        await client.stream.send_all(frame[5:] + frame[:5])
        await trio.sleep(200)
        assert not echo.ended
        echo.answer_held()
        await client.stream.send_all(frame[5:])
        await trio.testing.wait_all_tasks_blocked()
        echo.answer_held()
        assert len(await client.receive(2)) == 2


async def test_reading_goes_on_with_the_first_answer(autojump_clock: MockClock) -> None:
    """Not with the last: some may take as long as a pull is held."""
    echo = Echo()
    async with serving(echo, max_in_flight_bytes_per_connection=2 * REQUEST_BYTES) as (_, connect):
        client = await connect()
        for n in range(3):
            await client.send(request(2, n))
            await trio.testing.wait_all_tasks_blocked()
        connection, first = echo.held[0]
        connection.respond(first, 0)
        await trio.testing.wait_all_tasks_blocked()
        assert [held.opaque for _, held in echo.held] == [0, 1, 2]


@pytest.mark.parametrize("size", [0, 10_000], ids=["at once", "when there is room"])
async def test_at_the_end_each_answer_is_waited_for_and_taken(size: int, autojump_clock: MockClock) -> None:
    echo = Echo()
    async with serving(echo, capacity=4096) as (server, connect):
        client = await connect()
        await client.send(request(2, 1), request(2, 2), request(1, 3, body=bytes(size)))
        await trio.testing.wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: server.close(grace_s=10))
            for _ in range(2):
                await trio.sleep(1)
                connection, held = echo.held.pop(0)
                connection.respond(held, 0)
            await trio.sleep(1)
            assert sorted(answer.opaque for answer in await client.receive(4)) == [1, 2, 3]
            client.stream.close()
        assert trio.current_time() == pytest.approx(3)


async def test_at_the_end_everything_in_flight_is_answered_first(autojump_clock: MockClock) -> None:
    echo = Echo()
    async with serving(echo) as (server, connect):
        client = await connect()
        await client.send(request(2, 5))
        await trio.testing.wait_all_tasks_blocked()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: server.close(grace_s=10))
            await trio.sleep(1)
            await client.send(request(1, 6))  # comes too late
            with pytest.raises(OSError, match="nobody listens"):
                await connect()
            echo.answer_held()
            assert [answer.opaque for answer in await client.receive(2)] == [5]
            client.stream.close()
        assert trio.current_time() == pytest.approx(1)
        assert not server.connections


async def test_a_grace_is_no_longer_than_granted(autojump_clock: MockClock) -> None:
    echo = Echo()
    async with serving(echo) as (server, connect):
        client = await connect()
        await client.send(request(2))
        await trio.testing.wait_all_tasks_blocked()
        await server.close(grace_s=3)
        assert await client.is_closed()
        assert trio.current_time() == pytest.approx(3)


async def test_the_server_asks_its_client(autojump_clock: MockClock) -> None:
    echo = Echo()
    outcomes: list[Any] = []

    async def ask(connection: Connection) -> None:
        for _ in range(3):
            try:
                outcomes.append(await connection.invoke(RemotingCommand(307), timeout_s=5))
            except (RemotingTimeoutError, RemotingSendRequestError) as error:
                outcomes.append(error)

    async with serving(echo) as (_, connect), trio.open_nursery() as nursery:
        client = await connect()
        await client.send(request(2))
        await trio.testing.wait_all_tasks_blocked()
        ((connection, _),) = echo.held
        nursery.start_soon(ask, connection)
        (question,) = await client.receive()
        await client.send(RemotingCommand(0, question.opaque, FLAG_RESPONSE, body=b"state"))
        await client.receive()
        await trio.sleep(6)  # the second question is not answered
        await client.receive()
        client.stream.close()
        await trio.testing.wait_all_tasks_blocked()
    assert outcomes[0].body == b"state"
    assert isinstance(outcomes[1], RemotingTimeoutError)
    assert isinstance(outcomes[2], RemotingSendRequestError)


async def test_who_takes_nothing_is_told_and_asked_no_more(autojump_clock: MockClock) -> None:
    """Whatever happens to its group, a deaf member fills no memory; nor do questions that it leaves open."""
    echo = Echo()
    async with (
        serving(echo, capacity=4096, outgoing_share_bytes=3_000) as (server, connect),
        trio.open_nursery() as asking,
    ):
        deaf, silent = await connect(), await connect()
        for client in (deaf, silent):
            await client.send(request(2))
            await trio.testing.wait_all_tasks_blocked()
        told = 0
        while echo.held[0][0].notify(RemotingCommand(40)):
            told += 1
            await trio.testing.wait_all_tasks_blocked()
        assert 30 < told < 150
        assert server.capacity.owed.size < 3_200
        with pytest.raises(RemotingSendRequestError):
            await echo.held[0][0].invoke(RemotingCommand(307), timeout_s=3)
        for number in range(64):
            asking.start_soon(partial(echo.held[1][0].invoke, RemotingCommand(307), timeout_s=60))
            await trio.testing.wait_all_tasks_blocked()
            assert len(await silent.receive()) == 1, number
        with pytest.raises(RemotingSendRequestError):
            await echo.held[1][0].invoke(RemotingCommand(307), timeout_s=3)
        asking.cancel_scope.cancel()


async def test_a_push_is_one_way_and_answers_after_the_end_go_nowhere(autojump_clock: MockClock) -> None:
    """Trap 40: nobody waits for an answer to it."""
    echo = Echo()
    async with serving(echo) as (server, connect):
        client = await connect()
        await client.send(request(2))
        await trio.testing.wait_all_tasks_blocked()
        ((connection, held),) = echo.held
        assert connection.notify(RemotingCommand(40, ext_fields={"consumerGroup": "g"}))
        (push,) = await client.receive()
        assert (push.code, push.is_oneway) == (40, True)
        client.stream.reset()
        await trio.testing.wait_all_tasks_blocked()
        assert connection.closed
        connection.respond(held, 0)
        assert not connection.notify(RemotingCommand(40))
        connection.start_soon(trio.sleep_forever)
        with pytest.raises(RemotingSendRequestError):
            await connection.invoke(RemotingCommand(307), timeout_s=3)
        assert server.capacity.used_bytes == 0


async def test_an_answer_too_large_for_a_frame_gives_back_its_own_request_alone(autojump_clock: MockClock) -> None:
    """It is refused instead; what the refusal answers was given back twice, and another request in flight for free."""
    echo = Echo()
    async with serving(echo) as (server, connect):
        client = await connect()
        for opaque in (1, 2, 3):
            await client.send(RemotingCommand(2, opaque))
        await trio.testing.wait_all_tasks_blocked()
        (connection, held), *_ = echo.held
        with connection.fenced(held):
            connection.respond(held, 0, body=bytes(FRAME_SIZE_MAX))
        (answer,) = await client.receive()
        assert (answer.opaque, answer.code) == (1, ResponseCode.SYSTEM_ERROR)
        assert (connection.in_flight.requests, server.capacity.used_bytes) == (2, connection.in_flight.size)
        assert connection.in_flight.size == 2 * (REQUEST_BYTES + held.size)


async def test_a_push_to_many_is_kept_once(autojump_clock: MockClock) -> None:
    """All members of a group get one table: a copy for each would take its size times their number."""
    tracemalloc = pytest.importorskip("tracemalloc", reason="PyPy does not count allocations")
    echo = Echo()
    async with serving(echo) as (_server, connect):
        for _ in range(10):
            await (await connect()).send(request(2))
        await trio.testing.wait_all_tasks_blocked()
        body = bytes(200_000)
        tracemalloc.start()
        assert all(connection.notify(RemotingCommand(220, body=body)) for connection, _ in echo.held)
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert (len(echo.held), kept < len(body)) == (10, True)
