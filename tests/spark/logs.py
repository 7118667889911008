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
) -> bytes:
    crc = zlib.crc32(body) & 0x7FFFFFFF if body else 0
    size = 91 + len(body) + len(topic) + len(properties)
    head = struct.pack(">IIIiiqqiq", size, 0xDAA320A7, crc, queue_id, 0, 0, position, sys_flag, stored_ms - 5)
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
