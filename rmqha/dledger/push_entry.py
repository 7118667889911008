"""What a leader pushes to its followers, and what they answer (spec: dledger §5.5)."""

from dataclasses import dataclass
from enum import Enum

from rmqha.codec.dledger_entry import DLedgerEntry


class PushType(Enum):
    """In the order of their ordinals on the wire."""

    APPEND = 0
    COMMIT = 1
    COMPARE = 2
    TRUNCATE = 3


@dataclass(frozen=True, slots=True)
class PushEntryRequest:
    """Of ``leader_id``, that leads in ``term``; ``entries`` are consecutive, none with COMMIT."""

    type: PushType
    term: int
    leader_id: str
    commit_index: int
    entries: tuple[DLedgerEntry, ...] = ()

    @property
    def first_entry_index(self) -> int:
        """Of its first entry; -1 without."""
        return self.entries[0].index if self.entries else -1

    @property
    def last_entry_index(self) -> int:
        """Of its last entry; -1 without."""
        return self.entries[-1].index if self.entries else -1


@dataclass(frozen=True, slots=True)
class PushEntryResponse:
    """``term`` is the request's, ``index`` its first entry's; the bounds are those of the follower's log."""

    code: int
    term: int
    index: int = -1
    count: int = 0
    begin_index: int = -1
    end_index: int = -1
