"""TablesOrigin: whose tables a broker of a DLedger group has."""

from dataclasses import dataclass, field
from typing import Any, Final

from rmqha.store.config_files import CONSUMER_OFFSET, SUBSCRIPTION_GROUP, TOPICS

DATED_TABLES: Final = (TOPICS, CONSUMER_OFFSET, SUBSCRIPTION_GROUP)
"""Those in which it is told, or is to be known, when anything was said."""
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
        log_end: of a slave in a pair: where the log ended when it had its master's last; of a master that lost its
            own, and has decided nothing since: that of those that told it theirs; -1: they are as late as the log here.
        is_in_step: that was seconds ago: a slave that begins with them is as late as its log, if that goes farther.
        lost: the names of the files without which this broker was started: of those tables it knows nothing.
        heard_to: of a master that lost its tables: where the longest log ends of those that told it theirs without
            stamps; 0: none has.
        dated_to: likewise of those whose topics or groups are as late as the time of their table.
        topics_to: when topics were changed last of which such a one told (ms since 1970); 0: none has.
        groups_to: likewise of subscription groups.
        are_told: of a master that lost its tables: some broker has told it theirs.
        told_to: where the longest log ends of those that told theirs and may have followed that master before.
        begun_to: where the log of that master ended when it began to serve without them; -1: it is none.
        offsets_to: of a master that lost its consumers' offsets: how late those are that it was told; -1: it did not.
    """

    term: int = -2
    was_master: bool = False
    for_ms: int = 0
    leader_id: str = field(default="", compare=False)
    are_awaited: bool = field(default=False, compare=False)
    lack_some: bool = field(default=False, compare=False)
    log_end: int = field(default=-1, compare=False)
    is_in_step: bool = field(default=False, compare=False)
    lost: tuple[str, ...] = field(default=(), compare=False)
    heard_to: int = field(default=0, compare=False)
    dated_to: int = field(default=0, compare=False)
    topics_to: int = field(default=0, compare=False)
    groups_to: int = field(default=0, compare=False)
    are_told: bool = field(default=False, compare=False)
    told_to: int = field(default=0, compare=False)
    begun_to: int = field(default=-1, compare=False)
    offsets_to: int = field(default=-1, compare=False)

    @property
    def is_of_a_master(self) -> bool:
        """Whether they are all that clients have told masters, up to some moment."""
        return self.term >= 0

    @property
    def how_late(self) -> tuple[object, ...]:
        """What is to be saved when it changes, though no table does. In step the end changes with each message."""
        heard = (
            self.heard_to,
            self.dated_to,
            self.topics_to,
            self.groups_to,
            self.told_to,
            self.begun_to,
            self.offsets_to,
        )
        return (-2 if self.is_in_step else self.log_end, self.lost, self.are_told, *heard)

    def late_as(self, name: str, log_end: int) -> int:
        """Where the log ended that the table of this file is as late as; ``log_end``: of the log there now."""
        if name in self.lost:
            return 0
        return self.log_end if self.log_end >= 0 else log_end


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
    return TablesOrigin(
        term,
        was_master,
        for_ms,
        str(value.get("leader_id") or ""),
        are_awaited=are_awaited,
        lack_some=lack_some,
        log_end=_number(value.get("log_end"), unknown=-1),
        is_in_step=value.get("is_in_step") is True,
        lost=_names(value.get("lost")),
        heard_to=_number(value.get("heard_to")),
        dated_to=_number(value.get("dated_to")),
        topics_to=_number(value.get("topics_to")),
        groups_to=_number(value.get("groups_to")),
        are_told=value.get("are_told") is True,
        told_to=_number(value.get("told_to")),
        begun_to=_number(value.get("begun_to"), unknown=-1),
        offsets_to=_number(value.get("offsets_to"), unknown=-1),
    )


def _number(value: object, *, unknown: int = 0) -> int:
    return value if type(value) is int and 0 <= value < _MAX else unknown


def _names(value: object) -> tuple[str, ...]:
    return tuple(name for name in DATED_TABLES if name in value) if isinstance(value, list) else ()
