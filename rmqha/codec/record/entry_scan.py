"""Judge one DLedger entry by itself, as :mod:`rmqha.codec.record.scan` judges records of the classic log."""

import struct
from typing import Final

from rmqha.codec.dledger_entry import BLANK_MAGIC_CODE, BODY_OFFSET, MIN_BLANK_LEN, End, read_record
from rmqha.codec.record.scan import Scan, Stop, scan_records
from rmqha.memory import BytesLike

_MAGIC_AND_SIZE: Final = struct.Struct(">ii")


def scan_entry(
    data: BytesLike, *, position: int, file_end: int, begins_file: bool, holds_message: bool, check_crc: bool = True
) -> Scan:
    """What lies at the beginning of ``data``, which has the whole entry if the file does.

    Args:
        data: from there on.
        position: its offset in the log.
        file_end: how many bytes are left of the file.
        begins_file: whether that is all of it: a blank may end before it does.
        holds_message: the body has to be one message that lies where it says.
        check_crc: compare that message's body with its CRC; an entry has none of its own.
    """
    view = memoryview(data)
    if len(view) < MIN_BLANK_LEN:
        return _stop(Stop.CORRUPT, f"only {file_end} bytes left in this file: no room for an entry or a blank")
    magic, size = _MAGIC_AND_SIZE.unpack_from(view)
    if magic == size == 0:
        return _stop(Stop.ZERO, "")
    if magic == BLANK_MAGIC_CODE:
        is_blank = size == file_end or (begins_file and MIN_BLANK_LEN <= size < file_end)
        text = f"a blank of {size} bytes does not reach exactly to the end of its file"
        return Scan(size, Stop.BLANK, "", 0, 0) if is_blank else _stop(Stop.CORRUPT, text)
    found = read_record(view, 0, base=position, previous=None)
    if isinstance(found, End):
        return _stop(Stop.CORRUPT, found.reason or "an entry's size would be 0")
    return _scan_message(view[:size], position, check_crc=check_crc) if holds_message else _entry(size, 0)


def _scan_message(entry: memoryview, position: int, *, check_crc: bool) -> Scan:
    size = len(entry)
    message = scan_records(entry, BODY_OFFSET, size, phy_offset_base=position, check_crc=check_crc)
    if message.records != 1 or message.end != size:
        return _stop(Stop.CORRUPT, message.reason or "the body of an entry is not one message")
    return _entry(size, message.last_store_timestamp_ms)


def _entry(size: int, store_timestamp_ms: int) -> Scan:
    return Scan(size, Stop.END, "", 1, store_timestamp_ms)


def _stop(stop: Stop, reason: str) -> Scan:
    return Scan(0, stop, reason, 0, 0)
