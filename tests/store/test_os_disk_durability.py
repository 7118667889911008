"""What OsDisk has on the device when a call returns, and what it gives back when a call fails."""

import errno
import fcntl
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from rmqha.errors import StoreLockedError, StoreReadError, StoreWriteError
from rmqha.store.direct_read import DirectReader
from rmqha.store.os_disk import OsDisk
from tests.store.helpers import descriptors


@pytest.fixture
def disk() -> OsDisk:
    return OsDisk()


def test_a_replaced_file_is_synced_with_all_its_bytes(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    fsync = os.fsync

    def note_size(descriptor: int) -> None:
        sizes.append(os.fstat(descriptor).st_size)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", note_size)
    disk.replace_bytes(str(tmp_path / "a"), b"content")
    assert sizes[0] == len(b"content")


def test_no_fdatasync_succeeds_beside_or_after_one_that_failed(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel tells one of those who ask what it has lost, whichever comes first; the next one succeeds."""
    file = disk.create(str(tmp_path / "a"), 8192)
    begun, may_fail = Event(), Event()

    def lose_once(_descriptor: int) -> None:
        monkeypatch.setattr(os, "fdatasync", lambda _descriptor: None)
        begun.set()
        assert may_fail.wait(60)
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", lose_once)
    with ThreadPoolExecutor() as threads:
        first = threads.submit(file.sync)
        assert begun.wait(60)
        second = threads.submit(file.sync)
        with pytest.raises(TimeoutError):
            second.result(timeout=0.05)
        may_fail.set()
        for sync in (first.result, second.result, file.sync, lambda: file.zero_tail(0)):
            with pytest.raises(StoreWriteError, match=r"errno 5"):
                sync()


def test_zeros_that_only_the_page_cache_has_are_written_and_synced(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a failed fdatasync leaves them."""
    file = disk.create(str(tmp_path / "a"), 8192)
    file.pwrite([bytes(8192)], 0)
    calls: list[str] = []

    def noted(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(*args: Any) -> Any:
            calls.append(name)
            return real(*args)

        return call

    for name in ("pwrite", "fdatasync"):
        monkeypatch.setattr(os, name, noted(name))
    monkeypatch.setattr(DirectReader, "is_zero", lambda _self, _start, _end: False)
    file.zero_tail(100)
    assert calls == ["pwrite", "fdatasync"]


def test_a_device_that_stops_taking_bytes_is_an_error(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.create(str(tmp_path / "a"), 4096)
    takes = iter([3, 3, 0])
    monkeypatch.setattr(os, "pwrite", lambda *_: next(takes))
    with pytest.raises(StoreWriteError, match="takes no more bytes"):
        file.pwrite([b"hello"], 0)


def test_a_lock_that_somebody_else_has_takes_no_descriptor(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = disk.lock_directory(str(tmp_path))
    before = descriptors()
    with pytest.raises(StoreLockedError, match="in use"):
        disk.lock_directory(str(tmp_path))

    def refuse(*_: object) -> None:
        raise OSError(errno.EAGAIN, "Resource temporarily unavailable")

    monkeypatch.setattr(fcntl, "lockf", refuse)
    with pytest.raises(StoreLockedError, match="another process"):
        disk.lock(str(tmp_path / "lock"))
    assert descriptors() == before
    held.close()
    disk.lock_directory(str(tmp_path)).close()


def test_a_lock_is_known_by_every_name_of_its_file(disk: OsDisk, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "also").symlink_to("store")
    held = disk.lock(str(tmp_path / "store" / "lock"))
    with pytest.raises(StoreLockedError, match="by this process"):
        disk.lock(str(tmp_path / "also" / "lock"))
    held.close()
    disk.lock(str(tmp_path / "also" / "lock")).close()


def test_a_directory_that_cannot_be_synced_takes_no_descriptor(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk.replace_bytes(str(tmp_path / "a"), b"x")
    before = descriptors()

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    for change in (disk.unlink, lambda path: disk.replace_bytes(path, b"y"), lambda path: disk.create(path, 100)):
        with pytest.raises(StoreWriteError, match="errno 5"):
            change(str(tmp_path / "a"))
    assert descriptors() == before


def test_a_file_system_that_cannot_tell_where_data_is_does_not_pass_for_empty(
    disk: OsDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = disk.create(str(tmp_path / "a"), 4096)

    def refuse(*_: object) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(os, "lseek", refuse)
    with pytest.raises(StoreReadError):
        file.is_zero_tail(0)
    with pytest.raises(StoreWriteError):
        file.zero_tail(0)


def test_a_device_that_cannot_be_read_is_not_taken_for_zeros(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(4096))
    with DirectReader(str(path)) as device:
        if device.is_direct:
            with pytest.raises(OSError, match="only 4096 bytes came"):
                device.is_zero(0, 5000)

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(OSError, match="Input/output error"), DirectReader(str(path)):
        pass
