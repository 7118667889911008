"""Transactions where a queue of the broker's own has stopped: a bit has flipped in the place of one of its records."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from structlog.testing import capture_logs

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.transaction import marks
from rmqha.broker.transaction.half_message import CHECK_MAX_TIME_TOPIC, HALF_TOPIC, OP_TOPIC
from tests.broker.machines import Machine, send_request, status_of
from tests.broker.producers import COMMIT, ROLLBACK, Half, Producer, producer_of, seen
from tests.sim.sim_clock import VirtualClock
from tests.sim.sim_net import SimNet

RARELY = {"transactionCheckInterval": "40000", "transactionTimeOut": "3000"}
_QUEUE_OFFSET_ENDS = 28
"""QUEUEOFFSET lies before this byte of a record."""
_HIGHER, _LOWER = 8, 2
"""Bits of the number 3."""


@pytest.fixture
def machine() -> Machine:
    return Machine(SimNet(), "10.0.0.1", RARELY)


def flip_place(machine: Machine, broker: BrokerController, topic: str, place: int, bit: int = _HIGHER) -> None:
    """A record says another place from now on; its consume queue knows the right one yet."""
    queue = broker.store.queues.find(topic, 0)
    assert queue is not None
    unit = queue.unit(place)
    assert unit is not None
    (log,) = [file for path, file in machine.disk.files.items() if path.endswith(f"commitlog/{0:020}")]
    log.cache[unit[0] + _QUEUE_OFFSET_ENDS - 1] ^= bit


def lose_queue(machine: Machine, topic: str) -> None:
    """The next start builds it again."""
    for path in [path for path in machine.disk.files if f"consumequeue/{topic}" in path]:
        del machine.disk.files[path]


async def fill(producer: Producer, *, size_bytes: int) -> None:
    """So much of the log with other messages."""
    for _ in range(0, size_bytes, 1000):
        await producer.ask(send_request(bytes(1000), topic="other"))


async def asked_within(producer: Producer, seconds: float) -> set[bytes]:
    """What this producer is asked about meanwhile."""
    before = len(producer.asked)
    with trio.move_on_after(seconds):
        while True:
            await trio.sleep(20)
            await producer.beat()
    return {(await producer.wait_asked(number + 1))[1].body for number in range(before, len(producer.asked))}


@asynccontextmanager
async def with_producer(machine: Machine) -> AsyncIterator[tuple[BrokerController, Producer]]:
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        yield broker, producer


async def prepare_and_end(machine: Machine, *, damaged: int = 3, bit: int = _HIGHER) -> list[Half]:
    """Six half messages: odd ones are committed, even ones rolled back, the last is open; then a mark is damaged."""
    async with with_producer(machine) as (broker, producer):
        halves = [await producer.prepare(b"h%d" % number) for number in range(6)]
        for number, half in enumerate(halves[:5]):
            await producer.end(half, COMMIT if number % 2 else ROLLBACK)
        await seen(broker, topic=OP_TOPIC)
        flip_place(machine, broker, OP_TOPIC, damaged, bit)
        await fill(producer, size_bytes=8_000)
    lose_queue(machine, OP_TOPIC)
    return halves


@pytest.mark.parametrize("bit", [_HIGHER, _LOWER])
async def test_what_had_ended_behind_the_place_where_marks_stopped_does_not_end_again(
    machine: Machine, bit: int, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Producers were asked about all of it, committed it twice, and could commit what had been rolled back."""
    monkeypatch.setattr(marks, "_COMMITS_WITHIN", 0)
    halves = await prepare_and_end(machine, bit=bit)
    async with with_producer(machine) as (broker, producer):
        assert (OP_TOPIC, 0) in broker.store.queues.stopped
        for half in halves[:5]:
            answer = await producer.end(half, COMMIT)
            assert answer is not None
            assert answer.code == 0, answer.remark
        assert await asked_within(producer, 90) == set()
        assert [message.body for message in await seen(broker)] == [b"h1", b"h3"]
        assert [half.body for half in await seen(broker, topic=CHECK_MAX_TIME_TOPIC)] == [b"h5"]
        status = await status_of(machine)
        assert status["damaged_marks"].startswith("a mark of ended transactions could not be read")
        assert f"{OP_TOPIC}/0 is read from the log from 3 on (2 messages)" in status["stopped_queues"]


async def test_behind_the_place_where_marks_stopped_transactions_go_on(
    machine: Machine, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No mark was stored any more: each start had all commits since then delivered once more."""
    monkeypatch.setattr(marks, "_COMMITS_WITHIN", 0)
    await prepare_and_end(machine)
    ended = list[Half]()
    for number in range(3):
        async with with_producer(machine) as (broker, producer):
            for half in ended:
                answer = await producer.end(half, COMMIT)
                assert answer is not None
                assert answer.code == 0, answer.remark
            committed, gone = await producer.prepare(b"new%d" % number), await producer.prepare(b"gone")
            await producer.prepare(b"open%d" % number)
            await producer.end(committed, COMMIT)
            await producer.end(gone, ROLLBACK)
            ended += [committed, gone]
            asked = await asked_within(producer, 90)
            assert b"open%d" % number in asked
            assert asked <= {b"open0", b"open1", b"open2"}
            await fill(producer, size_bytes=8_000)
            expected = [b"h1", b"h3", *(b"new%d" % earlier for earlier in range(number + 1))]
            assert [message.body for message in await seen(broker)] == expected


async def test_of_more_marks_than_are_kept_behind_it_the_others_count_as_damaged(
    machine: Machine, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks, "_COMMITS_WITHIN", 0)
    monkeypatch.setattr("rmqha.store.passed_over._KEPT_MAX", 1)
    halves = await prepare_and_end(machine, damaged=1)
    async with with_producer(machine) as (broker, producer):
        answers = [await producer.end(half, COMMIT) for half in halves]
        known = [number for number, answer in enumerate(answers) if answer is not None and answer.code == 0]
        assert known == [0, 3, 4]
        assert [message.body for message in await seen(broker)] == [b"h1", b"h3"]


async def prepare(machine: Machine, *, damaged: int = 3, bit: int = _HIGHER) -> list[Half]:
    """Six half messages: the first is rolled back, the last is committed; then one is damaged."""
    async with with_producer(machine) as (broker, producer):
        halves = [await producer.prepare(b"h%d" % number) for number in range(6)]
        await producer.end(halves[0], ROLLBACK)
        await producer.end(halves[5], COMMIT)
        await seen(broker, topic=OP_TOPIC)
        flip_place(machine, broker, HALF_TOPIC, damaged, bit)
    lose_queue(machine, HALF_TOPIC)
    return halves


@pytest.mark.parametrize("bit", [_HIGHER, _LOWER])
async def test_behind_the_place_where_half_messages_stopped_all_others_go_on(
    machine: Machine, bit: int, virtual_clock: VirtualClock
) -> None:
    """No transaction could begin any more, and none of those behind could be ended, nor was asked about."""
    halves = await prepare(machine, bit=bit)
    with capture_logs() as logs:
        async with with_producer(machine) as (broker, producer):
            assert (HALF_TOPIC, 0) in broker.store.queues.stopped
            assert broker.store.next_queue_offset(HALF_TOPIC, 0) == 6
            new = await producer.prepare(b"new")
            assert new.queue_offset == 6
            for half in (halves[4], new):
                answer = await producer.end(half, COMMIT)
                assert answer is not None
                assert answer.code == 0, answer.remark
            for half in (halves[0], halves[5]):  # which have ended
                answer = await producer.end(half, COMMIT)
                assert answer is not None
                assert answer.code == 0, answer.remark
            refused = await producer.end(halves[3], COMMIT)
            assert refused is not None
            assert (refused.code, "half message 3 is damaged" in (refused.remark or "")) == (1, True)
            assert await asked_within(producer, 90) == {b"h1", b"h2"}
            assert [message.body for message in await seen(broker)] == [b"h5", b"h4", b"new"]
            status = await status_of(machine)
            assert status["damaged_halves"].startswith("a half message is damaged")
            assert f"{HALF_TOPIC}/0 is read from the log from 3 on" in status["stopped_queues"]
    assert [line["half_offset"] for line in logs if line["event"] == "transaction.half_damaged"] == [3]


async def test_half_messages_are_asked_about_after_each_start_there(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    await prepare(machine)
    async with with_producer(machine) as (broker, producer):
        assert await asked_within(producer, 90) == {b"h1", b"h2", b"h4"}
        half, message = await producer.wait_asked(len(producer.asked))
        await producer.end(half, COMMIT)
        await producer.prepare(b"new")
        committed = [b"h5", message.body]
        assert [message.body for message in await seen(broker)] == committed
    async with with_producer(machine) as (broker, producer):
        open_ones = {b"h1", b"h2", b"h4", b"new"} - {committed[1]}
        assert await asked_within(producer, 90) == open_ones
        for number in range(len(producer.asked)):
            await producer.end((await producer.wait_asked(number + 1))[0], COMMIT)
        bodies = [message.body for message in await seen(broker)]
        assert bodies[:2] == committed
        assert sorted(bodies[2:]) == sorted(open_ones)


def flip_topic(machine: Machine, broker: BrokerController, place: int) -> None:
    """A half message is another topic's from now on."""
    queue = broker.store.queues.find(HALF_TOPIC, 0)
    assert queue is not None
    unit = queue.unit(place)
    assert unit is not None
    (log,) = [file for path, file in machine.disk.files.items() if path.endswith(f"commitlog/{0:020}")]
    log.cache[log.cache.index(HALF_TOPIC.encode(), unit[0])] ^= 1


async def code_of(producer: Producer, half: Half) -> int | None:
    """What a commit is answered with."""
    answer = await producer.end(half, COMMIT)
    return None if answer is None else answer.code


async def test_a_half_message_whose_topic_is_damaged_is_missing(machine: Machine, virtual_clock: VirtualClock) -> None:
    """Its record is another topic's: those behind it keep their places."""
    async with with_producer(machine) as (broker, producer):
        halves = [await producer.prepare(b"h%d" % number) for number in range(5)]
        await seen(broker, topic=HALF_TOPIC)
        flip_topic(machine, broker, 1)
    lose_queue(machine, HALF_TOPIC)
    async with with_producer(machine) as (broker, producer):
        await producer.end(halves[4], ROLLBACK)
        refused = await producer.end(halves[1], COMMIT)
        assert refused is not None
        assert "half message 1 is damaged" in (refused.remark or "")
        assert await asked_within(producer, 90) == {b"h0", b"h2", b"h3"}


@pytest.mark.parametrize("missing", [(3,), (2,), (2, 3)])
async def test_one_half_message_behind_missing_ones_keeps_its_place(
    machine: Machine, missing: tuple[int, ...], virtual_clock: VirtualClock
) -> None:
    """It was neither asked about nor committed, and its place was given once more."""
    last = missing[-1] + 1
    async with with_producer(machine) as (broker, producer):
        halves = [await producer.prepare(b"h%d" % number) for number in range(last + 1)]
        await seen(broker, topic=HALF_TOPIC)
        for place in missing:
            flip_topic(machine, broker, place)
    lose_queue(machine, HALF_TOPIC)
    sound = {b"h%d" % number for number in range(last + 1) if number not in missing}
    async with with_producer(machine) as (broker, producer):
        asked = await asked_within(producer, 90)
        assert asked == sound
    lose_queue(machine, HALF_TOPIC)
    async with with_producer(machine) as (broker, producer):
        new = await producer.prepare(b"new")
        assert new.queue_offset > last
        assert await code_of(producer, halves[last]) == 0
        assert await code_of(producer, new) == 0
        assert [message.body for message in await seen(broker)] == [b"h%d" % last, b"new"]
    async with with_producer(machine) as (broker, producer):
        assert await asked_within(producer, 90) == sound - {b"h%d" % last}


@pytest.mark.parametrize("bit", [64, 128])
async def test_behind_a_first_half_message_that_lies_all_others_keep_their_places(
    machine: Machine, bit: int, virtual_clock: VirtualClock
) -> None:
    """They were called gone, and nobody was asked about them, as the queue began behind them."""
    async with with_producer(machine) as (broker, producer):
        halves = [await producer.prepare(b"h%d" % number) for number in range(6)]
        await producer.end(halves[5], ROLLBACK)
        await seen(broker, topic=OP_TOPIC)
        flip_place(machine, broker, HALF_TOPIC, 0, bit)
    lose_queue(machine, HALF_TOPIC)
    with capture_logs() as logs:
        async with with_producer(machine) as (broker, producer):
            assert [await code_of(producer, halves[number]) for number in (1, 5)] == [0, 0]
            refused = await producer.end(halves[0], COMMIT)
            assert refused is not None
            assert "half message 0 is damaged" in (refused.remark or "")
            new = await producer.prepare(b"new")
            assert new.queue_offset == 6
            assert await code_of(producer, new) == 0
            assert await asked_within(producer, 90) == {b"h2", b"h3", b"h4"}
            assert [message.body for message in await seen(broker)] == [b"h1", b"new"]
            status = await status_of(machine)
            assert f"{HALF_TOPIC}/0 is read from the log from 0 on" in status["stopped_queues"]
            assert status["damaged_halves"].startswith("a half message is damaged")
    assert [line["half_offset"] for line in logs if line["event"] == "transaction.half_damaged"] == [0]
    async with with_producer(machine) as (broker, producer):
        assert await asked_within(producer, 90) == {b"h2", b"h3", b"h4"}
        assert [message.body for message in await seen(broker)] == [b"h1", b"new"]


async def test_where_the_last_half_message_is_damaged_others_begin_behind_it(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    """Its place is given to none of them, and what its producer was told of it is none of theirs."""
    async with with_producer(machine) as (broker, producer):
        halves = [await producer.prepare(b"h%d" % number) for number in range(4)]
        await seen(broker, topic=HALF_TOPIC)
        flip_place(machine, broker, HALF_TOPIC, 3)
    lose_queue(machine, HALF_TOPIC)
    for number in range(2):
        async with with_producer(machine) as (broker, producer):
            new = await producer.prepare(b"new%d" % number)
            assert new.queue_offset == 4 + number
            refused = await producer.end(halves[3], COMMIT)
            assert refused is not None
            assert refused.code == 1
            answer = await producer.end(new, COMMIT)
            assert answer is not None
            assert answer.code == 0, answer.remark
            assert [message.body for message in await seen(broker)] == [b"new0", b"new1"][: number + 1]


async def test_marks_before_one_that_says_it_is_the_first_count_as_damaged(
    machine: Machine, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their queue begins anew with it: producers were asked about all that had ended before."""
    monkeypatch.setattr(marks, "_COMMITS_WITHIN", 0)
    halves = await prepare_and_end(machine, damaged=4, bit=4)
    async with with_producer(machine) as (broker, producer):
        answers = [await producer.end(half, COMMIT) for half in halves]
        known = [number for number, answer in enumerate(answers) if answer is not None and answer.code == 0]
        assert known == [4]
        assert await asked_within(producer, 90) == set()
        assert [message.body for message in await seen(broker)] == [b"h1", b"h3"]
        aside = [half.body for half in await seen(broker, topic=CHECK_MAX_TIME_TOPIC)]
        assert aside == [b"h0", b"h1", b"h2", b"h3", b"h5"]
        assert (await status_of(machine))["damaged_marks"].startswith("a mark of ended transactions")


@pytest.mark.parametrize("bit", [_HIGHER, _LOWER])
async def test_a_place_that_is_damaged_below_a_broker_stops_that_queue_alone(
    machine: Machine, bit: int, virtual_clock: VirtualClock
) -> None:
    """No topic took messages any more, until the next start but one."""
    async with with_producer(machine) as (broker, producer):
        halves = [await producer.prepare(b"h%d" % number) for number in range(6)]
        await seen(broker, topic=HALF_TOPIC)
        flip_place(machine, broker, HALF_TOPIC, 3, bit)
    for number in (4, 5):
        async with with_producer(machine) as (broker, producer):
            assert await code_of(producer, halves[3]) == 1
            await trio.sleep(60)
            sent = await producer.ask(send_request(b"sent", topic="other"))
            assert sent.code == 0, sent.remark
            assert await code_of(producer, halves[number]) == 0
            assert await code_of(producer, await producer.prepare(b"new")) == 0
            status = await status_of(machine)
            assert (status["write_refusal"], status["lost_queues"]) == (None, None)
            assert f"{HALF_TOPIC}/0 is read from the log from 3 on" in status["stopped_queues"]
