"""Places of half messages that were written again: however often, a mastership that begins there knows all of them."""

import pytest
from trio.testing import MockClock

from rmqha.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from rmqha.broker.transaction.fates import Fates
from rmqha.broker.transaction.half_message import HALF_TOPIC
from rmqha.broker.transaction.places import EarlierPlaces, learn_places
from rmqha.broker.transaction.transactional_message_bridge import TransactionalMessageBridge
from rmqha.codec.record.encoder import PreparedRecord
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import dispatched, message, put, running


def half(name: str, *, asked: int = 0) -> PreparedRecord:
    """A half message as RocketMQ's brokers write it after so many questions: it does not say where it lay first."""
    pairs = [f"UNIQ_KEY\x01{name}", "PGROUP\x01PG", "REAL_TOPIC\x01t", "REAL_QID\x010"]
    pairs += [f"TRANSACTION_CHECK_TIMES\x01{asked}"] if asked else []
    return message(name.encode(), topic=HALF_TOPIC, properties="\x02".join(pairs).encode())


@pytest.mark.parametrize("begin", [0, 2, 3])
async def test_one_that_was_written_again_more_than_once_ends_at_all_its_places(
    begin: int, autojump_clock: MockClock
) -> None:
    """Its producer was asked about two of them, and both were committed."""
    async with running(SimDisk().mount()) as store:
        await put(store, half("a"), half("b"), half("a", asked=1), half("b", asked=1), half("a", asked=2))
        await put(store, half("a", asked=3))
        await dispatched(store)
        await store.flush_now(store.max_offset)
        await dispatched(store)
        fates = Fates()
        bridge = TransactionalMessageBridge(store, ConsumerOffsetManager())
        later = await learn_places(bridge, fates, begin=begin, earlier=EarlierPlaces(begin))
        assert later == [place for place in (2, 3, 4, 5) if place >= begin]
        known = [place for place in (0, 2, 4) if place >= begin]
        assert [fates.is_left(place) for place in known] == [True] * len(known), "there is a later place"
        assert not fates.is_left(5)
        fates.end(5)
        assert all(map(fates.has_ended, known))
        assert not fates.has_ended(3)
