"""Hot path: the fixed fields of all records of a block, and whether their lengths add up.

Source: spec: commitlog §2.1, §2.2
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from rmqha.codec.record.layout import BORN_HOST_AT, FIXED_SIZE_V4, SysFlag, is_inner_batch, position_of
from rmqha.spark.lane_walk import Bytes, Positions
from rmqha.spark.layout import RECORD_DTYPES

Header = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

_FIXED_SIZES: Final = {kind: dtype.itemsize for kind, dtype in RECORD_DTYPES.items()}
_STORE_HOST_AT: Final = {kind: position_of("store_host", kind) for kind in RECORD_DTYPES}


@dataclass(frozen=True)
class Fields:
    """One row a record; positions are indexes into ``block``; ``headers`` are right as far as hosts are IPv4.

    ``starts < body < topic < properties <= starts + size`` holds for every row, and the lengths fill the gaps.
    """

    block: Bytes
    starts: Positions
    headers: Header
    sys_flag: npt.NDArray[np.int32]
    body_begin: Positions
    body_end: Positions
    topic_begin: Positions
    topic_end: Positions
    properties_begin: Positions
    properties_end: Positions

    @cached_property
    def has_v6(self) -> bool:
        """Whether any record has an IPv6 host; then fixed fields do not lie alike in all of them."""
        return bool((self.sys_flag & SysFlag.HOSTS_V6).any())

    def take(self, rows: Positions | slice) -> "Fields":
        """Only these rows."""
        return Fields(
            self.block,
            self.starts[rows],
            self.headers[rows],
            self.sys_flag[rows],
            self.body_begin[rows],
            self.body_end[rows],
            self.topic_begin[rows],
            self.topic_end[rows],
            self.properties_begin[rows],
            self.properties_end[rows],
        )

    def column(self, name: str) -> npt.NDArray[Any]:
        """A fixed field of every record, native-endian (not for hosts: see :meth:`born_host_positions`)."""
        dtype = RECORD_DTYPES[0][name].newbyteorder("=")
        if not self.has_v6:
            return self.headers[name].astype(dtype)
        hosts = self.sys_flag & SysFlag.HOSTS_V6
        values = np.empty(self.starts.size, dtype)
        for kind, of_kind in RECORD_DTYPES.items():
            rows = np.flatnonzero(hosts == kind)
            if rows.size:
                values[rows] = values_at(self.block, self.starts[rows], of_kind)[name]
        return values

    def born_host_positions(self) -> tuple[Positions, Mask]:
        """Where each BORNHOST begins, and which are IPv6."""
        return self.starts + BORN_HOST_AT, (self.sys_flag & SysFlag.BORN_HOST_V6) != 0

    def store_host_positions(self) -> tuple[Positions, Mask]:
        """Where each STOREHOSTADDRESS begins, and which are IPv6."""
        return self.starts + _by_kind(_STORE_HOST_AT, self.sys_flag), (self.sys_flag & SysFlag.STORE_HOST_V6) != 0


def read(block: Bytes, starts: Positions, sizes: Positions, *, position: int) -> tuple[Fields, int]:
    """The fields of the leading records that are well-formed, and how many those are.

    Well-formed: PHYSICALOFFSET is the record's own position, the lengths of body, topic and properties are
    not negative and fill TOTALSIZE exactly, and it is no inner batch. Bodies and topic characters are checked later,
    see ``decoder``.
    """
    headers = values_at(block, starts, RECORD_DTYPES[0])
    sys_flag = headers["sys_flag"].astype(np.int32)
    good = headers["physical_offset"] == starts + position
    if is_special := (sys_flag & SysFlag.SPECIAL).any():
        fixed = _by_kind(_FIXED_SIZES, sys_flag)
        good &= fixed + 3 <= sizes
        body_begin = np.where(good, starts + fixed, starts + FIXED_SIZE_V4)
        body_length = values_at(block, body_begin - 4, ">i4").astype(np.int64)
    else:
        body_begin = starts + FIXED_SIZE_V4
        body_length = headers["body_size"].astype(np.int64)
    ends = starts + sizes
    good &= (body_length >= 0) & (body_begin + body_length + 3 <= ends)
    body_end = np.where(good, body_begin + body_length, body_begin)
    topic_length = block[body_end].astype(np.int64)
    topic_end = body_end + 1 + topic_length
    good &= (topic_length < 128) & (topic_end + 2 <= ends)
    length_at = np.where(good, topic_end, starts)
    properties_length = values_at(block, length_at, ">i2").astype(np.int64)
    good &= (properties_length >= 0) & (topic_end + 2 + properties_length == ends)
    if is_special:
        for row in np.flatnonzero(good & (sys_flag & SysFlag.INNER_BATCH != 0)):
            good[row] = not is_inner_batch(block.data, int(starts[row]), int(ends[row]))
    count = starts.size if good.all() else int(np.argmin(good))
    fields = Fields(
        block, starts, headers, sys_flag, body_begin, body_end, body_end + 1, topic_end, topic_end + 2, ends
    )
    return (fields if count == starts.size else fields.take(np.arange(count))), count


def fixed_sizes(sys_flag: npt.NDArray[np.int32]) -> Positions:
    """Bytes of each record before its body, by the IPv6 bits of SYSFLAG."""
    return _by_kind(_FIXED_SIZES, sys_flag)


def values_at(block: Bytes, positions: Positions, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The value of this type at each position, unaligned."""
    kind = np.dtype(dtype)
    raw = np.dtype(f"V{kind.itemsize}") if kind.names else kind
    return np.ndarray((block.size - kind.itemsize + 1,), raw, block, strides=(1,))[positions].view(kind)


def _by_kind(values: dict[int, int], sys_flag: npt.NDArray[np.int32]) -> Positions:
    """The value for each record's IPv6 bits."""
    kinds = sys_flag & SysFlag.HOSTS_V6
    return np.select([kinds == kind for kind in values], list(values.values()))
