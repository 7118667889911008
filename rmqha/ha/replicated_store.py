"""ReplicatedStore: a message store and the files of its log, as slaves and a master see them."""

from typing import Final

from rmqha.store.commit_log import CommitLog
from rmqha.store.message_store import DefaultMessageStore


class ReplicatedStore:
    """See :class:`~rmqha.ha.replicated_log.ReplicatedLog`. What is sent comes out of the log itself.

    What another node wrote goes in through the store, which says when it takes nothing, and dispatches it.
    """

    def __init__(self, store: DefaultMessageStore, log: CommitLog) -> None:
        """``log`` is the one that ``store`` was made with."""
        self._store: Final = store
        self._log: Final = log
        self.wrote: Final = log.wrote
        self.flushed: Final = log.flushed
        self.file_size: Final = log.file_size
        self.segment_at: Final = log.segment_at
        self.view_range: Final = log.view_range
        self.append_raw: Final = store.append_raw
        self.start_at: Final = store.start_at
        self.flush_now: Final = store.flush_now
        self.wait_allocated: Final = store.wait_allocated
        self.wait_writable: Final = store.wait_writable

    @property
    def min_offset(self) -> int:
        """See :attr:`RawLog.min_offset`."""
        return self._log.min_offset

    @property
    def max_offset(self) -> int:
        """See :attr:`RawLog.max_offset`."""
        return self._log.max_offset

    @property
    def lack_of_room(self) -> str:
        """See :attr:`ReplicatedLog.lack_of_room`."""
        return self._store.running_flags.lack_of_room()
