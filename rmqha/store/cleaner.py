"""CleanCommitLogService: deletes expired segments, and watches how full and how writable the disk is.

Source: spec: commitlog §12, §6.3 rule 8; rocketmq-all-4.9.8 DefaultMessageStore.java:1681-1893.
"""

import errno
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog
import trio

from rmqha.errors import StoreReadError, StoreWriteError
from rmqha.store.consume_queue_table import ConsumeQueueTable
from rmqha.store.disk import Disk
from rmqha.store.mapped_file_queue import MappedFileQueue
from rmqha.store.running_flags import RunningFlags

logger = structlog.get_logger()

_DELETED_PER_RUN_MAX: Final = 10
_RUNS_PER_REQUEST: Final = 20


@dataclass(frozen=True, slots=True)
class CleanOptions:
    """When what is deleted. Percentages are of the disk's use, rounded up."""

    file_reserved_time_s: float = 72 * 3600
    """fileReservedTime: how long after its last write a segment is kept."""
    delete_when: frozenset[int] = frozenset({4})
    """deleteWhen: local hours during which expired segments are deleted."""
    disk_max_used_percent: int = 75
    """diskMaxUsedSpaceRatio: above it expired segments are deleted at any hour."""
    clean_forcibly_percent: int = 85
    """Above it the oldest segments are deleted whatever their age, if ``clean_file_forcibly_enable``."""
    disk_full_percent: int = 90
    """Above it puts are refused."""
    clean_file_forcibly_enable: bool = True
    clean_resource_interval_s: float = 10.0
    first_after_s: float = 60.0
    delete_commit_log_files_interval_s: float = 0.1
    delete_consume_queue_files_interval_s: float = 0.1


class CleanCommitLogService:
    """Runs every ``clean_resource_interval_s``. The last segment, and what is not flushed and dispatched, always stays.

    ``replicas_need()`` is the smallest offset a connected slave still has to be sent: segments behind it are kept
    until the disk forces us. ``done_offset()`` is the end of what is flushed and dispatched.
    """

    def __init__(
        self,
        disk: Disk,
        log: MappedFileQueue,
        *,
        queues: ConsumeQueueTable,
        flags: RunningFlags,
        options: CleanOptions,
        now_ms: Callable[[], int],
        replicas_need: Callable[[], int],
        done_offset: Callable[[], int],
    ) -> None:
        self._disk: Final = disk
        self._log: Final = log
        self._queues: Final = queues
        self._flags: Final = flags
        self._options: Final = options
        self._now_ms = now_ms
        self._replicas_need = replicas_need
        self._done_offset = done_offset
        self._requested_runs = 0
        self.disk_used_percent = 0
        """At the last look, rounded up; 100 if it could not be told."""

    def execute_delete_files_manually(self) -> None:
        """Delete expired segments during the next runs, whatever the hour: an operator's request."""
        self._requested_runs = _RUNS_PER_REQUEST

    async def run(self) -> None:
        """Check and clean until cancelled. The disk may fill up, or turn read-only, before the first cleaning."""
        cleans_from = trio.current_time() + self._options.first_after_s
        while True:
            if trio.current_time() < cleans_from:
                self.check_disk()
            else:
                await self.clean()
            await trio.sleep(self._options.clean_resource_interval_s)

    def check_disk(self) -> int | None:
        """Refuse puts on a full or read-only disk; returns the use in percent, None if it cannot be told."""
        try:
            usage = self._disk.usage(self._log.directory)
        except StoreReadError as error:
            logger.warning("clean_commit_log_service.disk_unknown", reason=str(error))
            self.disk_used_percent = 100
            return None
        self.disk_used_percent = usage.used_percent
        if usage.read_only:
            cause = OSError(errno.EROFS, "Read-only file system")
            self._flags.fail(StoreWriteError(cause, operation="statvfs", path=self._log.directory))
        self._flags.set_disk_full(usage.used_percent > self._options.disk_full_percent)
        return usage.used_percent

    async def clean(self) -> int:
        """One run; returns how many segments were deleted."""
        used_percent = self.check_disk()
        if self._flags.write_error is not None:
            return 0
        options = self._options
        crowded = used_percent is None or used_percent > options.disk_max_used_percent
        force = options.clean_file_forcibly_enable and (used_percent or 0) > options.clean_forcibly_percent
        requested = self._requested_runs > 0
        self._requested_runs -= requested
        if not (force or crowded or requested or self._is_time()):
            return 0
        try:
            deleted = await self._delete_segments(force=force)
            if deleted:
                self._queues.correct_min_offset(self._log.min_offset)
                await self._queues.delete_expired_files_in_thread(pause_s=options.delete_consume_queue_files_interval_s)
                await self._disk.release_unlinked()  # before the next look at how full it is
        except StoreWriteError as error:
            logger.warning("clean_commit_log_service.failed", reason=str(error))
            return 0
        return deleted

    def _is_time(self) -> bool:
        return time.localtime(self._now_ms() / 1000).tm_hour in self._options.delete_when

    async def _delete_segments(self, *, force: bool) -> int:
        deleted = 0
        while deleted < _DELETED_PER_RUN_MAX and self._is_deletable(force=force):
            path = self._log.files[0].file.path
            await self._log.delete_first_in_thread()
            logger.info("commit_log.segment_deleted", path=path, forced=force)
            deleted += 1
            await trio.sleep(self._options.delete_commit_log_files_interval_s)
        return deleted

    def _is_deletable(self, *, force: bool) -> bool:
        """Whether the oldest segment may go."""
        if len(self._log.files) < 2:
            return False
        oldest = self._log.files[0]
        if oldest.end_offset > self._done_offset():
            return False
        if force:
            return True
        expires_ms = self._disk.mtime_ms(oldest.file.path) + self._options.file_reserved_time_s * 1000
        return self._now_ms() >= expires_ms and oldest.end_offset <= self._replicas_need()
