"""One task of the job, wherever it runs: decode a part of the log, write its files below the staging directory."""

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field
from socket import gethostname
from typing import Final
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from rmqha.errors import StoreError
from rmqha.spark import gather
from rmqha.spark.partitions import LogTask, read_task
from rmqha.spark.replay.formats import EXTENSIONS, MessageFile, open_file
from rmqha.spark.replay.options import OutputFormat
from rmqha.spark.replay.paths import partition_directory
from rmqha.spark.replay.report import OutputFile, TopicTotals
from rmqha.spark.replay.sink import ChecksumSink
from rmqha.spark.report import ReadReport
from rmqha.spark.segments import open_filesystem

_BUFFERED_BYTES: Final = 96 << 20
_OPEN_FILES_MAX: Final = 200
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
        writer.flush()
    finally:
        writer.close()
    return result


@dataclass
class _OpenFile:
    file: MessageFile
    sink: ChecksumSink
    path: str
    messages: int = 0


class _TopicWriter:
    """Spreads batches over one file a topic, keeping rows in log order. Memory is bounded by ``_BUFFERED_BYTES``."""

    def __init__(self, task: ReplayTask, result: TaskResult) -> None:
        self._task = task
        self._result = result
        self._filesystem, staging = open_filesystem(task.staging)
        self._root = f"{staging}/{uuid4().hex}"
        self._staged = "/".join(self._root.split("/")[-2:])
        self._make_directory(self._root)
        self._buffered: dict[str, list[pa.RecordBatch]] = {}
        self._buffered_bytes = 0
        self._open: OrderedDict[str, _OpenFile] = OrderedDict()
        self._opened: dict[str, int] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Take a batch of several topics."""
        for topic, rows in _by_topic(batch):
            self._result.topics.setdefault(topic, TopicTotals()).add(_totals(rows))
            self._buffered.setdefault(topic, []).append(rows.select(self._task.columns))
        self._buffered_bytes += batch.nbytes
        if self._buffered_bytes >= _BUFFERED_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is buffered, one run of rows a topic."""
        for topic, batches in self._buffered.items():
            table = pa.Table.from_batches(batches)
            file = self._file_of(topic, table.schema)
            file.file.write(table)
            file.messages += len(table)
        self._buffered.clear()
        self._buffered_bytes = 0

    def close(self) -> None:
        """Finish all files."""
        while self._open:
            self._close(next(iter(self._open)))

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


def _by_topic(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The batch's rows by topic, still in log order: one gather, then slices of it."""
    coded = batch.column("topic").dictionary_encode()
    topics = coded.dictionary.to_pylist()
    if len(topics) == 1:
        yield topics[0], batch
        return
    codes = coded.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    ordered = batch.take(gather.numbers(order))
    ends = np.cumsum(np.bincount(codes, minlength=len(topics)))
    for topic, begin, end in zip(topics, [0, *ends[:-1].tolist()], ends.tolist(), strict=True):
        yield topic, ordered.slice(begin, end - begin)


def _totals(rows: pa.RecordBatch) -> TopicTotals:
    offsets = rows.column("physicalOffset").to_numpy()
    return TopicTotals(
        messages=rows.num_rows,
        body_bytes=pc.sum(pc.binary_length(rows.column("body"))).as_py(),
        body_crc_sum=int(rows.column("bodyCrc").to_numpy().sum(dtype=np.int64)),
        physical_offset_sum=sum(offsets.tolist()),
        first_offset=int(offsets[0]),
        last_offset=int(offsets[-1]),
    )
