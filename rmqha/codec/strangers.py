"""Identify the protocol of a stranger from its first bytes, so that the log can name it for the operator.

Two protocols of RocketMQ sit on neighbouring ports, so that one digit wrong in a configuration sends one to the
other. Each describes itself in its first bytes; what cannot be told for certain is not told.
"""

import struct
from typing import Final, cast

from rmqha.codec.remoting import FRAME_SIZE_MAX

_PREFIX: Final = struct.Struct(">iI")
_REPORT: Final = struct.Struct(">q")
_TWO_REPORTS: Final = struct.Struct(">qq")
_BINARY_HEADER_SIZE_MIN: Final = 21
_REMOTING_SIZE_MIN: Final = _PREFIX.size + 2
_LOG_SIZE_MAX: Final = 1 << 48
"""No log is as long as this."""

_AUTO_SWITCH_HELLOS: Final = frozenset(
    (1 << 32) + sync_from_last_file * (1 << 16) + learner for sync_from_last_file in (0, 1) for learner in (0, 1)
)
_HTTP_METHODS: Final = (
    b"GET ",
    b"HEAD ",
    b"POST ",
    b"PUT ",
    b"PATCH ",
    b"OPTIONS ",
    b"CONNECT ",
    b"DELETE ",
    b"TRACE ",
    b"PRI * ",
)


def describe_on_ha_port(first_bytes: bytes) -> str | None:
    """Name the protocol if these are certainly no slave's reports; None if they may be.

    The hello of RocketMQ 5's controller mode is 16 bytes, sent at once: int32 state 1, int16 and int16 flags, int64
    broker id. Its first half alone could be a slave asking for offset 4 GiB, so both halves are needed (spec: ha §14).
    """
    if len(first_bytes) >= _TWO_REPORTS.size:
        state, broker_id = _TWO_REPORTS.unpack_from(first_bytes)
        if state in _AUTO_SWITCH_HELLOS and broker_id < state:
            return "the hello of RocketMQ 5 controller mode (AutoSwitchHAService), which is not spoken here"
    if _is_remoting(first_bytes):
        return (
            "a request of the remoting protocol: a RocketMQ client or broker took this HA port for a broker's "
            "listenPort or a name server; check the port it was given (namesrvAddr, broker address, masterAddress)"
        )
    return _describe_foreign(first_bytes)


def is_open_on_ha_port(first_bytes: bytes) -> bool:
    """Whether a stranger, as well as a slave, may have begun like this, and the next few bytes will tell.

    Of the reports there are, one in many millions is among these: the lengths of a small frame make N times 4 GiB and
    fewer than N bytes.
    """
    if not _REPORT.size <= len(first_bytes) < _TWO_REPORTS.size:
        return False
    (offset,) = _REPORT.unpack_from(first_bytes)
    return offset in _AUTO_SWITCH_HELLOS or (len(first_bytes) < _REMOTING_SIZE_MIN and _has_lengths(first_bytes))


def describe_on_remoting_port(first_bytes: bytes) -> str | None:
    """Name the protocol if these bytes begin no request and are known; None otherwise.

    A report is 8 bytes and so is the length of a request with that of its header; the reports of a log below 16 GiB
    announce a request of fewer than 4 bytes, of which there is none. The header of a frame begins like a report.
    """
    foreign = _describe_foreign(first_bytes)
    if foreign is not None or len(first_bytes) < _REPORT.size:
        return foreign
    (offset,) = _REPORT.unpack_from(first_bytes)
    if 0 <= offset < _LOG_SIZE_MAX:
        return (
            f"what a slave reports that has {offset} bytes: the replication protocol; if it is a slave, its "
            "haMasterAddress names this listenPort, not the HA port (haListenPort, listenPort + 1 by default)"
        )
    return None


def describe_answer(first_bytes: bytes) -> str | None:
    """Say what answers a client, if it is no broker's remoting port and known."""
    if first_bytes[:2] in (b"\x15\x03", b"\x16\x03"):
        return "it speaks TLS, and this connection does not: connect with TLS (docs/security.md)"
    foreign = _describe_foreign(first_bytes)
    return None if foreign is None else f"it answers with {foreign}"


def _is_remoting(first_bytes: bytes) -> bool:
    """Whether a frame begins: lengths that fit, then ``{"`` or a binary header's code.

    Read as reports, the second one would be of a log of 281 TB or more.
    """
    if len(first_bytes) < _REMOTING_SIZE_MIN or not _has_lengths(first_bytes):
        return False
    if first_bytes[4]:
        return int.from_bytes(first_bytes[_PREFIX.size : _REMOTING_SIZE_MIN], signed=True) > 0
    return first_bytes.startswith(b'{"', _PREFIX.size)


def _has_lengths(first_bytes: bytes) -> bool:
    """Whether the lengths of a frame and of its header fit each other, and the form is one of the two."""
    total, word = cast(tuple[int, int], _PREFIX.unpack_from(first_bytes))
    form, header_size = word >> 24, word & 0xFFFFFF
    least = _BINARY_HEADER_SIZE_MIN if form else 1
    return form <= 1 and least <= header_size <= total - 4 <= FRAME_SIZE_MAX


def _describe_foreign(first_bytes: bytes) -> str | None:
    if first_bytes.startswith(_HTTP_METHODS):
        return "an HTTP request"
    if first_bytes[:2] == b"\x16\x03":
        return "a TLS hello"
    if first_bytes.startswith(b"SSH-"):
        return "an SSH greeting"
    if len(first_bytes) >= _REPORT.size and all(0x20 <= byte < 0x7F or byte in b"\r\n\t" for byte in first_bytes):
        return "text"
    return None
