"""Small stores with a log and its consume queues, made for these tests."""

import struct
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from tests.spark.logs import LedgerWriter, LogWriter

UNITS_IN_FILE = 40


@dataclass
class Store:
    """A log and, once dispatched, its queues."""

    log: LogWriter | LedgerWriter
    units: defaultdict[tuple[str, int], list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))

    def put(self, topic: str, queue: int, body: bytes, *, is_shown: bool = True) -> None:
        of_queue = self.units[topic, queue]
        more = {"topic": topic.encode(), "queue_id": queue, "queue_offset": len(of_queue) if is_shown else 0}
        at = self.log.put(body, **more) if isinstance(self.log, LedgerWriter) else self.log.append(body, **more)
        if is_shown:
            of_queue.append((at, self.log.end - at))

    def files(self) -> list[Path]:
        return sorted(path for path in (self.log.root / "consumequeue").rglob("*") if path.is_file())

    def dispatch(self, *, behind: int = 0) -> None:
        end = sorted(self.log.offsets)[-behind] if behind else self.log.end
        for (topic, queue), units in self.units.items():
            write_units(self.log.root, topic, queue, [unit for unit in units if unit[0] < end])
        if isinstance(self.log, LedgerWriter):
            self.log.commit()


def write_units(root: Path, topic: str, queue: int, units: list[tuple[int, int]]) -> None:
    directory = root / "consumequeue" / topic / str(queue)
    directory.mkdir(parents=True, exist_ok=True)
    for first in range(0, len(units), UNITS_IN_FILE):
        data = b"".join(struct.pack(">qiq", *unit, 7) for unit in units[first : first + UNITS_IN_FILE])
        (directory / f"{first * 20:020d}").write_bytes(data.ljust(UNITS_IN_FILE * 20, b"\0"))


def large_store(root: Path, *, count: int = 20_000) -> Store:
    """Of 20 MB, one message in a thousand is rare."""
    store = Store(LogWriter(root, file_size=8 << 20))
    for number in range(count):
        topic = "rare" if number % 1000 == 500 else f"common-{number % 3}"
        store.put(topic, number % 4, b"x" * 900)
    store.dispatch()
    return store
