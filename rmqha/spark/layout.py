"""The stored record as numpy sees it: one big-endian struct for each of the four combinations of host lengths.

It holds the fields in front of the body, under the names of :data:`rmqha.codec.record.layout.FIXED_FIELDS`.
"""

from typing import Final

import numpy as np

from rmqha.codec.dledger_entry import HEADER_FIELDS
from rmqha.codec.record.layout import (
    FIXED_FIELDS,
    HOST_KINDS,
    RECORD_SIZE_EXTRA_MAX,
    host_size,
)
from rmqha.codec.remoting import FRAME_SIZE_MAX

RECORD_SIZE_LIKELY_MAX: Final = FRAME_SIZE_MAX + RECORD_SIZE_EXTRA_MAX + 8
"""How far before a split a record that reaches into it may start: no frame brings more, whatever maxMessageSize is.

But to a RocketMQ whose ``com.rocketmq.remoting.frameMaxLength`` was raised.
"""


def _record_dtype(sys_flag: int) -> np.dtype[np.void]:
    return np.dtype(
        [
            (field.name, f">{field.code}" if field.code else f"V{host_size(field.name, sys_flag)}")
            for field in FIXED_FIELDS
        ]
    )


RECORD_DTYPES: Final = {kind: _record_dtype(kind) for kind in HOST_KINDS}
"""By the IPv6 bits of SYSFLAG."""
ENTRY_DTYPE: Final = np.dtype([(name, f">{code}") for name, code in HEADER_FIELDS])
"""The header of a DLedger entry."""
