"""One DLedger entry judged by itself: its body is one message, no less and no more."""

import struct

import pytest

from rmqha.codec.record.entry_scan import scan_entry
from rmqha.codec.record.scan import Scan, Stop
from tests.spark.logs import record

AT = 4096
MESSAGE = record(AT + 48, b"one")


def scanned(body: bytes) -> Scan:
    """What an entry with this body is, of a file that goes on behind it."""
    entry = struct.pack(">iiqqqiiii", 1, 48 + len(body), 7, 1, AT, 0, 0, 0, len(body)) + body
    return scan_entry(entry, position=AT, file_end=60_000, begins_file=False, holds_message=True)


def test_a_message_alone_is_an_entry() -> None:
    found = scanned(MESSAGE)
    assert (found.stop, found.end, found.records) == (Stop.END, 48 + len(MESSAGE), 1)


@pytest.mark.parametrize(
    "body",
    [
        MESSAGE + b"\0",
        MESSAGE + bytes(20),
        MESSAGE + record(AT + 48 + len(MESSAGE), b"two"),
        MESSAGE + MESSAGE,
        MESSAGE[:-1],
        record(AT, b"one"),
        b"",
    ],
)
def test_more_or_less_than_a_message_is_damage(body: bytes) -> None:
    """Readers that hop from message to message would not agree with those that look at each."""
    found = scanned(body)
    assert (found.stop, found.end, found.records) == (Stop.CORRUPT, 0, 0)
    assert found.reason
