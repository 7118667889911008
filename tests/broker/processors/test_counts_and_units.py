"""What is told by span of time is that span's, and what is told of a queue begins with what there is of it."""

import trio

from rmqha.codec.codes import RequestCode
from tests.broker.machines import Machine, ask, send_request
from tests.broker.processors.test_admin import commit, queue, send_some, told
from tests.sim.sim_clock import VirtualClock
from tests.sim.sim_net import SimNet


async def test_a_minute_an_hour_and_a_day_have_sums_of_their_own(virtual_clock: VirtualClock) -> None:
    """Of 16, 4 and 1 messages that came hours, half an hour, and some seconds ago."""
    machine, ends = Machine(SimNet(), "10.0.0.1"), [0]
    async with machine.broker() as broker:
        for count, pause_s in ((16, 2 * 3600.0), (4, 1800.0), (1, 25.0)):
            async with machine.client() as client:
                await send_some(client, count)
            await trio.sleep(pause_s)
            ends.append(broker.store.max_offset)
        async with machine.client() as client:
            code = RequestCode.VIEW_BROKER_STATS_DATA
            counts = await told(client, code, statsName="TOPIC_PUT_NUMS", statsKey="t")
            sizes = await told(client, code, statsName="TOPIC_PUT_SIZE", statsKey="t")
    sums = [{span: one["sum"] for span, one in stats.items()} for stats in (counts, sizes)]
    assert sums == [
        {"statsMinute": 1, "statsHour": 5, "statsDay": 21},
        {"statsMinute": ends[3] - ends[2], "statsHour": ends[3] - ends[1], "statsDay": ends[3]},
    ]
    assert counts["statsMinute"]["tps"] > counts["statsHour"]["tps"] > 0


async def test_units_that_are_gone_are_passed_over(virtual_clock: VirtualClock) -> None:
    """Who asks from the beginning, or from anywhere before what is left, is told of the first that is there."""
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker(fileReservedTime="1") as broker:
        async with machine.client() as client:
            for _ in range(8):
                await ask(client, send_request(bytes(30_000)))
        await trio.sleep(1.5 * 3600)
        broker.store.cleaner.execute_delete_files_manually()
        assert await broker.store.cleaner.clean() > 0
        first, end = broker.store.queues.readable_range_of("t", 0)
        assert 0 < first < end - 1
        async with machine.client() as client:
            for index in range(end + 2):
                asked = {"topic": "t", "queueId": 0, "index": index, "count": 2}
                units = await told(client, RequestCode.QUERY_CONSUME_QUEUE, **asked)
                begins = max(index, first)
                offsets = [one["physicOffset"] for one in units["queueData"]]
                queue = broker.store.queues.find("t", 0)
                assert queue is not None
                wanted = [at for at, _, _ in queue.units(begins, 2)] if begins < end else []
                assert (offsets, len(offsets)) == (wanted, min(2, max(end - begins, 0))), index
                assert (units["minQueueIndex"], units["maxQueueIndex"]) == (first, end)


async def test_of_a_commit_that_says_nothing_all_is_left(virtual_clock: VirtualClock) -> None:
    """As with RocketMQ: a client that did not know where it was committed -1, and lag was more than there is."""
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker(), machine.client() as client:
        await send_some(client, 3)
        await commit(client, -1)
        stats = await told(client, RequestCode.GET_CONSUME_STATS, consumerGroup="g")
        assert stats["offsetTable"][queue(0)] == {"brokerOffset": 3, "consumerOffset": 0, "lastTimestamp": 0}
        assert (await told(client, RequestCode.GET_BROKER_CONSUME_STATS, isOrder="false"))["totalDiff"] == 3
