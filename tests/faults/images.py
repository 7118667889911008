"""Small ext4 file systems in files: filled, turned read-only under a writer, repaired, or cut off from power."""

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_EXT4_IOC_SHUTDOWN: Final = 0x8004587D
_NO_LOG_FLUSH: Final = 2  # what the journal has not written is lost as well
_LOOP_SET_STATUS64: Final = 0x4C04
_LOOP_GET_STATUS64: Final = 0x4C05
_LOOP_INFO64_SIZE: Final = 232
_SIZE_LIMIT: Final = slice(32, 40)  # lo_sizelimit; 0: none


def why_no_images() -> str | None:
    """Why this machine cannot mount images, or None if it can."""
    if os.geteuid() != 0:
        return "mounting an ext4 image needs root"
    missing = [tool for tool in ("losetup", "mkfs.ext4", "e2fsck", "mount", "umount") if shutil.which(tool) is None]
    if missing:
        return f"missing commands: {', '.join(missing)}"
    found = subprocess.run(["losetup", "--find"], capture_output=True, text=True, check=False)
    return None if found.returncode == 0 else f"no loop device: {found.stderr.strip()}"


def _run(*command: str | Path) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout.strip()


class Image:
    """An ext4 file system that turns read-only at its first error, as servers are commonly configured."""

    def __init__(self, file: Path, mount_point: Path) -> None:
        self.mount_point = mount_point
        self._file = file
        self._device = ""

    def mount(self) -> None:
        """Attach and mount it."""
        self._device = _run("losetup", "--find", "--show", self._file)
        _run("mount", "-o", "errors=remount-ro", self._device, self.mount_point)

    def unmount(self) -> None:
        """Unmount and detach it. Idempotent."""
        if self._device:
            _run("umount", self.mount_point)
            _run("losetup", "-d", self._device)
            self._device = ""

    def turn_read_only(self) -> None:
        """Report a file system error to the kernel: from now on every write and flush fails with EROFS."""
        Path(f"/sys/fs/ext4/{Path(self._device).name}/trigger_fs_error").write_text("rmqha test")

    def fail(self) -> None:
        """From now on the device answers every read and write with EIO; what the page cache holds is still read."""
        self._limit_size(512)

    def recover(self) -> None:
        """The device works again, with all that reached it."""
        self._limit_size(0)

    def _limit_size(self, limit_bytes: int) -> None:
        info = bytearray(_LOOP_INFO64_SIZE)
        descriptor = os.open(self._device, os.O_RDWR)
        try:
            fcntl.ioctl(descriptor, _LOOP_GET_STATUS64, info)
            info[_SIZE_LIMIT] = limit_bytes.to_bytes(8, sys.byteorder)
            fcntl.ioctl(descriptor, _LOOP_SET_STATUS64, info)
        finally:
            os.close(descriptor)

    def cut_power(self) -> None:
        """From now on nothing reaches the device: what was not flushed is lost, and every further call fails."""
        descriptor = os.open(self.mount_point, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _EXT4_IOC_SHUTDOWN, _NO_LOG_FLUSH.to_bytes(4, "little"))
        finally:
            os.close(descriptor)

    def restore_power(self) -> None:
        """Mount again, from what reached the device. Its processes must have ended."""
        self.unmount()
        self.mount()

    def repair(self) -> None:
        """What an operator does: unmount, check, mount."""
        self.unmount()
        checked = subprocess.run(["e2fsck", "-fy", str(self._file)], capture_output=True, text=True, check=False)
        assert checked.returncode in (0, 1), checked.stdout + checked.stderr
        self.mount()


@contextmanager
def mounted_image(directory: Path, *, size_mib: int) -> Iterator[Image]:
    """Make an image, mount it, and leave no mount, no loop device and no image behind. Reap its writers first."""
    file = directory / "disk.img"
    mount_point = directory / "disk"
    mount_point.mkdir(parents=True)
    with file.open("wb") as image_file:
        image_file.truncate(size_mib << 20)
    _run("mkfs.ext4", "-q", "-m", "0", file)
    image = Image(file, mount_point)
    image.mount()
    try:
        yield image
    finally:
        image.unmount()
        file.unlink()  # a long run's is gigabytes
