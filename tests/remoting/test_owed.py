"""What clients owe: it fills no memory, and who owes least keeps being served."""

import gc
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random
from typing import Any

import pytest
import structlog
import trio
import trio.testing
from trio.testing import MockClock

from rmqha.codec.frame_decoder import FrameDecoder
from rmqha.codec.remoting import FLAG_ONEWAY, FLAG_RESPONSE, RemotingCommand
from rmqha.codec.usual.sends import Request
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.remoting.in_flight import REQUEST_BYTES
from rmqha.remoting.owed import SHARE_BYTES, Owed
from rmqha.remoting.server import RemotingServer
from rmqha.waiting import FairLock
from tests.fakes import MemoryNetwork, MemoryStream
from tests.reachable import count_entries
from tests.settings import remoting_limits

SIZE = 10_000


@dataclass(eq=False)
class Peer:
    owed_bytes: int
    owed_since: float = 0.0
    host: str = "10.0.0.1"
    reason: str = ""

    @property
    def peer(self) -> str:
        return f"{self.host}:1"

    def close(self, reason: str) -> None:
        assert not self.reason, "it was ended already"
        self.reason = reason


def owing(bytes_max: int, *peers: Peer) -> Owed:
    owed = Owed(bytes_max)
    for peer in peers:
        owed.join(peer, peer.host)
    owed.add(sum(peer.owed_bytes for peer in peers))
    return owed


async def test_who_has_owed_its_share_for_longest_is_ended_first_and_as_many_as_make_room(
    autojump_clock: MockClock,
) -> None:
    share = SHARE_BYTES
    peers = [Peer(share, 3), Peer(share, 1), Peer(share - 1, 0), Peer(share, 2), Peer(share, 4)]
    owing(4 * share, *peers)
    assert [bool(peer.reason) for peer in peers] == [False, True, False, True, False], "an eighth is free then"


async def test_the_host_that_owes_most_makes_room(autojump_clock: MockClock) -> None:
    """However long a client of another host has owed more than each of its connections does."""
    many, one = [Peer(SHARE_BYTES, 9, host="10.0.0.2") for _ in range(8)], Peer(3 * SHARE_BYTES, 0)
    owing(9 * SHARE_BYTES, one, *many)
    assert (one.reason, [bool(peer.reason) for peer in many]) == ("", [True] * 4 + [False] * 4)


async def test_what_ended_connections_have_yet_to_give_back_ends_nobody_else(autojump_clock: MockClock) -> None:
    peers = [Peer(60), Peer(50)]
    owed = owing(100, *peers)
    peers[1].owed_bytes += 30
    owed.add(30)
    assert (bool(peers[0].reason), peers[1].reason, owed.size) == (True, "", 140)
    owed.add(-60)
    owed.leave(peers[0])
    peers[1].owed_bytes += 21
    owed.add(21)
    assert peers[1].reason


async def test_room_that_an_ended_connection_gives_back_in_parts_is_given_once(autojump_clock: MockClock) -> None:
    peers = [Peer(60), Peer(50), Peer(0)]
    owed = owing(100, *peers)
    peers[0].owed_bytes -= 40
    owed.add(-40)
    peers[2].owed_bytes += 60
    owed.add(60)
    assert [bool(peer.reason) for peer in peers] == [True, False, False]
    owed.add(-20)
    owed.leave(peers[0])
    assert owed.size == 110
    assert peers[1].reason or peers[2].reason, "nobody has to owe more first"


async def test_room_that_is_made_is_told_of_once_a_second(autojump_clock: MockClock) -> None:
    with structlog.testing.capture_logs() as logs:
        owed = Owed(100)
        for _ in range(50):
            peer = Peer(101)
            owed.join(peer, peer.host)
            owed.add(101)
            owed.add(-101)
            owed.leave(peer)
    assert [line["event"] for line in logs] == ["remoting.clients_owe_too_much"]


async def test_the_oldest_that_is_not_taken_gives_way(autojump_clock: MockClock) -> None:
    """16 clients with 16 MiB each kept all others from large answers."""
    network, broker = MemoryNetwork(capacity=4096), RequestDispatcher()
    broker.register(1, lambda _connection, _request: RemotingCommand(0, body=bytes(SIZE)))
    server = RemotingServer(broker, limits=remoting_limits(owed_bytes_max=4 * SIZE, outgoing_share_bytes=SIZE // 2))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, await network.listen("10.0.0.1", 10911))

        async def ask() -> MemoryStream:
            stream = await network.connect("10.0.0.1", 10911, timeout_s=1)
            await stream.send_all(RemotingCommand(1).encode())
            await trio.sleep(0.1)
            return stream

        untaken = [await ask() for _ in range(2)]
        for _ in range(10):
            reader, taken = await ask(), 0
            while taken < SIZE:
                taken += await reader.receive_into(memoryview(bytearray(SIZE)))
        assert not any(stream.incoming.ended for stream in untaken), "what is taken needs no room"
        untaken += [await ask() for _ in range(6)]
        ended = [stream.incoming.ended for stream in untaken]
        assert ended == sorted(ended, reverse=True), "the oldest"
        assert (ended[0], ended[-1]) == (True, False)
        assert server.capacity.owed.size <= 4 * SIZE
        nursery.cancel_scope.cancel()


async def test_of_an_answer_nearly_taken_nothing_is_given_back(autojump_clock: MockClock) -> None:
    """Its last byte keeps all of it in memory."""
    network, broker = MemoryNetwork(capacity=1), RequestDispatcher()
    size = (1 << 20) + 1
    broker.register_batch([1], lambda connection, some: connection.send_response(bytes(size), size=some[0].size))
    server = RemotingServer(broker, limits=remoting_limits())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, await network.listen("10.0.0.1", 10911))
        network.capacity = size
        stream = await network.connect("10.0.0.1", 10911, timeout_s=1)
        stream.incoming.capacity = size - 1
        await stream.send_all(RemotingCommand(1).encode())
        await trio.sleep(1)
        assert (stream.incoming.size, server.capacity.owed.size) == (size - 1, size)
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


AT_ONCE, HELD, LET_GO, TOGETHER, IN_TURNS = range(1, 6)
LIMITS = {
    "owed_bytes_max": 400_000,
    "outgoing_bytes_max": 200_000,
    "outgoing_share_bytes": 8_000,
    "connection_outgoing_bytes_max": 50_000,
    "max_in_flight_bytes": 100_000,
    "max_in_flight_bytes_per_connection": 60_000,
    "in_flight_share_bytes": 8_000,
    "receive_size": 16_384,
}
HOSTS = ("10.0.0.2", "10.0.0.3", "10.0.0.4")
HONEST = "10.0.0.9"
CLIENTS_MAX = 30
ANSWER_SIZE_MAX = 60_000


class AnyBroker(RequestDispatcher):
    """Answers in every way there is, some requests only when the test says so."""

    def __init__(self, random: Random) -> None:
        super().__init__()
        self._random = random
        self._open: dict[Connection, list[Any]] = defaultdict(list)
        self.register(AT_ONCE, lambda _connection, request: self._answer_to(request))
        self.register(HELD, lambda connection, request: self._keep(connection, request, request.size))
        self.register(LET_GO, lambda connection, request: self._keep(connection, connection.let_go(request), 0))
        self.register_batch([TOGETHER], self._take_together)
        self.register_batch([IN_TURNS], lambda connection, requests: connection.work(self._steps(connection, requests)))
        self.on_closed(self._forget)

    def _forget(self, connection: Connection) -> None:
        self._open.pop(connection, None)

    def _answer_to(self, request: RemotingCommand) -> RemotingCommand:
        return RemotingCommand(0, body=bytes(int(request.body[:6] or b"0") % ANSWER_SIZE_MAX))

    def _keep(self, connection: Connection, request: RemotingCommand, size: int) -> None:
        answer = partial(connection.send_reply, request, RemotingCommand(0, body=bytes(self._random.randrange(2000))))
        self._open[connection].append((1, size, answer))

    def _take_together(self, connection: Connection, requests: list[Request]) -> None:
        size = sum(one.size for one in requests)
        asked = [one for one in requests if not one.flag]
        frames = [RemotingCommand(0, one.opaque, FLAG_RESPONSE).encode() for one in asked]

        def answer() -> None:
            connection.finish_oneway(len(requests) - len(asked), sum(one.size for one in requests if one.flag))
            connection.send_responses(frames, sum(one.size for one in asked))

        self._open[connection].append((len(requests), size, answer))

    def _steps(self, connection: Connection, requests: list[Request]) -> Any:
        for request in requests:
            yield False
            connection.respond(request, 0)

    def kept_for(self, connection: Connection) -> int:
        """What requests that were handled and not answered take."""
        return sum(size + requests * REQUEST_BYTES for requests, size, _ in self._open.get(connection, ()))

    def answer_some(self, *, share: float) -> None:
        for connection, answers in list(self._open.items()):
            for answer in list(answers):
                if self._random.random() < share:
                    answers.remove(answer)
                    answer[2]()
            if not answers:
                self._open.pop(connection, None)


@dataclass(eq=False)
class HostileClient:
    """Sends what there is room for, and reads as much as it likes."""

    stream: MemoryStream
    random: Random
    reads_max: int
    unsent: bytearray = field(default_factory=bytearray)

    def act(self, opaques: Any) -> None:
        random = self.random
        if len(self.unsent) < 100_000:
            for _ in range(random.choice([1, 1, 5, 100])):
                size = random.choice([6, 6, 200, 5_000])
                flag = FLAG_ONEWAY if random.random() < 0.2 else FLAG_RESPONSE if random.random() < 0.1 else 0
                body = b"%06d" % random.randrange(ANSWER_SIZE_MAX) + bytes(size - 6)
                code = random.randrange(1, 7)
                self.unsent += RemotingCommand(code, next(opaques), flag, body=body).encode()
            if random.random() < 0.1:
                self.unsent += RemotingCommand(HELD, body=bytes(150_000)).encode()[:-1]
        taken = self.stream.send_nowait(self.unsent[: random.choice([1, 500, 100_000])])
        del self.unsent[:taken]
        wanted = random.randrange(self.reads_max + 1)
        buffer = memoryview(bytearray(4096))
        while wanted > 0 and self.stream.incoming.chunks:
            wanted -= self.stream.incoming.take_nowait(buffer)


class Attack:
    def __init__(self, network: MemoryNetwork, server: RemotingServer, broker: AnyBroker, random: Random) -> None:
        self.network, self.server, self.broker, self.random = network, server, broker, random
        self.clients: list[HostileClient] = []
        self.opaques = count(1)

    async def step(self) -> None:
        random = self.random
        if len(self.clients) < CLIENTS_MAX:
            self.network.host = random.choice(HOSTS)
            stream = await self.network.connect("10.0.0.1", 10911, timeout_s=1)
            self.clients.append(HostileClient(stream, random, random.choice([0, 0, 3_000, 100_000])))
        for client in random.sample(self.clients, min(5, len(self.clients))):
            try:
                client.act(self.opaques)
            except trio.BrokenResourceError:
                client.stream.close()
            if random.random() < 0.03:
                client.stream.close()
        self.clients = [client for client in self.clients if not client.stream.closed]
        if random.random() < 0.2:
            self.broker.answer_some(share=random.choice([0.1, 0.9]))
        await trio.testing.wait_all_tasks_blocked()

    def check(self) -> None:
        """The accounts are those of what is held, and within their limits."""
        capacity, connections = self.server.capacity, self.server.connections
        assert capacity.owed.size == sum(connection.owed_bytes for connection in connections)
        assert capacity.owed.size <= LIMITS["owed_bytes_max"]
        held = sum(connection.in_flight.size for connection in connections)
        assert held <= capacity.used_bytes <= held + len(connections) * 2 * LIMITS["receive_size"]
        each_max = LIMITS["in_flight_share_bytes"] + 2 * LIMITS["receive_size"] + 256 * REQUEST_BYTES
        assert capacity.used_bytes <= LIMITS["max_in_flight_bytes"] + len(connections) * each_max
        for connection in connections:
            kept = self.broker.kept_for(connection)
            assert connection.in_flight.size >= kept
            if connection.takes_answers:
                assert connection.in_flight.size == kept, "nothing waits for its turn"


async def ask_honestly(network: MemoryNetwork, served: list[int]) -> None:
    """One request after the other, each with an answer of some size: none is ever refused, late, or cut off."""
    network.host = HONEST
    stream = await network.connect("10.0.0.1", 10911, timeout_s=1)
    decoder, buffer = FrameDecoder(), memoryview(bytearray(4096))
    for opaque in count(1):
        await stream.send_all(RemotingCommand(AT_ONCE, opaque, body=b"003000").encode())
        answers: list[RemotingCommand] = []
        while not answers:
            taken = await stream.receive_into(decoder.space(buffer))
            assert taken, "it was cut off"
            answers = decoder.on_received(buffer, taken)
        assert [(answer.opaque, len(answer.body)) for answer in answers] == [(opaque, 3000)]
        served.append(opaque)
        await trio.sleep(0.01)


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_clients_ask_and_do_not_take_is_bounded_and_all_is_even_when_they_have_left(
    seed: int, autojump_clock: MockClock
) -> None:
    tracemalloc = pytest.importorskip("tracemalloc", reason="PyPy does not count allocations")
    random = Random(seed)
    network, broker = MemoryNetwork(capacity=4096), AnyBroker(random)
    server = RemotingServer(broker, limits=remoting_limits(**LIMITS))
    attack, served = Attack(network, server, broker, random), list[int]()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, await network.listen("10.0.0.1", 10911))
        nursery.start_soon(ask_honestly, network, served)
        await trio.sleep(0.1)
        gc.collect()
        tracemalloc.stop()  # of a run before this one, if that failed
        tracemalloc.start()
        for number in range(300):
            await attack.step()
            attack.check()
            if number % 20 == 0:
                before = len(served)
                await trio.sleep(0.1)
                assert len(served) > before, "nobody keeps who takes its answers waiting"
            if number % 50 == 49:
                network.connections.clear()
                gc.collect()
                unsent = sum(len(client.unsent) for client in attack.clients)
                kept = tracemalloc.get_traced_memory()[0] - unsent
                owed, used = server.capacity.owed.size, server.capacity.used_bytes
                assert kept < 2 * owed + used + (CLIENTS_MAX + 1) * 50_000, (kept, owed, used)
        tracemalloc.stop()
        for client in attack.clients:
            client.stream.close()
        await trio.sleep(1)
        assert len(server.connections) == 1
        broker.answer_some(share=1)
        assert (server.capacity.used_bytes, server.capacity.owed.size) == (0, 0)
        nursery.cancel_scope.cancel()
