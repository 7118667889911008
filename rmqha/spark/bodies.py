"""Compressed bodies, inflated within a bound, so that a small message cannot fill the memory.

Source: spec: commitlog §2.3 (type in bits 8-10 of SYSFLAG), §2.8
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqha.codec.compression import inflate
from rmqha.codec.record.layout import SysFlag
from rmqha.errors import RemoteProtocolError
from rmqha.spark.schema import BODY_COLUMNS

_BATCH_BYTES_MAX: Final = 64 << 20
"""Some copies of it are there at one time: in a list, a builder, a batch, and with who takes that."""


def inflate_batch(batch: pa.RecordBatch, sys_flags: pa.Array, *, size_max: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    """The batch with its bodies inflated, and how many stayed compressed; several batches if they grow very large.

    Bodies may be there under both of their names.

    ``sysFlag``, where the batch has it, loses bit 0 for each body that was inflated.

    Raises:
        LocalProtocolError: the library for a body's format is not installed.
    """
    flags = sys_flags.to_numpy(zero_copy_only=False).copy()
    (name, *_) = _names(batch)
    bodies = batch.column(name).to_pylist() if (flags & SysFlag.COMPRESSED).any() else None
    if bodies is None:
        yield batch, 0
        return
    begin = size = failed = 0
    for row, body in enumerate(bodies):
        if flags[row] & SysFlag.COMPRESSED:
            try:
                bodies[row] = inflate(body, int(flags[row]), size_max=size_max)
                flags[row] &= ~SysFlag.COMPRESSED
            except RemoteProtocolError:
                failed += 1
        size += len(bodies[row])
        if size > _BATCH_BYTES_MAX:
            yield _replace(batch, bodies, flags, rows=slice(begin, row + 1)), failed
            bodies[begin : row + 1] = [b""] * (row + 1 - begin)
            begin, size, failed = row + 1, 0, 0
    if begin < len(bodies):
        yield _replace(batch, bodies, flags, rows=slice(begin, len(bodies))), failed


def _names(batch: pa.RecordBatch) -> list[str]:
    return [name for name in BODY_COLUMNS if name in batch.schema.names]


def _replace(
    batch: pa.RecordBatch, bodies: list[bytes], flags: npt.NDArray[np.int32], *, rows: slice
) -> pa.RecordBatch:
    part = batch.slice(rows.start, rows.stop - rows.start)
    columns = dict(zip(batch.schema.names, part.columns, strict=True))
    columns |= dict.fromkeys(_names(batch), pa.array(bodies[rows], pa.binary()))
    if "sysFlag" in columns:
        columns["sysFlag"] = pa.array(flags[rows])
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema)
