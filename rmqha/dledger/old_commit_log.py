"""OldCommitLog: the commitlog of a classic broker that became a member of a group; its entries go on behind it.

No member copies it: each has it before its first start with enableDLegerCommitLog, and all the same, byte by byte. The
first entry of the group says which one its leader has, and who has another does not take it. RocketMQ compares nothing,
and mixes them.

Source: spec: dledger §6.3; rocketmq-all-4.9.8 DLedgerCommitLog.java (dividedCommitlogOffset).
"""

import hashlib
from typing import Final

import structlog

from rmqha.codec.dledger_entry import DLedgerEntry
from rmqha.codec.properties import find_property, format_properties
from rmqha.codec.record.layout import encode_blank
from rmqha.codec.record.message import decode_message
from rmqha.dledger.ledger_beginning import WHAT_NEXT, LedgerBeginning
from rmqha.errors import CorruptLogError
from rmqha.store.disk import Closable
from rmqha.store.log_recovery import DurableKnowledge, LogRecovery, recover_commit_log
from rmqha.store.mapped_file import parse_file_name
from rmqha.store.mapped_file_queue import MappedFileQueue
from rmqha.store.recovery_progress import RecoveryProgress
from rmqha.store.segment_reader import SegmentReader
from rmqha.store.store_log import StoreGround

logger = structlog.get_logger()

_PROPERTY: Final = "RMQHA_OLD_COMMITLOG"
_DIGITS: Final = 64
"""Of a SHA-256."""
_HASHED_BYTES: Final = 1 << 20


class OldCommitLog(LedgerBeginning):
    """Read-only, once it is :meth:`close_off`; its files go as they expire, the last one too.

    Attributes:
        files: its segments; none if there is no such log, or none any more.
        end: where it ends, and the group's entries begin (``dividedCommitlogOffset``); 0 without one. It stays when the
            last file is deleted.
    """

    def __init__(self, ground: StoreGround) -> None:
        """Nothing is opened yet."""
        options = ground.options
        self._disk: Final = ground.disk
        self.files: Final = MappedFileQueue(
            ground.disk,
            options.store_path_commit_log,
            file_size=options.mapped_file_size_commit_log,
            open_files=ground.open_files,
        )
        reader = SegmentReader(self.files, options.delay_levels_ms)
        self.extents: Final = reader.extents
        self.records: Final = reader.records
        self.record_at: Final = reader.record_at
        self.end = 0
        self._last_segment = ""
        """What tells it from another that ends here."""
        self._has_warned = False
        self._lock: Closable | None = None

    @property
    def is_there(self) -> bool:
        """See :attr:`LedgerBeginning.is_there`."""
        return bool(self.files.files)

    def load(self) -> None:
        """Take in its files, if there are any, so that no other broker writes them.

        Raises:
            StoreLockedError: another process uses it.
            CorruptLogError: something else lies there, or a segment is missing.
            StoreReadError, StoreWriteError: the disk does not let us.
        """
        directory = self.files.directory
        names = self._disk.listdir(directory) if self._disk.exists(directory) else []
        if any(parse_file_name(name) is not None for name in names):
            self._lock = self._disk.lock_directory(directory)
            self._load_files()

    def _load_files(self) -> None:
        self.files.load()
        self.end = self.files.next_file_offset if self.files.files else 0

    def check_continued(self, begin_offset: int) -> None:
        """The group's entries begin where this log ends.

        Raises:
            CorruptLogError: they begin elsewhere.
        """
        if self.is_there and begin_offset != self.end:
            raise CorruptLogError(
                self.end,
                f"the old commitlog ({self.files.directory}) ends here, but the entries behind it begin at "
                f"{begin_offset}: nothing was changed. Restore the segments that are missing, or move those away that "
                "another broker has written since",
            )

    def close_off(self, known: DurableKnowledge, *, check_crc: bool, progress: RecoveryProgress) -> LogRecovery:
        """Recover it as a classic broker does, and end its last file with a blank: from now on it is as it is.

        Idempotent, and to be repeated until the group has its first entry: that goes behind it. Blocks.

        Raises:
            CorruptLogError: as :func:`recover_commit_log`.
            StoreReadError, StoreWriteError: the disk does not let us.
        """
        recovery = recover_commit_log(self.files, known=known, check_crc=check_crc, progress=progress)
        files = self.files.files
        while len(files) > 1 and not files[-1].wrote_position:  # made ahead: not every member has it
            self.files.delete(files[-1])
        last = files[-1]
        if not last.is_full:
            room = last.size - last.wrote_position
            last.append([encode_blank(room)], room)
            last.file.sync()
            self.files.close()
            self._load_files()
        self.end = self.files.next_file_offset
        logger.info(
            "old_commit_log.closed_off",
            min_offset=self.files.min_offset,
            records_end=recovery.end,
            divided_offset=self.end,
        )
        return recovery

    def identify(self, progress: RecoveryProgress) -> None:
        """Find out what tells it from another log that ends here; needed until the first entry is committed. Blocks.

        The last segment does: its records know their offsets, queues and times. Raises StoreReadError.
        """
        progress.begin("reading the old commitlog's last segment")
        digest, view = hashlib.sha256(), self.files.files[-1].view
        for at in range(0, len(view), _HASHED_BYTES):
            digest.update(view[at : at + _HASHED_BYTES])
        self._last_segment = digest.hexdigest()

    @property
    def properties_raw(self) -> bytes:
        """See :attr:`LedgerBeginning.properties_raw`."""
        return format_properties({_PROPERTY: self._last_segment}).encode() if self.is_there else b""

    def problem(self, first: DLedgerEntry) -> str:
        """See :meth:`LedgerBeginning.problem`. Where it lies is looked at by others."""
        theirs = _last_segment_of(first)
        if not (theirs and self._last_segment):
            self._warn_not_compared()
            return ""
        if theirs == self._last_segment:
            return ""
        return (
            f"the last segment of the old commitlog ({self.files.files[-1].path}) has SHA-256 {self._last_segment}, "
            f"but the leader's has {theirs}: the group's entries lie behind another log. {WHAT_NEXT}"
        )

    def _warn_not_compared(self) -> None:
        if self.is_there and not self._has_warned:
            self._has_warned = True
            logger.warning("old_commit_log.not_compared", next="the leader does not say what it has: compare the files")

    def drop(self) -> None:
        """See :meth:`LedgerBeginning.drop`: oldest first, so that what a crash leaves is a whole log."""
        while self.files.files:
            self.files.delete(self.files.files[0])

    def close(self) -> None:
        """Close every file, and let others have the directory."""
        self.files.close()
        if self._lock is not None:
            self._lock.close()


def _last_segment_of(first: DLedgerEntry) -> str:
    """What an entry's leader says of its own; empty if it says nothing."""
    try:
        properties_raw = decode_message(memoryview(first.body)).properties_raw
    except CorruptLogError:
        return ""
    value = find_property(properties_raw, _PROPERTY.encode())
    return "" if value is None else value[:_DIGITS].decode(errors="replace")
