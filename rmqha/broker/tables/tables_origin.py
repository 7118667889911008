"""TablesOrigin: whose tables a broker of a DLedger group has."""

from dataclasses import dataclass, field
from typing import Any, Final

_MAX: Final = 1 << 63


@dataclass(frozen=True, order=True)
class TablesOrigin:
    """As the broker's status tells it, and its disk; the greatest are the newest.

    Attributes:
        term: in which the master led whose they are; -1: they were found on a disk that does not say, -2: none was.
        was_master: whether this broker was that master, in its present process: others have them some seconds later.
        for_ms: how long that master had been one when these were its tables.
        leader_id: which member that master was; empty if none, or it is not told.
        are_awaited: its own were lost, and it has yet to ask who may have them: they are to replace nobody's.
        lack_some: of what its master told others it has had none, or nothing new, for a while.
        log_end: of a slave in a pair that has not had its master's again: where its log ended when it had; -1: they are
            as late as the log here.
        heard_to: of a master that lost its tables: where the longest log ends of those that told it theirs without
            stamps; 0: none has.
    """

    term: int = -2
    was_master: bool = False
    for_ms: int = 0
    leader_id: str = field(default="", compare=False)
    are_awaited: bool = field(default=False, compare=False)
    lack_some: bool = field(default=False, compare=False)
    log_end: int = field(default=-1, compare=False)
    heard_to: int = field(default=0, compare=False)

    @property
    def is_of_a_master(self) -> bool:
        """Whether they are all that clients have told masters, up to some moment."""
        return self.term >= 0


def read_tables_origin(status: dict[str, Any]) -> TablesOrigin:
    """As a broker's status has it; of one that does not say so, the least that it may be.

    That of RocketMQ's is empty: it is one that a name server takes for the master.
    """
    if not status:
        return TablesOrigin(0, was_master=True)
    return origin_of(status.get("tables"))


def origin_of(value: object) -> TablesOrigin:
    """As a JSON object says it."""
    if not isinstance(value, dict):
        return TablesOrigin()
    term, for_ms = value.get("term"), value.get("for_ms", 0)
    if type(term) is not int or type(for_ms) is not int or not (-2 <= term < _MAX and 0 <= for_ms < _MAX):
        return TablesOrigin()
    was_master, are_awaited, lack_some = (value.get(key) is True for key in ("was_master", "are_awaited", "lack_some"))
    leader_id, log_end, heard_to = str(value.get("leader_id") or ""), value.get("log_end"), value.get("heard_to")
    return TablesOrigin(
        term,
        was_master,
        for_ms,
        leader_id,
        are_awaited=are_awaited,
        lack_some=lack_some,
        log_end=log_end if type(log_end) is int and 0 <= log_end < _MAX else -1,
        heard_to=heard_to if type(heard_to) is int and 0 <= heard_to < _MAX else 0,
    )
