"""Where the log's end begins in which a new master looks for commits."""

from trio.testing import MockClock

from rmqha.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from rmqha.broker.transaction.transactional_message_bridge import TransactionalMessageBridge
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
