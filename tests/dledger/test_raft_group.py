"""Whole groups of stores, electors, dispatchers, handlers: the network loses and parts, machines lose their power."""

import random
from contextlib import suppress
from dataclasses import dataclass, field

import pytest

from rmqha.codec.dledger_entry import DLedgerEntry
from rmqha.dledger.dledger_entry_pusher import DLedgerEntryPusher
from rmqha.dledger.dledger_exception import DLedgerException, DLedgerResponseCode
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.elector_options import ElectorOptions
from rmqha.dledger.leader_elector import DLedgerLeaderElector
from rmqha.dledger.member_state import MemberState
from rmqha.dledger.push_entry import PushEntryRequest, PushEntryResponse
from rmqha.dledger.term_file import TermFile
from rmqha.dledger.vote import HeartBeatRequest, HeartBeatResponse, Outgoing, VoteRequest, VoteResponse
from tests.dledger.defaults import default, pusher_options
from tests.dledger.members import CONFIG, all_of
from tests.sim.journal import NodeDied
from tests.sim.sim_disk import SimDisk

OPTIONS = default(ElectorOptions, heart_beat_time_interval_s=0.3, min_vote_interval_s=0.1, max_vote_interval_s=0.4)
STEP_S = 0.01


class Node:
    """One member: its machine outlives its processes."""

    def __init__(self, name: str, group: "Group") -> None:
        self.name = name
        self.group = group
        self.disk = SimDisk(random.Random(group.chance.random()), latency_s=(0, 0))
        self.is_up = False

    def start(self) -> None:
        mount = self.disk.mount()
        self.state = MemberState(self.name)
        self.store = DLedgerMmapFileStore(CONFIG, self.state, mount)
        self.store.startup()
        self.terms = TermFile(mount, CONFIG.default_path)
        saved = self.terms.load(ledger_end_term=self.store.ledger_end_term)
        self.state.curr_term, self.state.curr_vote_for = saved.curr_term, saved.vote_leader
        self.elector = DLedgerLeaderElector(
            self.state, self.group.names, options=OPTIONS, random=self.group.chance.random, now=self.group.now
        )
        self.pusher = DLedgerEntryPusher[tuple[str, PushEntryRequest]](
            self.store, self.group.names, options=pusher_options()
        )
        self.is_up = True

    def save(self) -> None:
        if self.elector.unsaved is not None:
            self.terms.save(self.elector.unsaved)
            self.elector.unsaved = None

    async def step(self) -> None:
        now, send = self.group.now, self.group.send
        out = self.elector.tick(now=now)
        self.save()
        for outgoing in out:
            send(self.name, outgoing.peer, outgoing)
        self.pusher.end_leading()
        if self.pusher.begin_leading():
            self.group.check_leader(self)
            self.append(b"barrier")
        for (source, request), response in self.pusher.handler.step(now=now):
            send(self.name, source, (request, response))
        for peer, dispatcher in self.pusher.dispatchers.items():
            for push in dispatcher.poll(now=now):
                send(self.name, peer, push)
        self.pusher.advance(now=now)
        if self.group.chance.random() < 0.3:
            await self.store.flush_in_thread()
        if self.group.chance.random() < 0.02:
            await self.store.persist_check_point_in_thread()
        self.group.check_committed(self)

    def append(self, body: bytes) -> None:
        def told(entry: DLedgerEntry, code: DLedgerResponseCode) -> None:
            if code is DLedgerResponseCode.SUCCESS:
                self.group.acknowledged[entry.index] = body

        with suppress(DLedgerException):
            self.pusher.append(body, told, now=self.group.now)

    def receive(self, source: str, content: object) -> None:
        now, send = self.group.now, self.group.send
        match content:
            case Outgoing(request=VoteRequest() as vote, number=number):
                answer: object = self.elector.handle_vote(vote, now=now)
                self.save()
                send(self.name, source, (number, answer))
            case Outgoing(request=HeartBeatRequest() as beat, number=number):
                answer = self.elector.handle_heart_beat(beat, now=now)
                self.save()
                send(self.name, source, (number, answer))
            case (int() as number, VoteResponse() as voted):
                self.elector.on_vote_answer(source, number, voted, now=now)
                self.save()
            case (int() as number, HeartBeatResponse() as beaten):
                self.elector.on_heart_beat_answer(source, number, beaten, now=now)
                self.save()
            case PushEntryRequest() as push:
                response = self.pusher.handler.handle_push(push, (source, push), now=now)
                if response is not None:
                    send(self.name, source, (push, response))
            case (PushEntryRequest() as push, PushEntryResponse() as response):
                self.pusher.on_answer(source, push, response, now=now)


@dataclass(order=True)
class Message:
    at: float
    order: int
    source: str = field(compare=False)
    to: str = field(compare=False)
    content: object = field(compare=False)


class Group:
    def __init__(self, size: int, seed: int) -> None:
        self.chance = random.Random(seed)
        self.names = frozenset(f"n{number}" for number in range(size))
        self.now = 0.0
        self.sent = 0
        self.messages: list[Message] = []
        self.parted: frozenset[str] = frozenset()
        self.loss = 0.0
        self.acknowledged: dict[int, bytes] = {}
        self.committed: dict[int, DLedgerEntry] = {}
        self.checked: dict[str, int] = dict.fromkeys(self.names, -1)
        self.leaders: dict[int, str] = {}
        self.nodes = {name: Node(name, self) for name in sorted(self.names)}
        for node in self.nodes.values():
            node.start()

    def send(self, source: str, to: str, content: object) -> None:
        if (source in self.parted) == (to in self.parted) and self.chance.random() >= self.loss:
            at = self.now + self.chance.choice([0.001, 0.01, 0.05, 0.3]) * self.chance.random()
            self.sent += 1
            self.messages.append(Message(at, self.sent, source, to, content))

    def check_committed(self, node: Node) -> None:
        """S7: at an index nobody ever commits another entry."""
        store = node.store
        for index in range(max(self.checked[node.name] + 1, store.ledger_begin_index), store.committed_index + 1):
            entry = store.get(index)
            assert self.committed.setdefault(index, entry) == entry, f"two entries were committed at {index}"
        self.checked[node.name] = max(self.checked[node.name], store.committed_index)

    def check_leader(self, node: Node) -> None:
        """S1, S6: one leader a term, with all that was committed before."""
        assert self.leaders.setdefault(node.state.curr_term, node.name) == node.name, "two leaders of a term"
        held = {entry.index: entry for entry in all_of(node.store)}
        for index, entry in self.committed.items():
            assert held.get(index) == entry, f"leader {node.name} lacks what was committed at {index}"

    async def step(self) -> None:
        self.now += STEP_S
        due = sorted(message for message in self.messages if message.at <= self.now)
        self.messages = [message for message in self.messages if message.at > self.now]
        for message in due:
            if self.nodes[message.to].is_up:
                await self.guarded(self.nodes[message.to], message)
        for node in self.nodes.values():
            if node.is_up:
                await self.guarded(node, None)

    async def guarded(self, node: Node, message: Message | None) -> None:
        """The power may go at any call."""
        try:
            if message is None:
                await node.step()
            else:
                node.receive(message.source, message.content)
        except NodeDied:
            node.is_up = False

    async def run(self, seconds: float, *, appends: bool = True) -> None:
        for _ in range(round(seconds / STEP_S)):
            for node in self.nodes.values():
                if appends and node.is_up and node.pusher.checker is not None and self.chance.random() < 0.3:
                    try:
                        node.append(self.chance.randbytes(self.chance.randrange(200)))
                    except NodeDied:
                        node.is_up = False
            await self.step()

    def restart(self, name: str) -> None:
        node = self.nodes[name]
        if node.is_up:
            node.disk.power_cut()
        node.is_up = False
        self.checked[name] = -1
        node.disk.crash_at = None
        node.start()

    def check_end(self) -> None:
        """S8, and the members are the same: one log, and the same bytes in the files."""
        logs = [all_of(node.store) for node in self.nodes.values()]
        assert all(log == logs[0] for log in logs), [len(log) for log in logs]
        assert {node.store.committed_index for node in self.nodes.values()} == {len(logs[0]) - 1}
        for index, body in self.acknowledged.items():
            assert logs[0][index].body == body, f"what was acknowledged at {index} is lost"
        files = [
            {path: bytes(inode.cache) for path, inode in node.disk.files.items() if "/data/" in path}
            for node in self.nodes.values()
        ]
        assert all(one == files[0] for one in files)


@pytest.mark.parametrize("size", [1, 3])
async def test_a_quiet_group_takes_what_it_is_given(size: int) -> None:
    group = Group(size, 1)
    await group.run(8)
    await group.run(5, appends=False)
    group.check_end()
    assert len(group.acknowledged) > 50


@pytest.mark.parametrize("seed", range(10))
async def test_a_group_under_attack_loses_nothing(seed: int) -> None:
    group = Group(3, seed)
    chance = random.Random(seed + 500)
    for _ in range(14):
        await group.run(chance.uniform(0.2, 3))
        name = chance.choice(sorted(group.names))
        match chance.choice(["restart", "restart", "crash", "part", "heal", "lose", "all"]):
            case "restart":
                group.restart(name)
            case "crash":
                group.nodes[name].disk.crash_at = group.nodes[name].disk.calls + chance.randrange(1, 40)
            case "part":
                group.parted = frozenset({name})
            case "heal":
                group.parted, group.loss = frozenset(), 0.0
            case "lose":
                group.loss = chance.choice([0.05, 0.3])
            case "all":
                for each in sorted(group.names):
                    group.restart(each)
    group.parted, group.loss = frozenset(), 0.0
    for name, node in group.nodes.items():
        node.disk.crash_at = None
        if not node.is_up:
            group.restart(name)
    await group.run(20, appends=False)
    group.check_end()
    assert group.acknowledged
