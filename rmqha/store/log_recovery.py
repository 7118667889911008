"""Find the end of the commitlog at a start, and cut away only what cannot have been acknowledged for good.

What RocketMQ does at the first bad record (call it the end, whatever follows) loses messages silently; docs/recovery.md
compares the two case by case. Here a bad record is

* cut, with everything behind it, if nothing says that it was durable: a crash in the middle of a write;
* a :class:`~rmqha.errors.CorruptLogError` if something does, and then nothing is changed:
  after a clean stop, records the consume queues know; after a crash, the durable offset that rmqha writes into the
  checkpoint. RocketMQ writes none, so that on its stores, on ours where it ran last, and on any whose checkpoint is
  lost, a later record tells: one that the checkpoint's time proves durable, or one stored so much later that the bad
  one must have been flushed by then.

Source: spec: commitlog §7.1, §7.2; rocketmq-all-4.9.8 CommitLog.java:168-275, 430-560.
"""

from dataclasses import dataclass, replace
from typing import Final

from rmqha.codec.checkpoint import Checkpoint
from rmqha.codec.record.layout import BLANK_MAGIC, BLANK_SIZE_MIN, encode_blank, physical_offset_at
from rmqha.codec.record.resync import claims_its_place, find_record
from rmqha.codec.record.scan import Scan, Stop, scan_records
from rmqha.errors import CorruptLogError, ForeignRecordError
from rmqha.store.mapped_file import MappedFile
from rmqha.store.mapped_file_queue import MappedFileQueue
from rmqha.store.recovery_progress import RecoveryProgress

_SEGMENTS_AFTER_CLEAN_STOP: Final = 3
_WRITE_BYTES: Final = 1 << 20
SCAN_BYTES: Final = 16 << 20
"""More than any record has that a broker of ours takes."""
_UNFLUSHED_MS_MAX: Final = 60_000
"""RocketMQ flushes at least every 10 s, so what is this much older than the newest record is durable."""


@dataclass(frozen=True, slots=True)
class LogRecovery:
    """What recovery found, and did."""

    scanned_from: int
    """Offset from which on every record was verified."""
    end: int
    """The log's end: offset behind the last good record or blank."""
    records: int = 0
    """Good records in ``[scanned_from, end)``."""
    last_store_timestamp_ms: int = 0
    """Of the last of them; 0 if there is none."""
    stop: Stop = Stop.END
    reason: str = ""
    """What is wrong at ``end``; empty for a log that simply ends."""
    dropped_records: int = 0
    """Whole and good records behind ``end`` that went with the cut."""
    repaired_blanks: tuple[int, ...] = ()
    """Offsets of blanks whose header was damaged and has been written again."""
    root_as_of: int | None = None
    """Where the log ended when the files in storePathRootDir were as they are, if that is an older copy; else None."""


@dataclass(frozen=True, slots=True)
class DurableKnowledge:
    """What is known about the log from outside of it."""

    clean: bool
    """The last process stopped cleanly: all it wrote is durable, and its queues are complete."""
    checkpoint: Checkpoint
    queues_end: int = 0
    """Where the newest record known to any consume queue ends; 0 without queues."""
    durable_offset: int = 0
    """The log is known to be durable up to here; 0 if nothing is known."""
    is_blank: bool = False
    """Nothing is known because nothing was durable yet, says our own checkpoint; it is not merely missing."""


def recover_commit_log(
    queue: MappedFileQueue,
    *,
    known: DurableKnowledge,
    check_crc: bool = True,
    progress: RecoveryProgress | None = None,
) -> LogRecovery:
    """Set the end of a loaded log; what lies behind it is erased durably. Idempotent.

    Args:
        queue: the commitlog's segments, loaded.
        known: tells a crash's leftovers from damage.
        check_crc: verify bodies.
        progress: told what is done, and how far.

    Raises:
        CorruptLogError: the log is damaged where it was durable, and nothing was changed: restore the store from a
            replica.
        StoreWriteError: the cut is not done.
    """
    refuse_lost_log(queue, known)
    if not queue.files:
        return LogRecovery(queue.start_offset, queue.start_offset)
    progress = progress or RecoveryProgress()
    recovery = _walk(queue.files[_first_to_examine(queue.files, known) :], check_crc, known, progress)
    runs = _look_beyond(queue, recovery) if _is_worth_a_look(recovery, known) else []
    refusal = _why_refuse(queue, recovery, known=known, runs=runs)
    if refusal:
        error = ForeignRecordError if recovery.stop is Stop.FOREIGN else CorruptLogError
        raise error(recovery.end, refusal)
    _repair_blanks(queue, recovery.repaired_blanks)
    progress.begin("erasing what lies behind the log's end")
    queue.truncate(recovery.end)
    if not known.clean:
        _write_again(queue, max(recovery.scanned_from, known.durable_offset), recovery.end, progress)
    return replace(recovery, dropped_records=sum(run.records for run in runs))


def refuse_lost_log(queue: MappedFileQueue, known: DurableKnowledge) -> None:
    """A log without a segment is not taken for a new one if anything is known of it.

    Raises:
        CorruptLogError: something is.
    """
    if queue.files or not (known.queues_end or known.durable_offset):
        return
    who, end = ("the consume queues know records", known.queues_end)
    if not end:
        who, end = ("the log was durable, says the checkpoint,", known.durable_offset)
    raise CorruptLogError(
        queue.start_offset,
        f"there is no commitlog segment in {queue.directory}, but {who} up to {end}: is the right disk mounted there? "
        "To begin with an empty log, move the whole store away",
    )


def _first_to_examine(files: list[MappedFile], known: DurableKnowledge) -> int:
    """Index of the segment to start with.

    After a crash it is one before the last whose first record is older than the checkpoint's times: those come from a
    clock, and going over a segment twice does no harm. A clock may have been set back: what begins behind the durable
    offset is always examined.
    """
    if known.clean:
        return max(0, len(files) - _SEGMENTS_AFTER_CLEAN_STOP)
    for index in range(len(files) - 1, 0, -1):
        if known.durable_offset and files[index].file_from_offset > known.durable_offset:
            continue
        if 0 < _first_store_timestamp_ms(files[index]) <= known.checkpoint.min_timestamp_ms:
            return index - 1
    return 0


def _first_store_timestamp_ms(mapped: MappedFile) -> int:
    """Store time of the first record, 0 if there is no good one."""
    size = int.from_bytes(mapped.view[:4], "big", signed=True)
    end = min(mapped.size, max(size, 0))
    return scan_records(mapped.view, 0, end, phy_offset_base=mapped.file_from_offset).last_store_timestamp_ms


def _walk(files: list[MappedFile], check_crc: bool, known: DurableKnowledge, progress: RecoveryProgress) -> LogRecovery:
    """Go over the records until something is not one."""
    records, last_ms, blanks, position = 0, 0, [], _Position(files[0].file_from_offset)
    progress.begin("verifying the log", files[-1].end_offset - position.start, done=position.passed_bytes)
    for index, mapped in enumerate(files):
        base = mapped.file_from_offset
        scan = _scan_file(mapped, known, check_crc=check_crc, position=position)
        records, last_ms = records + scan.records, scan.last_store_timestamp_ms or last_ms
        if scan.stop in {Stop.BLANK, Stop.END}:
            continue
        if scan.stop is Stop.CORRUPT and _was_a_blank(mapped, scan.end, following=files[index + 1 : index + 2]):
            blanks.append(base + scan.end)
            continue
        settled = _without_torn_tail(mapped, scan, known, check_crc=check_crc)
        records += settled.records - scan.records
        end, scan = base + settled.end, settled
        break
    else:
        # A blank at the end of the last segment is part of the log, even though RocketMQ takes it back.
        end, scan = files[-1].end_offset, scan._replace(stop=Stop.END)
    return LogRecovery(
        scanned_from=files[0].file_from_offset,
        end=end,
        records=records,
        last_store_timestamp_ms=last_ms,
        stop=scan.stop,
        reason=scan.reason,
        repaired_blanks=tuple(blanks),
    )


class _Position:
    """How far the walk is."""

    def __init__(self, start: int) -> None:
        self.start = self.offset = start

    def passed_bytes(self) -> int:
        """Since the start."""
        return self.offset - self.start


def _scan_file(mapped: MappedFile, known: DurableKnowledge, *, check_crc: bool, position: _Position) -> Scan:
    """Scan a whole segment, piece by piece, so that ``position`` moves."""
    base = mapped.file_from_offset
    at, records, last_ms, piece_end = 0, 0, 0, min(SCAN_BYTES, mapped.size)
    while True:
        scan = scan_records(
            mapped.view,
            at,
            piece_end,
            phy_offset_base=base,
            file_end=mapped.size,
            check_crc=check_crc,
            torn_from=None if known.clean else max(0, known.durable_offset - base),
        )
        records, last_ms = records + scan.records, scan.last_store_timestamp_ms or last_ms
        if piece_end == mapped.size or scan.stop not in {Stop.END, Stop.INCOMPLETE}:
            return scan._replace(records=records, last_store_timestamp_ms=last_ms)
        is_larger_than_a_piece = not scan.records
        at, position.offset = scan.end, base + scan.end
        piece_end = mapped.size if is_larger_than_a_piece else min(at + SCAN_BYTES, mapped.size)


def _without_torn_tail(mapped: MappedFile, scan: Scan, known: DurableKnowledge, *, check_crc: bool) -> Scan:
    """Zeros that end a record's properties are a torn write's once nothing follows; and after the cut nothing does.

    Without this the next recovery would cut a record that this one has kept.
    """
    while not known.clean and scan.end and not mapped.view[scan.end - 1]:
        again = scan_records(
            mapped.view[: scan.end],
            0,
            scan.end,
            phy_offset_base=mapped.file_from_offset,
            check_crc=check_crc,
            torn_from=max(0, known.durable_offset - mapped.file_from_offset),
        )
        if again.stop is Stop.END:
            break
        scan = again
    return scan


def _was_a_blank(mapped: MappedFile, at: int, *, following: list[MappedFile]) -> bool:
    """Whether bytes that are no blank must once have been one.

    The log went on in the next segment; and half of the header is left, or there is no room for anything else.
    """
    left = mapped.size - at
    size, magic = (int.from_bytes(mapped.view[i : i + 4], "big", signed=True) for i in (at, at + 4))
    looks_like_one = left == BLANK_SIZE_MIN or (left > BLANK_SIZE_MIN and (size == left or magic == BLANK_MAGIC))
    return looks_like_one and bool(following) and _first_store_timestamp_ms(following[0]) > 0


def _repair_blanks(queue: MappedFileQueue, offsets: tuple[int, ...]) -> None:
    """Write blanks' headers again. They hold nothing that is not known, so this restores the very bytes."""
    for offset in offsets:
        mapped = queue.find(offset)
        assert mapped is not None, "it was found in a segment"
        mapped.file.pwrite([encode_blank(mapped.end_offset - offset)], offset - mapped.file_from_offset)
        mapped.file.sync()


def _write_again(queue: MappedFileQueue, start: int, end: int, progress: RecoveryProgress) -> None:
    """Make ``[start, end)`` durable by writing it once more.

    Reading it proves nothing about the device: the process before may have been killed ahead of its flush, and what a
    failed fdatasync did not write the kernel takes for clean, so that no later fdatasync would write it either.
    """
    position = _Position(start)
    progress.begin("making the log durable", max(0, end - start), done=position.passed_bytes)
    for mapped in queue.between(start, end):
        first = max(0, start - mapped.file_from_offset)
        for at in range(first, mapped.wrote_position, _WRITE_BYTES):
            mapped.file.pwrite([mapped.view[at : min(at + _WRITE_BYTES, mapped.wrote_position)]], at)
            position.offset = mapped.file_from_offset + at
        mapped.file.sync()


@dataclass(frozen=True, slots=True)
class _Run:
    """Good records behind the end."""

    offset: int
    records: int
    first_store_timestamp_ms: int
    last_store_timestamp_ms: int


def _is_worth_a_look(recovery: LogRecovery, known: DurableKnowledge) -> bool:
    """The queues of a clean stop know where the log ended; else whatever is behind the end has to be looked at."""
    return recovery.stop is not Stop.END and not (known.clean and known.queues_end)


def _look_beyond(queue: MappedFileQueue, recovery: LogRecovery) -> list[_Run]:
    """Runs of good records behind the end.

    Records older than the last good one are leftovers of an earlier cut (RocketMQ does not erase them): not counted.
    """
    runs = []
    for mapped in queue.files:
        at: int | None = max(0, recovery.end - mapped.file_from_offset)
        base = mapped.file_from_offset
        while at is not None and at < mapped.size:
            at = find_record(mapped.view, at, mapped.size, phy_offset_base=base)
            if at is None:
                break
            size = int.from_bytes(mapped.view[at : at + 4], "big")
            first = scan_records(mapped.view, at, at + size, phy_offset_base=base)
            run = scan_records(mapped.view, at, mapped.size, phy_offset_base=base)
            if first.last_store_timestamp_ms >= recovery.last_store_timestamp_ms:
                times = first.last_store_timestamp_ms, run.last_store_timestamp_ms
                runs.append(_Run(base + at, run.records, *times))
            at = run.end
    return runs


def _why_refuse(queue: MappedFileQueue, recovery: LogRecovery, *, known: DurableKnowledge, runs: list[_Run]) -> str:
    """Why the log must not be cut at ``recovery.end``; empty if it may."""
    here = recovery.reason or "the log ends here"
    path = queue.segment_path(recovery.end - recovery.end % queue.file_size)
    place = f"{here} ({path}, position {recovery.end % queue.file_size})"
    if recovery.stop is Stop.FOREIGN:
        return f"{here} ({path}). Nothing was changed"
    if recovery.end < known.durable_offset:
        return f"{place}; but the log was durable up to {known.durable_offset}, says the checkpoint. {_WHAT_NEXT}"
    if known.clean:
        proof = _proof_after_clean_stop(queue, recovery, known=known, runs=runs)
    else:
        proof = _proof_after_crash(queue, recovery, known=known, runs=runs)
    return f"{place}; but {proof}. {_WHAT_NEXT}" if proof else ""


_WHAT_NEXT: Final = (
    "This is damage, not a crash's leftover: nothing was changed. Run 'rmqha log verify' for every bad place; "
    "restore the store from its replica, or cut it there with 'rmqha log cut'"
)


def _proof_after_clean_stop(
    queue: MappedFileQueue, recovery: LogRecovery, *, known: DurableKnowledge, runs: list[_Run]
) -> str:
    if known.queues_end > recovery.end:
        return (
            f"the consume queues know records up to {known.queues_end}, and the last stop was clean "
            "(if no record is missing it is they that are damaged: move consumequeue away, the log builds it again)"
        )
    if runs:
        return f"good records follow at {runs[0].offset}, and the last stop was clean"
    mapped = queue.find(recovery.end)
    if known.queues_end or mapped is None or recovery.stop is not Stop.CORRUPT:
        return ""
    if claims_its_place(mapped.view, recovery.end - mapped.file_from_offset, phy_offset=recovery.end):
        return "a record was written here, and the last stop was clean"
    return ""


def _proof_after_crash(
    queue: MappedFileQueue, recovery: LogRecovery, *, known: DurableKnowledge, runs: list[_Run]
) -> str:
    if known.durable_offset or known.is_blank:
        return ""  # the mark is exact: nothing has to be guessed
    for run in runs:
        if run.first_store_timestamp_ms < known.checkpoint.commit_log_timestamp_ms:
            return f"the record at {run.offset} behind it was durable, says the checkpoint"
        unflushed_ms = run.last_store_timestamp_ms - recovery.last_store_timestamp_ms
        if recovery.records and unflushed_ms > _UNFLUSHED_MS_MAX:
            return f"records stored up to {unflushed_ms} ms later follow at {run.offset}"
    mapped = queue.find(recovery.end)
    if not runs or mapped is None:
        return ""
    at = recovery.end - mapped.file_from_offset
    size = int.from_bytes(mapped.view[at : at + 4], "big")
    if runs[0].offset == recovery.end + size and _is_good_elsewhere(mapped, at, size):
        return "the record is whole and good otherwise, and others follow it"
    return ""


def _is_good_elsewhere(mapped: MappedFile, at: int, size: int) -> bool:
    """Whether only the PHYSICALOFFSET is wrong: no torn write does that."""
    claimed = physical_offset_at(mapped.view, at)
    if claimed == mapped.file_from_offset + at:
        return False
    return scan_records(mapped.view, at, at + size, phy_offset_base=claimed - at).records == 1
