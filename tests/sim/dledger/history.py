"""What clients of a group did and were told: the history that has to be linearizable."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from rmqha.dledger.dledger_exception import DLedgerResponseCode

_Code = DLedgerResponseCode
PERHAPS: Final = frozenset(
    {_Code.TIMEOUT, _Code.NETWORK_ERROR, _Code.TERM_CHANGED, _Code.WAIT_QUORUM_ACK_TIMEOUT, _Code.UNKNOWN}
)
"""Codes of an append that may be in the log all the same; any other but SUCCESS says that it never will be."""


class Told(Enum):
    """What an operation came to."""

    OPEN = "no answer yet"
    APPENDED = "it is committed"
    REFUSED = "it is not in the log, and never will be"
    PERHAPS = "it may be in the log, now or later"
    FOUND = "that entry is committed"
    GONE = "there was such an entry, which is deleted"
    MISSING = "no such entry is committed"
    NOTHING = "a read that was not answered"


_READS: Final[dict[int, Told]] = {
    _Code.SUCCESS: Told.FOUND,
    _Code.INDEX_OUT_OF_RANGE: Told.MISSING,
    _Code.INDEX_LESS_THAN_LOCAL_BEGIN: Told.GONE,
}
"""What the codes of a read come to; any other is no answer."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where an entry lies."""

    index: int
    term: int
    pos: int


@dataclass(slots=True)
class Operation:
    """One append, or one read. Moments are places in the order of all calls and answers of a history."""

    client: str
    invoked: int
    body: bytes | None = None
    """What is appended; None: it is a read. No two appends of a history are alike."""
    index: int = -1
    """What is read."""
    told: Told = Told.OPEN
    returned: int | None = None
    place: Place | None = None
    """Of what was appended, or found."""
    found: bytes | None = None

    @property
    def is_append(self) -> bool:
        """Whether this is no read."""
        return self.body is not None

    def describe(self) -> str:
        """In a line."""
        what = f"append of {(self.body or b'')[:12]!r}" if self.is_append else f"get of {self.index}"
        until = "" if self.returned is None else str(self.returned)
        result = "" if self.place is None else f" {self.place} {(self.found or b'')[:12]!r}"
        return f"{self.client}'s {what} [{self.invoked}, {until}] {self.told.name}{result}"


@dataclass
class History:
    """Of one group."""

    operations: list[Operation] = field(default_factory=list)
    moment: int = 0
    completed: int = 0
    """Operations that have an answer which says something."""

    def _next(self) -> int:
        self.moment += 1
        return self.moment

    def append(self, client: str, body: bytes) -> Operation:
        """A client asks for this to be appended."""
        return self._begin(Operation(client, self._next(), body))

    def get(self, client: str, index: int) -> Operation:
        """A client asks for this entry."""
        return self._begin(Operation(client, self._next(), index=index))

    def _begin(self, operation: Operation) -> Operation:
        self.operations.append(operation)
        return operation

    def answered(
        self, operation: Operation, code: int, *, place: Place | None = None, found: bytes | None = None
    ) -> None:
        """The client has its answer."""
        operation.returned = self._next()
        operation.place, operation.found = place, found
        if operation.is_append:
            is_sure = code not in PERHAPS
            operation.told = Told.APPENDED if code == _Code.SUCCESS else Told.REFUSED if is_sure else Told.PERHAPS
        else:
            operation.told = _READS.get(code, Told.NOTHING)
        self.completed += operation.told is not Told.NOTHING
