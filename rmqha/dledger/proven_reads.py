"""ProvenReads: reads that a leader answers once it knows that it led after they were asked. Knows no socket.

That there is no such entry can only be said by a leader that nobody has replaced meanwhile, and that knows how far the
log is committed. DLedger's leader answers at once, also with what is not committed.
"""

from collections import deque
from collections.abc import Callable
from math import inf
from typing import Any, Final, NamedTuple

from rmqha.codec.dledger_entry import DLedgerEntry
from rmqha.dledger.dledger_entry_pusher import DLedgerEntryPusher
from rmqha.dledger.dledger_exception import DLedgerException, DLedgerResponseCode
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.leader_elector import DLedgerLeaderElector

_WAIT_S: Final = 2.5
"""DLedger's clients wait for 3 s."""
_READS_MAX: Final = 10_000
_AT_ONCE_BYTES_MAX: Final = 1 << 20
_AT_ONCE_MAX: Final = 1000
"""Bytes of entries that are told of, and reads that are ended, before everybody else has a turn."""
_Code = DLedgerResponseCode

OnRead = Callable[[DLedgerResponseCode, DLedgerEntry | None], None]


class _Read(NamedTuple):
    entry_index: int
    beat: int
    """The heartbeat that proves it."""
    until: float
    tell: OnRead
    is_wanted: Callable[[], bool]


class ProvenReads:
    """Each read is told of once, in the order in which they came.

    What this leader inherited is committed by an entry of its own term behind it, or once all members have it. If
    neither has happened yet when such an entry is read, an entry is appended for it (``append_barrier``).
    """

    def __init__(
        self,
        store: DLedgerMmapFileStore,
        elector: DLedgerLeaderElector,
        pusher: DLedgerEntryPusher[Any],
        *,
        append_barrier: Callable[[], None],
    ) -> None:
        self._store: Final = store
        self._elector: Final = elector
        self._pusher: Final = pusher
        self._append_barrier = append_barrier
        self._reads: Final[deque[_Read]] = deque()
        self._has_more = False
        """The next can be told of at once."""

    def ask(self, index: int, tell: OnRead, *, now: float, is_wanted: Callable[[], bool] = lambda: True) -> None:
        """Read an entry: SUCCESS, INDEX_OUT_OF_RANGE, INDEX_LESS_THAN_LOCAL_BEGIN, DISK_ERROR, or NOT_LEADER.

        Of who does not want it any more, when its turn comes, nothing is read: it is told NOT_LEADER.
        """
        if self._pusher.checker is None or len(self._reads) >= _READS_MAX:
            tell(_Code.NOT_LEADER, None)
        else:
            self._reads.append(_Read(index, self._elector.prove(), now + _WAIT_S, tell, is_wanted))

    @property
    def due_at(self) -> float:
        """When the first of those who wait does so no longer, or has its turn."""
        return -inf if self._has_more else self._reads[0].until if self._reads else inf

    def step(self, *, now: float) -> None:
        """Tell those whose proof is there, whose time is over, or all, if this member does not lead any more.

        Some at a time: a leader that answers all at once does not beat meanwhile.
        """
        checker, told_bytes = self._pusher.checker, 0
        waiting_max = len(self._reads) - _AT_ONCE_MAX
        self._has_more = False
        while self._reads:
            read = self._reads[0]
            if len(self._reads) <= waiting_max:
                self._has_more = True
                return
            if checker is None or read.until <= now:
                self._reads.popleft().tell(_Code.NOT_LEADER, None)
            elif self._elector.confirmed_beat < read.beat:
                return
            elif self._store.committed_index < read.entry_index <= checker.inherited_index:
                if self._store.ledger_end_index == checker.inherited_index:
                    self._append_barrier()
                return
            elif told_bytes >= _AT_ONCE_BYTES_MAX:
                self._has_more = True
                return
            elif not read.is_wanted():
                self._reads.popleft().tell(_Code.NOT_LEADER, None)
            else:
                code, entry = self._look_up(read.entry_index)
                told_bytes += 0 if entry is None else entry.size
                self._reads.popleft().tell(code, entry)

    def _look_up(self, index: int) -> tuple[DLedgerResponseCode, DLedgerEntry | None]:
        if index > self._store.committed_index:
            return _Code.INDEX_OUT_OF_RANGE, None
        try:
            return _Code.SUCCESS, self._store.get(index)
        except DLedgerException as error:
            return error.code, None
