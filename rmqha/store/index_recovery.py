"""What of the index's files is of any use at a start, and from where it has to be built again.

After a crash RocketMQ deletes every file that its checkpoint does not vouch for, and never builds again what it
lacks. Here such a file is read, entry by entry, and goes on behind the last sound one. What does not fit the log, or
leaves messages out, is deleted together with all files behind it, and built again.
"""

from typing import Final

import structlog
import trio

from rmqha.codec.index_file import FIRST_ENTRY, NAME_DIGITS, IndexHeader, IndexLayout
from rmqha.codec.record.dispatch import read_dispatch
from rmqha.errors import CorruptLogError
from rmqha.store.disk import Disk
from rmqha.store.index_file import IndexFile
from rmqha.store.index_keys import hashes_of, is_indexed
from rmqha.store.log import Log
from rmqha.store.open_files import OpenFiles

logger = structlog.get_logger()

_ROUNDS_MAX: Final = 64
"""If so much of the log has no keys between two files, none is missing there."""


class IndexRecovery:
    """Looks through ``directory`` once."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        layout: IndexLayout,
        *,
        log: Log,
        end: int,
        durable_timestamp_ms: int,
        open_files: OpenFiles,
    ) -> None:
        """Nothing is read here.

        Args:
            disk: where the directory is.
            directory: of the files.
            layout: that they have to have.
            log: what they are an index of.
            end: nothing at or behind it was in the log when it was opened.
            durable_timestamp_ms: what the checkpoint says: files that end later may not be whole.
            open_files: shared by all that compete for descriptors.
        """
        self._disk: Final = disk
        self._directory: Final = directory
        self._layout: Final = layout
        self._log: Final = log
        self._end: Final = end
        self._durable_timestamp_ms: Final = durable_timestamp_ms
        self._open_files: Final = open_files

    async def load(self) -> list[IndexFile]:
        """The files that are kept, oldest first; the others are deleted. The last one, unless full, has its slots.

        Raises:
            StoreReadError, StoreWriteError: the disk does not let us.
        """
        names = [name for name in self._disk.listdir(self._directory) if _is_name(name)]
        kept: list[IndexFile] = []
        for place, name in enumerate(names):
            file = IndexFile(self._disk, f"{self._directory}/{name}", self._layout, open_files=self._open_files)
            reason = await self._problem(file, kept[-1] if kept else None)
            if reason:
                file.close()
                await self._leave_out(names[place:], reason)
                break
            if file.header.has_entries or name == names[-1]:
                kept.append(file)
            else:
                await file.remove()
        if kept and not kept[-1].is_full and kept[-1].is_sealed:
            await kept[-1].load_slots()
        return kept

    async def _leave_out(self, names: list[str], reason: str) -> None:
        paths = [f"{self._directory}/{name}" for name in names]
        logger.warning(
            "index_service.left_out", files=paths, reason=reason, next="what the log has of it is built again"
        )
        for path in reversed(paths):  # the newest first, so that a crash in between leaves no hole
            await self._disk.unlink_in_thread(path)

    async def _problem(self, file: IndexFile, previous: IndexFile | None) -> str:
        """Why a file is of no use; empty if it is. Raises StoreReadError."""
        size = self._disk.file_size(file.path)
        if size != self._layout.file_size:
            return f"it has {size} bytes, {self._layout.file_size} are wanted (maxHashSlotNum, maxIndexNum)"
        file.load()
        if not file.header.has_entries:  # nothing in it proves where its header says that the index ends
            file.begin_behind(IndexHeader() if previous is None else previous.header)
            return ""
        return self._header_problem(file, previous) or await self._entries_problem(file, previous)

    async def _entries_problem(self, file: IndexFile, previous: IndexFile | None) -> str:
        if not self._is_trusted(file):
            await file.examine(self._end)
        if not file.header.has_entries:
            return "none of its entries is sound"
        if not self._is_of_log(file):
            return "its last entry leads to no message with such a key"
        if not await self._is_next(previous, file.header.begin_phy_offset):
            return "messages between it and what comes before are not in the index"
        return ""

    def _header_problem(self, file: IndexFile, previous: IndexFile | None) -> str:
        header = file.header
        if not FIRST_ENTRY <= header.index_count <= self._layout.entries:
            return f"it says that it has {header.index_count} entries"
        if not 0 <= header.begin_phy_offset <= header.end_phy_offset or header.slot_count < 0:
            return "its header is damaged"
        if previous is not None and header.begin_phy_offset < previous.header.end_phy_offset:
            return f"it begins before {previous.path} ends"
        return ""

    def _is_trusted(self, file: IndexFile) -> bool:
        header = file.header
        is_durable = header.end_timestamp_ms <= self._durable_timestamp_ms
        return file.is_sealed and is_durable and header.end_phy_offset < self._end

    def _is_of_log(self, file: IndexFile) -> bool:
        key_hash, offset = next(file.last_entries())
        if offset != file.header.end_phy_offset:
            return False
        if offset < self._log.min_offset:
            return True
        record = self._log.record_at(offset, end=self._end)
        if record is None:
            return False
        requests, _ = read_dispatch(record, 0, len(record), phy_offset_base=offset)
        return any(key_hash in hashes_of(request) for request in requests)

    async def _is_next(self, previous: IndexFile | None, begin: int) -> bool:
        """Whether no message with a key lies between what is indexed before and ``begin``."""
        end = -1 if previous is None else previous.header.end_phy_offset
        if begin <= max(end, self._log.min_offset):
            return True
        at = max(end, self._log.min_offset)
        for _ in range(_ROUNDS_MAX):
            try:
                requests, behind = self._log.records(at, self._end)
            except CorruptLogError:  # what cannot be read cannot be built either
                return True
            found = [request for request in requests if request.commit_log_offset > end and is_indexed(request)]
            if found:
                return found[0].commit_log_offset >= begin
            if behind == at or behind > begin:
                return True
            at = behind
            await trio.lowlevel.checkpoint()
        return True


def _is_name(name: str) -> bool:
    return len(name) == NAME_DIGITS and name.isascii() and name.isdigit()


def built_to(files: list[IndexFile]) -> tuple[int, int]:
    """The message indexed last, and how many of its keys are. Raises StoreReadError."""
    if not files:
        return 0, 0
    offset, count = files[-1].header.end_phy_offset, 0
    for file in reversed(files):
        for _, entry_offset in file.last_entries():
            if entry_offset != offset:
                return offset, count
            count += 1
    return offset, count
