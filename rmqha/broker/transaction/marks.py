"""Marks in the log, of half messages that have ended: what a mastership reads of them before anybody may end one.

A mark says which half message has ended, and nothing leads from a half message to its mark. The last marks are read
when a mastership begins, as many as a broker remembers of its own. For a half message that lies before these, or is
forgotten since, a mark is looked for among as many that lie behind it: no producer keeps a broker busy for longer.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import trio

from rmqha.broker.transaction.fates import KEPT_MAX, Fates
from rmqha.broker.transaction.half_message import HALF_TOPIC, OP_TOPIC, Mark, first_place
from rmqha.broker.transaction.places import EarlierPlaces
from rmqha.broker.transaction.transactional_message_bridge import TransactionalMessageBridge
from rmqha.codec.record.message import StoredMessage
from rmqha.errors import CorruptLogError, StoreError

_COMMITS_WITHIN: Final = 8 << 20
"""Bytes at the log's end."""
_LOOKED_AT_ONCE: Final = 32
_DISPATCHED_S: Final = 15.0

_SEARCHED_WITHIN_S: Final = 15.0
_SHARE: Final = 4
_TOLD_AT_ONCE: Final = 32
"""Each of them may store something."""
_NOT_DISPATCHED: Final = "the log's end cannot be read yet: whether the transaction has ended is not known"
_DAMAGED: Final = "whether the transaction has ended is not known: a mark that may tell it is damaged"
_TOO_MANY: Final = "whether the transaction has ended is not known: too many others are looked for before it"

Complete = Callable[[str], None]
"""``complete(problem)``: why nobody can tell now whether there is a mark; empty: ``on_found`` was called, or is not."""


class _Wanted(NamedTuple):
    """Where the half message lies, until when the search has to begin, and who waits for it."""

    half: StoredMessage
    ends_at: float
    completes: list[Complete]


class Damage:
    """Marks that cannot be read: each may be of any half message before the next mark that can be."""

    def __init__(self, bridge: TransactionalMessageBridge, fates: Fates) -> None:
        self._bridge: Final = bridge
        self._fates: Final = fates
        self._is_open = False

    def note(self, mark: Mark) -> None:
        """The next one in their queue."""
        if mark.physical_offset is None:
            self._is_open = True
        elif self._is_open:
            self._is_open = False
            self._doubt(self._bridge.first_behind(HALF_TOPIC, mark.physical_offset))

    def end(self) -> None:
        """No mark follows."""
        if self._is_open:
            self._doubt(self._bridge.end_of(HALF_TOPIC))

    def _doubt(self, before: int) -> None:
        self._fates.undecided_before = max(self._fates.undecided_before, before)


async def learn_marks(bridge: TransactionalMessageBridge, fates: Fates) -> set[int]:
    """Tell ``fates`` which half messages have ended by the last marks, and from which one on they tell all.

    Returns:
        The places in these marks.

    Raises:
        StoreError: they cannot be read at present.
    """
    first, end = bridge.range_of(OP_TOPIC)
    fates.marks_begin = begin = max(first, end - KEPT_MAX)
    marked = set[int]()
    if begin > first and (before := bridge.position_of(OP_TOPIC, begin - 1)) is not None:
        fates.known_from = max(fates.known_from, bridge.first_behind(HALF_TOPIC, before))
    offset, damage = begin, Damage(bridge, fates)
    while offset < end:
        found, next_offset = bridge.read_marks(offset)
        for mark in found:
            damage.note(mark)
            for place in mark.half_offsets:
                fates.end(place, mark=mark.queue_offset)
                marked.add(place)
        if next_offset == offset:
            break
        offset = next_offset
        await trio.lowlevel.checkpoint()
    damage.end()
    return marked


async def learn_commits(bridge: TransactionalMessageBridge, fates: Fates, *, earlier: EarlierPlaces) -> list[int]:
    """Tell ``fates`` which half messages have ended by the last commits in the log, whose marks may not have come.

    A mark follows its commit in the log. A master that is killed may have sent a slave the one without the other, and
    one whose log could not go on has stored the one alone. A commit names one place of its half message, which ends at
    all of them: ``earlier`` is from ``learn_places``.

    Returns:
        The places of those that no mark told of.

    Raises:
        StoreReadError: they cannot be read at present.
    """
    places = list[int]()
    offset, end = await bridge.tail(_COMMITS_WITHIN)
    while offset < end:
        try:
            commits, next_offset = bridge.commits(offset, end)
        except CorruptLogError:  # it is told of where it is met; a queue may lead beside a record as well
            break
        for number, commit in enumerate(commits, 1):
            half = bridge.half_of(commit, end=end, has_ended=fates.has_ended)
            if half is not None:
                earlier.join(half, fates)
                places += [half.queue_offset, *fates.end(half.queue_offset)]
            if number % _LOOKED_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        if next_offset == offset:
            break
        offset = next_offset
        await trio.lowlevel.checkpoint()
    return places


class MarkSearch:
    """Looks for marks, one after the other, each among so many as a broker remembers, behind its half message.

    All who wait for one half message are answered by one search; all searches take a quarter of the time.
    """

    def __init__(self, bridge: TransactionalMessageBridge, *, on_found: Callable[[int], None]) -> None:
        """``on_found(place)``: the half message there has ended."""
        self._bridge: Final = bridge
        self._on_found: Final = on_found
        self._wanted: Final = dict[frozenset[int], _Wanted]()
        """By the places of a half message, in the order in which they were asked for first."""
        self._has_wanted = trio.Event()

    def look_for(self, half: StoredMessage, complete: Complete) -> None:
        """Of this half message, or of its first place; its end marks that, too."""
        places = frozenset((half.queue_offset, first_place(half)))
        ends_at = trio.current_time() + _SEARCHED_WITHIN_S
        self._wanted.setdefault(places, _Wanted(half, ends_at, [])).completes.append(complete)
        self._has_wanted.set()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._has_wanted.wait()
            self._has_wanted = trio.Event()
            while self._wanted:
                places = next(iter(self._wanted))
                wanted = self._wanted[places]
                is_late = trio.current_time() > wanted.ends_at
                is_dispatched = is_late or await self._bridge.wait_dispatched(timeout_s=_DISPATCHED_S)
                begun_at = trio.current_time()  # to wait is no work
                problem = _TOO_MANY if is_late else _NOT_DISPATCHED
                if is_dispatched and not is_late:
                    problem = await self._search(places, wanted.half)
                del self._wanted[places]
                for number, complete in enumerate(wanted.completes, 1):
                    complete(problem)
                    if number % _TOLD_AT_ONCE == 0:
                        await trio.lowlevel.checkpoint()
                await trio.sleep((_SHARE - 1) * (trio.current_time() - begun_at))

    async def _search(self, places: frozenset[int], half: StoredMessage) -> str:
        """Behind its first place, where it may have ended before it was written again, and behind its last one."""
        try:
            first = self._bridge.position_of(HALF_TOPIC, first_place(half))
            end, problems = 0, list[str]()
            for position in sorted({half.physical_offset if first is None else first, half.physical_offset}):
                begin = max(end, self._bridge.first_behind(OP_TOPIC, position))
                is_found, problem, end = await self._find(places, begin)
                if is_found:
                    break
                problems.append(problem)
        except StoreError as error:
            return str(error)
        if is_found:
            self._on_found(max(places))
            return ""
        return next(filter(None, problems), "")

    async def _find(self, places: frozenset[int], begin: int) -> tuple[bool, str, int]:
        """Whether there is a mark; if none is found, why there may be one nevertheless, and how far it was read."""
        problem, offset = "", begin
        while offset - begin < KEPT_MAX:
            found, next_offset = self._bridge.read_marks(offset)
            if any(not places.isdisjoint(mark.half_offsets) for mark in found):
                return True, "", offset
            if any(mark.physical_offset is None for mark in found):
                problem = _DAMAGED
            if next_offset == offset:
                break
            offset = next_offset
            await trio.lowlevel.checkpoint()
        return False, problem, offset
