"""CleanSpaceService: deletes expired data files, and watches how full the disks are.

Source: spec: dledger §1.13, §1.14; dledger-all-0.3.1.2 DLedgerMmapFileStore.java CleanSpaceService.
"""

import errno
import time
from collections.abc import Callable
from typing import Final

import structlog
import trio

from rmqha.dledger.dledger_config import DLedgerConfig
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.errors import StoreError, StoreReadError, StoreWriteError
from rmqha.log_limit import LogLimit
from rmqha.store.disk import Disk
from rmqha.store.displaced import displaced_file
from rmqha.store.expiry_clock import ExpiryClock

logger = structlog.get_logger()

_INTERVAL_S: Final = 0.1
_AFTER_AN_ERROR_S: Final = 0.2
_UNKNOWN: Final = -1.0
_KEPT: Final = "the oldest file lies in readOnlyDataStoreDirs, where none is deleted before it has expired"


class CleanSpaceService:
    """Looks every 100 ms. What is not committed and durable stays; DLedger deletes that, too.

    A file that could not be deleted is the first one of the next round, too (DLedger's retryDeleteFirstFile).
    """

    def __init__(
        self, store: DLedgerMmapFileStore, config: DLedgerConfig, disk: Disk, *, now_ms: Callable[[], int]
    ) -> None:
        self._store: Final = store
        self._config: Final = config
        self._disk: Final = disk
        self._now_ms = now_ms
        self.clock: Final = ExpiryClock(now_ms, kept_ms=config.file_reserved_time_s * 1000)
        self.store_base_ratio = _UNKNOWN
        """Of the member's directory; -1 if unknown."""
        self.data_ratio = _UNKNOWN
        """Of the emptiest data directory in which files are made."""
        self._lines: Final = LogLimit(burst=3)

    async def run(self) -> None:
        """Look and clean until cancelled."""
        while True:
            try:
                await self.clean()
            except StoreError as error:
                self._lines.log(logger.warning, "clean_space_service.failed", reason=str(error))
                await trio.sleep(_AFTER_AN_ERROR_S)
            await trio.sleep(_INTERVAL_S)

    async def clean(self) -> int:
        """One round; returns how many files were deleted. Raises StoreError: some of them, perhaps."""
        self._look()
        if self._store.write_error is not None or not (self.is_time_to_delete or self.is_need_check_expired):
            return 0
        force = self.is_need_force_clean and self._config.enable_disk_force_clean
        first = self._store.ledger_begin_index
        unexpired: list[str] = []

        def may_go(path: str) -> bool:
            # By force, too, not in a read-only directory: that gives no room where files are made, or fails.
            if self._is_expired(path):
                return True
            unexpired.append(path)
            return force and not self._is_read_only(path)

        try:
            count = await self._store.data_file_list.delete_expired_file_by_time(may_go, kept_from=self._kept_from())
        finally:
            self._store.revise_ledger_begin_index()
            self._tell_unexpired(unexpired)
        if count:
            logger.info(
                "clean_space_service.deleted",
                files=count,
                forced=force,
                data_ratio=self.data_ratio,
                begin_index=self._store.ledger_begin_index,
                begin_index_before=first,
            )
            await self._disk.release_unlinked()
        return count

    def _tell_unexpired(self, paths: list[str]) -> None:
        """Of those that had not expired some are gone."""
        kept = {file.path for file in self._store.data_file_list.mapped_files}
        for path in paths:
            if path not in kept:
                self._store.room.early.note(now=trio.current_time())
                told = "make room, or lower fileReservedHours; entries that nobody has read may be gone"
                logger.warning(
                    "clean_space_service.deleted_unexpired", path=path, data_ratio=self.data_ratio, next=told
                )

    def _look(self) -> None:
        config, store = self._config, self._store
        self.clock.look()
        self.store_base_ratio = self._used_ratio(config.default_path)
        self.data_ratio = self.calc_data_store_path_physic_ratio()
        is_full = self.is_need_forbidden_write
        if is_full != store.room.is_disk_full:
            logger.warning(
                "dledger_store.disk_full_changed",
                full=is_full,
                store_base_ratio=self.store_base_ratio,
                data_ratio=self.data_ratio,
            )
        if error := displaced_file(store.data_file_list.mapped_files):
            store.fail(error)
        store.room.set_disk_full(is_full, kept=_KEPT if is_full and self._is_oldest_read_only else "")

    def calc_data_store_path_physic_ratio(self) -> float:
        """How full the emptiest data directory is; notes those in which no new file should be made.

        A read-only one may be empty: no file is made there. DLedger counts it, and neither cleans nor stops in time.
        """
        read_only = self._config.read_only_paths
        ratios = {path: self._used_ratio(path) for path in self._config.data_store_paths if path not in read_only}
        limit = self._config.force_clean_ratio
        self._store.full_store_paths = frozenset(path for path, ratio in ratios.items() if ratio > limit)
        return min(ratios.values())

    def _used_ratio(self, path: str) -> float:
        """Used part of the file system, rounded up to percent; -1 where there is no such directory."""
        if not self._disk.exists(path):
            return _UNKNOWN
        try:
            usage = self._disk.usage(path)
        except StoreReadError as error:
            self._lines.log(logger.warning, "clean_space_service.disk_unknown", path=path, reason=str(error))
            return _UNKNOWN
        if usage.read_only:
            cause = OSError(errno.EROFS, "Read-only file system")
            self._store.fail(StoreWriteError(cause, operation="statvfs", path=path))
        return usage.used_percent / 100

    def _is_above(self, limit: float) -> bool:
        return self.store_base_ratio > limit or self.data_ratio > limit

    @property
    def is_need_forbidden_write(self) -> bool:
        """Whether nothing may be appended."""
        return self._is_above(self._config.disk_full_ratio)

    @property
    def is_need_check_expired(self) -> bool:
        """Whether expired files go at any hour."""
        return self._is_above(self._config.disk_space_ratio_to_check_expired)

    @property
    def is_need_force_clean(self) -> bool:
        """Whether files go whatever their age."""
        return self._is_above(self._config.force_clean_ratio)

    @property
    def is_time_to_delete(self) -> bool:
        """Whether it is an hour of deleteWhen."""
        return time.localtime(self._now_ms() / 1000).tm_hour in self._config.delete_when

    @property
    def _is_oldest_read_only(self) -> bool:
        files = self._store.data_file_list.mapped_files
        return bool(files) and self._is_read_only(files[0].path)

    def _is_read_only(self, path: str) -> bool:
        return path.rpartition("/")[0] in self._config.read_only_paths

    def _is_expired(self, path: str) -> bool:
        return self.clock.age_ms(self._disk.mtime_ms(path)) >= self._config.file_reserved_time_s * 1000

    def _kept_from(self) -> int:
        """What lies behind must stay."""
        store = self._store
        return min(store.committed_pos, store.data_file_list.flushed_where)
