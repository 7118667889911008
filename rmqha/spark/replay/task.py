"""One task of the job, wherever it runs: decode a part of the log, write its files below the staging directory."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from socket import gethostname
from typing import Final
from uuid import uuid4

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqha.errors import StoreError
from rmqha.spark import gather
from rmqha.spark.partitions import LogTask, read_task
from rmqha.spark.replay.formats import EXTENSIONS, MessageFile, open_file
from rmqha.spark.replay.kept_rows import KeptRows
from rmqha.spark.replay.options import OutputFormat
from rmqha.spark.replay.paths import partition_directory
from rmqha.spark.replay.report import OutputFile, TopicTotals
from rmqha.spark.replay.sink import ChecksumSink
from rmqha.spark.report import ReadReport
from rmqha.spark.segments import open_filesystem

_BUFFERED_BYTES: Final = 64 << 20
_GROUP_BYTES: Final = 1 << 20
"""Of bodies: with less in a row group, its columns' heads and the calls that make them cost as much as its rows."""
_ROWS_OF_A_PIECE: Final = 64
_OPEN_FILES_MAX: Final = 200
_LOW_BITS: Final = 32
_LOW: Final = (1 << _LOW_BITS) - 1
ALWAYS_READ: Final = ("topic", "physicalOffset", "bodyCrc", "body")
"""Columns that the totals need, whether they are written or not."""


@dataclass(frozen=True)
class ReplayTask:
    """Travels to a worker.

    Attributes:
        staging: the run's directory, in which attempts make theirs.
        columns: are written (never ``topic``, which is the directory's name).
    """

    log: LogTask
    staging: str
    output_format: OutputFormat
    columns: tuple[str, ...]

    @property
    def name(self) -> str:
        """Its files' name: the physical range, so that names never collide and sort in log order."""
        return f"part-{self.log.splits[0].begin:020d}-{self.log.splits[-1].end:020d}"


@dataclass
class TaskResult:
    """Travels back.

    Attributes:
        host: where the task ran.
    """

    read: ReadReport
    host: str
    topics: dict[str, TopicTotals] = field(default_factory=dict)
    files: list[OutputFile] = field(default_factory=list)


def run_task(task: ReplayTask) -> TaskResult:
    """Write the task's messages, to a directory of this attempt: another may still be writing when Spark repeats it.

    Raises:
        StoreError: a file of the log has gone meanwhile, or the run's directory is not there.
    """
    result = TaskResult(ReadReport(), gethostname())
    writer = _TopicWriter(task, result)
    try:
        for batch in read_task(task.log, result.read):
            writer.add(batch)
        writer.finish()
    finally:
        writer.close()
    return result


@dataclass
class _OpenFile:
    file: MessageFile
    sink: ChecksumSink
    path: str
    messages: int = 0


@dataclass
class _Waiting:
    """Rows of a topic that are not in its file yet, in log order; the first ``kept`` pieces are those in KeptRows."""

    rows: list[pa.RecordBatch] = field(default_factory=list)
    kept: int = 0
    bytes: int = 0


class _TopicWriter:
    """Spreads batches over one file a topic, keeping rows in log order. Memory is bounded by ``_BUFFERED_BYTES``.

    A topic gets a row group when there is enough for one. In a log of a thousand topics it would be one of a few
    messages each, or a file each: until then rows are kept on a local disk.
    """

    def __init__(self, task: ReplayTask, result: TaskResult) -> None:
        self._task = task
        self._result = result
        self._filesystem, staging = open_filesystem(task.staging)
        self._root = f"{staging}/{uuid4().hex}"
        self._staged = "/".join(self._root.split("/")[-2:])
        self._make_directory(self._root)
        self._buffered: list[pa.RecordBatch] = []
        self._buffered_bytes = 0
        self._kept = KeptRows()
        self._waiting: dict[str, _Waiting] = {}
        self._open: OrderedDict[str, _OpenFile] = OrderedDict()
        self._opened: dict[str, int] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Take a batch of several topics."""
        if self._buffered and self._buffered_bytes + batch.nbytes > _BUFFERED_BYTES:
            self._sort_out(is_last=False)
        self._buffered.append(batch)
        self._buffered_bytes += batch.nbytes

    def finish(self) -> None:
        """Write all that is left, one run of rows a topic."""
        if self._buffered:
            self._sort_out(is_last=True)
        while self._waiting:
            self._write(next(iter(self._waiting)))

    def _sort_out(self, *, is_last: bool) -> None:
        """Part what is buffered by topic, write the topics that have enough for a row group, and keep the others."""
        batches, self._buffered, self._buffered_bytes = self._buffered, [], 0
        topics = len(batches[0].column("topic").unique())
        if topics * _ROWS_OF_A_PIECE > len(batches[0]):  # parted one by one, they would be in too many pieces
            batches = [pa.concat_batches(batches)]
        for batch in batches:
            self._part(batch)
        for topic in [topic for topic, waiting in self._waiting.items() if waiting.bytes >= _GROUP_BYTES]:
            self._write(topic)
        if not is_last:
            self._keep()

    def _part(self, batch: pa.RecordBatch) -> None:
        """The batch's rows by topic, still in log order: one gather, then slices of it."""
        coded = batch.column("topic").dictionary_encode()
        codes = coded.indices.to_numpy()
        batch = batch.take(gather.numbers(np.argsort(codes, kind="stable")))
        ends = np.cumsum(np.bincount(codes))
        begins = np.concatenate([ends[:1] * 0, ends[:-1]])
        rows, topics = batch.select(self._task.columns), coded.dictionary.to_pylist()
        for topic, begin, totals in zip(topics, begins.tolist(), _totals(batch, begins, ends), strict=True):
            self._result.topics.setdefault(topic, TopicTotals()).add(totals)
            waiting = self._waiting.setdefault(topic, _Waiting())
            waiting.rows.append(rows.slice(begin, totals.messages))
            waiting.bytes += totals.body_bytes

    def _keep(self) -> None:
        """In the file, all that waits and is not there yet."""
        new = [(waiting, pieces) for waiting in self._waiting.values() if (pieces := waiting.rows[waiting.kept :])]
        if not new:
            return
        kept, begin = self._kept.keep(pa.concat_batches([rows for _, pieces in new for rows in pieces])), 0
        for waiting, pieces in new:
            count = sum(map(len, pieces))
            waiting.rows[waiting.kept :] = [kept.slice(begin, count)]
            waiting.kept = len(waiting.rows)
            begin += count

    def _write(self, topic: str) -> None:
        """All that waits of a topic, as one run of rows."""
        table = pa.Table.from_batches(self._waiting.pop(topic).rows)
        file = self._file_of(topic, table.schema)
        file.file.write(table)
        file.messages += len(table)

    def close(self) -> None:
        """Finish all files."""
        while self._open:
            self._close(next(iter(self._open)))
        self._waiting.clear()
        self._kept.close()

    def _file_of(self, topic: str, schema: pa.Schema) -> _OpenFile:
        if topic in self._open:
            self._open.move_to_end(topic)
            return self._open[topic]
        if len(self._open) >= _OPEN_FILES_MAX:
            self._close(next(iter(self._open)))
        nth = self._opened[topic] = self._opened.get(topic, 0) + 1
        suffix = f"-{nth}" if nth > 1 else ""
        path = f"{partition_directory(topic)}/{self._task.name}{suffix}.{EXTENSIONS[self._task.output_format]}"
        if nth == 1:
            self._make_directory(f"{self._root}/{partition_directory(topic)}")
        sink = ChecksumSink(self._filesystem, f"{self._root}/{path}")
        file = open_file(sink, schema, output_format=self._task.output_format)
        self._open[topic] = _OpenFile(file, sink, path)
        return self._open[topic]

    def _make_directory(self, path: str) -> None:
        """Never the one around it: a run that has ended has none any more."""
        try:
            self._filesystem.create_dir(path, recursive=False)
        except FileNotFoundError:
            raise StoreError(
                f"{gethostname()} has no directory {path.rpartition('/')[0]}: either that run has ended, or --out is "
                "not a place that all machines share"
            ) from None

    def _close(self, topic: str) -> None:
        done = self._open.pop(topic)
        done.file.close()
        sink = done.sink
        self._result.files.append(OutputFile(done.path, topic, done.messages, sink.size, sink.crc32, self._staged))


def _totals(rows: pa.RecordBatch, begins: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> Iterator[TopicTotals]:
    """Of each ``[begin, end)`` of the rows; together these are all of them."""
    offsets = rows.column("physicalOffset").to_numpy()
    lengths = pc.binary_length(rows.column("body")).to_numpy().astype(np.int64)
    sums = [
        np.add.reduceat(values, begins).tolist()
        for values in (
            lengths,
            rows.column("bodyCrc").to_numpy().astype(np.int64),
            offsets & _LOW,
            offsets >> _LOW_BITS,
        )
    ]
    for begin, end, body_bytes, crc_sum, low, high in zip(begins.tolist(), ends.tolist(), *sums, strict=True):
        yield TopicTotals(
            messages=end - begin,
            body_bytes=body_bytes,
            body_crc_sum=crc_sum,
            physical_offset_sum=(high << _LOW_BITS) + low,  # which may be larger than 64 bits
            first_offset=int(offsets[begin]),
            last_offset=int(offsets[end - 1]),
        )
