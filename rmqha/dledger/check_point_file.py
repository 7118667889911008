"""CheckPointFile: how far a log was written, and committed, when it was last noted."""

from dataclasses import replace
from typing import Final

from rmqha.codec.dledger_properties import CHECK_POINT_FILE, LedgerCheckpoint, decode_check_point, encode_check_point
from rmqha.dledger.dledger_exception import DLedgerException, DLedgerResponseCode
from rmqha.errors import StoreWriteError
from rmqha.store.disk import Disk
from rmqha.store.passing import is_lack


class CheckPointFile:
    """The file ``checkpoint`` (spec: dledger §1.12).

    Invariant: it names no committed index whose entry is not durable here, so that a start that finds less has found
    damage. DLedger's own may, after a power cut.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk: Final = disk
        self._path: Final = f"{directory}/{CHECK_POINT_FILE}"
        self.durable = LedgerCheckpoint()
        """What the file says."""
        self._is_being_written = False

    def load(self) -> LedgerCheckpoint:
        """Read it; without one nothing is known. Raises StoreReadError."""
        if self._disk.exists(self._path):
            self.durable = decode_check_point(self._disk.read_bytes(self._path))
        return self.durable

    def persist(self, checkpoint: LedgerCheckpoint) -> None:
        """Make it durable, unless it is. Raises StoreWriteError."""
        if checkpoint != self.durable:
            self._disk.replace_bytes(self._path, encode_check_point(checkpoint))
            self.durable = checkpoint

    def forget_log(self, vote_floor: tuple[int, int], *, index_proves: bool) -> None:
        """Vouch for nothing any more: the log is to be dropped, and nobody with less than it had gets this vote.

        Raises:
            DLedgerException, StoreWriteError: as :meth:`note_cut`.
        """
        self._persist_first(LedgerCheckpoint(index_proves=index_proves, vote_floor=vote_floor, cut_from=0))

    def note_cut(self, index: int) -> None:
        """Note that data files of entries from ``index`` on are to go, until the next checkpoint.

        Raises:
            DLedgerException: DISK_FULL: nothing was changed, and later it may be done. So too while a thread writes the
                file: it would put back what is forgotten.
            StoreWriteError: it cannot be written.
        """
        self._persist_first(replace(self.durable, cut_from=index))

    def _persist_first(self, checkpoint: LedgerCheckpoint) -> None:
        if self._is_being_written:
            raise DLedgerException(
                DLedgerResponseCode.DISK_FULL, "the log is not dropped yet: its checkpoint is written"
            )
        try:
            self.persist(checkpoint)
        except StoreWriteError as error:
            if not is_lack(error):
                raise
            raise DLedgerException(DLedgerResponseCode.DISK_FULL, f"the log is not dropped yet: {error}") from error

    async def persist_in_thread(self, checkpoint: LedgerCheckpoint) -> None:
        """As :meth:`persist`, without holding up the event loop."""
        if checkpoint != self.durable:
            self._is_being_written = True
            try:
                await self._disk.replace_bytes_in_thread(self._path, encode_check_point(checkpoint))
            finally:
                self._is_being_written = False
            self.durable = checkpoint
