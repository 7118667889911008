"""One delay level, whose queue may not be what it was a moment ago: each message is put once, and none holds it up."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.puts.internal_puts import PutMessageResult
from rmqha.broker.schedule.delay_offsets import DelayOffsets
from rmqha.broker.schedule.deliver_delayed_message import DeliverDelayedMessageTask
from rmqha.codec.host import parse_host
from rmqha.codec.record.encoder import PreparedRecord, prepare
from rmqha.codec.record.layout import SCHEDULE_TOPIC
from rmqha.codec.record.message import decode_message
from rmqha.errors import StoreReadError
from rmqha.store.status import AppendResult, GetMessageResult, GetMessageStatus, PutMessageStatus

HOST: Final = parse_host("10.0.0.1:10911")
FIRST, END = 3, 10
NOW_MS: Final = 1 << 40
SIZE: Final = 100
EACH = [b"%d" % number for number in range(20)]


def record(number: int) -> memoryview:
    properties = b"REAL_TOPIC\x01t\x02REAL_QID\x010\x02DELAY\x011"
    made = prepare(
        SCHEDULE_TOPIC,
        b"%d" % number,
        queue_id=0,
        born_timestamp_ms=0,
        born_host_raw=HOST,
        store_host_raw=HOST,
        properties_raw=properties,
    )
    return memoryview(made.pack(queue_offset=number, physical_offset=1000 * number, store_timestamp_ms=0))


@dataclass
class Store:
    """Of which a task sees one queue, [FIRST, end), all due; messages before ``log_begins`` went with the log's files.

    It is the store's table of queues, and its queue, as well.
    """

    end: int = END
    log_begins: int = FIRST
    is_unreadable: bool = False
    due_ms: int = 0
    """When the messages are due; each a millisecond after the one before."""
    reads: int = 0
    is_queue_unreadable: bool = False

    @property
    def queues(self) -> "Store":
        return self

    def next_queue_offset(self, _topic: str, _queue_id: int) -> int:
        return self.end

    def range_of(self, _topic: str, _queue_id: int) -> tuple[int, int]:
        return FIRST, self.end

    def find(self, _topic: str, _queue_id: int) -> "Store":
        return self

    def units(self, index: int, count: int) -> Iterator[tuple[int, int, int]]:
        """Of what lies before FIRST the file is gone."""
        if self.is_queue_unreadable:
            raise StoreReadError(OSError(5, "injected"), operation="pread", path="/q")
        places = range(index, min(index + count, self.end)) if index >= FIRST else ()
        return iter([(1000 * number, 100, self.due_ms + number) for number in places])

    def queue_for(self, _topic: str, queue_id: int) -> int:
        return queue_id

    def get_message(self, _topic: str, _queue_id: int, offset: int, *, max_msg_nums: int) -> GetMessageResult:
        self.reads += 1
        assert self.reads < 1000, "it is read again and again without a pause"
        if self.is_unreadable:
            return GetMessageResult(GetMessageStatus.OFFSET_OVERFLOW_ONE, offset, FIRST, self.end)
        begin = max(offset, self.log_begins)
        end = max(min(begin + max_msg_nums, self.end), begin)
        views = tuple(record(number) for number in range(begin, end))
        status = GetMessageStatus.FOUND if views else GetMessageStatus.MESSAGE_WAS_REMOVING
        return GetMessageResult(status, min(end, self.end), FIRST, self.end, views)


@dataclass
class Puts:
    """Of which each takes as many as ``takes`` says, all if it says nothing; each record has SIZE bytes of the log."""

    takes: list[int] = field(default_factory=list)
    put: list[bytes] = field(default_factory=list)
    log_end: int = 0

    async def put_all(self, records: list[PreparedRecord], *, wait: bool) -> list[PutMessageResult]:
        await trio.lowlevel.checkpoint()
        takes = self.takes.pop(0) if self.takes else len(records)
        results = []
        for number, one in enumerate(records):
            status = PutMessageStatus.PUT_OK if number < takes else PutMessageStatus.SERVICE_NOT_AVAILABLE
            if number < takes:
                packed = one.pack(queue_offset=0, physical_offset=0, store_timestamp_ms=0)
                self.put.append(bytes(decode_message(memoryview(packed)).body))
                append = AppendResult(status, self.log_end, SIZE)
                self.log_end = append.end_offset
            else:
                append = AppendResult(status, remark="full")
            results.append(PutMessageResult(status, append))
        return results


class Topics:
    def was_deleted(self, _topic: str, *, since: int) -> bool:
        return False


class Level:
    """The task, and what is known of how far it is."""

    def __init__(self, store: Store, puts: Puts, *, begins_at: int = FIRST) -> None:
        self.puts = puts
        self.settled = 1 << 40
        self.offsets = DelayOffsets(lambda: self.settled)
        self.offsets.replace_from_json({"offsetTable": {1: begins_at}})
        parts: dict[str, Any] = {"store": store, "topics": Topics(), "puts": puts}
        self.task = DeliverDelayedMessageTask(
            1, 1000, offsets=self.offsets, store_host_raw=HOST, now_ms=lambda: NOW_MS, **parts
        )

    async def deliver(self) -> list[bytes]:
        """All that is due now; returns the bodies that were put since the last look."""
        with trio.fail_after(100):
            await self.task.deliver_due(is_leading=lambda: True, is_outdated=lambda: False)
        bodies, self.puts.put = self.puts.put, []
        return bodies

    @property
    def offset(self) -> int:
        return dict(self.offsets)[1]


@pytest.mark.parametrize("begins_at", [0, FIRST])
@pytest.mark.parametrize("log_begins", [FIRST, 7, 9, END])
async def test_what_went_with_the_log_a_moment_ago_is_passed_over(
    begins_at: int, log_begins: int, autojump_clock: MockClock
) -> None:
    """Its places are in the queue still: none behind it is put twice, and none is waited for."""
    store = Store(log_begins=log_begins)
    level = Level(store, Puts(), begins_at=begins_at)
    assert await level.deliver() == EACH[log_begins:END]
    assert level.offset == END
    store.end += 2
    assert await level.deliver() == EACH[END : END + 2]


@pytest.mark.parametrize("takes", [[0], [3], [3, 1, 0, 2]])
async def test_what_is_not_put_comes_next_and_nothing_twice(takes: list[int], autojump_clock: MockClock) -> None:
    level = Level(Store(), Puts(takes))
    assert await level.deliver() == EACH[FIRST:END]
    assert level.offset == END
    assert trio.current_time() > 0, "it is tried again after a pause"


@pytest.mark.parametrize("takes", [[], [3], [0, 2, 4]])
async def test_nothing_counts_before_all_that_was_delivered_with_it_is_settled(
    takes: list[int], autojump_clock: MockClock
) -> None:
    """Else a level would go on behind messages that a crash, or another master, has taken out of the log."""
    level = Level(Store(), Puts(takes))
    level.settled = 0
    assert await level.deliver() == EACH[FIRST:END]
    counted = []
    for settled in range(0, level.puts.log_end + 1, SIZE // 2):
        level.settled = settled
        assert level.offset <= FIRST + settled // SIZE
        counted.append(level.offset)
    assert (counted[0], counted[-1]) == (FIRST, END)


async def test_a_queue_that_shows_nothing_where_it_has_something_is_looked_at_now_and_then(
    autojump_clock: MockClock,
) -> None:
    store = Store(is_unreadable=True)
    level = Level(store, Puts())

    async def become_readable() -> None:
        await trio.sleep(10)
        store.is_unreadable = False

    async with trio.open_nursery() as nursery:
        nursery.start_soon(become_readable)
        assert await level.deliver() == EACH[FIRST:END]
    assert 10 < store.reads < 40


@pytest.mark.parametrize(
    ("due_ms", "takes", "overdue_s"),
    [
        (NOW_MS - 5000, [0], 4.997),  # the first cannot be put
        (NOW_MS - 5000, [2, 0], 4.995),  # nor the third
        (NOW_MS - 5000, [], 0),
        (NOW_MS + 500, [], 0),  # none is due yet
        (NOW_MS + 9000, [0], 0),  # a clock was set back: since when it is due is not known
    ],
)
async def test_for_how_long_the_next_one_has_been_due(
    due_ms: int, takes: list[int], overdue_s: float, autojump_clock: MockClock
) -> None:
    level = Level(Store(due_ms=due_ms), Puts([*takes, *[0] * 1000] if takes else []))
    with trio.move_on_after(10):
        await level.deliver()
    assert level.task.overdue_s == overdue_s


async def test_a_level_whose_queue_cannot_be_read_is_overdue_still(autojump_clock: MockClock) -> None:
    """It has stopped; by the number it had nothing to deliver."""
    store = Store(due_ms=NOW_MS - 5000)
    level = Level(store, Puts([0] * 1000))
    for store.is_queue_unreadable in (False, True):
        with trio.move_on_after(10):
            await level.deliver()
        assert level.task.overdue_s == 4.997
