"""One simulated file, as the device and the page cache have it, and what may be wrong with a device."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from rmqha.memory import BytesLike

SECTOR: Final = 512


@dataclass(eq=False)
class Inode:
    """One file as the device and the page cache have it."""

    size: int
    sparse: bool = False
    mtime_ms: int = 0
    cache: bytearray = field(init=False)
    durable: bytearray = field(init=False)
    dirty: dict[int, None] = field(default_factory=dict)
    """Sectors whose cached bytes the device may not have; a dict for its order."""
    ghosts: dict[int, None] = field(default_factory=dict)
    """Sectors that a failed fdatasync took for clean without writing them."""
    in_flight: list[dict[int, bytes]] = field(default_factory=list)
    """What the syncs that are under way have to write, in the order in which they were issued."""

    def __post_init__(self) -> None:
        self.cache = bytearray(self.size)
        self.durable = bytearray(self.size)

    def write(self, data: BytesLike, at: int) -> None:
        """Into the cache; the sectors touched become dirty, ghosts among them come back to life."""
        end = at + len(data)
        self.cache[at:end] = data
        for sector in range(at // SECTOR, -(-end // SECTOR)):
            self.dirty[sector] = None
            if self.ghosts:
                self.ghosts.pop(sector, None)

    def sector(self, number: int) -> bytes:
        """The cached bytes of a sector."""
        return bytes(self.cache[number * SECTOR : (number + 1) * SECTOR])

    def snapshot(self) -> dict[int, bytes]:
        """What an fdatasync issued now has to write; hand it to :meth:`finish` at its end."""
        self.in_flight.append({number: self.sector(number) for number in self.dirty})
        return self.in_flight[-1]

    def finish(self, snapshot: dict[int, bytes]) -> None:
        """A sync has ended: those issued before it do not take the device back to what they began with."""
        place = next((at for at, other in enumerate(self.in_flight) if other is snapshot), -1)
        for older in self.in_flight[: max(place, 0)]:
            for number in snapshot:
                older.pop(number, None)
        del self.in_flight[max(place, 0) : place + 1]

    def settle(self, number: int, data: bytes) -> None:
        """The device has ``data`` in this sector; it is clean unless it was written again meanwhile."""
        at = number * SECTOR
        self.durable[at : at + len(data)] = data
        if self.cache[at : at + len(data)] == data:
            self.dirty.pop(number, None)

    def haunt(self, number: int, data: bytes) -> None:
        """Writing this sector failed: clean for the kernel, unknown to the device."""
        if self.sector(number) == data:
            self.dirty.pop(number, None)
            self.ghosts[number] = None

    def lose_power(self, keep: Callable[[int, bytes, bytes], bytes]) -> None:
        """``keep(number, old, new)`` says what the device holds of each dirty sector; then the cache is gone."""
        for number in self.dirty:
            at = number * SECTOR
            old = bytes(self.durable[at : at + SECTOR])
            self.durable[at : at + SECTOR] = keep(number, old, self.sector(number))
        self._forget_cache()

    def evict_ghosts(self, random: Random) -> None:
        """Memory pressure: what was believed to be clean is read from the device again."""
        if not self.ghosts:
            return
        fresh = bytearray(self.cache)  # windows of the dead process keep the old object
        for number in self.ghosts:
            if random.random() < 0.5:
                fresh[number * SECTOR : (number + 1) * SECTOR] = self.durable[number * SECTOR : (number + 1) * SECTOR]
        self.cache = fresh
        self.ghosts = {number: None for number in self.ghosts if self.sector(number) != self._held(number)}

    def _held(self, number: int) -> bytes:
        return bytes(self.durable[number * SECTOR : (number + 1) * SECTOR])

    def _forget_cache(self) -> None:
        self.cache = bytearray(self.durable)
        self.dirty.clear()
        self.ghosts.clear()
        self.in_flight.clear()


@dataclass
class DiskFaults:
    """What is wrong with the device at the moment; the nemesis turns these knobs."""

    sync_errors: int = 0
    """So many of the next fdatasync calls fail with EIO, each reporting once."""
    is_told_once: bool = False
    """The next fdatasync that finds another of its file under way fails for both: that one hears nothing of it."""
    write_errors: int = 0
    """So many of the next writes stop short: some of the bytes, then EIO."""
    full: bool = False
    root_full: bool = False
    """The log has a disk of its own; the one for all the rest is full."""
    crowded: bool = False
    """So full that a broker takes nothing more, though there is room for what it still needs."""
    read_only: bool = False
    slowness: float = 1.0
    hung_until: float = 0.0
    """Until then no call that waits in a worker thread returns."""

    def heal(self) -> None:
        """Repair everything, but for a device that hangs: it comes back by itself, when its time is over."""
        self.sync_errors = self.write_errors = 0
        self.is_told_once = False
        self.full = self.root_full = self.crowded = self.read_only = False
        self.slowness = 1.0
