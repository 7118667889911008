"""A half message that is damaged in the log: it can be neither committed nor asked about, and all are told."""

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from rmqha.broker.transaction.fates import Fates
from rmqha.broker.transaction.half_message import CHECK_MAX_TIME_TOPIC, HALF_TOPIC
from rmqha.broker.transaction.transactional_message_bridge import TransactionalMessageBridge
from tests.broker.machines import Machine, ask, send_request, status_of
from tests.broker.producers import COMMIT, producer_of, seen
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_net import SimNet
from tests.store.helpers import SEGMENT, commit_log, dispatched, message, put, running

RARELY = {"transactionCheckInterval": "40000", "transactionTimeOut": "3000"}


@pytest.fixture
def machine() -> Machine:
    return Machine(SimNet(), "10.0.0.1", RARELY)


def damage(machine: Machine, broker: BrokerController, place: int, how: str) -> int:
    """The half message at this place; returns where it lies."""
    queue = broker.store.queues.find(HALF_TOPIC, 0)
    assert queue is not None
    unit = queue.unit(place)
    assert unit is not None
    at, size, _ = unit
    (log,) = [file for path, file in machine.disk.files.items() if path.endswith(f"commitlog/{0:020}")]
    last_of_body = log.cache.index(bytes([len(HALF_TOPIC)]) + HALF_TOPIC.encode(), at, at + size) - 1
    log.cache[at + 5 if how == "head" else last_of_body] ^= 4
    return at


async def test_it_is_told_and_all_others_go_on(machine: Machine, autojump_clock: MockClock) -> None:
    """It was passed over without a word, and its producer was told that it was gone."""
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        ill, sound = await producer.prepare(b"damaged"), await producer.prepare(b"sound")
        await seen(broker, topic=HALF_TOPIC)
        at = damage(machine, broker, 0, "body")
        with capture_logs() as logs:
            for _ in range(5):
                await trio.sleep(40)
                await producer.beat()
            refused = await producer.end(ill, COMMIT)
        asked = [await producer.wait_asked(number + 1) for number in range(len(producer.asked))]
        assert {message.body for _, message in asked} == {b"sound"}
        (line,) = [line for line in logs if line["event"] == "transaction.half_damaged"]
        facts = {"half_offset": 0, "offset": at, "topic": "t", "group": "PG", "keys": "k"}
        assert line.items() >= facts.items()
        assert line["unique_key"] == b"damaged".hex().upper()
        assert refused is not None
        assert (refused.code, "half message 0 is damaged in the log" in (refused.remark or "")) == (1, True)
        assert (await status_of(machine))["damaged_halves"].startswith("a half message is damaged")
        await producer.end(sound, COMMIT)
        assert [message.body for message in await seen(broker)] == [b"sound"]
        assert await seen(broker, topic=CHECK_MAX_TIME_TOPIC) == []


@pytest.mark.parametrize("how", ["body", "head"])
async def test_who_ends_it_is_told_at_once(machine: Machine, how: str, autojump_clock: MockClock) -> None:
    """Before any round meets it."""
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        ill = await producer.prepare(b"damaged")
        await seen(broker, topic=HALF_TOPIC)
        damage(machine, broker, 0, how)
        with capture_logs() as logs:
            refused = await producer.end(ill, COMMIT)
        assert refused is not None
        assert refused.code == 1
        told = [line["half_offset"] for line in logs if line["event"] == "transaction.half_damaged"]
        assert told == ([0] if how == "body" else [])
        assert "is gone" not in (refused.remark or "")
        assert await seen(broker) == []


async def test_one_that_had_ended_before_is_no_matter(machine: Machine, autojump_clock: MockClock) -> None:
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        half = await producer.prepare(b"committed")
        await producer.end(half, COMMIT)
        await seen(broker, topic=HALF_TOPIC)
        damage(machine, broker, 0, "body")
        await trio.sleep(100)
        assert (await status_of(machine))["damaged_halves"] is None
        assert [message.body for message in await seen(broker)] == [b"committed"]


async def test_of_those_that_are_passed_over_at_once_the_ones_that_had_ended_are_no_matter(
    autojump_clock: MockClock,
) -> None:
    """They were told of as data that nobody can commit."""
    async with running(SimDisk().mount()) as store:
        fates = Fates()
        fates.end(1)
        bridge = TransactionalMessageBridge(store, ConsumerOffsetManager())
        with capture_logs() as logs:
            bridge.damaged.note_all(range(3), fates)
        assert store.stats.damaged_halves == {0, 2}
        assert [line["half_offset"] for line in logs if line["event"] == "transaction.half_damaged"] == [0, 2]


async def test_one_that_has_just_gone_with_the_first_file_is_not_damaged(autojump_clock: MockClock) -> None:
    """Its queue still leads there."""
    async with running(SimDisk().mount()) as store:
        await put(store, message(topic=HALF_TOPIC), *[message(size=1000) for _ in range(SEGMENT // 1000 + 1)])
        await put(store, message(topic=HALF_TOPIC))
        await dispatched(store)
        await store.flush_now(store.max_offset)
        bridge = TransactionalMessageBridge(store, ConsumerOffsetManager())
        assert not bridge.is_gone(HALF_TOPIC, 0)
        await commit_log(store).queue.delete_first_in_thread()
        assert store.get_min_offset_in_queue(HALF_TOPIC, 0) == 0
        assert [bridge.is_gone(HALF_TOPIC, place) for place in (0, 1)] == [True, False]


async def test_one_that_went_with_the_first_file_is_passed_over_without_a_word(
    machine: Machine, autojump_clock: MockClock
) -> None:
    async with machine.broker() as broker, producer_of(machine) as producer, machine.client() as client:
        await producer.join()
        await producer.prepare(b"expired")
        for _ in range(3):
            await ask(client, send_request(b"x" * 30_000))
        await producer.prepare(b"sound")
        await seen(broker, topic=HALF_TOPIC)
        await commit_log(broker.store).queue.delete_first_in_thread()
        assert (await producer.wait_asked(1))[1].body == b"sound"
        assert not broker.store.stats.damaged_halves
