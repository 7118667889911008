"""DLedgerCommitLog: messages in entries, and a store that lives on them."""

import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rmqha.codec.checkpoint import Checkpoint
from rmqha.codec.dledger_entry import BODY_OFFSET, DLedgerEntry
from rmqha.codec.record.layout import SysFlag, physical_offset_at
from rmqha.codec.record.message import decode_message
from rmqha.dledger.dledger_exception import DLedgerException, DLedgerResponseCode
from rmqha.dledger.term_barrier import barrier_body
from rmqha.errors import CorruptLogError, StoreError
from rmqha.replication.role import Role, RoleKind
from rmqha.store.log import PutRequest
from rmqha.store.log_recovery import DurableKnowledge
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.parts import make_parts
from rmqha.store.recovery_progress import RecoveryProgress
from rmqha.store.status import PutMessageStatus
from rmqha.store.store_log import StoreGround, StoreLog
from tests.dledger.ledger_log import LedgerLog, ledger_log
from tests.dledger.members import DATA_SIZE, put
from tests.settings import clean_options
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import Clock, batch_of, bodies, dispatched, message, options

S = PutMessageStatus
LARGE_FILES: dict[str, Any] = {"mapped_file_size_for_entry_data": 4 << 20, "mapped_file_size_for_entry_index": 1 << 20}


def test_a_message_lies_behind_its_entrys_header_and_knows_where() -> None:
    log = ledger_log()
    results = log.put_messages([message(b"%d" % number) for number in range(12)])
    assert [result.queue_offset for result in results] == list(range(12))
    assert len(log.files.files) > 2, "files were ended"
    for index, result in enumerate(results):
        entry = log.ledger.get(index)
        assert result.wrote_offset == entry.pos + BODY_OFFSET
        assert physical_offset_at(memoryview(entry.body)) == result.wrote_offset
        record = log.record_at(result.wrote_offset, end=log.max_offset)
        assert record is not None
        assert bytes(record) == entry.body
        assert decode_message(record).body == b"%d" % index
    assert log.wrote.value == log.max_offset == results[-1].end_offset


def test_no_record_is_seen_that_ends_behind_what_may_be_seen() -> None:
    """Else a message that no majority has is shown to who asks for it by its offset."""
    log = ledger_log()
    first, second = log.put_messages([message(b"1"), message(b"2")])
    for end in (first.end_offset, second.wrote_offset, second.end_offset - 1):
        assert log.record_at(first.wrote_offset, end=end) is not None
        assert log.record_at(second.wrote_offset, end=end) is None
    assert log.record_at(second.wrote_offset, end=second.end_offset) is not None


def test_each_message_of_a_batch_is_an_entry() -> None:
    log = ledger_log()
    batch = batch_of(*[message(b"%d" % number) for number in range(7)])
    (result,) = log.put_messages([batch])
    assert log.ledger.ledger_end_index == 6
    assert result.offsets == tuple(log.ledger.get(index).pos + BODY_OFFSET for index in range(7))
    assert (result.queue_offset, result.end_offset) == (0, log.max_offset)
    assert log.next_queue_offset("TopicTest", 0) == 7


def test_a_large_batch_is_appended_in_turns_and_nothing_comes_in_between() -> None:
    log = ledger_log(pending_max=10, **LARGE_FILES)
    batch, single = batch_of(*[message(b"%d" % number) for number in range(5000)]), message(b"behind it")
    requests: list[PutRequest] = [message(b"before"), batch, single]
    results, turns = log.put_messages(requests), 1
    assert 0 < log.ledger.ledger_end_index < 5000
    assert (len(results), log.has_begun(batch), log.has_begun(single)) == (1, True, False)
    while len(results) < 3:
        results += log.put_messages(requests[len(results) :])
        turns += 1
    assert (turns, log.has_begun(batch)) == (3, False)
    assert [result.queue_offset for result in results[:2]] == [0, 1]
    assert results[1].offsets == tuple(log.ledger.get(index).pos + BODY_OFFSET for index in range(1, 5001))
    assert results[1].end_offset == log.ledger.end_of(5000)
    assert results[2].status is S.OS_PAGECACHE_BUSY, "the batch itself was counted once"


def test_a_batch_whose_leadership_ends_between_two_turns_is_in_doubt() -> None:
    log = ledger_log(**LARGE_FILES)
    batch = batch_of(*[message(b"%d" % number) for number in range(5000)])
    assert log.put_messages([batch]) == []
    log.lead(2)
    (result,) = log.put_messages([batch])
    assert (result.status, result.remark[:31]) == (S.UNKNOWN_ERROR, "a part of the batch is stored: ")
    assert log.ledger.ledger_end_index < 5000


def test_a_batch_that_is_refused_at_its_first_message_is_not_in_doubt() -> None:
    """Nothing of it is stored: its producer may send it elsewhere without having it twice."""
    log = ledger_log(**LARGE_FILES)
    log.ledger.room.set_disk_full(True)
    (result,) = log.put_messages([batch_of(message(b"0"), message(b"1"))])
    assert result.status not in {S.PUT_OK, S.UNKNOWN_ERROR}
    assert log.ledger.ledger_end_index == -1


def test_a_batch_that_is_begun_and_given_up_is_forgotten() -> None:
    log = ledger_log(**LARGE_FILES)
    batch = batch_of(*[message(b"%d" % number) for number in range(5000)])
    assert log.put_messages([batch]) == []
    assert log.put_messages([message(b"of somebody else")])[0].status is S.PUT_OK
    assert not log.has_begun(batch)


def test_what_no_entry_can_hold_is_illegal_and_uses_up_nothing() -> None:
    log = ledger_log()
    room = DATA_SIZE - 8 - BODY_OFFSET
    rollback = message(b"", sys_flag=SysFlag.TRANSACTION_ROLLBACK)
    requests: list[PutRequest] = [
        message(size=room + 1), batch_of(message(b"1"), message(size=room + 1)), batch_of(),
        batch_of(message(queue_id=-1)), message(queue_id=-1), message(size=room), rollback,
    ]  # fmt: skip
    results = log.put_messages(requests)
    assert [result.status for result in results] == [*[S.MESSAGE_ILLEGAL] * 5, S.PUT_OK, S.PUT_OK]
    assert log.ledger.ledger_end_index == 1
    assert log.next_queue_offset("TopicTest", 0) == 1, "a rollback enters no queue"


def test_refusals_say_that_nothing_is_stored() -> None:
    """Spec: dledger §6.6; but what only the leader may do is answered by others as a slave's broker does (14)."""
    log = ledger_log(pending_max=1)
    assert [result.status for result in log.put_messages([message()] * 3)] == [S.PUT_OK, S.PUT_OK, S.OS_PAGECACHE_BUSY]
    log.confirm_all()
    log.state.transferee = "n1"
    assert log.put_messages([message()])[0].status is S.OS_PAGECACHE_BUSY
    log.ledger.room.set_disk_full(True)
    log.state.transferee = None
    assert log.put_messages([message()])[0].status is S.SERVICE_NOT_AVAILABLE
    log.follow(2)
    (refused,) = log.put_messages([message()])
    assert (refused.status, log.ledger.ledger_end_index) == (S.SERVICE_NOT_AVAILABLE, 1)


async def test_what_is_durable_here_waits_for_a_majority_all_the_same() -> None:
    """A leader that is cut off would take messages until its disk is full."""
    log = ledger_log(pending_max=1)
    assert [result.status for result in log.put_messages([message()] * 2)] == [S.PUT_OK, S.PUT_OK]
    assert await log.ledger.flush_in_thread()
    assert log.put_messages([message()])[0].status is S.OS_PAGECACHE_BUSY
    await log.commit()
    assert log.put_messages([message()])[0].status is S.PUT_OK


def test_what_is_refused_takes_no_place_in_its_queue() -> None:
    """Consumers wait at a place that no message has."""
    log = ledger_log()
    log.put_messages([message(b"0")])
    for full in (True, False):
        log.ledger.room.set_disk_full(full)
        (result,) = log.put_messages([message(b"1")])
    assert (result.status, result.queue_offset) == (S.PUT_OK, 1)


def test_confirmed_is_what_is_committed_and_durable_here() -> None:
    log = ledger_log()
    log.append(b"0")
    log.ledger.update_committed_index(1, 0)
    assert not log.refresh(), "committed by others, but a power cut would take it here"
    log.confirm_all()
    end = log.max_offset
    log.append(b"1")
    trio.run(log.flush_in_thread, log.max_offset)
    assert (log.confirmed, log.flushed.value) == (end, log.max_offset)


def test_a_body_that_is_no_message_ends_dispatch_there() -> None:
    log = ledger_log()
    log.append(b"0")
    end = log.max_offset
    put(log.ledger, b"of another kind of client")
    log.refresh()
    assert len(log.records(0, end)[0]) == 1
    with pytest.raises(CorruptLogError, match="not one message"):
        log.records(end, log.max_offset)


def test_an_entry_that_lies_elsewhere_is_corrupt() -> None:
    log = ledger_log()
    log.append(b"0")
    file = log.ledger.data_file_list.mapped_files[0].file()
    file.pwrite([struct.pack(">q", 7)], 24)
    with pytest.raises(CorruptLogError, match=r"no entry begins here: magic 1, size \d+, pos 7"):
        log.records(0, log.max_offset)


def test_reading_goes_on_at_a_message_too_and_behind_blanks() -> None:
    log = ledger_log()
    results = log.put_messages([message(size=200) for _ in range(5)])
    found, at = list[int](), results[1].wrote_offset
    while at < log.max_offset:
        requests, at = log.records(at, log.max_offset)
        found += [one.commit_log_offset for one in requests]
    assert found == [result.wrote_offset for result in results[1:]]
    assert log.records(log.max_offset, log.max_offset) == ([], log.max_offset)


def test_extents_know_what_they_hold() -> None:
    log = ledger_log()
    log.put_messages([message(size=100 + number) for number in range(9)])
    for extent in log.extents():
        sizes, at = 0, extent.begin
        while at < extent.end:
            requests, at = log.records(at, extent.end)
            sizes += sum(one.msg_size for one in requests)
        assert extent.holds_just(sizes)
        assert not extent.holds_just(sizes - 1)


def test_the_extent_in_which_one_begins_to_read_is_among_them() -> None:
    log = ledger_log()
    log.put_messages([message(size=100 + number) for number in range(9)])
    begins = [extent.begin for extent in log.extents()]
    assert len(begins) > 2
    assert [extent.begin for extent in log.extents(begins[1] + 60)] == begins[1:]


def test_of_a_message_that_ends_behind_the_limit_nothing_is_told() -> None:
    """What is behind it is not confirmed, or not there: a consumer would have what may be cut."""
    log = ledger_log()
    log.put_messages([message(b"1"), message(b"2"), message(b"3")])
    third = log.ledger.get(2).pos
    for end in (third + 8, third + 60, log.max_offset - 1):
        found, behind = log.records(0, end)
        assert (len(found), behind) == (2, third)
    assert (len(log.records(0, log.max_offset)[0]), log.records(0, third)[1]) == (3, third)


def test_entries_of_files_that_vanished_are_not_looked_for() -> None:
    """A follower that lacks them is given what comes behind them; it would wait for them for ever."""
    disk = SimDisk(latency_s=(0, 0)).mount()
    log = ledger_log(disk)
    log.put_messages([message(size=100 + number) for number in range(9)])
    log.confirm_all()
    second = next(index for index in range(9) if log.ledger.get(index).pos >= DATA_SIZE)
    gone = log.files.files[0].path
    disk.unlink(gone)
    assert [file.path for file in log.files.forget_vanished()] == [gone]
    assert log.ledger.ledger_begin_index == second
    with pytest.raises(DLedgerException) as raised:
        log.ledger.get(second - 1)
    assert raised.value.code is DLedgerResponseCode.INDEX_LESS_THAN_LOCAL_BEGIN


def test_a_copy_of_a_message_in_the_body_of_another_is_none() -> None:
    """A consumer's request names any offset."""
    log = ledger_log()
    (first,) = log.put_messages([message(b"0")])
    record = log.record_at(first.wrote_offset, end=log.max_offset)
    assert record is not None
    (second,) = log.put_messages([message(bytes(record))])
    whole = log.record_at(second.wrote_offset, end=log.max_offset)
    assert whole is not None
    copied_to = second.wrote_offset + bytes(whole).index(bytes(record))
    assert log.record_at(copied_to, end=log.max_offset) is None


def test_extents_know_of_the_entries_by_which_leaders_began() -> None:
    """No queue has them: a data file with one was read record by record at each start."""
    log, sizes = ledger_log(**LARGE_FILES), 0
    for term in (1, 2, 5):
        log.lead(term)
        log.ledger.append_as_leader(DLedgerEntry(barrier_body(log.ledger, now_ms=1)))
        log.refresh()
        sizes += sum(one.wrote_bytes for one in log.put_messages([message(size=100 + n) for n in range(9)]))
    [extent] = log.extents()
    assert extent.holds_just(sizes)
    barrier_bytes = len(barrier_body(log.ledger, now_ms=1))
    wrong = (sizes - 1, sizes - 100, sizes - barrier_bytes, sizes + barrier_bytes, sizes + 3 * barrier_bytes + 1)
    assert not any(extent.holds_just(size) for size in wrong)


@pytest.mark.parametrize("size", range(200, 400, 16))
def test_the_entry_by_which_a_leader_began_knows_where_it_lies_at_the_end_of_a_file(size: int) -> None:
    """Its message alone may have had room there, and does not without the entry's header."""
    log = ledger_log()
    log.put_messages([message(size=size - BODY_OFFSET)])
    entry = log.ledger.append_as_leader(DLedgerEntry(barrier_body(log.ledger, now_ms=1)))
    assert entry.pos in (size, DATA_SIZE)
    assert physical_offset_at(memoryview(entry.body)) == entry.pos + BODY_OFFSET


def test_older_messages_that_a_follower_reads_are_told_of_though_fresh_ones_come_with_them() -> None:
    """Nobody has compared their CRCs since; fresh ones a leader sent from memory, and its own it has checked."""
    disk, clock = SimDisk(latency_s=(0, 0)).mount(), Clock()
    log = ledger_log(disk, ground=StoreGround(options(), disk, now_ms=clock))
    told = list[list[int]]()
    log.check_taken = lambda found: told.append([request.queue_offset for request in found])
    log.append(b"0")
    clock.now_ms += 9_000
    log.append(b"1")
    log.follow(2)
    assert len(log.records(0, log.max_offset)[0]) == 2
    assert told == []
    clock.now_ms += 2_000
    log.records(0, log.max_offset)
    assert told == [[0, 1]]
    log.lead(3)
    log.records(0, log.max_offset)
    assert told == [[0, 1]]


def log_without_a_file_of_its_index(disk: SimDisk) -> LedgerLog:
    log = ledger_log(disk.mount())
    for number in range(25):
        log.append(b"%d" % number)
    log.confirm_all()
    log.close()
    mount = disk.mount()
    mount.unlink(f"{INDEX}/{min(mount.listdir(INDEX))}")
    return ledger_log(mount)


INDEX = "/store/dledger-n0/index"
LACKS: dict[str, Callable[[LedgerLog], object]] = {
    "extents": lambda log: log.extents(),
    "truncate": lambda log: log.truncate(0),
    "recover": lambda log: log.recover(
        DurableKnowledge(clean=False, checkpoint=Checkpoint()), check_crc=True, progress=RecoveryProgress()
    ),
}


@pytest.mark.parametrize("method", LACKS)
def test_an_index_that_lacks_a_file_is_said_with_what_to_do(method: str) -> None:
    """Nobody expects DLedger's codes of a Log: a start failed without a reason, and a takeover ended a broker."""
    disk = SimDisk(latency_s=(0, 0))
    log = log_without_a_file_of_its_index(disk)
    with pytest.raises(StoreError, match=r"index has no unit for entry .* move that directory away"):
        LACKS[method](log)
    log.refresh()
    log.close()
    mount = disk.mount()
    for name in mount.listdir(INDEX):
        mount.unlink(f"{INDEX}/{name}")
    log = ledger_log(mount)
    assert len(log.extents()) == len(log.files.files)
    assert log.ledger.get(0).index == 0


def test_what_is_no_entry_at_the_very_end_of_a_file_is_corrupt() -> None:
    log = ledger_log()
    log.append(b"0")
    [file] = log.ledger.data_file_list.mapped_files
    at = DATA_SIZE - 10
    file.file().pwrite([struct.pack(">ii", 7, 10)], at)
    file.take_as_written(DATA_SIZE)
    with pytest.raises(CorruptLogError, match="no entry begins here"):
        log.records(at, DATA_SIZE)


def test_a_follower_takes_whole_entries_and_begins_nowhere_by_itself() -> None:
    source, log = ledger_log(), ledger_log()
    source.append(b"0")
    log.follow(1)
    data = memoryview(bytes(source.ledger.data_file_list.mapped_files[0].view()[: source.max_offset]))
    with pytest.raises(StoreError, match="no entry that lies there"):
        log.append_raw(data, 48)
    with pytest.raises(StoreError, match="begins with its leader's entry"):
        log.start_at(512)
    assert log.append_raw(data, 0) == len(data)
    assert log.max_offset == source.max_offset


def test_an_end_before_what_the_queues_know_is_damage() -> None:
    disk = SimDisk(latency_s=(0, 0))
    log = ledger_log(disk.mount())
    log.append(b"0")
    log.confirm_all()
    known = DurableKnowledge(clean=False, checkpoint=Checkpoint(), queues_end=log.max_offset + 1)
    with pytest.raises(CorruptLogError, match="move this member's whole store directory away"):
        log.recover(known, check_crc=True, progress=RecoveryProgress())


class LedgerStore:
    """One life of a store on DLedger's log, of a leader that is given its majority by the test."""

    def __init__(self, device: SimDisk, *, files: dict[str, int] | None = None, **changes: Any) -> None:
        ground = StoreGround(options(**changes), device.mount(), now_ms=Clock())
        self.log = LedgerLog(ground.disk, ground=ground, **files or {})
        log: StoreLog = self.log
        self.store = DefaultMessageStore(make_parts(ground, log, role=Role()))

    async def put(self, *bodies: bytes) -> int:
        results = await self.store.put_messages_when_allocated([message(body) for body in bodies])
        assert {result.status for result in results} == {S.PUT_OK}
        return results[0].queue_offset

    async def commit(self) -> None:
        await self.log.commit()
        self.store.confirm()
        await dispatched(self.store)

    def bodies(self) -> list[bytes]:
        """What a consumer is shown of queue 0."""
        return bodies(self.store)


@asynccontextmanager
async def living(device: SimDisk, *, crash: bool = False, term: int = 1, **changes: Any) -> AsyncIterator[LedgerStore]:
    """Loaded and serving; stopped cleanly at the end, or just dropped."""
    ledger = LedgerStore(device, **changes)
    ledger.store.load()
    ledger.log.lead(term)
    ledger.store.connect_replication(confirmed=lambda: ledger.log.confirmed)
    async with trio.open_nursery() as nursery:
        await nursery.start(ledger.store.run)
        yield ledger
        if crash:
            nursery.cancel_scope.cancel()
        else:
            ledger.store.stop()


async def test_consumers_see_what_is_committed_and_a_cut_takes_the_rest(autojump_clock: MockClock) -> None:
    async with living(SimDisk()) as ledger:
        await ledger.put(b"0", b"1")
        await ledger.store.flush_now(ledger.store.max_offset)
        await trio.sleep(1)
        assert ledger.bodies() == [], "no majority has them"
        await ledger.commit()
        assert ledger.bodies() == [b"0", b"1"]
        assert ledger.store.earliest_message_time_ms() == Clock()()
        end = ledger.store.max_offset
        assert await ledger.put(b"of another term", b"and another") == 2
        ledger.log.cut(end)
        await ledger.store.recover_topic_queue_table()
        assert (ledger.store.max_offset, ledger.store.flushed_offset) == (end, end)
        assert await ledger.put(b"2") == 2
        await ledger.commit()
        assert ledger.bodies() == [b"0", b"1", b"2"]
        with pytest.raises(StoreError, match="is confirmed up to"):
            ledger.log.truncate(end)


@pytest.mark.parametrize("crash", [False, True])
async def test_a_start_finds_all_again(autojump_clock: MockClock, crash: bool) -> None:
    device, bodies = SimDisk(), [b"%d" % number for number in range(25)]
    async with living(device, crash=crash) as ledger:
        await ledger.put(*bodies)
        await ledger.commit()
        await ledger.log.ledger.persist_check_point_in_thread()
        assert ledger.bodies() == bodies
    async with living(device, term=2) as ledger:
        await ledger.commit()
        assert ledger.store.reput_from_offset == ledger.store.max_offset
        assert ledger.bodies() == bodies
        assert await ledger.put(b"25") == 25
        await ledger.commit()
        assert ledger.bodies() == [*bodies, b"25"]
    assert not device.mount().exists("/store/abort")


async def test_a_crash_takes_what_was_not_flushed(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with living(device, crash=True) as ledger:
        await ledger.put(b"0", b"1")
        await ledger.commit()
        assert await ledger.put(b"2") == 2
        device.power_cut()
    async with living(device, term=2) as ledger:
        await ledger.commit()
        assert ledger.bodies() == [b"0", b"1"]
        assert await ledger.put(b"2 again") == 2


async def test_after_a_crash_dispatch_begins_where_the_queues_are_known_to_be_whole(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with living(device, crash=True) as ledger:
        await ledger.put(*[b"%d" % number for number in range(20)])
        await ledger.commit()
        assert await ledger.store.flush_service.flush()
        assert await ledger.store.parts.flush_queues.flush_all()
    ledger = LedgerStore(device)
    recovery = ledger.store.load()
    assert 0 < recovery.scanned_from == ledger.log.extents()[-1].begin
    ledger.store.close()


async def test_a_store_that_takes_no_puts_any_more_says_that_a_part_of_a_batch_is_there(
    autojump_clock: MockClock,
) -> None:
    async with living(SimDisk(), files=LARGE_FILES) as ledger:
        batch, single = batch_of(*[message(b"%d" % number) for number in range(5000)]), message()
        assert ledger.store.put_messages([batch, single]) == []
        ledger.store.role.become(RoleKind.CANDIDATE, term=2)
        results = ledger.store.put_messages([batch, single])
        assert [result.status for result in results] == [S.UNKNOWN_ERROR, S.SERVICE_NOT_AVAILABLE]


async def test_old_files_go_but_nothing_that_is_not_committed(autojump_clock: MockClock) -> None:
    device = SimDisk()
    clean = replace(clean_options(), delete_when=tuple(range(24)), file_reserved_time_s=1)
    async with living(device, clean=clean) as ledger:
        bodies = [b"%d" % number for number in range(20)]
        await ledger.put(*bodies)
        await ledger.store.flush_now(ledger.store.max_offset)
        assert await ledger.store.cleaner.clean() == 0, "no majority has them"
        await ledger.commit()
        count = len(ledger.log.files.files)
        assert await ledger.store.cleaner.clean() == count - 1 > 1
        begin = ledger.log.ledger.ledger_begin_index
        assert begin > 0
        assert (ledger.bodies(), ledger.store.get_min_offset_in_queue("TopicTest", 0)) == (bodies[begin:], begin)
        assert ledger.log.ledger.get(begin).index == begin
    async with living(device, term=2) as ledger:
        await ledger.commit()
        assert ledger.bodies() == bodies[begin:]


async def test_a_follower_far_behind_begins_anew_and_its_queues_with_it(autojump_clock: MockClock) -> None:
    """The leader has deleted what comes next: its TRUNCATE names the first entry that it still has."""
    async with living(SimDisk()) as leader, living(SimDisk()) as ledger:
        await leader.put(*[b"%d" % number for number in range(20)])
        await ledger.put(b"0", b"1")
        await ledger.commit()
        ledger.log.follow(1)
        first = leader.log.ledger.get(10)
        ledger.log.ledger.truncate(replace(first), 1, "n9")
        for index in range(11, 20):
            ledger.log.ledger.append_as_follower(leader.log.ledger.get(index), 1, "n9")
        await ledger.commit()
        assert ledger.bodies() == [b"%d" % number for number in range(10, 20)]
        assert ledger.store.get_min_offset_in_queue("TopicTest", 0) == 10
