"""A queue that has no place for a record ends before it, and all others go on."""

from collections.abc import Sequence

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.codec.consume_queue import UNIT_SIZE
from rmqha.codec.deleted_topic import DeletedQueue
from rmqha.codec.record.layout import encode_blank
from rmqha.store.log import PutRequest
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.start import next_queue_offsets
from rmqha.store.status import AppendResult, PutMessageStatus
from rmqha.store.stopped_queues import StoppedQueue, StoppedQueues
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import SEGMENT, Clock, commit_log, dispatched, message, running

ODD = ("TopicTest", 0)
TAKEN, MISSING = (0, 1, 2, 1, 2, 3), (0, 1, 2, 5, 6, 7)
"""Numbers in one queue: a master that did not know of the last two, and one that left out two."""


async def feed(store: DefaultMessageStore, *numbers: int, topic: str = "TopicTest", size: int = 105) -> None:
    """As a slave gets it."""
    for number in numbers:
        one, begin = message(topic=topic, size=size), store.max_offset
        rest = SEGMENT - begin % SEGMENT
        blank = encode_blank(rest) + bytes(rest - 8) if rest < size + 8 else b""
        at, taken = begin + len(blank), 0
        data = blank + one.pack(queue_offset=number, physical_offset=at, store_timestamp_ms=5)
        while taken < len(data):
            taken += store.append_raw(data[taken:], begin + taken)
            await store.wait_allocated()
    await dispatched(store)


@pytest.mark.parametrize("numbers", [TAKEN, MISSING])
async def test_all_other_queues_go_on(numbers: tuple[int, ...], autojump_clock: MockClock) -> None:
    """It stopped dispatch of all for good, and the next start was refused."""
    device = SimDisk()
    async with running(device.mount(), is_slave=True) as store:
        with capture_logs() as logs:
            await feed(store, *numbers)
            await feed(store, 0, 1, topic="Other")
            await feed(store, 3, 4)
        assert (store.queues.range_of(*ODD), store.queues.range_of("Other", 0)) == ((0, 3), (0, 2))
        assert (store.reput_from_offset, store.running_flags.final_error) == (store.max_offset, None)
        assert not store.running_flags.refusal()
        (line,) = [line for line in logs if line["log_level"] == "error"]
        assert (line["event"], line["topic"], line["queue_id"]) == ("consume_queue.stopped", *ODD)
        assert (line["ends_at"], line["queue_offset"], line["offset"]) == (3, numbers[3], 315)
        assert "TopicTest/0 shows nothing from 3 on (5 messages)" in store.queues.stopped.describe()
    for crash in (False, True, True, False):
        async with running(device.mount(), is_slave=True, crash=crash) as store:
            assert (store.queues.range_of(*ODD), store.queues.range_of("Other", 0)) == ((0, 3), (0, 2))
            assert store.queues.stopped[ODD].messages == 5


async def test_a_start_after_a_clean_stop_takes_nothing_back(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount(), is_slave=True) as store:
        await feed(store, *MISSING)
        await feed(store, 0, 1, topic="Other")
    with capture_logs() as logs:
        async with running(device.mount(), is_slave=True) as store:
            assert store.recovery.total_bytes == 0, "nothing was left to be dispatched"
    assert [line["event"] for line in logs if line["log_level"] == "error"] == ["consume_queue.stopped"]


async def test_a_queue_that_stopped_before_its_first_message_goes_on_with_a_0th(autojump_clock: MockClock) -> None:
    """That is just its next place, and it counted as stopped still: what came after that was passed over."""
    device = SimDisk()
    async with running(device.mount(), is_slave=True) as store:
        await feed(store, -1)
        assert ODD in store.queues.stopped
        for number in range(3):
            await feed(store, number)
        assert (store.queues.range_of(*ODD), store.queues.stopped) == ((0, 3), {})
    async with running(device.mount(), is_slave=True) as store:
        assert (store.queues.range_of(*ODD), store.queues.stopped) == ((0, 3), {})


async def test_a_place_that_one_record_alone_claims_is_not_counted_at_a_start_either(
    autojump_clock: MockClock,
) -> None:
    """A bit flipped in it: half messages go on where the others lead, and a million places are not left out."""
    device, half = SimDisk(), "RMQ_SYS_TRANS_HALF_TOPIC"
    for crash in (False, True, False):
        async with running(device.mount(), is_slave=True, crash=crash) as store:
            if not store.max_offset:
                await feed(store, 0, 1, 2, 3 | 1 << 20, 4, 5, topic=half)
            await store.recover_topic_queue_table()
            assert store.next_queue_offset(half, 0) == 6


@pytest.mark.parametrize("numbers", [TAKEN, MISSING])
async def test_a_master_takes_no_message_for_it(
    numbers: tuple[int, ...], autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Acknowledged, it would be seen by nobody, and whatever position it got might be another's."""
    device = SimDisk()
    async with running(device.mount(), is_slave=True) as store:
        await feed(store, *numbers)
    async with running(device.mount()) as store:
        puts = [message(topic=topic) for topic in ("Other", "TopicTest", "Other", "TopicTest", "Other")]
        results = await store.put_messages_when_allocated(puts)
        refused, taken = PutMessageStatus.SERVICE_NOT_AVAILABLE, PutMessageStatus.PUT_OK
        assert [result.status for result in results] == [taken, refused, taken, refused, taken]
        assert [result.queue_offset for result in results[::2]] == [0, 1, 2]
        assert "TopicTest/0 takes no messages" in results[1].remark
        assert store.next_queue_offset(*ODD) == max(numbers) + 1
        appended, put = list[int](), store.commit_log.put_messages

        def note(requests: Sequence[PutRequest]) -> list[AppendResult]:
            appended.append(len(requests))
            return put(requests)

        monkeypatch.setattr(store.commit_log, "put_messages", note)
        store.put_messages([message(topic=topic) for topic in ("Other", "Other", "TopicTest", "TopicTest", "Other")])
        assert appended == [2, 1], "what can be appended together is"


async def test_a_0th_message_begins_it_anew(autojump_clock: MockClock) -> None:
    async with running(SimDisk().mount(), is_slave=True) as store:
        await feed(store, *MISSING, 0, 1)
        assert (store.queues.range_of(*ODD), store.queues.stopped.describe()) == ((0, 2), "")


async def test_when_its_topic_is_deleted_no_position_is_given_again(autojump_clock: MockClock) -> None:
    """The topic made again began at 0: consumers that had committed more saw nothing of it."""
    device = SimDisk()
    async with running(device.mount(), is_slave=True) as store:
        await feed(store, 0, 1, 2, 5)
    async with running(device.mount()) as store:
        assert store.next_queue_offset(*ODD) == 6
        store.queues.hide({ODD: DeletedQueue(6, store.max_offset)})
        store.queues.drop_hidden([ODD], before=store.max_offset)
        await trio.sleep(5)
        assert (store.queues.range_of(*ODD), store.queues.stopped.describe()) == ((6, 6), "")
        (result,) = await store.put_messages_when_allocated([message()])
        assert (result.status, result.queue_offset) == (PutMessageStatus.PUT_OK, 6)
        await dispatched(store)
        assert (store.queues.range_of(*ODD), store.queues.stopped.describe()) == ((6, 7), "")


@pytest.mark.parametrize("later", [(), (3, 4)])
async def test_so_it_is_when_it_stopped_before_it_had_any_message(
    later: tuple[int, ...], autojump_clock: MockClock
) -> None:
    """Of one without files nothing was put aside: the topic made again took no message before the next start."""
    device = SimDisk()
    async with running(device.mount(), is_slave=True) as store:
        await feed(store, 2**61, 2)
    async with running(device.mount(), is_slave=bool(later)) as store:
        deleted = DeletedQueue(3, store.max_offset)
        assert ODD in store.queues.stopped
        await feed(store, *later)
        store.queues.hide({ODD: deleted})
        store.queues.drop_hidden([ODD], before=deleted.before)
        await trio.sleep(5)
        assert store.queues.stopped.describe() == ""
        if not later:
            (result,) = await store.put_messages_when_allocated([message()])
            assert (result.status, result.queue_offset) == (PutMessageStatus.PUT_OK, 3)
            await dispatched(store)
        assert store.queues.range_of(*ODD) == (3, 4 + bool(later))


async def test_so_it_is_when_it_stopped_while_it_was_put_aside_for_an_earlier_deletion(
    autojump_clock: MockClock,
) -> None:
    async with running(SimDisk().mount(), is_slave=True) as store:
        await feed(store, 2)
        for numbers, has_stopped in (((2**61,), True), ((), False)):
            deleted = DeletedQueue(3, store.max_offset)
            store.queues.hide({ODD: deleted})
            store.queues.drop_hidden([ODD], before=deleted.before)
            await feed(store, *numbers)
            await trio.sleep(5)
            assert (ODD in store.queues.stopped) == has_stopped


async def test_so_it_is_when_it_is_built_again(autojump_clock: MockClock) -> None:
    """What comes meanwhile is dispatched then."""
    async with running(SimDisk().mount(), is_slave=True) as store:
        await feed(store, *TAKEN)
        for numbers in ((4,), (9,), ()):
            store.queues.note_missing("/store/consumequeue/TopicTest/0", damaged="a file")
            store.queues.take_out_missing()
            await feed(store, *numbers)
            await trio.sleep(5)
            assert (store.queues.range_of(*ODD), store.running_flags.final_error) == ((0, 3), None)
        assert store.queues.stopped[ODD].messages == 5


async def test_a_queue_that_was_lost_when_it_stopped_is_whole_before_that(autojump_clock: MockClock) -> None:
    async with running(SimDisk().mount(), is_slave=True) as store:
        await feed(store, 0, 1)
        store.queues.note_missing("/store/consumequeue/TopicTest/0", damaged="a file")
        store.queues.take_out_missing()
        await feed(store, 2, 7, 3)
        await trio.sleep(5)
        assert (store.queues.range_of(*ODD), store.queues.stopped[ODD].number) == ((0, 3), 7)
        assert store.running_flags.final_error is None


@pytest.mark.parametrize(("before", "behind"), [((0, 1, 2), (5, 6)), ((0, 1, 2, 3, 4), (1, 2))])
async def test_it_goes_on_when_what_was_before_has_gone_from_the_log(
    before: tuple[int, ...], behind: tuple[int, ...], autojump_clock: MockClock
) -> None:
    """The rest is what the log holds of it, and that alone says where it begins."""
    device, clock = SimDisk(), Clock()
    async with running(device.mount(), is_slave=True) as store:
        await feed(store, *before)
        await feed(store, *range(SEGMENT // 1000 + 1), topic="Other", size=1000)
        await feed(store, *behind)
    async with running(device.mount(), now_ms=clock) as store:
        assert store.queues.range_of(*ODD) == (0, len(before))
        clock.now_ms += 1000 * 3600 * 1000
        store.cleaner.execute_delete_files_manually()
        await trio.sleep(300)
        first, end = behind[0], behind[-1] + 1
        assert (store.queues.range_of(*ODD), store.queues.stopped.describe()) == ((first, end), "")
        (result,) = await store.put_messages_when_allocated([message()])
        assert (result.status, result.queue_offset) == (PutMessageStatus.PUT_OK, end)
        await dispatched(store)
        assert store.queues.range_of(*ODD) == (first, end + 1)


async def test_so_it_is_when_the_log_begins_elsewhere_without_a_cleaning(autojump_clock: MockClock) -> None:
    """As a member's log does whose leader has nothing earlier: its queue stood until a restart."""
    async with running(SimDisk().mount(), is_slave=True) as store:
        await feed(store, 0, 1, 2)
        await feed(store, *range(SEGMENT // 1000 + 1), topic="Other", size=1000)
        await feed(store, 5, 6)
        await commit_log(store).queue.delete_first_in_thread()
        assert await store.cleaner.clean() == 0
        await trio.sleep(5)
        assert (store.queues.range_of(*ODD), store.queues.stopped.describe()) == ((5, 7), "")


@pytest.mark.parametrize("crash", [False, True])
async def test_a_start_before_it_is_built_again_takes_nothing_back_of_the_others(
    crash: bool, autojump_clock: MockClock
) -> None:
    """Nothing told that the queue was right: all were built again from the whole log, before anybody was served."""
    device = SimDisk()
    async with running(device.mount(), is_slave=True, crash=crash) as store:
        await feed(store, 0, 1, 2)
        await feed(store, *range(SEGMENT // 1000 + 1), topic="Other", size=1000)
        await feed(store, 5, 6)
        await feed(store, *range(SEGMENT // 1000 + 1, 3 * SEGMENT // 1000 + 1), topic="Other", size=1000)
        await store.flush_now(store.max_offset)
        await trio.sleep(60)
        await commit_log(store).queue.delete_first_in_thread()
    with capture_logs() as logs:
        async with running(device.mount(), is_slave=True) as store:
            assert (store.recovery.total_bytes == 0) is not crash, "a clean stop leaves nothing to be dispatched"
            assert not [line for line in logs if line["event"] == "consume_queues.rebuilt"]
            assert (ODD in store.queues.stopped, [*store.queues.lost]) == (True, [ODD])
            await trio.sleep(5)
            assert (store.queues.range_of(*ODD), store.queues.stopped.describe()) == ((5, 7), "")
            assert store.running_flags.final_error is None
    async with running(device.mount(), is_slave=True) as store:
        assert (store.queues.range_of(*ODD), store.queues.stopped.describe()) == ((5, 7), "")


async def test_so_does_one_that_stopped_where_it_had_no_message_behind_a_deletion(autojump_clock: MockClock) -> None:
    """The cleaning ended the broker: there was no such queue any more."""
    clock = Clock()
    async with running(SimDisk().mount(), is_slave=True, now_ms=clock) as store:
        await feed(store, 0, 1, 2)
        store.queues.hide({ODD: DeletedQueue(3, store.max_offset)})
        store.queues.drop_hidden([ODD], before=store.max_offset)
        assert store.queues.take_out_missing()
        await feed(store, 1 << 62)
        await trio.sleep(5)
        assert (store.queues.stopped[ODD].number, store.queues.find(*ODD)) == (1 << 62, None)
        await feed(store, *range(SEGMENT // 1000 + 1), topic="Other", size=1000)
        await feed(store, 3, 4)
        await store.flush_now(store.max_offset)
        clock.now_ms += 1000 * 3600 * 1000
        store.cleaner.execute_delete_files_manually()
        await trio.sleep(300)
        assert store.min_offset
        assert (store.queues.range_of(*ODD), store.queues.stopped.describe()) == ((3, 5), "")
        await feed(store, 5)
        assert (store.queues.range_of(*ODD), store.running_flags.final_error) == ((3, 6), None)


@pytest.mark.parametrize("queue_id", [-1, -(2**31)])
async def test_a_record_of_a_queue_that_cannot_be_stops_nothing(queue_id: int, autojump_clock: MockClock) -> None:
    """By one flipped bit dispatch of all topics ended for good, each start was refused, and named another place."""
    device = SimDisk()
    async with running(device.mount(), is_slave=True) as store:
        await feed(store, 0)
        with capture_logs() as logs:
            record = message(queue_id=queue_id).pack(queue_offset=1, physical_offset=105, store_timestamp_ms=5)
            store.append_raw(record, 105)
            await dispatched(store)
        (line,) = [line for line in logs if line["log_level"] == "error"]
        assert (line["event"], line["queue_id"], line["offset"]) == ("consume_queue.none", queue_id, 105)
        await feed(store, 1)
        await feed(store, 0, topic="Other")
        assert store.running_flags.final_error is None
    for is_lost in (False, True):
        if is_lost:
            device.remove("/store/consumequeue")
        with capture_logs() as logs:
            async with running(device.mount(), is_slave=True) as store:
                assert (store.queues.range_of(*ODD), store.queues.range_of("Other", 0)) == ((0, 2), (0, 1))
                assert (store.recovery.total_bytes > 0) == is_lost, "of a clean stop nothing is dispatched again"


@pytest.mark.parametrize("number", [1 << 62, (1 << 63) - 1, -1, -5])
async def test_a_number_that_none_can_have_does_not_count(number: int, autojump_clock: MockClock) -> None:
    """A master would have gone on behind it, which no queue can hold."""
    device = SimDisk()
    async with running(device.mount(), is_slave=True) as store:
        await feed(store, 0, 1, 2)
        device.creation_s = 10.0
        store.queues.note_missing("/store/consumequeue/TopicTest/0", damaged="a file")
        store.queues.take_out_missing()
        await feed(store, number)
        assert (store.queues.range_of(*ODD), [*store.queues.lost]) == ((0, 3), [ODD])
        device.creation_s = 0.0
        await trio.sleep(60)
        assert (store.queues.range_of(*ODD), store.queues.stopped[ODD].number) == ((0, 3), number)
        assert next_queue_offsets(store.commit_log, store.queues, dispatched=0)[ODD] == 3


async def test_a_damaged_queue_is_built_again_before_it_stops(autojump_clock: MockClock) -> None:
    """Its last unit leads nowhere: perhaps the record would fit, if only the queue were right."""
    device = SimDisk()
    async with running(device.mount(), is_slave=True) as store:
        await feed(store, 0, 1, 2)
        file = device.files["/store/consumequeue/TopicTest/0/00000000000000000000"]
        file.write((7).to_bytes(8, "big"), 2 * UNIT_SIZE)
        with capture_logs() as logs:
            await feed(store, 9)
            await trio.sleep(5)
        events = [line["event"] for line in logs if line["log_level"] in {"warning", "error"}]
        assert events == ["consume_queue.lost", "consume_queue.stopped"]
        assert (store.queues.range_of(*ODD), store.running_flags.final_error) == ((0, 3), None)
        assert file is not device.files["/store/consumequeue/TopicTest/0/00000000000000000000"]


async def test_many_are_told_in_a_few_words(autojump_clock: MockClock) -> None:
    async with running(SimDisk().mount(), is_slave=True) as store:
        for number in range(7):
            await feed(store, 0, 5, topic=f"t{number}")
        assert "; and 2 more; see docs/operations.md" in store.queues.stopped.describe()


def test_what_waited_for_a_stopped_queue_goes_to_none_that_is_lost() -> None:
    """That one may have stopped, too: its files alone would tell."""
    stopped = StoppedQueues()
    for queue_id in (1, 2):
        stopped["t", queue_id] = StoppedQueue(3, 5, 315, 300, next=6, last=315)
    assert stopped.instead_of("t", 0, lost={("t", 0)}) == 0, "nothing is known against it"
    assert stopped.instead_of("t", 1, lost={("u", 0)}) == 0
    assert stopped.instead_of("t", 1, lost={("t", 0)}) == 3
    assert stopped.instead_of("t", 1, lost={("t", 0), ("t", 3)}) == 4
