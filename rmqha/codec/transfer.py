"""The replication stream: frames from master to slave, reports from slave to master.

A frame, master to slave:

    at  size  field       type              meaning
     0     8  phy_offset  int64 big-endian  log offset of the body's first byte
     8     4  body_size   int32 big-endian  bytes that follow; 0 is a heartbeat
    12     n  body                          raw commitlog bytes, cut anywhere, but never across a file

A report, slave to master:

    at  size  field       type              meaning
     0     8  offset      int64 big-endian  the next byte the slave wants; everything before it is acknowledged

Nothing else travels on the connection: no greeting, no version, no checksum.

Source: rocketmq-all-4.9.8 HAConnection.java:299-304 (writes frames), HAService.java:382-410, 435-479 (slave);
spec: ha §2.
"""

import struct
from typing import Final, NamedTuple

from rmqha.errors import LocalProtocolError, RemoteProtocolError

_HEADER: Final = struct.Struct(">qi")
_REPORT: Final = struct.Struct(">q")

FRAME_HEADER_SIZE: Final = 12
REPORT_SIZE: Final = 8
assert (_HEADER.size, _REPORT.size) == (FRAME_HEADER_SIZE, REPORT_SIZE)

BODY_SIZE_MAX: Final = 4 * 1024 * 1024 - FRAME_HEADER_SIZE
"""4,194,292: a Java slave reads header and body into one buffer of 4 MiB and stalls for ever on more (spec: ha §3)."""


OFFSET_MAX: Final = 2**63 - 1
"""What a report can name: no log ends behind it."""


class FrameHeader(NamedTuple):
    """The body belongs at ``[phy_offset, phy_offset + body_size)``; no body means heartbeat."""

    phy_offset: int
    body_size: int


def encode_frame_header(phy_offset: int, body_size: int) -> bytes:
    """Make the 12 bytes in front of a body.

    Raises:
        LocalProtocolError: ``body_size`` is outside ``0..BODY_SIZE_MAX``, ``phy_offset`` is negative, or no report can
            name the end.
    """
    if not (0 <= body_size <= BODY_SIZE_MAX and 0 <= phy_offset <= OFFSET_MAX - body_size):
        raise LocalProtocolError(f"a frame cannot carry {body_size} bytes at offset {phy_offset}")
    return _HEADER.pack(phy_offset, body_size)


def decode_frame_header(buffer: bytes | bytearray | memoryview, at: int = 0) -> FrameHeader:
    """Read the 12 bytes at ``at``.

    Raises:
        RemoteProtocolError: ``body_size`` is outside ``0..BODY_SIZE_MAX``, ``phy_offset`` is negative, or no report
            can name the end; the bytes that follow cannot be told apart, so the connection must be closed.
    """
    phy_offset, body_size = _HEADER.unpack_from(buffer, at)
    if not 0 <= body_size <= BODY_SIZE_MAX:
        raise RemoteProtocolError(f"frame at offset {phy_offset}: body size {body_size} not in 0..{BODY_SIZE_MAX}")
    if phy_offset < 0:
        raise RemoteProtocolError(f"frame with the negative offset {phy_offset}")
    if phy_offset > OFFSET_MAX - body_size:
        raise RemoteProtocolError(f"frame at offset {phy_offset}: its {body_size} bytes end where no log can")
    return FrameHeader(phy_offset, body_size)


def encode_report(offset: int) -> bytes:
    """Make a report: everything before ``offset`` is acknowledged, ``offset`` is wanted next."""
    return _REPORT.pack(offset)


class ReportDecoder:
    """Cuts what a slave sends into reports, however it was chopped."""

    def __init__(self) -> None:
        self._rest = b""

    @property
    def unfinished_size(self) -> int:
        """Bytes of a report that is not complete yet, ``0..7``."""
        return len(self._rest)

    def receive_data(self, data: bytes | bytearray | memoryview) -> list[int]:
        """Take what came off the wire; returns every report that is now complete, oldest first."""
        whole = self._rest + bytes(data)
        end = len(whole) - len(whole) % REPORT_SIZE
        self._rest = whole[end:]
        return [offset for (offset,) in _REPORT.iter_unpack(whole[:end])]
