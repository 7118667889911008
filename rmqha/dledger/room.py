"""Room: whether there is space for what is appended next."""

from collections.abc import Sequence
from typing import Final

import structlog

from rmqha.dledger.mmap_file_list import MmapFileList
from rmqha.errors import StoreReadError, StoreWriteError
from rmqha.store.early_deletions import EarlyDeletions
from rmqha.store.passing import is_lack

logger = structlog.get_logger()


class Room:
    """Two things keep a member from storing until they pass: a disk that is too full, and a file that cannot be made.

    Attributes:
        is_disk_full: the disk is above the ratio.
        refusal: why nothing is appended at present; empty if it is.
        early: the data files that room cost before they had expired; of a broker those of its own cleaner.
    """

    def __init__(self, lists: Sequence[MmapFileList]) -> None:
        """There is room as far as is known; ``lists`` are those in which an entry needs some."""
        self._lists: Final = lists
        self._error: StoreWriteError | None = None
        self._kept = ""
        self.is_disk_full = False
        self.refusal = ""
        self.early = EarlyDeletions()

    def set_disk_full(self, full: bool, *, kept: str = "") -> None:
        """Who watches the disk says how it is, and ``kept`` why no files are deleted that would give room."""
        if (full, kept) != (self.is_disk_full, self._kept):
            self.is_disk_full, self._kept = full, kept
            self._note()

    def take_for_lacking(self, error: StoreWriteError) -> bool:
        """Whether ``error`` says no more than that the next file cannot be made at present: it is noted then."""
        if error.operation not in {"create", "mkdir"} or not is_lack(error):
            return False
        if self._error is None:
            logger.warning("dledger_store.held", reason=str(error), next="tried again every second")
        self._error = error
        self._note()
        return True

    def look(self) -> None:
        """Find out whether what could not be made can be now, by making it: call it every second or so.

        Appends do not try: each attempt on a disk that is nearly full takes all the rest for a moment.
        """
        if self._error is None:
            return
        try:
            if not all(files.could_make_next() for files in self._lists):
                return
        except StoreWriteError as error:
            self.take_for_lacking(error)
            return
        except StoreReadError:
            return
        logger.info("dledger_store.goes_on")
        self._error = None
        self._note()

    def _note(self) -> None:
        held = (
            "" if self._error is None else f"the next file cannot be made at present, and is tried again: {self._error}"
        )
        full = f"the disk is too full: {self._kept}" if self._kept else "the disk is too full"
        self.refusal = full if self.is_disk_full else held
