"""A simulated disk behind rmqha.store.disk's doors: what a device and a kernel may do to a store, and no more.

A file is two byte strings: ``cache`` (what processes see) and ``durable`` (what the device holds), compared in
sectors of 512 bytes. What the model takes from the world:

* A power cut keeps each dirty sector, loses it, or tears it (new bytes up to some point, old ones behind); not where
  nobody could tell, as the format has no checksum there (:attr:`SimDisk.is_noticed`).
* fdatasync that fails reports once, takes the pages for clean, and may have lost them ("ghosts": still seen in
  the cache, not on the device). The next fdatasync succeeds. Killing the process may or may not evict ghosts.
* Creating, replacing and unlinking are atomic and durable when they return, as the door promises; a power cut
  inside the call leaves either outcome, and a half-made file.
* Every call is a crash point (:attr:`SimDisk.crash_at`), and every call of a dead process ends in NodeDied.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, Literal

from tests.sim.journal import Journal
from tests.sim.sim_clock import Bell
from tests.sim.sim_inode import SECTOR, DiskFaults, Inode
from tests.sim.sim_mount import SimDataFile, SimMount

__all__ = ["LATENCY_S", "SECTOR", "DiskFaults", "Inode", "SimDataFile", "SimDisk", "SimMount", "Step", "replay"]

LATENCY_S: Final = (0.0004, 0.004)

Kind = Literal["write", "sync", "create", "unlink", "replace", "mkdir"]
Step = tuple[Kind, str, int, bytes]
"""One change of a disk: what, path, position (or sector, or size), bytes."""


class SimDisk:
    """The device of one machine. It outlives processes; each process works on it through its own :meth:`mount`."""

    def __init__(
        self,
        random: Random | None = None,
        *,
        journal: Journal | None = None,
        name: str = "disk",
        now_ms: Callable[[], int] = lambda: 0,
        latency_s: tuple[float, float] = LATENCY_S,
        creation_s: float = 0.0,
    ) -> None:
        self.random: Final = random or Random(0)
        self.journal: Final = journal or Journal()
        self.name: Final = name
        self.now_ms = now_ms
        self.latency_s = latency_s
        self.creation_s = creation_s
        """Making a file takes up to so much longer than anything else: it is allocated whole."""
        self.work_s = 0.0
        """Work in a thread that is more than one call takes up to so long."""
        self.files: dict[str, Inode] = {}
        self.directories: dict[str, None] = {"/": None}
        self.faults = DiskFaults()
        self.epoch = 0
        """Counts processes; whatever belongs to an earlier one is dead."""
        self.calls = 0
        self.crash_at: int | None = None
        """The power goes in the middle of the call with this number."""
        self.term_in = 0
        """SIGTERM comes while this many-th call from now on waits in its thread; 0: not at all."""
        self.on_term: Callable[[], None] = lambda: None
        self.on_unlink: Callable[[str], None] = lambda _path: None
        """Told before a process unlinks a file."""
        self.on_unlink_begun: Callable[[str], None] = lambda _path: None
        """Told when a process has a file unlinked in a thread, which may take a while."""
        self.on_replaced: Callable[[str, bytes], None] = lambda _path, _data: None
        """Told when a process has replaced a file."""
        self.on_crash: Callable[[], None] = self.power_cut
        """What a crash point does; a world takes the whole machine down."""
        self.is_noticed: Callable[[str, int, int], bool] = lambda _path, _start, _end: True
        """Whether a reader could notice that bytes ``[start, end)`` of a file are not what was written."""
        self.died = Bell()
        self.locked: set[str] = set()
        self.failed_in = -1
        """The process that was the last to see a write or fdatasync of a commitlog segment fail."""
        self.failed_at = 0.0
        """When that was."""
        self.last_write = ("", 0)
        """File and end of the last write, even if it never returned."""
        self.trace: list[Step] | None = None
        """If not None, every change is noted here, to be replayed in part by :func:`replay`."""
        self.broken_in = -1
        """The process that was the last to see any call fail for another reason than a lack of space."""
        self.refused_in = -1
        """The process that was the last to see any call fail."""

    def mount(self) -> SimMount:
        """The disk as one new process sees it; earlier ones are dead from now on."""
        self._next_process()
        return SimMount(self, self.epoch)

    def kill(self) -> None:
        """The process dies (kill -9): the kernel still has its writes."""
        self._next_process()
        for inode in self.files.values():
            inode.evict_ghosts(self.random)

    def power_cut(self) -> None:
        """The machine dies: of each dirty sector the device keeps the new bytes, the old ones, or a torn mix."""
        self._next_process()
        keep = self.random.choice((0.0, 0.2, 0.5, 0.8, 1.0))
        tear = self.random.choice((0.0, 0.0, 0.2))
        self.lose_power(lambda path, number, old, new: self._kept(path, number, old, new, keep=keep, tear=tear))

    def lose_power(self, keep: Callable[[str, int, bytes, bytes], bytes]) -> None:
        """As :meth:`power_cut`, but ``keep(path, sector, old, new)`` decides what the device holds."""
        self._next_process()
        for path, inode in self.files.items():
            inode.lose_power(lambda number, old, new, path=path: keep(path, number, old, new))  # type: ignore[misc]

    def _kept(self, path: str, number: int, old: bytes, new: bytes, *, keep: float, tear: float) -> bytes:
        if self.random.random() < tear:
            at = self.random.randrange(1, SECTOR)
            changed = [i for i in range(at, len(new)) if new[i] != old[i]]
            if changed and self.is_noticed(path, number * SECTOR + changed[0], number * SECTOR + changed[-1] + 1):
                self.journal.mark("sector torn")
                return new[:at] + old[at:]
        return new if self.random.random() < keep else old

    def remove(self, directory: str) -> None:
        """Somebody removes a directory and all that is in it, while no process runs."""
        for path in [path for path in self.files if path.startswith(f"{directory}/")]:
            del self.files[path]
        for path in [path for path in self.directories if f"{path}/".startswith(f"{directory}/")]:
            del self.directories[path]

    def note(self, kind: Kind, path: str, *, at: int = 0, data: bytes = b"") -> None:
        """Record a change, if changes are recorded."""
        if self.trace is not None:
            self.trace.append((kind, path, at, data))

    def dirty_sectors(self) -> list[tuple[str, int]]:
        """Every sector a power cut might lose."""
        return [(path, number) for path, inode in self.files.items() for number in inode.dirty]

    def _next_process(self) -> None:
        self.epoch += 1
        self.last_write = ("", 0)
        self.locked.clear()
        self.died.ring()


def replay(trace: Sequence[Step]) -> SimDisk:
    """A disk to which all this has happened."""
    disk = SimDisk()
    for kind, path, at, data in trace:
        match kind:
            case "mkdir":
                disk.directories[path] = None
            case "create":
                disk.files[path] = Inode(at)
            case "unlink":
                del disk.files[path]
            case "write":
                disk.files[path].write(data, at)
            case "sync":
                disk.files[path].settle(at, data)
            case "replace":
                inode = disk.files[path] = Inode(len(data))
                inode.cache[:] = inode.durable[:] = data
    return disk
