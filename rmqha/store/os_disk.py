"""OsDisk: the operating system's files behind the door of :mod:`rmqha.store.disk`."""

import errno
import fcntl
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from threading import Lock
from typing import Final

from rmqha.errors import StoreLockedError, StoreWriteError
from rmqha.memory import BytesLike
from rmqha.store.direct_read import READ_SIZE_MAX, DirectReader
from rmqha.store.disk import Closable, DiskUsage, Result
from rmqha.store.disk_calls import (
    allocate,
    collect_garbage,
    in_thread,
    is_directory,
    is_there,
    reading,
    sync_directory,
    unlinked_maps,
    writing,
)

# Of Linux; PyPy's os does not name them.
_SEEK_DATA: Final = 3
_SEEK_HOLE: Final = 4
_ST_RDONLY: Final = 1

_ZEROS: Final = bytes(READ_SIZE_MAX)


class OsDataFile:
    """A :class:`DataFile` of the operating system."""

    def __init__(self, fd: int, path: str, size: int) -> None:
        self.path: Final = path
        self.size: Final = size
        self._fd = fd
        self._view: memoryview | None = None
        self._syncs = 0
        """Under way in threads."""
        self._closes_after_syncs = False
        self._syncing: Final = Lock()
        self._sync_error: OSError | None = None

    def __del__(self) -> None:
        self.close()

    def pwrite(self, buffers: Sequence[BytesLike], at: int) -> None:
        """Hot path: one system call unless the kernel takes less than it was given."""
        try:
            data = buffers[0] if len(buffers) == 1 else b"".join(buffers)
            if os.pwrite(self._fd, data, at) != len(data):
                self._pwrite_slowly(data, at)
        except OSError as error:
            raise StoreWriteError(error, operation="pwrite", path=self.path) from error

    def _pwrite_slowly(self, data: BytesLike, at: int) -> None:
        """Write piece by piece, from the start: the same bytes twice do no harm."""
        done = 0
        while done < len(data):
            written = os.pwrite(self._fd, memoryview(data)[done:], at + done)
            if written == 0:
                raise OSError(errno.EIO, "the device takes no more bytes")
            done += written

    def pread(self, size: int, at: int) -> bytes:
        """One system call; a file on disk gives less only at its end."""
        with reading("pread", self.path):
            return os.pread(self._fd, size, at)

    def view(self) -> memoryview:
        """Mapped at the first call; the map goes with its last window."""
        if self._view is None:
            with reading("mmap", self.path):
                self._view = self._map()
        return self._view

    def _map(self) -> memoryview:
        return memoryview(mmap.mmap(self._fd, self.size, prot=mmap.PROT_READ) if self.size else b"")

    def is_zero_tail(self, at: int) -> bool:
        """Looks only at what is allocated."""
        with reading("pread", self.path):
            for start, end in self._extents(at):
                for position in range(start, end, len(_ZEROS)):
                    data = os.pread(self._fd, min(len(_ZEROS), end - position), position)
                    if data.count(0) != len(data):
                        return False
        return True

    def zero_tail(self, at: int) -> None:
        """Looks only at what is allocated and writes only where something is not zero yet, for us or on the device.

        Zeros that a process before could not make durable are still seen, and the device still has what was there.
        """
        with writing("zero_tail", self.path), DirectReader(self.path) as device:
            for start, end in self._extents(at):
                for position in range(start, end, len(_ZEROS)):
                    zeros = _ZEROS[: min(len(_ZEROS), end - position)]
                    seen = os.pread(self._fd, len(zeros), position)
                    if seen != zeros or not device.is_zero(position, position + len(zeros)):
                        self._pwrite_slowly(zeros, position)
            self._fdatasync()

    def _extents(self, at: int) -> Iterator[tuple[int, int]]:
        """The ranges behind ``at`` that may hold anything but zeros."""
        while at < self.size:
            try:
                start = os.lseek(self._fd, at, _SEEK_DATA)
            except OSError as error:
                if error.errno == errno.ENXIO:  # nothing but a hole up to the end
                    return
                raise
            at = min(os.lseek(self._fd, start, _SEEK_HOLE), self.size)
            yield start, at

    def sync(self) -> None:
        """``os.fdatasync`` releases the GIL, ``mmap.flush`` would not."""
        with writing("fdatasync", self.path):
            self._fdatasync()

    def _fdatasync(self) -> None:
        """One at a time, and none succeeds after one that failed: the kernel says only once what it has lost."""
        with self._syncing:
            if self._sync_error is not None:
                raise OSError(self._sync_error.errno, f"an earlier one failed: {self._sync_error.strerror}")
            try:
                os.fdatasync(self._fd)
            except OSError as error:
                self._sync_error = error
                raise

    async def sync_in_thread(self) -> None:
        """One worker thread for the time of the call."""
        self._syncs += 1
        try:
            await in_thread(self.sync, operation="fdatasync", path=self.path)
        finally:
            self._syncs -= 1
            if self._closes_after_syncs:
                self.close()

    def is_in_place(self) -> bool:
        """Compares device and inode."""
        with reading("stat", self.path):
            try:
                found = os.stat(self.path)
            except (FileNotFoundError, NotADirectoryError):
                return False
            return os.path.samestat(found, os.fstat(self._fd))

    def fileno(self) -> int | None:
        """The descriptor, as long as this object lives and is not closed."""
        return self._fd

    def close(self) -> None:
        """The map is left to its windows, and a thread that syncs has the descriptor until it is done."""
        self._closes_after_syncs = self._syncs > 0
        if self._closes_after_syncs:
            return
        fd, self._fd, self._view = self._fd, -1, None
        if fd >= 0:
            os.close(fd)


class OsDisk:
    """The :class:`Disk` of the operating system."""

    def __init__(self) -> None:
        self._locked: set[str] = set()

    def listdir(self, path: str) -> list[str]:
        """See :meth:`Disk.listdir`."""
        with reading("listdir", path):
            return sorted(os.listdir(path)) if is_directory(path) else []

    def exists(self, path: str) -> bool:
        """See :meth:`Disk.exists`."""
        with reading("stat", path):
            return is_there(path)

    def file_size(self, path: str) -> int:
        """See :meth:`Disk.file_size`."""
        with reading("stat", path):
            return os.stat(path).st_size

    def mtime_ms(self, path: str) -> int:
        """See :meth:`Disk.mtime_ms`."""
        with reading("stat", path):
            return os.stat(path).st_mtime_ns // 1_000_000

    def open(self, path: str, *, writable: bool) -> OsDataFile:
        """See :meth:`Disk.open`."""
        with reading("open", path):
            mode = os.O_RDWR if writable else os.O_RDONLY | os.O_NONBLOCK  # a pipe of that name would be waited for
            fd = os.open(path, mode | os.O_CLOEXEC)
            return OsDataFile(fd, path, os.fstat(fd).st_size)

    def create(self, path: str, size: int, *, sparse: bool = False) -> OsDataFile:
        """See :meth:`Disk.create`. A half-made file is removed again: one of a wrong length stops a start.

        Unless it is sparse, and so one of many, it is mapped here, where having no address space for it is still a
        failure like any other.
        """
        if sparse:
            self.makedirs(os.path.dirname(path))
        with writing("create", path):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            file = OsDataFile(fd, path, size)
            try:
                if sparse:
                    os.ftruncate(fd, size)
                else:
                    allocate(fd, size)
                os.fsync(fd)
                sync_directory(os.path.dirname(path))
                file._view = None if sparse else file._map()
            except OSError:
                file.close()
                os.unlink(path)
                raise
            return file

    async def create_in_thread(self, path: str, size: int, *, sparse: bool = False) -> OsDataFile:
        """See :meth:`Disk.create_in_thread`."""
        return await in_thread(lambda: self.create(path, size, sparse=sparse), operation="create", path=path)

    def unlink(self, path: str) -> None:
        """See :meth:`Disk.unlink`."""
        with writing("unlink", path):
            os.unlink(path)
            sync_directory(os.path.dirname(path))

    async def unlink_in_thread(self, path: str) -> None:
        """See :meth:`Disk.unlink_in_thread`."""
        await in_thread(lambda: self.unlink(path), operation="unlink", path=path)

    async def release_unlinked(self) -> None:
        """See :meth:`Disk.release_unlinked`."""
        await collect_garbage()

    def unlinked_bytes(self, directory: str) -> int:
        """See :meth:`Disk.unlinked_bytes`; as far as they are mapped."""
        return sum(unlinked_maps(os.path.realpath(directory)).values())

    def read_bytes(self, path: str) -> bytes:
        """See :meth:`Disk.read_bytes`."""
        with reading("read", path), open(path, "rb") as file:
            return file.read()

    def replace_bytes(self, path: str, data: bytes) -> None:
        """See :meth:`Disk.replace_bytes`: temporary file, fsync, rename, fsync of the directory."""
        temporary = path + ".tmp"
        with writing("replace", path):
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with open(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(fd)
            os.replace(temporary, path)
            sync_directory(os.path.dirname(path))

    async def in_thread(self, work: Callable[[], Result]) -> Result:
        """See :meth:`Disk.in_thread`."""
        return await in_thread(work, operation="start a thread for", path=".")

    async def replace_bytes_in_thread(self, path: str, data: bytes) -> None:
        """See :meth:`Disk.replace_bytes_in_thread`."""
        await in_thread(lambda: self.replace_bytes(path, data), operation="replace", path=path)

    def usage(self, path: str) -> DiskUsage:
        """See :meth:`Disk.usage`."""
        with reading("statvfs", path):
            stat = os.statvfs(path)
        used, available = (stat.f_blocks - stat.f_bfree) * stat.f_frsize, stat.f_bavail * stat.f_frsize
        percent = -(-used * 100 // max(used + available, 1))
        read_only, free_inodes = bool(stat.f_flag & _ST_RDONLY), stat.f_favail if stat.f_files else None
        return DiskUsage(stat.f_blocks * stat.f_frsize, available, percent, read_only, free_inodes)

    def lock(self, path: str) -> Closable:
        """A POSIX record lock on byte 0, which Java sees; ``flock`` it does not (spec: commitlog §11).

        Such a lock belongs to the process, and closing any descriptor of the file drops it; hence the set.
        """
        real = os.path.realpath(path)
        if real in self._locked:
            raise StoreLockedError(f"{path} is already locked by this process")
        with writing("lock", path):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
                os.pwrite(fd, b"lock", 0)
            except OSError as error:
                os.close(fd)
                if error.errno in {errno.EACCES, errno.EAGAIN}:
                    raise StoreLockedError(
                        f"{path} is locked by another process: stop that broker or choose another store"
                    ) from error
                raise
        self._locked.add(real)
        held = ExitStack()
        held.callback(self._locked.discard, real)
        held.callback(os.close, fd)
        return held

    def lock_directory(self, path: str) -> Closable:
        """``flock``, which needs no file; on a file system that has none for directories nothing is locked."""
        held = ExitStack()
        with writing("lock", path):
            fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        held.callback(os.close, fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            held.close()
            raise StoreLockedError(
                f"{path} is in use by the broker of another store: name a directory of its own"
            ) from error
        except OSError:
            pass
        return held

    def makedirs(self, path: str) -> None:
        """See :meth:`Disk.makedirs`. That of a file that is locked was moved away, and is to be put back there."""
        locked = {os.path.dirname(file) for file in self._locked}
        with writing("mkdir", path):
            missing: list[str] = []
            while not is_directory(path):
                if os.path.realpath(path) in locked:
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
                missing.append(path)
                path = os.path.dirname(path) or "."
            for directory in reversed(missing):
                with suppress(FileExistsError):  # another thread was faster
                    os.mkdir(directory, 0o700)
                sync_directory(os.path.dirname(directory) or ".")
