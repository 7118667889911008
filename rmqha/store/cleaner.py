"""CleanCommitLogService: deletes expired segments, and watches how full and how writable the disk is.

Source: spec: commitlog §12, §6.3 rule 8; rocketmq-all-4.9.8 DefaultMessageStore.java:1681-1893.
"""

import errno
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from typing import Final, Protocol

import structlog
import trio

from rmqha.errors import StoreError, StoreReadError, StoreWriteError
from rmqha.store.confirm_offset import NO_LIMIT
from rmqha.store.consume_queue_table import ConsumeQueueTable
from rmqha.store.disk import Disk, DiskUsage
from rmqha.store.displaced import HeldFile, displaced_file
from rmqha.store.early_deletions import EarlyDeletions
from rmqha.store.expiry_clock import ExpiryClock
from rmqha.store.free_inodes import FreeInodes
from rmqha.store.running_flags import RunningFlags

logger = structlog.get_logger()

_DELETED_PER_RUN_MAX: Final = 10
_RUNS_PER_REQUEST: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanOptions:
    """When what is deleted. Ratios are percent of the disk's use, rounded up."""

    file_reserved_time_s: float
    """How long after its last write a segment is kept."""
    delete_when: tuple[int, ...]
    """Local hours during which expired segments are deleted."""
    disk_max_used_space_ratio: int
    """Above it expired segments are deleted at any hour."""
    disk_space_clean_forcibly_ratio: int
    """Above it the oldest segments are deleted whatever their age, if ``clean_file_forcibly_enable``."""
    disk_space_warning_level_ratio: int
    """Above it puts are refused."""
    clean_file_forcibly_enable: bool
    clean_resource_interval_s: float
    clean_first_after_s: float
    delete_commit_log_files_interval_s: float
    delete_consume_queue_files_interval_s: float = 0.1


class LogFile(HeldFile, Protocol):
    """One of the files that a log consists of."""

    @property
    def path(self) -> str:
        """Its own, which tells when it was last written."""
        ...

    @property
    def end_offset(self) -> int:
        """Behind the last offset that has its place in it."""
        ...


class LogFiles(Protocol):
    """What cleaning needs of a log. The classic one's are a :class:`~rmqha.store.mapped_file_queue.MappedFileQueue`."""

    @property
    def directory(self) -> str:
        """Where they are."""
        ...

    @property
    def files(self) -> Sequence[LogFile]:
        """Oldest first; the last is the one that is written."""
        ...

    @property
    def min_offset(self) -> int:
        """See :attr:`RawLog.min_offset`."""
        ...

    @property
    def max_offset(self) -> int:
        """See :attr:`RawLog.max_offset`."""
        ...

    def forget_vanished(self) -> Sequence[LogFile]:
        """Let go of the oldest files that somebody else has deleted; returns them.

        Raises:
            StoreReadError: the disk does not tell which are there.
        """
        ...

    async def delete_first_in_thread(self) -> None:
        """Delete the oldest; the log then begins behind it.

        Raises:
            StoreWriteError: it is still there.
        """
        ...


class CleanCommitLogService:
    """Runs every ``clean_resource_interval_s``. The last segment, and what is not flushed and dispatched, always stays.

    So does the last that holds anything, if an empty one follows it: a log without messages is taken for a new one, and
    begins like its master's. ``done_offset()`` is the end of what is flushed and dispatched. The queues need not be
    flushed: nobody needs a unit without its message. Where a queue ends is saved before, and after a crash it begins
    where the log says.
    """

    def __init__(
        self,
        disk: Disk,
        log: LogFiles,
        *,
        queues: ConsumeQueueTable,
        flags: RunningFlags,
        options: CleanOptions,
        now_ms: Callable[[], int],
        done_offset: Callable[[], int],
    ) -> None:
        self._disk: Final = disk
        self._log: Final = log
        self._queues: Final = queues
        self._flags: Final = flags
        self._options: Final = options
        self._now_ms = now_ms
        self._kept_from: Callable[[], int] = lambda: NO_LIMIT
        self._done_offset = done_offset
        self._requested_runs = 0
        self.before_deleting: Callable[[int], Awaitable[bool]] = _nothing
        """Awaited before the log's part below an offset goes, and with it perhaps the last messages of some queues.

        False: where those end is not saved. What is expired then stays, unless the log's disk is full of it.
        """
        self.disk_used_percent: int | None = 0
        """Of the log's disk or the queues', whichever is fuller; at the last look, rounded up; None if unknown."""
        self.disk_unknown = ""
        """Why that cannot be told, in a sentence; empty if it can."""
        self.disk_looked_at = 0.0
        """When the last look was (trio's clock); the first is the first thing that :meth:`run` does."""
        self.log_disk_used_percent = 0
        """Of the log's disk: only there deleting segments makes room. 0 if unknown."""
        self.log_disk: DiskUsage | None = None
        """The log's disk at the last look, and the queues'; None if unknown."""
        self.queues_disk: DiskUsage | None = None
        self.early: Final = EarlyDeletions()
        """What went before it had expired."""
        self.clock: Final = ExpiryClock(now_ms, kept_ms=options.file_reserved_time_s * 1000)
        self.inodes: Final = FreeInodes()
        """Whether files can be made, for all that is known."""

    def keep_from(self, kept_from: Callable[[], int]) -> None:
        """From now on spare what lies behind ``kept_from()``, which others still need, until the disk forces us."""
        self._kept_from = kept_from

    def execute_delete_files_manually(self) -> None:
        """Delete expired segments during the next runs, whatever the hour: an operator's request."""
        self._requested_runs = _RUNS_PER_REQUEST

    async def run(self) -> None:
        """Check and clean until cancelled. The disk may fill up, or turn read-only, before the first cleaning."""
        cleans_from = trio.current_time() + self._options.clean_first_after_s
        while True:
            if trio.current_time() < cleans_from:
                self.check_disk()
            else:
                await self.clean()
            await trio.sleep(self._options.clean_resource_interval_s)

    def check_disk(self) -> int | None:
        """Refuse puts on a full or read-only disk, the log's or the queues'; returns the use of the fuller one.

        In percent; None if it cannot be told. For good where the log's last file is not where it was: see
        :func:`displaced_file`.
        """
        unread = dict[str, str]()
        self.log_disk = self._look_at(self._log.directory, unread)
        self.queues_disk = self._look_at(self._queues.directory, unread)
        self._note_unread(unread)
        self.inodes.note({self._log.directory: self.log_disk, self._queues.directory: self.queues_disk})
        percents = [None if disk is None else disk.used_percent for disk in (self.log_disk, self.queues_disk)]
        self.disk_looked_at = trio.current_time()
        self.clock.look()
        known = [percent for percent in percents if percent is not None]
        self.log_disk_used_percent = percents[0] or 0
        used_percent = max(known) if len(known) == len(percents) else None
        self.disk_used_percent = used_percent
        if known:
            self._flags.set_disk_full(max(known) > self._options.disk_space_warning_level_ratio)
        with suppress(StoreReadError):  # of a disk that does not tell it is said above
            if error := displaced_file(self._log.files):
                self._flags.fail(error)
        return used_percent

    def _note_unread(self, unread: dict[str, str]) -> None:
        """Tell it when it changes: a directory that is gone stays so for hours."""
        why = f"how full the disk is cannot be read: {'; '.join(unread.values())}" if unread else ""
        if why and why != self.disk_unknown:
            logger.warning("clean_commit_log_service.disk_unknown", paths=list(unread), reason=why)
        elif self.disk_unknown and not why:
            logger.info("clean_commit_log_service.disk_known")
        self.disk_unknown = why

    def _look_at(self, path: str, unread: dict[str, str]) -> DiskUsage | None:
        try:
            usage = self._disk.usage(path)
        except StoreReadError as error:
            unread[path] = str(error)
            return None
        if usage.read_only:
            cause = OSError(errno.EROFS, "Read-only file system")
            self._flags.fail(StoreWriteError(cause, operation="statvfs", path=path))
        return usage

    async def clean(self) -> int:
        """One run; returns how many segments were deleted."""
        used_percent = self.check_disk()
        if self._flags.write_error is not None:
            return 0
        try:
            if vanished := self._forget_vanished():
                await self.before_deleting(self._log.min_offset)
            deleted = await self._delete_expired(used_percent)
            if deleted or vanished:
                pause_s = self._options.delete_consume_queue_files_interval_s
                await self._queues.delete_expired_files_in_thread(self._log.min_offset, pause_s=pause_s)
                await self._disk.release_unlinked()  # before the next look at how full it is
            for key in self._queues.stopped.due(self._log.min_offset) - self._queues.lost.keys():
                self._queues.build_again(key)  # a log may begin elsewhere without us: a member's does at its leader's
        except StoreError as error:
            logger.warning("clean_commit_log_service.failed", reason=str(error))
            return 0
        return deleted

    def _forget_vanished(self) -> int:
        """Segments that somebody has taken away behind our back: their messages are gone, and the rest goes on."""
        vanished = self._log.forget_vanished()
        for mapped in vanished:
            logger.warning("commit_log.segment_vanished", path=mapped.path, min_offset=self._log.min_offset)
        return len(vanished)

    async def _delete_expired(self, used_percent: int | None) -> int:
        options = self._options
        crowded = used_percent is None or used_percent > options.disk_max_used_space_ratio
        force = options.clean_file_forcibly_enable and self._is_crowded_by_more_than_readers()
        requested = self._requested_runs > 0
        self._requested_runs -= requested
        if not (force or crowded or requested or self._is_time()):
            return 0
        has_to = force or used_percent is None or self.log_disk_used_percent > options.disk_max_used_space_ratio
        return await self._delete_segments(force=force, has_to=has_to)

    def _is_crowded_by_more_than_readers(self) -> bool:
        """Whether the log's disk is fuller than it may be, even when those who read deleted segments have let them go.

        A client that does not take its answers holds segments for minutes; others would be deleted in vain meanwhile.
        """
        over_percent = self.log_disk_used_percent - self._options.disk_space_clean_forcibly_ratio
        if over_percent <= 0:
            return False
        held, total = self._disk.unlinked_bytes(self._log.directory), self._disk.usage(self._log.directory).total
        return over_percent * total > 100 * held

    def _is_time(self) -> bool:
        return time.localtime(self._now_ms() / 1000).tm_hour in self._options.delete_when

    async def _delete_segments(self, *, force: bool, has_to: bool) -> int:
        candidates = self._log.files[:-1][:_DELETED_PER_RUN_MAX]
        deletable = list(takewhile(lambda mapped: self._is_deletable(mapped, force=force), candidates))
        if deletable and not await self.before_deleting(deletable[-1].end_offset) and not has_to:
            return 0
        deleted = 0
        for mapped in deletable:
            if self._log.files[0].path != mapped.path or not self._is_deletable(mapped, force=force):
                break  # while others were awaited
            left_s, is_needed = self._left_s(mapped), mapped.end_offset > self._kept_from()
            await self._log.delete_first_in_thread()
            self._tell_deleted(mapped, left_s=left_s, is_needed=is_needed)
            deleted += 1
            await trio.sleep(self._options.delete_commit_log_files_interval_s)
        return deleted

    def _left_s(self, mapped: LogFile) -> float:
        """Until it has expired; of one that somebody has removed meanwhile nobody knows."""
        try:
            return self.left_s(self._disk.mtime_ms(mapped.path))
        except StoreReadError:
            return 0.0

    def left_s(self, written_ms: float) -> float:
        """Until a segment has expired that was written last at this time since 1970; negative: since it has."""
        return self._options.file_reserved_time_s - self.clock.age_ms(written_ms) / 1000

    def _tell_deleted(self, mapped: LogFile, *, left_s: float, is_needed: bool) -> None:
        if is_needed:
            lost = "a slave that has yet to be sent it must be rebuilt, unless another replica has it"
            logger.warning("commit_log.needed_segment_deleted", path=mapped.path, consequence=lost)
        if left_s <= 0:
            logger.info("commit_log.segment_deleted", path=mapped.path)
            return
        self.early.note(now=trio.current_time())
        logger.warning(
            "commit_log.unexpired_segment_deleted",
            path=mapped.path,
            expires_in_h=round(left_s / 3600, 2),
            disk_used_percent=self.log_disk_used_percent,
            disk_space_clean_forcibly_ratio=self._options.disk_space_clean_forcibly_ratio,
            next="make room, or lower fileReservedTime; messages that nobody has read may be gone",
        )

    def _is_deletable(self, mapped: LogFile, *, force: bool) -> bool:
        """Whether a segment that is not the last may go, if those before it do."""
        if mapped.end_offset > self._done_offset() or mapped.end_offset == self._log.max_offset:
            return False
        if force:
            return True
        return self.left_s(self._disk.mtime_ms(mapped.path)) <= 0 and mapped.end_offset <= self._kept_from()


async def _nothing(_offset: int) -> bool:
    return True
