"""FreeInodes: whether the file systems of a store let any file be made, which free bytes do not tell."""

from collections.abc import Mapping

import structlog

from rmqha.store.disk import DiskUsage

logger = structlog.get_logger()


class FreeInodes:
    """What was seen of them at the last look.

    Attributes:
        trouble: where none is free, in a sentence; empty: nowhere, as far as is known.
    """

    def __init__(self) -> None:
        self.trouble = ""

    def note(self, disks: Mapping[str, DiskUsage | None]) -> None:
        """Take in what each directory's file system has; None: it did not say. Logged when it changes."""
        out = [
            directory
            for directory, disk in disks.items()
            if disk is not None and disk.free_inodes == 0 < disk.available  # a full disk of some kinds has neither
        ]
        before, self.trouble = self.trouble, _trouble(out)
        if self.trouble and not before:
            logger.warning("store.no_inodes", directories=out, next="'df -i'; remove files that nobody needs")
        elif before and not self.trouble:
            logger.info("store.inodes_free")


def _trouble(directories: list[str]) -> str:
    if not directories:
        return ""
    where = " and ".join(directories)
    return f"no inode is free on the file system of {where}: no file can be made there, though bytes may be free"
