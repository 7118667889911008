"""RocketMQ's clients of several versions and languages: what each of them sends, each of them consumes."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
import trio

from rmqha.codec.admin_headers import CreateTopicRequestHeader
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import encode_header
from rmqha.codec.remoting import RemotingCommand
from tests.e2e.processes import RmqhaBroker, reaping
from tests.interop.feature_table import Record
from tests.interop.fetched import PeerMissingError
from tests.interop.other_clients import KINDS, Kind
from tests.interop.programs import Telling, programs
from tests.interop.test_tables import ask

pytestmark = pytest.mark.timeout(1200)

CONF = {"brokerRole": "ASYNC_MASTER", "messageDelayLevel": "1s 1s 1s 1s"}
AT_ONCE = 3
"""Programs. Each takes seconds of a core to begin, and what they ask for meanwhile they wait three seconds for."""
WAYS = {
    "oneway": "send one-way",
    "sync": "send",
    "async": "send asynchronously",
    "batch": "send in batches",
    "ordered": "send to a chosen queue",
    "large": "send what is compressed",
    "delayed": "send delayed",
    "commit": "send in transactions",
}
TAGS = "||".join([*WAYS, "again"])
CONSUMERS = {
    "concurrent": "push",
    "orderly": "push, in order",
    "pull": "pull",
    "lite": "lite pull",
    "assign": "lite pull of assigned queues",
}
COMES_AGAIN = "push, later again"
Got = list[tuple[str, ...]]
"""Of each message that was consumed: key, tag, how often it had come before, hash."""


def installed() -> tuple[list[Kind], list[str]]:
    """What this machine has, and why the rest is missing."""
    kinds, missing = [], []
    for kind in KINDS:
        try:
            kind.install()
        except PeerMissingError as error:
            missing.append(str(error))
        else:
            kinds.append(kind)
    return kinds, missing


def expected(kinds: Iterable[Kind], consumer: str) -> Counter[tuple[str, ...]]:
    """All that these kinds send to be consumed; what comes again does so for concurrent consumers alone."""
    return Counter(
        (key, way, "1" if (consumer, way) == ("concurrent", "again") else "0", _hash_of(key, way))
        for kind in kinds
        for way, count in kind.ways.items()
        for key in (f"{kind.name}-{way}-{number}" for number in range(count))
    )


def _hash_of(key: str, way: str) -> str:
    body = f"{key} é漢 " + ("x" * 8000 if way == "large" else "")
    return hashlib.md5(f"{body}é漢".encode()).hexdigest()


def out_of_order(got: Got) -> list[str]:
    """The keys of messages that came before others which had been sent to their queue earlier."""
    lines: dict[tuple[str, int], list[int]] = defaultdict(list)
    for key, way, *_ in got:
        if way == "ordered":
            sender, _, number = key.partition("-ordered-")
            lines[sender, int(number) % 3].append(int(number))
    pairs = [(sender, *pair) for (sender, _), line in lines.items() for pair in pairwise(line)]
    return [f"{sender}-ordered-{former}" for sender, former, latter in pairs if former > latter]


def differences(consumer: str, got: Got, expected: Counter[tuple[str, ...]]) -> dict[str, str]:
    """What is wrong with each message that a consumer did not get as it was to, by its key."""
    counted = Counter(got)
    wrong = {facts[0]: f"lacks {facts}" for facts in expected - counted}
    wrong |= {facts[0]: f"got, besides what it was to, {facts}" for facts in counted - expected}
    if consumer == "orderly":
        wrong |= dict.fromkeys(out_of_order(got), "before one that was sent earlier to the same queue")
    return wrong


@dataclass
class Exchange:
    """Kinds of clients that send, and consume, with one broker."""

    kinds: list[Kind]
    directory: Path
    name_servers: str
    record: Record
    wrong: dict[str, str] = field(default_factory=dict)
    """By the keys of messages."""

    async def run(self) -> None:
        """All send, then all consume everything."""
        limiter = trio.CapacityLimiter(AT_ONCE)
        async with trio.open_nursery() as nursery:
            for kind in self.kinds:
                nursery.start_soon(self._send, kind, limiter)
        async with trio.open_nursery() as nursery:
            for kind in self.kinds:
                for program in kind.programs:
                    nursery.start_soon(self._consume, kind, program, limiter)
        for kind in self.kinds:
            for way in [way for way in WAYS if way in kind.ways]:
                works = not any(key.startswith(f"{kind.name}-{way}-") for key in self.wrong)
                self.record(kind.peer, WAYS[way], works=works)

    async def _send(self, kind: Kind, limiter: trio.CapacityLimiter) -> None:
        """And some that nobody consumes: their tag, "first", is not asked for, or they are rolled back."""
        words = ["first:10", *(f"{way}:{count}" for way, count in kind.ways.items())]
        if "commit" in kind.ways:
            words.append("rollback:10")
        async with limiter:
            sender = kind.start(kind.sender, self.directory, self.name_servers, "send", *words)
            with programs(sender):
                await sender.running.wait_output("(?m)^sent$", timeout_s=300)
                await sender.running.wait_exit()

    async def _consume(self, kind: Kind, program: str, limiter: trio.CapacityLimiter) -> None:
        sought = {consumer: expected(self.kinds, consumer) for consumer in kind.programs[program]}
        topics = [kind.topic for kind in self.kinds]
        async with limiter:
            running = kind.start(program, self.directory, self.name_servers, "consume", TAGS, "again", *topics)
            with programs(running):
                got = await self._wait_got(running, sum(map(Counter.total, sought.values())))
        for consumer, messages in sought.items():
            wrong = differences(consumer, got[consumer], messages)
            again = {key for key in wrong if "-again-" in key}
            if consumer == "concurrent":
                self.record(kind.peer, COMES_AGAIN, works=not again)
            self.record(kind.peer, CONSUMERS[consumer], works=wrong.keys() <= again)
            self.wrong |= {key: f"{kind.name}, {consumer}: {problem}" for key, problem in wrong.items()}

    async def _wait_got(self, running: Telling, count: int) -> dict[str, Got]:
        """Until so many messages have come, or a while has gone by; by consumer."""
        with trio.move_on_after(600):
            while len(running.told("got")) < count:  # noqa: ASYNC110 - another process
                await trio.sleep(1)
        await trio.sleep(1)  # for what comes once too often
        got: dict[str, Got] = defaultdict(list)
        for consumer, *facts in running.told("got"):
            got[consumer].append(tuple(facts))
        return got


async def make_topic(broker: RmqhaBroker, topic: str) -> None:
    """As an operator does with mqadmin."""
    header = encode_header(CreateTopicRequestHeader(topic, 4, 4, 6)) | {"defaultTopic": "TBW102", "order": "false"}
    answer = await ask(broker, RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, ext_fields=header))
    assert answer.code == ResponseCode.SUCCESS


async def test_what_one_client_sends_each_consumes(tmp_path: Path, record: Record) -> None:
    """The broker is the name server. The first message makes a topic; the JavaScript client needs one that is there."""
    kinds, missing = installed()
    broker = RmqhaBroker(tmp_path / "broker", CONF)
    with reaping(broker):
        await broker.start()
        for topic in ("again", "from-javascript"):
            await make_topic(broker, topic)
        exchange = Exchange(kinds, tmp_path, broker.address, record)
        await exchange.run()
    assert not exchange.wrong, "\n".join(list(exchange.wrong.values())[:20])
    if missing:
        pytest.skip("not tried: " + "; ".join(missing))
