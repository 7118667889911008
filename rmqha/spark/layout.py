"""The stored record as numpy sees it: one big-endian struct for each of the four host-length combinations.

    at       width  field            (B, S: 8 for an IPv4 host and port, 20 for IPv6)
    0        4      TOTALSIZE
    4        4      MAGICCODE
    8        4      BODYCRC
    12       4      QUEUEID
    16       4      FLAG
    20       8      QUEUEOFFSET
    28       8      PHYSICALOFFSET   the record's own position: what makes any byte range openable
    36       4      SYSFLAG
    40       8      BORNTIMESTAMP
    48       B      BORNHOST
    48+B     8      STORETIMESTAMP
    56+B     S      STOREHOSTADDRESS
    56+B+S   4      RECONSUMETIMES
    60+B+S   8      PREPARED TRANSACTION OFFSET
    68+B+S   4      BODY LENGTH, then BODY, 1 byte + TOPIC, 2 bytes + PROPERTIES

Source: spec: commitlog §2.1
"""

from typing import Final

import numpy as np

from rmqha.codec.layout import BLANK_MAGIC, MESSAGE_MAGIC, MESSAGE_SIZE_MAX, RECORD_SIZE_EXTRA_MAX, SysFlag

MESSAGE_MAGIC_BYTES: Final = (MESSAGE_MAGIC & 0xFFFFFFFF).to_bytes(4, "big")
BLANK_MAGIC_BYTES: Final = (BLANK_MAGIC & 0xFFFFFFFF).to_bytes(4, "big")
RECORD_SIZE_LIKELY_MAX: Final = MESSAGE_SIZE_MAX + RECORD_SIZE_EXTRA_MAX + 8
"""How far before a split a record that reaches into it may start, unless maxMessageSize was raised."""


def _record_dtype(born: int, store: int) -> np.dtype[np.void]:
    return np.dtype(
        [
            ("total_size", ">i4"),
            ("magic", ">i4"),
            ("body_crc", ">i4"),
            ("queue_id", ">i4"),
            ("flag", ">i4"),
            ("queue_offset", ">i8"),
            ("physical_offset", ">i8"),
            ("sys_flag", ">i4"),
            ("born_timestamp", ">i8"),
            ("born_host", f"V{born}"),
            ("store_timestamp", ">i8"),
            ("store_host", f"V{store}"),
            ("reconsume_times", ">i4"),
            ("prepared_transaction_offset", ">i8"),
            ("body_length", ">i4"),
        ]
    )


RECORD_DTYPES: Final = {
    0: _record_dtype(8, 8),
    SysFlag.BORN_HOST_V6: _record_dtype(20, 8),
    SysFlag.STORE_HOST_V6: _record_dtype(8, 20),
    SysFlag.HOSTS_V6: _record_dtype(20, 20),
}
assert [dtype.itemsize for dtype in RECORD_DTYPES.values()] == [88, 100, 100, 112]
