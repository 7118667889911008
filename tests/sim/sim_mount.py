"""A simulated disk as one process sees it: rmqha.store.disk.Disk, whose calls end when the process does."""

import errno
import os
import posixpath
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import trio

from rmqha.errors import StoreLockedError, StoreReadError, StoreWriteError
from rmqha.memory import BytesLike
from rmqha.store.disk import DiskUsage, Result
from tests.sim.journal import NodeDied
from tests.sim.sim_inode import SECTOR, Inode

if TYPE_CHECKING:
    from tests.sim.sim_disk import SimDisk

_INSTANT_S: Final = 0.002
"""What takes no time takes this long when the disk is slow."""


class SimMount:
    """rmqha.store.disk.Disk for one process."""

    def __init__(self, disk: "SimDisk", epoch: int) -> None:
        self.disk: Final = disk
        self.epoch: Final = epoch

    def enter(self, operation: str, path: str) -> None:
        """Begin a call: it counts, it is on record, and the dead do not make any."""
        disk = self.disk
        self.check_alive()
        disk.calls += 1
        disk.journal.record(operation, disk.name, path)

    def check_alive(self) -> None:
        """A process that died does nothing more."""
        if self.epoch != self.disk.epoch:
            raise NodeDied(self.disk.name)

    def crash_point(self) -> None:
        """The middle of a call."""
        disk = self.disk
        if disk.calls == disk.crash_at:
            disk.journal.mark("crash point hit")
            disk.on_crash()
            raise NodeDied(disk.name)

    async def latency(self, *, extra_s: float = 0.0) -> None:
        """The time a worker thread is busy; neither cancellation nor anything but death ends it early.

        As with trio.to_thread.run_sync, it is not begun at all for a caller that is cancelled already.
        """
        await trio.lowlevel.checkpoint_if_cancelled()
        low, high = self.disk.latency_s
        faults = self.disk.faults
        if self.disk.term_in:
            self.disk.term_in -= 1
            if not self.disk.term_in:
                self.disk.on_term()
        if faults.hung_until > trio.current_time():
            self.disk.journal.mark("call hung")
            await self.disk.died.wait(faults.hung_until, shield=True)
            self.check_alive()
        if not high + extra_s and faults.slowness == 1.0:
            await trio.lowlevel.cancel_shielded_checkpoint()
            self.check_alive()
            return
        duration = (self.disk.random.uniform(low, high) or _INSTANT_S) * faults.slowness
        duration += self.disk.random.uniform(0.0, extra_s)
        await self.disk.died.wait(trio.current_time() + duration, shield=True)
        self.check_alive()

    def refuse(self, operation: str, path: str, error: int) -> StoreWriteError:
        """An error of a writing call."""
        self.disk.journal.record("disk.refused", operation, error)
        self.disk.refused_in = self.epoch
        if error != errno.ENOSPC:
            self.disk.broken_in = self.epoch
        if operation in {"pwrite", "fdatasync"} and "/commitlog/" in path:
            self.disk.failed_in, self.disk.failed_at = self.epoch, trio.current_time()
        return StoreWriteError(OSError(error, os.strerror(error)), operation=operation, path=path)

    def check_changeable(self, operation: str, path: str, *, needs_space: bool) -> None:
        """Read-only and full devices refuse."""
        if self.disk.faults.read_only:
            raise self.refuse(operation, path, errno.EROFS)
        faults = self.disk.faults
        if needs_space and (faults.full or (faults.root_full and "/commitlog/" not in path)):
            raise self.refuse(operation, path, errno.ENOSPC)

    def listdir(self, path: str) -> list[str]:
        """See rmqha.store.disk.Disk."""
        self.check_alive()
        prefix = path.rstrip("/") + "/"
        every = (*self.disk.files, *self.disk.directories)
        return sorted({name[len(prefix) :].split("/")[0] for name in every if name.startswith(prefix)} - {""})

    def exists(self, path: str) -> bool:
        """See rmqha.store.disk.Disk."""
        self.check_alive()
        return path in self.disk.files or path in self.disk.directories

    def inode(self, path: str, operation: str) -> Inode:
        """The file at ``path``. Raises StoreReadError."""
        self.check_alive()
        try:
            return self.disk.files[path]
        except KeyError:
            error = OSError(errno.ENOENT, os.strerror(errno.ENOENT))
            raise StoreReadError(error, operation=operation, path=path) from None

    def file_size(self, path: str) -> int:
        """See rmqha.store.disk.Disk."""
        return self.inode(path, "stat").size

    def mtime_ms(self, path: str) -> int:
        """See rmqha.store.disk.Disk."""
        return self.inode(path, "stat").mtime_ms

    def open(self, path: str, *, writable: bool) -> "SimDataFile":
        """See rmqha.store.disk.Disk."""
        return SimDataFile(self, path, self.inode(path, "open"), writable=writable)

    def create(self, path: str, size: int, *, sparse: bool = False) -> "SimDataFile":
        """See rmqha.store.disk.Disk."""
        self.enter("create", path)
        self.check_changeable("create", path, needs_space=True)
        if self.exists(path):
            raise self.refuse("create", path, errno.EEXIST)
        if posixpath.dirname(path) not in self.disk.directories:
            if not sparse:
                raise self.refuse("create", path, errno.ENOENT)
            self.makedirs(posixpath.dirname(path))
            self.enter("create", path)
        if self.disk.calls == self.disk.crash_at:
            half_made = self.disk.random.choice((None, 0, size // 2, size))
            if half_made is not None:
                self.disk.files[path] = Inode(half_made, mtime_ms=self.disk.now_ms())
        self.crash_point()
        inode = self.disk.files[path] = Inode(size, sparse=sparse, mtime_ms=self.disk.now_ms())
        self.disk.note("create", path, at=size)
        return SimDataFile(self, path, inode, writable=True)

    async def create_in_thread(self, path: str, size: int, *, sparse: bool = False) -> "SimDataFile":
        """See rmqha.store.disk.Disk."""
        await self.latency(extra_s=self.disk.creation_s)
        return self.create(path, size, sparse=sparse)

    def unlink(self, path: str) -> None:
        """See rmqha.store.disk.Disk."""
        self.enter("unlink", path)
        self.check_changeable("unlink", path, needs_space=False)
        if path not in self.disk.files:
            raise self.refuse("unlink", path, errno.ENOENT)
        self.disk.on_unlink(path)
        if self.disk.calls == self.disk.crash_at and self.disk.random.random() < 0.5:
            del self.disk.files[path]
        self.crash_point()
        del self.disk.files[path]
        self.disk.note("unlink", path)

    async def unlink_in_thread(self, path: str) -> None:
        """See rmqha.store.disk.Disk."""
        self.disk.on_unlink_begun(path)
        await self.latency()
        self.unlink(path)

    async def release_unlinked(self) -> None:
        """See rmqha.store.disk.Disk; here unlinked files take no space."""

    def unlinked_bytes(self, directory: str) -> int:
        """See rmqha.store.disk.Disk; here they take none."""
        return 0

    def read_bytes(self, path: str) -> bytes:
        """See rmqha.store.disk.Disk."""
        return bytes(self.inode(path, "read").cache)

    def replace_bytes(self, path: str, data: bytes) -> None:
        """See rmqha.store.disk.Disk."""
        self.enter("replace", path)
        self.check_changeable("replace", path, needs_space=True)
        if posixpath.dirname(path) not in self.disk.directories:
            raise self.refuse("replace", path, errno.ENOENT)
        inode = Inode(len(data), mtime_ms=self.disk.now_ms())
        inode.cache[:] = inode.durable[:] = data
        if self.disk.calls == self.disk.crash_at:
            outcome = self.disk.random.choice((None, path, path + ".tmp"))
            if outcome is not None:
                self.disk.files[outcome] = inode
        self.crash_point()
        self.disk.files.pop(path + ".tmp", None)
        self.disk.files[path] = inode
        self.disk.note("replace", path, data=data)
        self.disk.on_replaced(path, data)

    async def replace_bytes_in_thread(self, path: str, data: bytes) -> None:
        """See rmqha.store.disk.Disk."""
        await self.latency()
        self.replace_bytes(path, data)

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        """See rmqha.store.disk.Disk."""
        await trio.lowlevel.checkpoint()
        if self.disk.work_s:
            moment = trio.current_time() + self.disk.random.uniform(0.0, self.disk.work_s)
            await self.disk.died.wait(moment, shield=True)
            self.check_alive()
        return work()

    def usage(self, path: str) -> DiskUsage:
        """See rmqha.store.disk.Disk."""
        self.check_alive()
        total = 1 << 40
        faults = self.disk.faults
        if faults.read_only:  # who looks is refused as who writes
            self.disk.refused_in = self.epoch
        available = 0 if faults.full or faults.crowded else total // 2
        return DiskUsage(
            total, available, -(-(total - available) * 100 // total), faults.read_only, free_inodes=1 << 20
        )

    def lock(self, path: str) -> "_Lock":
        """See rmqha.store.disk.Disk."""
        self.enter("lock", path)
        if path in self.disk.locked:
            raise StoreLockedError(f"{path} is already locked by this process")
        if path not in self.disk.files:
            self.check_changeable("lock", path, needs_space=True)
            inode = self.disk.files[path] = Inode(4)
            inode.write(b"lock", 0)
            self.disk.note("replace", path, data=b"lock")
        self.disk.locked.add(path)
        return _Lock(self.disk.locked, path)

    def lock_directory(self, path: str) -> "_Lock":
        """See rmqha.store.disk.Disk."""
        self.check_alive()
        if path in self.disk.locked:
            raise StoreLockedError(f"{path} is in use")
        self.disk.locked.add(path)
        return _Lock(self.disk.locked, path)

    def makedirs(self, path: str) -> None:
        """See rmqha.store.disk.Disk."""
        self.check_alive()
        if path in self.disk.directories:
            return
        self.enter("mkdir", path)
        self.check_changeable("mkdir", path, needs_space=True)
        while path not in self.disk.directories:
            self.disk.directories[path] = None
            self.disk.note("mkdir", path)
            path = posixpath.dirname(path)


class _Lock:
    def __init__(self, locked: set[str], path: str) -> None:
        self._locked = locked
        self._path = path

    def close(self) -> None:
        self._locked.discard(self._path)


class SimDataFile:
    """rmqha.store.disk.DataFile for one process."""

    def __init__(self, mount: SimMount, path: str, inode: Inode, *, writable: bool) -> None:
        self.path: Final = path
        self.size: Final = inode.size
        self._mount = mount
        self._disk = mount.disk
        self._inode = inode
        self._writable = writable
        self._view: memoryview | None = None

    def pwrite(self, buffers: Sequence[BytesLike], at: int) -> None:
        """All into the cache, or part of it and an error."""
        mount, faults = self._mount, self._disk.faults
        mount.check_alive()
        data = b"".join(buffers)
        self._disk.calls += 1
        self._disk.journal.record("pwrite", self._disk.name, self.path, at, len(data))
        assert at + len(data) <= self.size, "no file ever grows"
        if not self._writable:
            raise mount.refuse("pwrite", self.path, errno.EBADF)
        mount.check_changeable("pwrite", self.path, needs_space=self._inode.sparse)
        if faults.write_errors:
            faults.write_errors -= 1
            self._inode.write(data[: self._disk.random.randrange(len(data) + 1)], at)
            raise mount.refuse("pwrite", self.path, errno.EIO)
        self._inode.write(data, at)
        self._disk.note("write", self.path, at=at, data=data)
        if "/commitlog/" in self.path:
            self._disk.last_write = (self.path, at + len(data))
        self._inode.mtime_ms = self._disk.now_ms()
        mount.crash_point()

    def pread(self, size: int, at: int) -> bytes:
        """From the cache."""
        self._mount.check_alive()
        return bytes(self._inode.cache[at : at + size])

    def view(self) -> memoryview:
        """A window on the cache; after a power cut it shows what the dead process saw last."""
        if self._view is None:
            self._view = memoryview(self._inode.cache).toreadonly()
        return self._view

    def is_in_place(self) -> bool:
        """Whether the name leads to the inode."""
        self._mount.check_alive()
        return self._disk.files.get(self.path) is self._inode

    def is_zero_tail(self, at: int) -> bool:
        """In the cache."""
        self._mount.check_alive()
        return self._inode.cache.count(0, at) == self.size - at

    def zero_tail(self, at: int) -> None:
        """Zeros where there are none yet, for us or on the device, then fdatasync."""
        self._mount.enter("zero_tail", self.path)
        self._mount.check_changeable("zero_tail", self.path, needs_space=False)
        for sector in range(at // SECTOR, -(-self.size // SECTOR)):
            start, end = max(at, sector * SECTOR), min(self.size, (sector + 1) * SECTOR)
            inode, size = self._inode, end - start
            if inode.cache.count(0, start, end) != size or inode.durable.count(0, start, end) != size:
                self._inode.write(bytes(end - start), start)
                self._disk.note("write", self.path, at=start, data=bytes(end - start))
        self._mount.crash_point()
        self._finish_sync("zero_tail", self._inode.snapshot())

    def sync(self) -> None:
        """At once, without latency."""
        faults = self._disk.faults
        self._mount.enter("fdatasync", self.path)
        self._mount.crash_point()
        if faults.is_told_once and self._inode.in_flight:
            faults.is_told_once, faults.sync_errors = False, 1
        self._finish_sync("fdatasync", self._inode.snapshot())

    async def sync_in_thread(self) -> None:
        """What was dirty when it was called is durable, or lost and reported, when it returns."""
        await trio.lowlevel.checkpoint_if_cancelled()
        self._mount.enter("fdatasync", self.path)
        snapshot = self._inode.snapshot()
        self._mount.crash_point()
        await self._mount.latency()
        self._finish_sync("fdatasync", snapshot)

    def _finish_sync(self, operation: str, snapshot: dict[int, bytes]) -> None:
        disk, inode = self._disk, self._inode
        inode.finish(snapshot)
        error = errno.EROFS if disk.faults.read_only else errno.EIO if disk.faults.sync_errors else None
        if error is None:
            for number, data in snapshot.items():
                inode.settle(number, data)
                disk.note("sync", self.path, at=number, data=data)
            return
        disk.faults.sync_errors = max(disk.faults.sync_errors - 1, 0)
        for number, data in snapshot.items():
            if disk.random.random() < 0.5 and error == errno.EIO:
                inode.settle(number, data)
            else:
                inode.haunt(number, data)
        raise self._mount.refuse(operation, self.path, error)

    def fileno(self) -> int | None:
        """No descriptor: senders read from the view."""
        return None

    def close(self) -> None:
        """Nothing to give back."""
