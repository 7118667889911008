"""Hot path: the entries of a block of a DLedger log; and, where they hold no messages, what they are as rows.

A row of a group without brokers: ``topic`` is ``entries``, ``queueOffset`` the index, ``physicalOffset`` where the
entry lies, ``properties`` its term. It has no times, hosts, keys or tags.

Source: spec: dledger §1.2
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from rmqha.codec.dledger_entry import BODY_OFFSET
from rmqha.codec.properties import NAME_VALUE_SEPARATOR, PROPERTY_SEPARATOR
from rmqha.codec.record.formats import CLASSIC
from rmqha.codec.record.layout import BARRIER_TOPIC, FIXED_SIZE_V4
from rmqha.spark.fields import Fields, values_at
from rmqha.spark.lane_walk import Bytes, Positions
from rmqha.spark.layout import ENTRY_DTYPE, RECORD_DTYPES

TOPIC: Final = "entries"
TERM: Final = "term"
_NO_TIME: Final = np.iinfo(np.int64).min
_BARRIER: Final = BARRIER_TOPIC.encode()


def count_good(block: Bytes, starts: Positions, sizes: Positions, *, position: int, hold_messages: bool) -> int:
    """How many leading entries lie where they say, with a body as long as they say. Their magic code was checked.

    With ``hold_messages`` that body begins as a message of its length does.
    """
    headers = values_at(block, starts, ENTRY_DTYPE)
    good = (headers["pos"] == starts + position) & (headers["body_length"] == sizes - BODY_OFFSET)
    good &= (headers["index"] >= 0) & (headers["term"] >= 0)
    if hold_messages:
        begins = starts + BODY_OFFSET
        good &= values_at(block, begins + CLASSIC.size_at, ">u4") == sizes - BODY_OFFSET
        good &= values_at(block, begins + CLASSIC.magic_at, ">u4") == CLASSIC.magic
    return starts.size if good.all() else int(np.argmin(good))


def read(block: Bytes, starts: Positions, sizes: Positions) -> tuple[Fields, pa.DictionaryArray]:
    """Entries as if they were messages, and their topics."""
    found = values_at(block, starts, ENTRY_DTYPE)
    headers: npt.NDArray[Any] = np.zeros(starts.size, RECORD_DTYPES[0])
    headers["total_size"], headers["body_size"] = sizes, sizes - BODY_OFFSET
    headers["queue_offset"], headers["physical_offset"] = found["index"], found["pos"]
    headers["born_timestamp"] = headers["store_timestamp"] = _NO_TIME
    begins, ends = starts + BODY_OFFSET, starts + sizes
    sys_flag = np.zeros(starts.size, np.int32)
    codes = pa.array(_are_barriers(block, starts, sizes).astype(np.int32))
    topics = pa.DictionaryArray.from_arrays(codes, pa.array([TOPIC.encode(), _BARRIER], pa.binary()))
    return Fields(block, starts, headers, sys_flag, begins, ends, ends, ends, ends, ends), topics


def _are_barriers(block: Bytes, starts: Positions, sizes: Positions) -> npt.NDArray[np.bool_]:
    """Which entries a leader of rmqha's appended for itself: messages of a topic of their own, without a body."""
    topic_at = BODY_OFFSET + FIXED_SIZE_V4 + 1
    found = sizes >= topic_at + len(_BARRIER)
    maybe = np.flatnonzero(found)
    magics = values_at(block, starts[maybe] + BODY_OFFSET + CLASSIC.magic_at, ">u4")
    found[maybe[magics != CLASSIC.magic]] = False
    for row in np.flatnonzero(found).tolist():
        at = int(starts[row]) + topic_at
        found[row] = block[at : at + len(_BARRIER)].tobytes() == _BARRIER
    return found


def properties_of(fields: Fields) -> pa.Array:
    """The terms, as messages' properties are stored."""
    terms = pa.array(values_at(fields.block, fields.starts, ENTRY_DTYPE)["term"].astype(np.int64)).cast(pa.string())
    stored = pc.binary_join_element_wise(f"{TERM}{NAME_VALUE_SEPARATOR}", terms, PROPERTY_SEPARATOR, "")
    return stored.cast(pa.binary())
