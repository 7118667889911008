"""Calls to the operating system for :mod:`rmqha.store.os_disk`: each failure becomes an error of the store.

"Is it there?" has three answers: yes, no, and an error. ``os.path`` takes the third for "no", and a broker that does so
starts on an empty log, or skips the recovery after a crash, because a directory could not be read for a moment.
"""

import errno
import gc
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeVar

import trio

from rmqha.errors import StoreReadError, StoreWriteError
from rmqha.threads import needing_a_thread

Result = TypeVar("Result")

THREAD_START: Final = "start of a thread"

_collect_step: Final = getattr(gc, "collect_step", None)
"""Part of a collection; only PyPy has it."""


@contextmanager
def writing(operation: str, path: str) -> Iterator[None]:
    """What fails inside is a StoreWriteError."""
    try:
        yield
    except OSError as error:
        raise StoreWriteError(_explained(error, path), operation=operation, path=path) from error


def _explained(error: OSError, path: str) -> OSError:
    """The error; "No space left" says so if it is inodes that are out, as bytes may be free."""
    if error.errno != errno.ENOSPC:
        return error
    try:
        found = os.statvfs(os.path.dirname(path) or ".")
    except OSError:
        return error
    is_out = found.f_files > 0 and found.f_favail == 0 < found.f_bavail  # a full ZFS has neither
    return OSError(error.errno, f"{error.strerror}; no inode is free there ('df -i')") if is_out else error


@contextmanager
def reading(operation: str, path: str) -> Iterator[None]:
    """What fails inside is a StoreReadError."""
    try:
        yield
    except OSError as error:
        raise StoreReadError(error, operation=operation, path=path) from error


async def in_thread(call: Callable[[], Result], *, operation: str, path: str) -> Result:
    """Make a call that blocks, in a worker thread.

    Raises:
        StoreWriteError: the call raised it; or, of operation :data:`THREAD_START`, the system gives no thread, and
            nothing was done.
    """

    def run() -> Result:
        with writing(operation, path):
            return call()

    with writing(THREAD_START, path), needing_a_thread():
        return await trio.to_thread.run_sync(run)


def allocate(descriptor: int, size: int) -> None:
    """Give a file ``size`` bytes, all of them allocated. Raises OSError; PyPy returns the error that CPython raises."""
    error: int | None
    while error := os.posix_fallocate(descriptor, 0, size):  # type: ignore[func-returns-value]
        if error != errno.EINTR:
            raise OSError(error, os.strerror(error))


async def collect_garbage() -> None:
    """Close the files and maps to which nobody refers: CPython has done so, PyPy's collector finds them by looking.

    It looks step by step, while the event loop goes on. One collection may have begun before a reference was dropped,
    the next one closes the file, and the one after that the map, to which the file referred.
    """
    if _collect_step is not None:
        for _ in range(3):
            while not _collect_step().major_is_done:
                await trio.lowlevel.checkpoint()


def unlinked_maps(directory: str) -> dict[tuple[bytes, bytes], int]:
    """The unlinked files of ``directory``, a real path, that this process has mapped: device and inode, and the size.

    Empty where the kernel does not tell (``/proc``).
    """
    sizes: dict[tuple[bytes, bytes], int] = {}
    try:
        lines = Path("/proc/self/maps").read_bytes().splitlines()
    except OSError:
        return sizes
    begins = os.fsencode(directory) + b"/"
    for span, _, at, device, inode, name in [line.split(maxsplit=5) for line in lines if line.endswith(b" (deleted)")]:
        if name.startswith(begins):
            begin, end = (int(address, 16) for address in span.split(b"-"))
            file = (device, inode)
            sizes[file] = max(sizes.get(file, 0), int(at, 16) + end - begin)
    return sizes


def is_there(path: str) -> bool:
    """Whether anything is at ``path``, a dangling link included. Raises OSError if nobody can know."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def is_directory(path: str) -> bool:
    """Whether ``path`` leads to a directory. Raises OSError if nobody can know."""
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def sync_directory(path: str) -> None:
    """Make durable which names a directory holds. Raises OSError."""
    descriptor = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
