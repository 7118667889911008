"""Small logs made for these tests, byte by byte, without the code under test."""

import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path

BLANK = 0xCBD43194


def record(
    position: int,
    body: bytes,
    *,
    topic: bytes = b"orders",
    properties: bytes = b"TAGS\x01TagA\x02KEYS\x01k1 k2",
    sys_flag: int = 0,
    stored_ms: int = 1_700_000_000_000,
    queue_id: int = 0,
    queue_offset: int = 0,
) -> bytes:
    crc = zlib.crc32(body) & 0x7FFFFFFF if body else 0
    size = 91 + len(body) + len(topic) + len(properties)
    head = struct.pack(
        ">IIIiiqqiq", size, 0xDAA320A7, crc, queue_id, 0, queue_offset, position, sys_flag, stored_ms - 5
    )
    host = bytes([127, 0, 0, 1]) + struct.pack(">i", 10911)
    tail = bytes([len(topic)]) + topic + struct.pack(">h", len(properties)) + properties
    return head + host + struct.pack(">q", stored_ms) + host + struct.pack(">iqi", 0, 0, len(body)) + body + tail


@dataclass
class LogWriter:
    """Appends records to preallocated files, rolling as a broker does."""

    root: Path
    file_size: int = 65536
    end: int = 0
    offsets: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.root / "commitlog").mkdir(parents=True, exist_ok=True)

    def path(self, position: int) -> Path:
        return self.root / "commitlog" / f"{position - position % self.file_size:020d}"

    def write(self, position: int, data: bytes) -> None:
        path = self.path(position)
        if not path.exists():
            path.write_bytes(bytes(self.file_size))
        with path.open("r+b") as file:
            file.seek(position % self.file_size)
            file.write(data)

    def roll(self) -> None:
        room = self.file_size - self.end % self.file_size
        self.write(self.end, struct.pack(">II", room, BLANK))
        self.end += room

    def append(self, body: bytes, **fields: object) -> int:
        """The new record's offset."""
        size = len(record(self.end, body, **fields))  # type: ignore[arg-type]
        if self.end % self.file_size + size + 8 > self.file_size:
            self.roll()
        self.write(self.end, record(self.end, body, **fields))  # type: ignore[arg-type]
        self.offsets.append(self.end)
        self.end += size
        return self.offsets[-1]


@dataclass
class LedgerWriter:
    """Appends entries to the data files of a DLedger member, as its leader does; all of it is committed.

    Attributes:
        offsets: of the entries; a message in one lies 48 bytes behind it.
    """

    root: Path
    file_size: int = 65536
    end: int = 0
    offsets: list[int] = field(default_factory=list)
    term: int = 1

    @property
    def member(self) -> Path:
        return self.root / "dledger-n0"

    def path(self, position: int) -> Path:
        return self.member / "data" / f"{position - position % self.file_size:020d}"

    def write(self, position: int, data: bytes) -> None:
        path = self.path(position)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_bytes(bytes(self.file_size))
        with path.open("r+b") as file:
            file.seek(position % self.file_size)
            file.write(data)

    def append(self, body: bytes) -> int:
        """As the body of an entry; returns its offset."""
        size = 48 + len(body)
        if (room := self.file_size - self.end % self.file_size) < size + 8:
            self.write(self.end, struct.pack(">ii", -1, room))
            self.end += room
        head = struct.pack(">iiqqqiiii", 1, size, len(self.offsets), self.term, self.end, 0, 0, 0, len(body))
        self.write(self.end, head + body)
        self.offsets.append(self.end)
        self.end += size
        return self.offsets[-1]

    def put(self, body: bytes, **fields: object) -> int:
        """As a message in an entry; returns the message's offset."""
        size = 48 + len(record(0, body, **fields))  # type: ignore[arg-type]
        room = self.file_size - self.end % self.file_size
        at = self.end if size + 8 <= room else self.end + room
        assert self.append(record(at + 48, body, **fields)) == at  # type: ignore[arg-type]
        return at + 48

    def commit(self, index: int | None = None) -> None:
        """Note that all is committed, or what is up to ``index``."""
        committed = len(self.offsets) - 1 if index is None else index
        text = f"committedIndex={committed}\nendIndex={len(self.offsets) - 1}\n"
        (self.member / "checkpoint").write_text(text)
