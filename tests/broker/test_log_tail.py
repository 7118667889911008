"""Where the log's end begins in which a new master looks for commits, and of what those are."""

import pytest
from trio.testing import MockClock

from rmqha.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from rmqha.broker.transaction import transactional_message_bridge
from rmqha.broker.transaction.half_message import HALF_TOPIC
from rmqha.broker.transaction.transactional_message_bridge import TransactionalMessageBridge
from rmqha.codec.record.layout import SysFlag
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import dispatched, message, put, running


async def test_it_begins_before_so_many_bytes_if_any_queue_leads_there(autojump_clock: MockClock) -> None:
    """The first queue leads behind that alone, or to where there would be too much to read."""
    size = 100
    async with running(SimDisk().mount()) as store:
        first, other = message(size=size), message(size=size, queue_id=1)
        await put(store, first, *[other] * 20, first)
        await dispatched(store)
        await store.flush_now(store.max_offset)
        bridge, end = TransactionalMessageBridge(store, ConsumerOffsetManager()), store.max_offset
        begins = [(await bridge.tail(count * size))[0] for count in (1, 2, 4)]
        assert [end - begin for begin in begins] == [size, 3 * size, 5 * size]


@pytest.mark.parametrize("lies_behind", [False, True])
async def test_a_commit_counts_for_the_half_message_that_lies_where_it_says(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock, *, lies_behind: bool
) -> None:
    """Not for the next one behind that place: clients store what they like."""
    monkeypatch.setattr(transactional_message_bridge, "is_committed_by", lambda _half, _commit: True)
    async with running(SimDisk().mount()) as store:
        before = [message()] if lies_behind else []
        commit = message(sys_flag=SysFlag.TRANSACTION_COMMIT)  # of what lies at 0
        await put(store, *before, message(topic=HALF_TOPIC), commit)
        await store.flush_now(store.max_offset)
        await dispatched(store)
        bridge, end = TransactionalMessageBridge(store, ConsumerOffsetManager()), store.max_offset
        (at,), _ = bridge.commits(0, end)
        half = bridge.half_of(at, end=end, has_ended=lambda _place: False)
        assert (half is None) == lies_behind
