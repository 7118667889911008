"""Compressed bodies, inflated within a bound, so that a small message cannot fill the memory.

Source: spec: commitlog §2.3 (type in bits 8-10 of SYSFLAG), §2.8
"""

import zlib
from collections.abc import Iterator
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqha.codec.layout import SysFlag

_ZLIB: Final = (0, 3)
_ARROW_CODECS: Final = {1: "lz4", 2: "zstd"}
_BATCH_BYTES_MAX: Final = 256 << 20


def inflate(body: bytes, sys_flag: int, *, size_max: int) -> bytes | None:
    """The plain body; None if it does not inflate, its type is unknown, or it would exceed ``size_max``."""
    kind = (sys_flag & SysFlag.COMPRESSION_TYPE) >> SysFlag.COMPRESSION_TYPE_SHIFT
    try:
        if kind in _ZLIB:
            return _inflate_zlib(body, size_max)
        if kind in _ARROW_CODECS:
            stream = pa.CompressedInputStream(pa.BufferReader(body), _ARROW_CODECS[kind])
            plain: bytes = stream.read(size_max + 1)
            return plain if len(plain) <= size_max else None
    except (zlib.error, OSError):
        return None
    return None


def _inflate_zlib(body: bytes, size_max: int) -> bytes | None:
    stream = zlib.decompressobj()
    plain = stream.decompress(body, size_max + 1)
    return plain if stream.eof and len(plain) <= size_max else None


def inflate_batch(batch: pa.RecordBatch, sys_flags: pa.Array, *, size_max: int) -> Iterator[tuple[pa.RecordBatch, int]]:
    """The batch with its bodies inflated, and how many stayed compressed; several batches if they grow very large.

    ``sysFlag``, where the batch has it, loses bit 0 for each body that was inflated.
    """
    flags = sys_flags.to_numpy(zero_copy_only=False).copy()
    bodies = batch.column("body").to_pylist() if (flags & SysFlag.COMPRESSED).any() else None
    if bodies is None:
        yield batch, 0
        return
    begin = size = failed = 0
    for row, body in enumerate(bodies):
        if flags[row] & SysFlag.COMPRESSED:
            plain = inflate(body, int(flags[row]), size_max=size_max)
            if plain is None:
                failed += 1
            else:
                bodies[row] = plain
                flags[row] &= ~SysFlag.COMPRESSED
        size += len(bodies[row])
        if size > _BATCH_BYTES_MAX:
            yield _replace(batch, bodies, flags, rows=slice(begin, row + 1)), failed
            bodies[begin : row + 1] = [b""] * (row + 1 - begin)
            begin, size, failed = row + 1, 0, 0
    if begin < len(bodies):
        yield _replace(batch, bodies, flags, rows=slice(begin, len(bodies))), failed


def _replace(
    batch: pa.RecordBatch, bodies: list[bytes], flags: npt.NDArray[np.int32], *, rows: slice
) -> pa.RecordBatch:
    part = batch.slice(rows.start, rows.stop - rows.start)
    columns = dict(zip(batch.schema.names, part.columns, strict=True))
    columns["body"] = pa.array(bodies[rows], pa.binary())
    if "sysFlag" in columns:
        columns["sysFlag"] = pa.array(flags[rows])
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema)
