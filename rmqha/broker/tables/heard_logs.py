"""HeardLogs: how late the word of a broker without stamps is: as late as its log, in which its master was heard last.

RocketMQ's slaves say where groups are, and not when that was decided. One whose log goes farther than another's was
with the master when that one was not, so it knows later where groups are, in whatever order they are heard. Of topics
and subscription groups they say when any was changed last: they know of every change of before. A log alone goes on
where a slave that was away follows again; how late its tables are our slaves say (``TablesOrigin.log_end``).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from rmqha.broker.tables.change_stamps import date_of_all, stamps_of_version
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupTable
from rmqha.broker.tables.tables_origin import DATED_TABLES, TablesOrigin
from rmqha.broker.tables.topic_config import TopicTable
from rmqha.store.config_files import CONSUMER_OFFSET, SUBSCRIPTION_GROUP, TOPICS

_Entry = TypeVar("_Entry")
_Stamps = Mapping[str, int] | None
_IsKnown = Callable[[str], object]

_NOTHING_HEARD: Final = TablesOrigin()
_NO_TIME_MS: Final = 1 << 52
"""No clock says so."""


class HeardLogs:
    """Of the brokers whose tables are merged here, one after the other.

    Attributes:
        heard_to: where the longest log ends of those that have no stamps, in a process before, too; 0: none was heard.
        dated_to: likewise of those whose topics or groups are as late as the time of their table.
        told_to: likewise of those without stamps that count as no later than others, as they may have followed.
        was_told: whether a process before was told what is here.
        is_told: whether that one, or this one, was.
    """

    def __init__(
        self,
        end: int = 0,
        *,
        offsets_end: int | None = None,
        found: TablesOrigin = _NOTHING_HEARD,
        was_told: bool = False,
    ) -> None:
        """Nobody is heard yet.

        Args:
            end: of the log that tables here are as late as.
            offsets_end: likewise of consumers' offsets, where that is another one.
            found: whom a process before has heard.
            was_told: as the attribute.
        """
        self.heard_to, self._topics_to, self._groups_to = found.heard_to, found.topics_to, found.groups_to
        self.dated_to, self.told_to, self.was_told = found.dated_to, found.told_to, was_told
        self.is_told = was_told
        self._ends = dict.fromkeys(DATED_TABLES, max(end, self.heard_to))
        if offsets_end is not None:
            self._ends[CONSUMER_OFFSET] = max(offsets_end, self.heard_to)

    @classmethod
    def go_on(cls, found: TablesOrigin, *, offsets_end: int) -> "HeardLogs | None":
        """Of tables that a process before was told, or some of them; None if it was not, or has decided since."""
        if not found.are_told or found.log_end < 0:
            return None
        end, offsets_end = max(found.log_end, found.told_to), max(offsets_end, found.told_to)
        return cls(end, offsets_end=offsets_end, found=found, was_told=True)

    @property
    def end(self) -> int:
        """Where the log goes to that the tables here are as late as; then the longest of all that were heard."""
        return max(self._ends.values())

    def end_of(self, name: str) -> int:
        """Likewise of one table, by its file's name: not all have told each."""
        return self._ends[name]

    def origin(self, *, has_decided: bool, begun_to: int, has_own_offsets: bool = True) -> TablesOrigin:
        """Of the tables here while others are awaited.

        Args:
            has_decided: what operators say is later than all logs.
            begun_to: where the log here ended when this broker began to serve; -1: it has not.
            has_own_offsets: consumers' offsets here are not other brokers' alone.
        """
        return TablesOrigin(
            are_awaited=True,
            log_end=-1 if has_decided else max(self._ends[TOPICS], self._ends[SUBSCRIPTION_GROUP]),  # not what is kept
            heard_to=self.heard_to,
            dated_to=self.dated_to,
            topics_to=self._topics_to,
            groups_to=self._groups_to,
            are_told=self.is_told,
            told_to=self.told_to,
            begun_to=begun_to,
            offsets_to=-1 if has_own_offsets else self.end_of(CONSUMER_OFFSET),
        )

    def topics_by_now(self, log_end: int, table: TopicTable, is_known: _IsKnown) -> TopicTable:
        """As it is merged here, of a broker whose tables are as late as a log that goes to ``log_end``.

        ``is_known`` tells which topics are here.
        """
        topics, changed, date = self._by_now(TOPICS, log_end, table.topics, table, is_known, until=self._topics_to)
        self._topics_to = date
        return replace(table, topics=topics, changed=changed)

    def groups_by_now(self, log_end: int, table: SubscriptionGroupTable, is_known: _IsKnown) -> SubscriptionGroupTable:
        """As :meth:`topics_by_now`."""
        name, until = SUBSCRIPTION_GROUP, self._groups_to
        groups, changed, date = self._by_now(name, log_end, table.groups, table, is_known, until=until)
        self._groups_to = date
        return replace(table, groups=groups, changed=changed)

    def _by_now(
        self,
        name: str,
        log_end: int,
        told: dict[str, _Entry],
        table: TopicTable | SubscriptionGroupTable,
        is_known: _IsKnown,
        *,
        until: int,
    ) -> tuple[dict[str, _Entry], _Stamps, int]:
        """Entries and stamps: what has none is as late as its table, if that is later than all that were heard.

        What is here, and was told without a stamp then, is as late as ``until``, and from now on as what is returned
        last. A time that no clock has is none.
        """
        stamps, version, is_later = table.changed, table.data_version, log_end > self.end_of(name)
        if stamps is None:
            if not is_later or version[0] >= _NO_TIME_MS:
                return told, None, until
            stamps = stamps_of_version(None, version)
            self.dated_to = max(self.dated_to, log_end)
            return told, stamps, max(stamps.values(), default=until)
        if (date := date_of_all(stamps)) and is_later:
            self.dated_to = max(self.dated_to, log_end)
            return told, stamps, max(until, date)
        if log_end >= max(self.heard_to, self.dated_to):
            return told, stamps, until
        outrun = {name for name, stamp in stamps.items() if stamp <= until and is_known(name)}
        counts = {name: told[name] for name in told.keys() - outrun}
        return counts, {name: stamp for name, stamp in stamps.items() if name not in outrun}, until

    def is_later(self, name: str, log_end: int, stamps: _Stamps) -> bool:
        """Whether a table that RocketMQ wrote is later than what others have told, whatever had more changes."""
        return log_end > self.end_of(name) and (stamps is None or date_of_all(stamps) > 0)

    def note(self, origin: TablesOrigin, log_end: int, *, may_be_later: int = -1, has_stamps: bool) -> None:
        """A broker was heard, and what it tells is merged.

        Args:
            origin: of its tables.
            log_end: of its log, for what it says; no farther than those that told before, if it may have followed.
            may_be_later: then where its log ends.
            has_stamps: whether its offsets have any.
        """
        if not has_stamps and log_end > self.end_of(CONSUMER_OFFSET):
            self.heard_to = log_end
        self.is_told, self.told_to = True, max(self.told_to, may_be_later)
        self._ends = {name: max(end, origin.late_as(name, log_end)) for name, end in self._ends.items()}
