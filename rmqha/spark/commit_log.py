"""A commitlog as readers see it: its files, its ends, and how a range of it is cut into splits."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from pyarrow import fs

from rmqha.errors import ConfigError
from rmqha.spark.decoder import Split
from rmqha.spark.deleted import Deleted, read_deleted
from rmqha.spark.ledger import find_ledger, ledger_beside, open_ledger
from rmqha.spark.log_end import LogEnd, find_log_end
from rmqha.spark.options import SPLIT_BYTES, ReadOptions
from rmqha.spark.records import judge, start_at
from rmqha.spark.segments import Segment, SegmentReader, is_directory, joined, list_segments, open_filesystem
from rmqha.spark.store_time import find_offset_by_time

logger = logging.getLogger("rmqha.spark")


@dataclass(frozen=True)
class CommitLog:
    """A snapshot of a log, taken once when a job is planned. Files that appear later are not part of it.

    Attributes:
        uri: the store as it was named; tasks on other machines open the same.
        segments: the files, ascending and without a gap.
        end: end of the last whole record, of a DLedger log of the last entry that is known to be committed
            (``min_offset`` if there is none).
        unfinished: what follows ``end``, empty if nothing does; not an error on a live store.
        is_committed: whether a DLedger group has agreed on all of it.
    """

    uri: str
    segments: tuple[Segment, ...]
    end: int
    unfinished: str
    is_committed: bool = False

    @property
    def min_offset(self) -> int:
        """Where the oldest file begins."""
        return self.segments[0].base if self.segments else 0

    @property
    def filesystem(self) -> fs.FileSystem:
        """Opened anew: it does not travel to other processes."""
        return open_filesystem(self.uri)[0]

    def deleted(self, options: ReadOptions) -> Deleted:
        """Messages that are not to be delivered, as it is now. Raises StoreError: see :func:`read_deleted`."""
        return {} if options.include_deleted else read_deleted(*open_filesystem(self.uri))

    def splits(self, begin: int, end: int, *, split_bytes: int = SPLIT_BYTES) -> Iterator[Split]:
        """Cut ``[begin, end)`` at file ends and every ``split_bytes``; any cut is good, ``begin`` is a start.

        What lies behind the log's end is no part of it, whatever is written there meanwhile.
        """
        end = min(end, self.end)
        for segment in self.segments:
            stop = min(end, segment.end)
            for at in range(max(begin, segment.base), stop, split_bytes):
                yield Split(segment, at, min(at + split_bytes, stop), begin, end, self.end)

    def range_of(self, options: ReadOptions) -> tuple[int, int]:
        """The physical range that the options' offsets and times ask for, within what the log holds.

        It begins behind its end where the log does, as old files are deleted, or ends before what is asked for.

        Raises:
            ConfigError: offset and time are given for the same end, or the start is after the end.
        """
        starting = self._bound("starting", options.starting_offset, time_ms=options.starting_timestamp_ms)
        ending = self._bound("ending", options.ending_offset, time_ms=options.ending_timestamp_ms)
        begin = self.min_offset if starting is None else self.record_of(starting)
        end = self.end if ending is None else self.record_of(ending)
        if begin > end and starting is not None and ending is not None:
            raise ConfigError(f"the range [{begin}, {end}) is empty: the start lies after the end")
        return self.start_at(max(begin, self.min_offset)), min(end, self.end)

    def start_at(self, position: int) -> int:
        """Where the first record, or damage, begins at or after a position; the log's end if nothing does."""
        for segment in self.segments:
            end = min(segment.end, self.end)
            if segment.base <= position < end:
                with SegmentReader(self.filesystem, segment) as file:
                    return start_at(file, position, end=end)
        return max(position, self.end)

    def record_of(self, position: int) -> int:
        """Where the entry begins whose message has this physical offset; the offset itself if there is none."""
        for segment in self.segments:
            kind = segment.record_format
            at = position - kind.message_at
            if kind.has_entries and kind.holds_messages and segment.base <= at < segment.end:
                with SegmentReader(self.filesystem, segment) as file:
                    return at if start_at(file, at, end=at + 1) == at and judge(file, at).is_record else position
        return position

    def _bound(self, which: str, offset: int | None, *, time_ms: int | None) -> int | None:
        if time_ms is None:
            return offset
        if offset is not None:
            raise ConfigError(f"give a {which} offset or a {which} timestamp, not both")
        return find_offset_by_time(self.filesystem, self.segments, time_ms, end=self.end)

    def since(self, known_end: int) -> "CommitLog":
        """The same log now; ``known_end``: an end of it seen before, which makes finding the new one cheap."""
        return open_log(self.uri, known_end=known_end)


def open_log(path_or_uri: str, *, known_end: int | None = None) -> CommitLog:
    """List a store's files and find its safe end.

    A broker that came to DLedger with a classic log has both; the second goes on where the first ends.

    Raises:
        StoreError: no store is there, or files are missing.
    """
    filesystem, path = open_filesystem(path_or_uri)
    ledger = find_ledger(filesystem, path)
    if ledger is None and (member := ledger_beside(filesystem, path)):
        _tell_that_it_is_old(path_or_uri, member)
    has_classic = ledger is None or is_directory(filesystem, f"{path}/commitlog")
    classic = list_segments(filesystem, path) if has_classic else ()
    entries, end = ((), LogEnd(0, "")) if ledger is None else open_ledger(filesystem, ledger)
    if classic and ledger is not None:
        classic = (*classic[:-1], replace(classic[-1], reach=classic[-1].size))
    if not entries or (classic and end.offset == entries[0].base):
        end = find_log_end(filesystem, classic, known=known_end)
    segments = joined([*classic, *entries])
    return CommitLog(path_or_uri, segments, end.offset, end.unfinished, is_committed=ledger is not None)


@lru_cache(maxsize=16)
def _tell_that_it_is_old(uri: str, member: str) -> None:
    """Once, not at each trigger."""
    logger.warning(
        "commit_log.old: %r: only the old log is read, which goes on in %r: name the store's root to read both",
        uri,
        member,
    )


def without_range(options: ReadOptions) -> ReadOptions:
    """The options that still matter once the range is known: what a task needs."""
    return replace(
        options, starting_offset=None, ending_offset=None, starting_timestamp_ms=None, ending_timestamp_ms=None
    )
