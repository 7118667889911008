"""What of a split need not be read, as the consume queues tell: records of topics that nobody asked for.

A queue has, for each message, where its record lies and how long it is. The queues of all topics together name every
record that was dispatched, so what no queue names is read: the log's end, which may not be dispatched yet, records that
brokers show to nobody, and all that a queue should name that is missing, damaged or behind. Only stretches that queues
of other topics name without a gap are passed over. Where two queues name the same bytes, neither is believed.

Queues may tell of a tail that the log has no more, as in a copy that was made over a failover. So the reader itself
looks (``decoder``) whether witnesses are the messages that queues name: each queue's first and last in each run of
wanted messages that lie side by side, and in all that is not wanted of the part that is read. Positions in a queue are
given without gaps: if all of these lie where they are named, as many messages of each queue lie between them as the
queues say. If, besides, none of them lies in a gap, where no queue names anything, they fill the places that are named,
and there is no room for a wanted one that no queue names (in records of one size; of different sizes they would have to
add up to the same places). Besides, the last record of a stretch has to be the message that is named, and another one
to lie behind.

Source: spec: commitlog §8
"""

import bisect
import logging
import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from pyarrow import fs

from rmqha.codec.consume_queue import FILLER_SIZE, UNIT_SIZE
from rmqha.spark.kept import Kept, Named, Unit
from rmqha.spark.lane_walk import Positions
from rmqha.spark.options import ReadOptions
from rmqha.spark.segments import Segment, store_root
from rmqha.spark.selection import is_wanted_topic

logger = logging.getLogger("rmqha.spark")

Mask = npt.NDArray[np.bool_]

SPLIT_BYTES_MIN: Final = 1 << 20
"""Of less, looking into queues saves nothing."""
SKIPPED_BYTES_MIN: Final = 32 << 10
"""Shorter stretches are read with what is around them: one long read is cheaper than two."""
QUEUE_COST_BYTES: Final = 256 << 10
"""What looking into one queue costs, as bytes that could be read meanwhile: some 40 short reads of a local file."""
WITNESS_COST_BYTES: Final = 32 << 10
"""What looking at a wanted message costs, before it is read, in the same measure."""
GAP_COST_BYTES: Final = 64 << 10
"""What looking at what no queue names costs, besides its bytes: it is read by itself."""
_WORTH: Final = 4
"""At least one part in so many of a split must be spared."""
_UNIT: Final = np.dtype([("offset", ">i8"), ("size", ">i4"), ("tags_code", ">i8")])
_FOUND: Final = np.dtype([("offset", "i8"), ("size", "i4"), ("queue_offset", "i8")])
_NONE: Final = np.empty(0, _FOUND)
_UNUSED: Final = 1 << 62
_QUEUE_ID: Final = re.compile("0|[1-9][0-9]*")
_LIGHT_QUEUE: Final = "%LMQ%"
"""RocketMQ's queues of this name hold messages of other topics, whose own queues have them as well."""


@dataclass(frozen=True)
class _QueueFile:
    path: str
    base: int
    size: int


Queues = dict[str, dict[int, list[_QueueFile]]]
"""By topic and queue id, the files of each queue in order."""


class QueuePruning:
    """The queues of one store, listed once; their units are read as they are when a split is looked up."""

    def __init__(self, filesystem: fs.FileSystem, path: str, options: ReadOptions) -> None:
        """Nothing is listed yet.

        Args:
            filesystem: of the store.
            path: the store's root, its log, or a DLedger member's directory.
            options: what is wanted.
        """
        self._filesystem: Final = filesystem
        self._path: Final = path
        self._options: Final = options
        self._queues: Queues | None = None
        self._bytes_read = 0

    @property
    def is_possible(self) -> bool:
        """Whether anything is left out by its topic, and a look into a queue is cheap.

        Of an object store each short read is a request: for some queues they would take longer than the whole log.
        """
        options = self._options
        is_chosen = options.topics is not None or options.topic_pattern is not None
        return options.use_consume_queues and is_chosen and isinstance(self._filesystem, fs.LocalFileSystem)

    def take_bytes_read(self) -> int:
        """How many bytes of queues were read since the last call."""
        taken, self._bytes_read = self._bytes_read, 0
        return taken

    @property
    def topics(self) -> set[str]:
        """All topics that have queues."""
        return set(self._listed())

    def kept(self, segment: Segment, begin: int, end: int, *, log_end: int, is_start: bool) -> Kept | None:
        """What of ``[begin, end)`` of a segment is to be read; None: all of it.

        Args:
            segment: of the log.
            begin: of the split; a record's start if ``is_start``.
            end: of the split.
            log_end: nothing beyond is part of the log.
            is_start: whether a record, or damage, begins at ``begin``.
        """
        if not self.is_possible or end - begin < SPLIT_BYTES_MIN or not segment.record_format.holds_messages:
            return None
        queues = self._listed()
        if not queues or sum(map(len, queues.values())) * QUEUE_COST_BYTES > end - begin:
            return None
        tiles = self._tiles(queues, segment, begin, end, log_end=log_end)
        if tiles is None:
            return None
        kept = tiles.kept(begin, end, is_start=is_start)
        spared = end - begin - sum(stop - start for start, stop in kept.ranges) - kept.cost
        return kept if spared * _WORTH >= end - begin else None

    def _listed(self) -> Queues:
        """All that the store has."""
        if self._queues is None:
            self._queues = {}
            if self.is_possible:
                try:
                    root = store_root(self._filesystem, self._path)
                    self._queues = _list_queues(self._filesystem, f"{root}/consumequeue")
                except OSError as error:
                    logger.info("consume_queues.not_listed: the whole log is read: %s", error)
        return self._queues

    def _tiles(self, queues: Queues, segment: Segment, begin: int, end: int, *, log_end: int) -> "_Tiles | None":
        names, found = list[tuple[str, int]](), list[npt.NDArray[Any]]()
        before = segment.record_format.message_at
        for topic, of_topic in queues.items():
            for queue_id, files in of_topic.items():
                try:
                    units, read = _units_within(self._filesystem, files, begin + before, end + before)
                except OSError as error:  # expired meanwhile, or not readable: then its messages lie in gaps
                    logger.info("consume_queue.not_read: %s", error)
                    continue
                names.append((topic, queue_id))
                found.append(units)
                self._bytes_read += read
        if not found:
            return None
        units = np.concatenate(found)
        queue = np.repeat(np.arange(len(names)), [len(one) for one in found])
        wanted = np.array([is_wanted_topic(topic, self._options) for topic, _ in names], np.bool_)
        starts, ends = units["offset"] - before, units["offset"] + units["size"]
        tiles = _Tiles(names, starts, ends, queue, units["queue_offset"], wanted[queue])
        return tiles.sound(segment.base, min(segment.end, log_end), size_min=segment.record_format.size_min)


@dataclass(frozen=True)
class _Tiles:
    """Records ``[starts, ends)`` that queues name; ``names``: topic and queue id by the numbers in ``queues``."""

    names: list[tuple[str, int]]
    starts: Positions
    ends: Positions
    queues: Positions
    queue_offsets: Positions
    wanted: Mask

    def _take(self, which: Any) -> "_Tiles":
        return _Tiles(
            self.names,
            self.starts[which],
            self.ends[which],
            self.queues[which],
            self.queue_offsets[which],
            self.wanted[which],
        )

    def _unit(self, tile: int) -> Unit:
        topic, queue_id = self.names[int(self.queues[tile])]
        start, size = int(self.starts[tile]), int(self.ends[tile] - self.starts[tile])
        return Unit(start, topic, queue_id, int(self.queue_offsets[tile]), size)

    def sound(self, base: int, end: int, *, size_min: int) -> "_Tiles":
        """In order, those that lie in ``[base, end)`` and share no byte with another."""
        inside = (self.starts >= base) & (self.ends <= end) & (self.ends - self.starts >= size_min)
        tiles = self._take(np.flatnonzero(inside))
        tiles = tiles._take(np.argsort(tiles.starts, kind="stable"))
        alone = np.ones(tiles.starts.size, np.bool_)
        alone[:-1] &= tiles.ends[:-1] <= tiles.starts[1:]
        alone[1:] &= np.maximum.accumulate(tiles.ends)[:-1] <= tiles.starts[1:]
        return tiles._take(alone)

    def kept(self, begin: int, end: int, *, is_start: bool) -> Kept:
        """All of ``[begin, end)`` but what tiles that are not wanted cover, stretch by stretch."""
        start, known_by = (begin, []) if is_start else self._first_start(begin)
        at = begin if start is None else start
        ranges, lasts = list[tuple[int, int]](), dict[int, Unit]()
        for stretch_begin, last in self._unwanted(at, end):
            if at < stretch_begin:
                ranges.append((at, stretch_begin))
            at = int(self.ends[last])
            lasts[at] = self._unit(last)
        if at < end:
            ranges.append((at, end))
        wanted, others = self._witnesses(begin, end)
        witnesses = [self._unit(tile) for tile in (*known_by, *wanted, *others)]
        gaps, named = self._gaps(begin, end)
        cost = WITNESS_COST_BYTES * len(wanted) + sum(GAP_COST_BYTES + stop - start for start, stop in gaps)
        return Kept(start, ranges, max(at, end), lasts, witnesses, gaps, named, cost)

    def _gaps(self, begin: int, end: int) -> tuple[list[tuple[int, int]], Named]:
        """Between tiles that begin in ``[begin, end)``; and what those name."""
        inside = np.flatnonzero((self.starts >= begin) & (self.starts < end))
        starts, ends = self.starts[inside], self.ends[inside]
        gaps = np.flatnonzero(starts[1:] != ends[:-1])
        named = Named.of(self.names, self.queues[inside], self.queue_offsets[inside])
        return list(zip(ends[gaps].tolist(), starts[gaps + 1].tolist(), strict=True)), named

    def _witnesses(self, begin: int, end: int) -> tuple[list[int], list[int]]:
        """Of each run of wanted neighbours in ``[begin, end)``, and of all others, each queue's first and last."""
        inside = (self.starts >= begin) & (self.starts < end)
        wanted, others = np.flatnonzero(inside & self.wanted), np.flatnonzero(inside & ~self.wanted)
        begins_run = np.ones(wanted.size, np.bool_)
        begins_run[1:] = self.starts[wanted[1:]] != self.ends[wanted[:-1]]
        runs = np.cumsum(begins_run, dtype=np.int64)
        return self._first_and_last(wanted, runs), self._first_and_last(others, np.zeros_like(others))

    def _first_and_last(self, tiles: Positions, groups: Positions) -> list[int]:
        """Of each queue in each group of tiles."""
        keys = groups * len(self.names) + self.queues[tiles]
        firsts = np.unique(keys, return_index=True)[1]
        lasts = tiles.size - 1 - np.unique(keys[::-1], return_index=True)[1]
        found: list[int] = tiles[np.union1d(firsts, lasts)].tolist()
        return found

    def _first_start(self, begin: int) -> tuple[int | None, list[int]]:
        """Where the first record at or after ``begin`` starts, None if no tile reaches so far; and which says it."""
        before = int(np.searchsorted(self.starts, begin)) - 1
        if before + 1 < self.starts.size and self.starts[before + 1] == begin:
            return begin, [before + 1]
        if before >= 0 and self.ends[before] >= begin:
            return int(self.ends[before]), [before]
        return None, []

    def _unwanted(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Long stretches of neighbouring tiles that begin in ``[begin, end)`` and are not wanted: start, last tile."""
        inside = np.flatnonzero(~self.wanted & (self.starts >= begin) & (self.starts < end))
        starts, ends = self.starts[inside], self.ends[inside]
        if not starts.size:
            return
        breaks = np.flatnonzero(starts[1:] != ends[:-1]) + 1
        firsts = np.concatenate([np.zeros(1, np.int64), breaks])
        lasts = np.concatenate([breaks, np.array([starts.size])]) - 1
        long = ends[lasts] - starts[firsts] >= SKIPPED_BYTES_MIN
        yield from zip(starts[firsts[long]].tolist(), inside[lasts[long]].tolist(), strict=True)


def count_topics(filesystem: fs.FileSystem, path: str, options: ReadOptions) -> int:
    """How many topics that are wanted have a queue in the store of this path, as far as it can be listed."""
    selector = fs.FileSelector(f"{store_root(filesystem, path)}/consumequeue", allow_not_found=True)
    try:
        return sum(is_wanted_topic(info.base_name, options) for info in filesystem.get_file_info(selector))
    except OSError as error:
        logger.info("consume_queues.not_listed: %s", error)
        return 0


def _list_queues(filesystem: fs.FileSystem, directory: str) -> Queues:
    files: defaultdict[str, defaultdict[int, list[_QueueFile]]] = defaultdict(lambda: defaultdict(list))
    for info in filesystem.get_file_info(fs.FileSelector(directory, recursive=True, allow_not_found=True)):
        name = info.base_name
        if info.is_file and info.size >= UNIT_SIZE and len(name) == 20 and name.isdecimal():
            topic, *below = info.path.removeprefix(f"{directory}/").split("/")
            if len(below) == 2 and _QUEUE_ID.fullmatch(below[0]) and not topic.startswith(_LIGHT_QUEUE):
                files[topic][int(below[0])].append(_QueueFile(info.path, int(name), info.size))
    return {
        topic: {queue_id: sorted(one, key=lambda file: file.base) for queue_id, one in of.items()}
        for topic, of in files.items()
    }


def _units_within(
    filesystem: fs.FileSystem, files: list[_QueueFile], begin: int, end: int
) -> tuple[npt.NDArray[Any], int]:
    """A queue's units of messages in ``[begin, end)``, the last one before them, and how many bytes were read.

    Of a queue whose units do not ascend, some: whatever is not found is read.
    """
    with ExitStack() as stack:

        def first_offset(file: _QueueFile) -> int:
            return opened(file)[0]

        def opened(file: _QueueFile) -> _FileUnits:
            if file not in units_of:
                data = stack.enter_context(filesystem.open_input_file(file.path))
                units_of[file] = _FileUnits(data, file.size // UNIT_SIZE, first=file.base // UNIT_SIZE)
            return units_of[file]

        units_of = dict[_QueueFile, _FileUnits]()
        low = max(0, bisect.bisect_left(files, begin, key=first_offset) - 1)
        high = bisect.bisect_left(files, end, lo=low, key=first_offset)
        found = [opened(file).within(begin, end) for file in files[low:high]]
        return np.concatenate([_NONE, *found]), sum(units.bytes_read for units in units_of.values())


class _FileUnits:
    """The offsets of one queue file's units, for a search; unused space counts as behind everything."""

    def __init__(self, data: Any, count: int, *, first: int) -> None:
        self._data = data
        self._count = count
        self._first = first
        self.bytes_read = 0

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> int:
        unit = self._read(index, index + 1)
        return int(unit["offset"][0]) if len(unit) and unit["size"][0] > 0 else _UNUSED

    def within(self, begin: int, end: int) -> npt.NDArray[Any]:
        """Units of messages in ``[begin, end)``, and the last one before them."""
        low = max(0, bisect.bisect_left(self, begin) - 1)
        units = self._read(low, bisect.bisect_left(self, end, lo=low))
        found: npt.NDArray[Any] = np.empty(len(units), _FOUND)
        found["offset"], found["size"] = units["offset"], units["size"]
        found["queue_offset"] = np.arange(self._first + low, self._first + low + len(units))
        is_message = (units["size"] > 0) & (units["size"] != FILLER_SIZE)
        return np.compress(is_message, found)

    def _read(self, begin: int, end: int) -> npt.NDArray[Any]:
        data = self._data.read_at((end - begin) * UNIT_SIZE, begin * UNIT_SIZE)
        self.bytes_read += len(data)
        units: npt.NDArray[Any] = np.frombuffer(data, _UNIT, count=len(data) // UNIT_SIZE)
        return units
