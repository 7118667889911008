"""Rows of a task that wait for more of their topic, in a file of this process that has no name."""

import mmap
import os
import tempfile
from typing import IO

import pyarrow as pa

from rmqha.spark.replay.sink import writing


class KeptRows:
    """Batches in a file, mapped: they take no memory that the kernel could not have back."""

    def __init__(self) -> None:
        self._file: IO[bytes] | None = None

    def keep(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows, as they lie in the file."""
        directory = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0]  # where Spark has room for such
        with writing(f"a file of rows that wait, in {directory or tempfile.gettempdir()} (SPARK_LOCAL_DIRS, TMPDIR),"):
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=directory or None)  # noqa: SIM115 - see close
            begin = self._file.seek(0, os.SEEK_END)
            begin += -begin % mmap.ALLOCATIONGRANULARITY
            self._file.seek(begin)
            written = batch.serialize()
            self._file.write(written)
            self._file.flush()
        mapped = mmap.mmap(self._file.fileno(), written.size, offset=begin, prot=mmap.PROT_READ)
        return pa.ipc.read_record_batch(pa.py_buffer(mapped), batch.schema)

    def close(self) -> None:
        """The file goes when nobody reads its rows any more."""
        if self._file is not None:
            self._file.close()
