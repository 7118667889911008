"""Hot path: log bytes ``[begin, end)`` of one file to Arrow batches.

Each step is a file of its own. 1 ``lane_walk``: where the records of a block start. 2 ``fields``: their fixed fields,
lengths checked. 3 ``selection``: which are wanted, by dictionaries of topics and properties; then the wanted bodies'
CRCs. 4 ``columns``: the wanted columns, gathered.
"""

from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import fs

from rmqha.codec.record.layout import is_legal_topic
from rmqha.codec.record.scan import Stop
from rmqha.errors import CorruptLogError, StoreError
from rmqha.spark import entries, fields, gather, schema
from rmqha.spark.bodies import inflate_batch
from rmqha.spark.columns import Rows
from rmqha.spark.deleted import Deleted, shown_rows
from rmqha.spark.kept import Kept
from rmqha.spark.lane_walk import Positions, Walk, walk
from rmqha.spark.options import OnCorrupt, ReadOptions
from rmqha.spark.queue_pruning import QueuePruning
from rmqha.spark.records import Verdict, crc32, find_next, foreign_record, judge, message_of, open_at
from rmqha.spark.report import TOPICS_MET_MAX, CorruptRange, ReadReport
from rmqha.spark.segments import Segment, SegmentReader, as_array
from rmqha.spark.selection import count_system_rows, illegal_topics, select_by_properties, select_rows

BLOCK_BYTES: Final = 8 << 20
"""Stays in the processor's cache from step to step; larger blocks are slower."""
_BEYOND_BYTES: Final = 16 << 10
"""Read behind a split's end for its last record."""


@dataclass(frozen=True, slots=True)
class Split:
    """Records that start in ``[begin, end)`` of one file.

    Attributes:
        range_begin, range_end: the whole range that was cut into splits; a record is expected right at its begin.
        log_end: the safe end of the whole log.
    """

    segment: Segment
    begin: int
    end: int
    range_begin: int
    range_end: int
    log_end: int

    @property
    def is_first(self) -> bool:
        """Whether the range begins here: then no earlier range reports damage at the beginning."""
        return self.begin == self.range_begin


class _Whole(NamedTuple):
    """Records of a block: the first ``rows.count`` of ``starts`` and ``sizes``; they end at ``end`` of the log."""

    rows: Rows
    starts: Positions
    sizes: Positions
    end: int


def decode(
    filesystem: fs.FileSystem,
    splits: Iterable[Split],
    options: ReadOptions,
    *,
    deleted: Deleted,
    report: ReadReport,
    pruning: QueuePruning | None = None,
) -> Iterator[pa.RecordBatch]:
    """The wanted messages of these splits, but those that are deleted, in their order; then the report is complete.

    Args:
        filesystem: of the store.
        splits: in log order.
        options: what is wanted of them.
        deleted: what is not wanted any more.
        report: grows.
        pruning: tells what need not be read; None: all is.

    Raises:
        CorruptLogError: damage, and ``on_corrupt`` is ``fail``.
        StoreError: a file holds another format; or a split lies behind the log's end.
    """
    for split in splits:
        yield from _SplitDecoder(split, options, deleted, report, pruning).batches(filesystem)
        if report.corrupt and options.on_corrupt is OnCorrupt.STOP:
            return


class _SplitDecoder:
    def __init__(
        self, split: Split, options: ReadOptions, deleted: Deleted, report: ReadReport, pruning: QueuePruning | None
    ) -> None:
        self._split = split
        self._options = options
        self._deleted = deleted
        self._report = report
        self._pruning = pruning
        self._schema = schema.select(options.columns)
        self._inflated = schema.inflated(self._schema) if options.decompress else None
        self._stopped = False

    def batches(self, filesystem: fs.FileSystem) -> Iterator[pa.RecordBatch]:
        split, report, pruning = self._split, self._report, self._pruning
        kept = None
        if pruning is not None:
            kept = pruning.kept(split.segment, split.begin, split.end, log_end=split.log_end, is_start=split.is_first)
            report.bytes_read += pruning.take_bytes_read()
        with SegmentReader(filesystem, split.segment) as file:
            if kept is not None and not self._is_of_this_log(file, kept):
                kept = None
            yield from self._read_split(file, kept)
            report.bytes_read += file.bytes_read
        report.bytes_asked_for += split.end - split.begin

    def _read_split(self, file: SegmentReader, kept: Kept | None) -> Iterator[pa.RecordBatch]:
        split, report = self._split, self._report
        position = self._opening(file, kept)
        if position is None:
            report.next = split.end
            return
        if report.first is None:
            report.first = position
        if kept is None:
            position = yield from self._read(file, position, split.end, beyond=_BEYOND_BYTES)
        else:
            position = yield from self._read_kept(file, position, kept)
        if not self._stopped:
            report.next = position
            self._look_beyond(file, position)

    def _is_of_this_log(self, file: SegmentReader, kept: Kept) -> bool:
        """Whether the queues tell of this log, as far as is seen, not of another, or of a tail that was cut."""
        if not all(message_of(file, unit.start) == unit[1:] for unit in kept.witnesses):
            return False
        for begin, end in kept.gaps:
            position, size_min = begin, 0
            while position < end:
                size = max(size_min, min(BLOCK_BYTES, end - position))
                whole = self._whole_rows(file.read_block(position, size), position, limit=end - position)
                if whole is not None and kept.named.holds_any(whole.rows):
                    return False
                if whole is not None:
                    position, size_min = whole.end, 0
                    continue
                verdict = judge(file, position, check_crc=False)
                if not verdict.is_record or verdict.end - position <= size_min:
                    return False  # damage, and what comes of it is for who reads it all
                size_min = verdict.end - position
        return True

    def _opening(self, file: SegmentReader, kept: Kept | None) -> int | None:
        """Where the split's first record begins, or damage that nobody else reports; None: nowhere."""
        if self._split.is_first:
            return self._split.begin
        start = None if kept is None else kept.start
        if start is not None and start < self._split.end and judge(file, start, check_crc=False).is_record:
            return start
        return open_at(file, self._split.begin, end=self._split.end)

    def _read_kept(self, file: SegmentReader, position: int, kept: Kept) -> Generator[pa.RecordBatch, None, int]:
        """As :meth:`_read`, to the split's end; what need not be read is passed over, if the log goes on behind it.

        The queues are believed as long as what is read ends where they say: else all is read up to where it does. Once
        they name a message that is not there, they are of another log, or of a tail that was cut: nothing is passed
        over any more.
        """
        at, are_believed = kept.start, True
        for begin, end in (*kept.ranges, (kept.stop, kept.stop)):
            last = kept.lasts.get(begin)
            if position == at and last is not None and are_believed:
                are_believed = message_of(file, last.start) == last[1:]
            if position == at and are_believed and self._goes_on_at(file, begin):
                position = begin
            position = yield from self._read(file, position, min(end, self._split.end), beyond=0)
            if self._stopped:
                return position
            at = end
        return position

    def _goes_on_at(self, file: SegmentReader, position: int) -> bool:
        """Whether a record or a blank says to lie there; or the log, or its file, ends."""
        kind = self._split.segment.record_format
        if position >= min(self._split.range_end, file.segment.end):
            return True
        view = memoryview(file.read(position, kind.fixed_size)).cast("B")
        magic = int.from_bytes(view[kind.magic_at : kind.magic_at + 4], "big")
        return kind.claims(view, position) or magic == kind.blank_magic

    def _read(
        self, file: SegmentReader, position: int, end: int, *, beyond: int
    ) -> Generator[pa.RecordBatch, None, int]:
        """Records that start in ``[position, end)``; where the last, or damage, ends. ``beyond`` is read with it."""
        size_min = 0  # of the next block, so that a large record is whole in it
        while position < end and not self._stopped:
            self._report.next = position
            size = max(size_min, min(BLOCK_BYTES, end - position + beyond))
            rows, read_to = self._read_block(file.read_block(position, size), position, limit=end - position)
            if rows is not None:
                yield from self._deliver(rows)
            if not self._stopped:
                size_min, position = self._advance(file, position, end=read_to, size_min=size_min)
        return position

    def _advance(self, file: SegmentReader, position: int, *, end: int, size_min: int) -> tuple[int, int]:
        """Size needed for the next block, and its position."""
        if end > position:
            return 0, end
        verdict = judge(file, position, check_crc=False)
        if verdict.is_record:
            assert verdict.end - position > size_min, "both ways of checking a record agree"
            return verdict.end - position, position
        return 0, self._pass_over(file, position, verdict)

    def _look_beyond(self, file: SegmentReader, position: int) -> None:
        """Damage is reported by the split that meets it: the next one begins behind it and never sees it."""
        if position < min(self._split.range_end, file.segment.end):
            verdict = judge(file, position, check_crc=False)
            if not verdict.is_record:
                self._report.next = self._pass_over(file, position, verdict)

    def _pass_over(self, file: SegmentReader, position: int, verdict: Verdict) -> int:
        """Where the log goes on after a position that starts no record; never at that position or before it."""
        if verdict.stop is Stop.FOREIGN:
            raise foreign_record(file, position, verdict)
        end, is_blank = min(file.segment.end, self._split.log_end), verdict.stop is Stop.BLANK
        behind = verdict.end if is_blank else find_next(file, position, end=end) or end
        if behind <= position:
            raise StoreError(
                f"reading came to {position}, but the log that was planned ends at {self._split.log_end}: nothing lies "
                f"there to be read (in {self._split.segment.path})"
            )
        if not is_blank:
            self._met_damage(position, behind, reason=verdict.reason or "nothing was written here")
        return position if self._stopped else behind

    def _met_damage(self, start: int, end: int, *, reason: str) -> None:
        if self._options.on_corrupt is OnCorrupt.FAIL:
            raise CorruptLogError(start, f"{reason} (in {self._split.segment.path}, next good record at {end})")
        self._report.corrupt.append(CorruptRange(start, end, reason))
        self._stopped = self._options.on_corrupt is OnCorrupt.STOP

    def _read_block(self, buffer: pa.Buffer, position: int, *, limit: int) -> tuple[Rows | None, int]:
        """The wanted rows of the records that are whole in the block, and where those records end."""
        whole = self._whole_rows(buffer, position, limit=limit)
        if whole is None:
            return None, position
        rows, count = self._check_bodies(self._select(whole.rows)), whole.rows.count
        if self._stopped:
            count = int(np.searchsorted(whole.starts, self._report.next - position))
        self._report.records += count
        if count:
            self._report.last = (position + int(whole.starts[count - 1]), int(whole.sizes[count - 1]))
        return rows, whole.end

    def _whole_rows(self, buffer: pa.Buffer, position: int, *, limit: int) -> "_Whole | None":
        """The leading records that are whole in the block, and well-formed; None: there is none."""
        found = walk(as_array(buffer), position, limit=limit, record_format=self._split.segment.record_format)
        if not found.starts.size:
            return None
        sizes = np.diff(found.starts, append=found.end)
        rows = self._rows(buffer, found, sizes, position=position)
        if not (count := rows.count):
            return None
        end = position + int(found.starts[count] if count < found.starts.size else found.end)
        return _Whole(rows, found.starts, sizes, end)

    def _rows(self, buffer: pa.Buffer, found: Walk, sizes: Positions, *, position: int) -> Rows:
        """The leading records that are well-formed."""
        block, starts, kind = as_array(buffer), found.starts, self._split.segment.record_format
        if kind.has_entries:
            good = entries.count_good(block, starts, sizes, position=position, hold_messages=kind.holds_messages)
            starts, sizes = starts[:good], sizes[:good]
        if not kind.holds_messages:
            read, topics = entries.read(block, starts, sizes)
            return Rows(buffer, read, topics, self._options.broker_name, are_bare=True)
        read, count = fields.read(block, starts + kind.message_at, sizes - kind.message_at, position=position)
        topics = gather.binary(buffer, read.topic_begin, read.topic_end).dictionary_encode()
        illegal = illegal_topics(topics)
        if illegal.any():
            count = int(np.argmax(illegal))
        rows = Rows(buffer, read, topics, self._options.broker_name)
        return rows if count == read.starts.size else rows.take(np.arange(count))

    def _select(self, rows: Rows) -> Rows:
        wanted = select_rows(rows.fields, rows.topics, self._options)
        if self._options.topics is not None and len(self._report.topics_met) < TOPICS_MET_MAX:
            self._report.topics_met.update(
                topic.decode() for topic in rows.topics.dictionary.to_pylist() if is_legal_topic(topic)
            )
        self._report.system += count_system_rows(rows.topics, self._options)
        if self._deleted and not rows.are_bare:
            shown = shown_rows(rows.fields, rows.topics, self._deleted)
            self._report.deleted += int(np.count_nonzero(wanted & ~shown))
            wanted &= shown
        if not wanted.all():
            rows = rows.take(np.flatnonzero(wanted))
        if self._options.keys is not None or self._options.tags is not None:
            rows = rows.take(np.flatnonzero(select_by_properties(rows.pairs, self._options)))
        return rows

    def _check_bodies(self, rows: Rows) -> Rows:
        """The rows without those whose body does not match its CRC (an empty body has none)."""
        if not self._options.check_crc:
            return rows
        view, read = memoryview(rows.buffer), rows.fields
        begins, ends = read.body_begin.tolist(), read.body_end.tolist()
        found = (
            np.array([crc32(view[begin:end]) for begin, end in zip(begins, ends, strict=True)], np.int64) & 0x7FFFFFFF
        )
        if rows.are_bare:  # nothing to compare with
            read.headers["body_crc"] = found
            return rows
        good = (found == read.column("body_crc")) | (read.body_begin == read.body_end)
        if good.all():
            return rows
        offsets, sizes = read.column("physical_offset"), read.column("total_size")
        before = self._split.segment.record_format.message_at
        for row in np.flatnonzero(~good).tolist():
            start = int(offsets[row]) - before
            self._met_damage(start, start + before + int(sizes[row]), reason="the body's CRC does not match BODYCRC")
            if self._stopped:
                self._report.next = start
                return rows.take(np.arange(row))
            self._report.records -= 1
        return rows.take(np.flatnonzero(good))

    def _deliver(self, rows: Rows) -> Iterator[pa.RecordBatch]:
        if not rows.count:
            return
        if self._inflated is None:
            self._report.messages += rows.count
            yield rows.batch(self._schema)
            return
        flags, size_max = gather.numbers(rows.fields.sys_flag), self._options.inflated_bytes_max
        for part, failed in inflate_batch(rows.batch(self._inflated), flags, size_max=size_max):
            self._report.messages += part.num_rows
            self._report.not_inflated += failed
            yield part.select(self._schema.names)
