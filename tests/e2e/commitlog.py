"""An independent reader of commitlog files: it shares no code with rmqha, so it can contradict it.

Source: spec: commitlog §2 (the record), §3 (the blank at a file's end).
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import trio

MESSAGE_MAGIC: Final = 0xDAA320A7
BLANK_MAGIC: Final = 0xCBD43194


class Record(NamedTuple):
    """One message as it stands in the log."""

    physical_offset: int
    size: int
    topic: str
    queue_id: int
    queue_offset: int
    body: bytes
    properties: dict[str, str]


def segment_files(directory: Path) -> list[Path]:
    """The commitlog's files in order."""
    return sorted(path for path in directory.iterdir() if path.name.isdigit())


def read_records(directory: Path, *, first_file: str = "", torn: bool = False) -> Iterator[Record]:
    """Every record from a file's start to the end of the log; each one's CRC and offset must be right.

    Args:
        directory: the commitlog's.
        first_file: where to begin; the first file if not given.
        torn: a broker is writing, or was killed in the middle of a write (the kernel stops one at a page's end), so
            a broken record is the end.
    """
    for path in segment_files(directory):
        if path.name < first_file:
            continue
        data = path.read_bytes()
        at = 0
        while at + 8 <= len(data):
            size, magic = struct.unpack_from(">iI", data, at)
            if magic != MESSAGE_MAGIC:
                assert torn or (size, magic) == (0, 0) or magic == BLANK_MAGIC, f"{path.name}: {magic:08x} at {at}"
                if torn and magic != BLANK_MAGIC:
                    return  # what is in the next file by now was written after this one was read
                break
            try:
                record = decode_record(data[at : at + size])
                assert record.physical_offset == int(path.name) + at, f"{record} stands at {int(path.name) + at}"
            except (AssertionError, struct.error, IndexError):
                if torn:
                    return
                raise
            yield record
            at += size


def decode_record(record: bytes) -> Record:
    """One whole record; its CRC must be right."""
    crc, queue_id, _flag, queue_offset, physical_offset, sys_flag = struct.unpack_from(">IiiqqI", record, 8)
    at = 48 + (20 if sys_flag & 0x10 else 8) + 8 + (20 if sys_flag & 0x20 else 8) + 12
    (body_size,) = struct.unpack_from(">i", record, at)
    body = record[at + 4 : at + 4 + body_size]
    at += 4 + body_size
    topic = record[at + 1 : at + 1 + record[at]].decode()
    at += 1 + record[at] + 2
    pairs = [pair.split("\x01", 1) for pair in record[at:].decode(errors="replace").split("\x02") if pair]
    assert zlib.crc32(body) & 0x7FFFFFFF == crc, f"body CRC of the record at {physical_offset}"
    properties = {pair[0]: pair[-1] for pair in pairs}
    return Record(physical_offset, len(record), topic, queue_id, queue_offset, body, properties)


def log_end(directory: Path) -> int:
    """Where the last record ends. Reads the last file with data only."""
    files = [path for path in segment_files(directory) if _holds_data(path)]
    if not files:
        return 0
    ends = [record.physical_offset + record.size for record in read_records(directory, first_file=files[-1].name)]
    return max(ends, default=int(files[-1].name))


def first_difference(one: Path, other: Path) -> int | None:
    """The first physical offset at which two logs differ, over the files that both have; None if they agree."""
    names = {path.name for path in segment_files(one)} & {path.name for path in segment_files(other)}
    assert names, f"no file is in both {one} and {other}"
    for name in sorted(names):
        left, right = (one / name).read_bytes(), (other / name).read_bytes()
        if left != right:
            return int(name) + next(
                (i for i, (a, b) in enumerate(zip(left, right, strict=False)) if a != b), min(len(left), len(right))
            )
    return None


async def wait_identical(one: Path, other: Path, *, timeout_s: float = 120) -> None:
    """Wait until two logs hold the same bytes, over the files that both have, the newest among them."""
    with trio.move_on_after(timeout_s):
        while True:
            newest = [[path.name for path in segment_files(log) if _holds_data(path)][-1:] for log in (one, other)]
            if newest[0] == newest[1] and first_difference(one, other) is None:
                return
            await trio.sleep(0.2)
    ends = [f"{log}: {[path.name for path in segment_files(log)]}" for log in (one, other)]
    raise AssertionError(f"logs differ at {first_difference(one, other)} after {timeout_s} s; " + "; ".join(ends))


def _holds_data(path: Path) -> bool:
    """Whether a file holds anything: the next one is made ahead of time, and is all zero."""
    with path.open("rb") as file:
        return file.read(8) != bytes(8)


class HeldMessages:
    """The numbers of a load's messages (their UNIQ_KEY) that a log holds; each reading goes on from the last."""

    def __init__(self, directory: Path, topic: str) -> None:
        self._directory = directory
        self._topic = topic
        self._offsets: dict[int, int] = {}
        self._file = ""

    def read(self, *, torn: bool) -> set[int]:
        """Read what is new. No number may stand in the log twice: each was sent once."""
        last = 0
        for record in read_records(self._directory, first_file=self._file, torn=torn):
            if torn and ("UNIQ_KEY" not in record.properties or any("\0" in v for v in record.properties.values())):
                break  # its properties are not there, or not all of them
            last = record.physical_offset
            if record.topic == self._topic:
                number = int(record.properties["UNIQ_KEY"])
                before = self._offsets.setdefault(number, last)
                assert before == last, f"message {number} is at {before} and {last}"
        # A live file may have grown since it was read: go on in the one with the last record seen, not in the newest.
        self._file = max((path.name for path in segment_files(self._directory) if int(path.name) <= last), default="")
        return set(self._offsets)
