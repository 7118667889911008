"""What a master's slaves hold is in the consume queues at once, though it is not flushed here yet."""

import trio
from trio.testing import MockClock

from rmqha.codec.codes import ResponseCode
from tests.broker.machines import ask, send_request
from tests.broker.test_pair import Pair


async def test_what_is_held_by_slaves_is_dispatched_without_waiting_for_a_flush(autojump_clock: MockClock) -> None:
    """A flush is up to 10 s away where little was written."""
    pair = Pair()
    master_s = pair.master.broker(brokerRole="SYNC_MASTER")
    async with pair.slave.broker(), master_s as master, pair.master.client() as client:
        await trio.sleep(15)
        for count in (1, 2, 3):
            assert (await ask(client, send_request(b"x"))).code == ResponseCode.SUCCESS
            flushed = master.store.flushed.value
            await trio.sleep(0.05)
            assert master.store.flushed.value == flushed < master.store.max_offset
            assert master.store.next_queue_offset("t", 0) == count
            assert master.store.queues.range_of("t", 0) == (0, count)
            await trio.sleep(20)
