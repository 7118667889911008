"""recover_commit_log: where a log ends, what is cut, and when nothing may be cut."""

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from rmqha.codec.checkpoint import Checkpoint
from rmqha.codec.record.encoder import prepare
from rmqha.codec.record.layout import encode_blank
from rmqha.codec.record.scan import Stop
from rmqha.errors import CorruptLogError
from rmqha.store import log_recovery
from rmqha.store.log_recovery import DurableKnowledge, LogRecovery, recover_commit_log
from rmqha.store.mapped_file_queue import MappedFileQueue
from rmqha.store.os_disk import OsDisk
from tests.memory_log import inner_batch
from tests.sim.sim_disk import SimDisk

FILE_SIZE = 1024
HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
SIZE = 200
"""Bytes of each record: five fit into a segment."""

CRASH = DurableKnowledge(clean=False, checkpoint=Checkpoint(), is_blank=True)
LOST_CHECKPOINT = DurableKnowledge(clean=False, checkpoint=Checkpoint())
ROCKETMQ_CRASH = DurableKnowledge(clean=False, checkpoint=Checkpoint(0, 1))
"""RocketMQ's checkpoint: some time of the queues, and no durable offset."""
CLEAN = DurableKnowledge(clean=True, checkpoint=Checkpoint())


def record(offset: int, store_timestamp_ms: int = 1_000) -> bytes:
    prepared = prepare("T", bytes(SIZE - 92), queue_id=0, born_timestamp_ms=0, born_host_raw=HOST, store_host_raw=HOST)
    assert prepared.size == SIZE
    return prepared.pack(queue_offset=0, physical_offset=offset, store_timestamp_ms=store_timestamp_ms)


def segment(first: int, store_timestamp_ms: int = 1_000) -> bytes:
    """A full segment: five records and a blank of 24 bytes."""
    records = b"".join(record(first + i * SIZE, store_timestamp_ms + i) for i in range(5))
    return records + encode_blank(24) + bytes(16)


class Log:
    """A commitlog directory to damage and recover."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def put(self, *segments: bytes, first: int = 0) -> None:
        for number, data in enumerate(segments):
            path = self.directory / f"{first + number * FILE_SIZE:020d}"
            path.write_bytes(data.ljust(FILE_SIZE, b"\0"))

    def recover(self, known: DurableKnowledge, *, check_crc: bool = True) -> LogRecovery:
        queue = MappedFileQueue(OsDisk(), str(self.directory), file_size=FILE_SIZE)
        queue.load()
        recovery = recover_commit_log(queue, known=known, check_crc=check_crc)
        assert queue.max_offset == recovery.end
        queue.close()
        return recovery

    def bytes(self) -> bytes:
        return b"".join(path.read_bytes() for path in sorted(self.directory.iterdir()))


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def damaged(data: bytes, at: int, value: bytes = b"\xff") -> bytes:
    return data[:at] + value + data[at + len(value) :]


def records(first: int, times_ms: Iterable[int]) -> bytes:
    return b"".join(record(first + i * SIZE, ms) for i, ms in enumerate(times_ms))


@pytest.mark.parametrize("known", [CRASH, CLEAN])
def test_a_log_that_simply_ends(log: Log, known: DurableKnowledge) -> None:
    log.put(segment(0), records(1024, [2_000, 2_001]))
    recovery = log.recover(known)
    assert (recovery.end, recovery.records, recovery.last_store_timestamp_ms) == (1424, 7, 2_001)
    assert (recovery.stop, recovery.reason, recovery.dropped_records) == (Stop.ZERO, "", 0)


def test_what_is_written_again_is_what_was_there(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """A segment has a thousand pieces, and each its place."""
    monkeypatch.setattr(log_recovery, "_WRITE_BYTES", 300)
    log.put(segment(0), segment(1024, 2_000), records(2048, [3_000, 3_001]))
    before = log.bytes()
    assert log.recover(CRASH).end == 2448
    assert log.bytes() == before


def test_no_segment_is_an_empty_log(log: Log) -> None:
    assert log.recover(CLEAN) == LogRecovery(0, 0)


@pytest.mark.parametrize("known", [CRASH, CLEAN])
def test_a_blank_at_the_end_is_part_of_the_log(log: Log, known: DurableKnowledge) -> None:
    log.put(segment(0))
    assert log.recover(known).end == 1024


def test_a_spare_segment_behind_a_blank_stays_empty(log: Log) -> None:
    log.put(segment(0), b"")
    assert log.recover(CRASH).end == 1024
    log.put(segment(0) + bytes(0), records(1024, [5_000]), b"", b"")
    assert log.recover(CRASH).end == 1224
    assert len(log.bytes()) == 2048


def test_a_torn_tail_is_erased_and_stays_erased(log: Log) -> None:
    log.put(records(0, [1, 2]) + record(400)[:120])
    before = log.bytes()
    recovery = log.recover(CRASH)
    assert (recovery.end, recovery.stop, recovery.dropped_records) == (400, Stop.CORRUPT, 0)
    assert log.bytes() == before[:400] + bytes(624)
    again = log.recover(CRASH)
    assert (again.end, again.stop, again.reason) == (400, Stop.ZERO, "")


def test_what_a_stale_tail_holds_never_comes_back(log: Log) -> None:
    """The second crash of spec: commitlog §7.2, with records of one size."""
    log.put(records(0, [1]) + damaged(record(200), 100) + record(400, 3))
    assert log.recover(CRASH).end == 200
    data = log.bytes()
    log.put(damaged(data, 200, record(200, 9)))
    assert log.recover(CRASH).end == 400


def test_after_a_crash_unproven_records_go_and_are_counted(log: Log) -> None:
    log.put(flip_body(segment(0), 200), segment(1024, 2_000))
    recovery = log.recover(CRASH)
    assert (recovery.end, recovery.dropped_records) == (200, 8)
    assert len(log.bytes()) == 1024


def hole(data: bytes, at: int) -> bytes:
    return damaged(data, at, bytes(SIZE))


def flip_body(data: bytes, at: int) -> bytes:
    return damaged(data, at + 100)


@pytest.mark.parametrize("damage", [hole, flip_body])
@pytest.mark.parametrize(
    ("known", "proof"),
    [
        (CLEAN, "good records follow at 400, and the last stop was clean"),
        (DurableKnowledge(clean=True, checkpoint=Checkpoint(), queues_end=1000), "know records up to 1000"),
        (DurableKnowledge(clean=False, checkpoint=Checkpoint(1_003)), "durable, says the checkpoint"),
        (DurableKnowledge(clean=False, checkpoint=Checkpoint(), durable_offset=201), "durable up to 201"),
    ],
)
def test_damage_of_what_was_durable_stops_the_start(
    log: Log, damage: Callable[[bytes, int], bytes], known: DurableKnowledge, proof: str
) -> None:
    log.put(damage(segment(0), 200))
    before = log.bytes()
    with pytest.raises(CorruptLogError) as caught:
        log.recover(known)
    assert caught.value.offset == 200
    assert proof in caught.value.reason
    assert "position 200" in caught.value.reason
    assert log.bytes() == before


@pytest.mark.parametrize(
    "known",
    [
        DurableKnowledge(clean=False, checkpoint=Checkpoint(1_002)),  # of the same time as the record, not later
        DurableKnowledge(clean=False, checkpoint=Checkpoint(), durable_offset=200),
        DurableKnowledge(clean=True, checkpoint=Checkpoint(), queues_end=200),
    ],
)
def test_what_only_might_have_been_durable_is_cut(log: Log, known: DurableKnowledge) -> None:
    log.put(flip_body(segment(0), 200))
    assert log.recover(known).end == 200


def test_records_much_later_prove_that_the_bad_one_was_flushed(log: Log) -> None:
    log.put(damaged(records(0, [1_000, 1_000, 61_001]), 300))
    with pytest.raises(CorruptLogError, match="60001 ms later follow at 400"):
        log.recover(ROCKETMQ_CRASH)
    with pytest.raises(CorruptLogError, match="60001 ms later follow at 400"):
        log.recover(LOST_CHECKPOINT)
    marked = DurableKnowledge(clean=False, checkpoint=Checkpoint(99_999, 1), durable_offset=10)
    assert log.recover(marked).end == 200  # a mark is exact: no guess is needed


def test_a_log_that_never_was_durable_is_cut_whatever_its_clock_did(log: Log) -> None:
    log.put(damaged(records(0, [1_000, 1_000, 61_001]), 300))
    assert log.recover(CRASH).end == 200


def test_a_damaged_last_record_after_a_clean_stop_is_damage(log: Log) -> None:
    log.put(flip_body(records(0, [1, 2]), 200))
    with pytest.raises(CorruptLogError, match="a record was written here, and the last stop was clean"):
        log.recover(CLEAN)


def test_older_records_behind_the_end_are_leftovers(log: Log) -> None:
    """RocketMQ cuts in memory only: its old bytes may lie behind the new end, even after a clean stop."""
    log.put(records(0, [5_000]) + bytes([1]) * 30 + bytes(170) + record(400, 1_000))
    recovery = log.recover(CLEAN)
    assert (recovery.end, recovery.dropped_records) == (200, 0)
    assert log.bytes()[200:] == bytes(824)


def test_a_torn_blank_behind_which_the_log_never_went_on_is_cut(log: Log) -> None:
    log.put(damaged(segment(0), 1004), b"")
    assert log.recover(CRASH).end == 1000


def test_the_last_store_time_is_the_last_records(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqha.store.log_recovery.SCAN_BYTES", 2 * SIZE)
    log.put(records(0, [1_000, 1_001]))
    assert log.recover(CRASH).last_store_timestamp_ms == 1_001


def test_records_of_the_same_millisecond_are_no_leftovers(log: Log) -> None:
    log.put(damaged(records(0, [1_000] * 4), 2 * SIZE + 100))
    with pytest.raises(CorruptLogError, match="good records follow at 600"):
        log.recover(CLEAN)


def test_a_wrong_physical_offset_alone_is_no_torn_write(log: Log) -> None:
    log.put(damaged(records(0, [1, 2, 3]), 200 + 28, (4711).to_bytes(8, "big")))
    with pytest.raises(CorruptLogError, match=r"claims PHYSICALOFFSET 4711.*whole and good otherwise"):
        log.recover(ROCKETMQ_CRASH)
    assert log.recover(CRASH).end == 200


@pytest.mark.parametrize(
    "header",
    [bytes.fromhex("00000018 00000000"), bytes.fromhex("00000010 cbd43194"), bytes.fromhex("ffffffe8cbd43194")],
)
def test_a_damaged_blank_in_the_middle_is_written_again(log: Log, header: bytes) -> None:
    good = segment(0) + records(1024, [2_000])
    log.put(damaged(good[:1024], 1000, header), good[1024:])
    recovery = log.recover(CRASH)
    assert (recovery.end, recovery.repaired_blanks) == (1224, (1000,))
    assert log.bytes() == good + bytes(824)


def test_the_rest_of_the_last_segment_is_no_blank_to_repair(log: Log) -> None:
    log.put(damaged(segment(0), 1004, bytes(4)))
    assert log.recover(CRASH).end == 1000


def test_after_a_clean_stop_only_the_last_three_segments_are_read(log: Log) -> None:
    log.put(*(segment(i * 1024, 1_000 * (i + 1)) for i in range(5)))
    recovery = log.recover(CLEAN)
    assert (recovery.scanned_from, recovery.records) == (2048, 15)


def test_after_a_crash_all_that_was_verified_is_durable() -> None:
    device = SimDisk()
    disk = device.mount()
    disk.makedirs("/log")
    for offset, data in ((0, segment(0)), (1024, segment(1024)), (2048, records(2048, [2_000]))):
        disk.create(f"/log/{offset:020d}", FILE_SIZE).pwrite([data], 0)
    queue = MappedFileQueue(disk, "/log", file_size=FILE_SIZE)
    queue.load()
    recover_commit_log(queue, known=CRASH)
    assert device.dirty_sectors() == [], "who was killed before a flush had written all of it"


def test_after_a_crash_the_checkpoint_tells_where_to_begin(log: Log) -> None:
    log.put(*(segment(i * 1024, 10_000 * (i + 1)) for i in range(5)))

    def begin(log_ms: int, queues_ms: int) -> int:
        return log.recover(DurableKnowledge(clean=False, checkpoint=Checkpoint(log_ms, queues_ms))).scanned_from

    assert begin(0, 0) == 0
    assert begin(33_000, 0) == 0
    assert begin(33_000, 33_000) == 1024  # one before the segment of 30_000
    assert begin(32_999, 99_000) == 0
    assert begin(99_000, 99_000) == 3072
    log.put(b"", first=5120)
    assert begin(53_000, 53_000) == 3072  # an empty segment says nothing


def test_a_clock_set_back_hides_nothing_that_was_not_durable(log: Log) -> None:
    """The checkpoint's times are those of records before the jump, so all behind it look older, and durable."""
    before = segment(0, 50_000)
    torn = damaged(segment(1024, 10_000), 300, bytes(300))
    log.put(before, torn, segment(2048, 10_100), segment(3072, 10_200), records(4096, [10_300]))
    known = DurableKnowledge(clean=False, checkpoint=Checkpoint(50_004, 50_004), durable_offset=1024)
    assert log.recover(known).end == 1224


@pytest.mark.parametrize("known", [CRASH, CLEAN])
def test_formats_we_do_not_read_are_never_cut(log: Log, known: DurableKnowledge) -> None:
    log.put(damaged(records(0, [1]), 4, bytes.fromhex("daa320ab")))
    with pytest.raises(CorruptLogError, match=r"RocketMQ 5\.x.*Nothing was changed.*do not cut it away"):
        log.recover(known)


@pytest.mark.parametrize("known", [CRASH, CLEAN])
def test_an_inner_batch_of_rocketmq_5_is_refused_by_name(log: Log, known: DurableKnowledge) -> None:
    good = records(0, [1])
    log.put(good + inner_batch(len(good)))
    with pytest.raises(CorruptLogError, match=r"an inner batch of RocketMQ 5\.x.*do not cut it away.*RocketMQ 5"):
        log.recover(known)


def test_queues_without_a_log_mean_that_the_log_is_elsewhere(log: Log) -> None:
    known = DurableKnowledge(clean=False, checkpoint=Checkpoint(), queues_end=5)
    with pytest.raises(CorruptLogError, match="is the right disk mounted"):
        log.recover(known)


def test_without_crc_a_flipped_body_passes(log: Log) -> None:
    log.put(flip_body(records(0, [1, 2]), 200))
    assert log.recover(CLEAN, check_crc=False).end == 400


def with_torn_properties(offset: int) -> bytes:
    prepared = prepare(
        "T",
        b"body",
        queue_id=0,
        born_timestamp_ms=0,
        born_host_raw=HOST,
        store_host_raw=HOST,
        properties_raw=b"a\x01bcd",
    )
    packed = prepared.pack(queue_offset=0, physical_offset=offset, store_timestamp_ms=9_000)
    return packed[:-2] + bytes(2)


@pytest.mark.parametrize(
    ("known", "end"),
    [
        (CRASH, 200),
        (DurableKnowledge(clean=False, checkpoint=Checkpoint(), durable_offset=200), 200),
        (DurableKnowledge(clean=False, checkpoint=Checkpoint(), durable_offset=301), 301),
        (CLEAN, 301),
    ],
)
def test_zeros_in_the_last_properties_are_torn_unless_they_were_durable(
    log: Log, known: DurableKnowledge, end: int
) -> None:
    log.put(records(0, [1]) + with_torn_properties(200))
    assert log.recover(known).end == end
