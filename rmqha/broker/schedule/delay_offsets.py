"""DelayOffsets: how far the messages of each delay level are delivered, as RocketMQ's ``delayOffset.json`` says it.

A level's offset is saved, or told to other brokers, only when everything that it counts as delivered is settled: no
crash and no change of role takes it back any more. Who goes on from there delivers some messages twice at worst.

On a slave the offsets are the master's. They count deliveries that may still be on their way here, so they are taken
over when this log has settled as far as the master's reached when it was asked.

Source: spec: remoting §2.6 (45), commitlog §11; rocketmq-all-4.9.8 ScheduleMessageService.java, SlaveSynchronize.java.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from rmqha.errors import RemoteProtocolError

_INT64_MAX: Final = 2**63 - 1
_LEVELS_MAX: Final = 10_000
UNSETTLED_MAX: Final = 1024
"""So many changes are remembered that are not settled yet; with that many nothing more is delivered."""


class DelayOffsets:
    """A :class:`~rmqha.broker.tables.metadata.SavedTable`: level to the first message that is not delivered.

    Invariant: what is saved or told counts no delivery at or beyond ``settled()``.
    """

    def __init__(self, settled: Callable[[], int]) -> None:
        """``settled()``: what lies before it in the log stays, whatever happens; it never falls while this runs."""
        self._settled: Final = settled
        self._table = dict[int, int]()
        self._unsettled: Final = deque[tuple[int, Mapping[int, int], bool]]()
        """Where the log has to be settled, what is delivered then, and whether a level may be farther here."""
        self._is_told_none = False
        """By a master: nothing has ever been delivered, as RocketMQ's says until it has delivered something."""
        self.dirty = False
        """The table has changed since it was saved, or will by itself."""

    @property
    def has_unsettled(self) -> bool:
        """Whether some deliveries do not count yet."""
        self._settle()
        return bool(self._unsettled)

    @property
    def are_awaited(self) -> bool:
        """Whether nothing is known yet but what a master told of a log that goes on behind the end of this one."""
        return self.has_unsettled and not self._table

    @property
    def is_full(self) -> bool:
        """Whether too much is unsettled for more."""
        self._settle()
        return len(self._unsettled) >= UNSETTLED_MAX

    def is_settled(self, log_end: int) -> bool:
        """Whether what lies before ``log_end`` in this log stays."""
        return log_end <= self._settled()

    def advance(self, offsets: Mapping[int, int], *, log_end: int) -> None:
        """These levels are delivered so far, by messages that lie before ``log_end`` in the log."""
        self._unsettled.append((log_end, offsets, False))
        self.dirty = True

    def take_newer(self, offsets: Mapping[int, int], *, log_end: int) -> None:
        """So says who has a longer log than this one, which reaches to ``log_end``; it may be behind in some levels."""
        if offsets and not self.is_full:
            self._unsettled.append((log_end, offsets, True))
            self.dirty = True

    def take_over(self, offsets: Mapping[int, int], *, log_end: int) -> None:
        """A master says so, whose log reaches to ``log_end``; one that says nothing costs nothing that is known."""
        self._is_told_none = not offsets
        if offsets and not self.is_full:
            self.advance(offsets, log_end=log_end)

    def _settle(self) -> None:
        settled, waiting = self._settled(), self._unsettled
        while waiting and waiting[0][0] <= settled:
            _, offsets, are_least = waiting.popleft()
            least = self._table if are_least else {}
            self._table |= {level: max(offset, least.get(level, 0)) for level, offset in offsets.items()}

    def forget_unsettled(self) -> None:
        """The role changes: what is not settled may be cut from the log, and then is not delivered."""
        self._settle()
        self._unsettled.clear()

    def begin(self, delay_levels: int) -> None:
        """This broker delivers from now on: it knows about all levels, though of some that nothing is delivered."""
        self.forget_unsettled()
        self._table = dict.fromkeys(range(1, delay_levels + 1), 0) | self._table
        self.dirty = True

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Each level with its offset, as far as that is settled."""
        self._settle()
        return iter(sorted(self._table.items()))

    def offset_of(self, delay_level: int) -> int:
        """The first message of a level that is not delivered, as far as that is settled; 0 if nothing is known."""
        return self._table.get(delay_level, 0)

    async def to_json_in_turns(self) -> dict[str, Any]:
        """What is settled, as ``delayOffset.json`` and the answer to request 45 hold it; levels are integers."""
        self._settle()
        self.dirty = self.dirty or bool(self._unsettled)
        return {"offsetTable": dict(self._table)}

    async def told(self) -> dict[str, Any] | None:
        """As :meth:`to_json_in_turns`; None if nothing is known: who was told that would drop what it knows.

        Of a master that has delivered nothing that is known: a slave's slave would have to ask for ever.
        """
        table = await self.to_json_in_turns()
        return table if self._table or self._is_told_none else None

    def replace_from_json(self, value: dict[str, Any]) -> None:
        """Take over a saved table. Raises RemoteProtocolError if it is none; then nothing has changed."""
        self._table = decode_delay_offsets(value)


def decode_delay_offsets(value: dict[str, Any]) -> dict[int, int]:
    """The member ``offsetTable``; levels are keys, so plain JSON has them as text.

    Raises:
        RemoteProtocolError: it is no such table.
    """
    try:
        table = {int(level): _offset(offset) for level, offset in (value.get("offsetTable") or {}).items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise RemoteProtocolError(f"delay offsets do not parse: {str(error)[:200]}") from None
    if len(table) > _LEVELS_MAX:
        raise RemoteProtocolError(f"delay offsets of {len(table)} levels: more than any broker has")
    return table


def _offset(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _INT64_MAX:
        raise ValueError(f"{value!r:.40} is no offset")
    return value
