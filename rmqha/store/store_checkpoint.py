"""StoreCheckpoint: up to which store time log and queues are known to be durable."""

from dataclasses import replace

import structlog

from rmqha.codec.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint, is_sealed
from rmqha.errors import StoreWriteError
from rmqha.store.disk import Disk
from rmqha.store.passing import is_lack

logger = structlog.get_logger()


class StoreCheckpoint:
    """The checkpoint file and what it should say next.

    Invariant: a time is moved only after what it describes is durable (spec: commitlog §6.3 rule 7, §11).
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self.durable = Checkpoint()
        """What the file says."""
        self.is_blank = False
        """It is there, is ours, and says that nothing is known: this log was never flushed since it was empty."""

    def load(self) -> None:
        """Read the file; if it is missing nothing is known, and recovery scans everything."""
        if self._disk.exists(self._path):
            raw = self._disk.read_bytes(self._path)
            self.durable = decode_checkpoint(raw)
            self.is_blank = self.durable == Checkpoint() and is_sealed(raw)

    def forget(self) -> None:
        """The log is empty: nothing is known. Raises StoreWriteError."""
        if not self.is_blank:
            self._disk.replace_bytes(self._path, encode_checkpoint(Checkpoint()))
            self.durable, self.is_blank = Checkpoint(), True

    def begin(self) -> None:
        """A log begins: as :meth:`forget`; but a new store starts on a full disk, too. Raises StoreWriteError."""
        try:
            self.forget()
        except StoreWriteError as error:
            if not is_lack(error) or self.durable != Checkpoint():
                raise
            logger.warning("store_checkpoint.not_begun", reason=str(error))

    async def update_in_thread(
        self,
        *,
        commit_log_timestamp_ms: int,
        consume_queue_timestamp_ms: int,
        index_timestamp_ms: int = 0,
        flushed_offset: int,
    ) -> None:
        """Make new values durable; one that is 0 stays as it was. Raises StoreWriteError.

        Before any of the log is known to be durable nothing is written. Times without an offset are RocketMQ's way: a
        recovery would guess by store times, which jump with the clock, how far the log had been flushed.

        Args:
            commit_log_timestamp_ms: store time of a record that is durable in the log.
            consume_queue_timestamp_ms: store time of a record that is durable in its queue.
            index_timestamp_ms: store time of the last record of an index file that is whole; it never falls.
            flushed_offset: a record ends here and all before it is durable; 4.9 ignores this field.
        """
        updated = replace(
            self.durable,
            commit_log_timestamp_ms=commit_log_timestamp_ms or self.durable.commit_log_timestamp_ms,
            consume_queue_timestamp_ms=consume_queue_timestamp_ms or self.durable.consume_queue_timestamp_ms,
            index_timestamp_ms=max(index_timestamp_ms, self.durable.index_timestamp_ms),
            master_flushed_offset=flushed_offset or self.durable.master_flushed_offset,
        )
        if updated.master_flushed_offset and updated != self.durable:
            await self._disk.replace_bytes_in_thread(self._path, encode_checkpoint(updated))
            self.durable, self.is_blank = updated, False
