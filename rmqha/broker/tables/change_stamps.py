"""ChangeStamps: when an operator's word about something was last said, so that of two brokers' tables the later counts.

RocketMQ's tables have one version each, a counter and a time. Where two brokers have each had changes, or one has lost
some, that says nothing of any one entry. With a stamp for each, what was changed, forbidden or deleted last counts,
whichever table is looked at first, and however often (decision 20).
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, TypeVar

from rmqha.codec import java_json
from rmqha.codec.limits import STAMPS_SIZE_MAX

_Entry = TypeVar("_Entry")

_ALL: Final = ""
"""No topic and group is called that: in its place stands :meth:`ChangeStamps.date_all`."""
_STAMP_MAX: Final = 2**53
_SEEN_MAX: Final = 2**52
"""No clock says so, and what is noted after it is a stamp, still."""
_NAME_SIZE_MAX: Final = 1024
"""No topic and group is called that, but an operator may ask for anything."""
_ENTRY_SIZE: Final = len(":9007199254740992,")


class ChangeStamps:
    """Name to stamp: milliseconds since 1970, later than every one that is known here, whatever the clock says.

    What has none was made by clients, or is from before there were stamps: in a table that RocketMQ has written it is
    as late as the table (:meth:`date_all`). Where there are too many the first ones that were noted go.

    Attributes:
        has_noted: whether anything was said here, in this process.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms: Final = now_ms
        self._stamps: dict[str, int] = {}
        self._size = self._last = self._all = 0
        self.has_noted = False

    def __bool__(self) -> bool:
        return bool(self._stamps or self._all)

    def of(self, name: str) -> int:
        """Its stamp; 0 if it has none."""
        return self._stamps.get(name, 0)

    def latest(self, name: str) -> int:
        """When anything can have been said of it last: as the table is as late as that; 0: nobody knows."""
        return max(self.of(name), self._all)

    def date_all(self, at_ms: int) -> None:
        """What is here, and what is not here any more, was said by a broker that stamps nothing, until then."""
        self._all = max(0, min(at_ms, self._now_ms(), _SEEN_MAX))
        self._last = max(self._last, self._all)

    def next_stamp(self) -> int:
        """Of what is said now."""
        return max(self._now_ms(), self._last + 1)

    def version_time(self) -> int:
        """Of a table that changes now (ms): a broker that has no stamps tells no other, and has all of these."""
        return max(self._now_ms(), self._last)

    def note(self, name: str) -> None:
        """Something was said of it now."""
        self.has_noted = True
        self.adopt(name, self.next_stamp())

    def note_again(self, name: str) -> None:
        """It changes by itself: that counts for as much as what was said of it before, if anything was."""
        if name in self._stamps:
            self.note(name)

    def adopt(self, name: str, stamp: int) -> None:
        """It is here as another broker has it."""
        if len(name) > _NAME_SIZE_MAX:
            return
        if self._stamps.pop(name, None) is None:
            self._size += _size_of(name)
        self._stamps[name] = stamp
        self._last = max(self._last, min(stamp, _SEEN_MAX))
        while self._size + _size_of(_ALL) > STAMPS_SIZE_MAX:
            self.drop(next(iter(self._stamps)))

    def drop(self, name: str) -> None:
        """Nothing was ever said of it."""
        if self._stamps.pop(name, None) is not None:
            self._size -= _size_of(name)

    def replace(self, stamps: Mapping[str, int]) -> None:
        """All is as another broker has it, or this one's file."""
        self._stamps = {name: stamp for name, stamp in stamps.items() if name != _ALL}
        self._size = sum(map(_size_of, self._stamps))
        self._last = max(self._last, min(max(stamps.values(), default=0), _SEEN_MAX))
        self.date_all(stamps.get(_ALL, 0))

    def unknown_to(self, told: Mapping[str, int] | None) -> list[str]:
        """Names of which something was said here later than another broker knows of; none if it has no stamps.

        Who has lost its oldest ones, as there were too many, lacks none that is younger than those it has.
        """
        if told is None:
            return []
        since = max(min(told.values(), default=0), told.get(_ALL, 0))
        return [name for name, stamp in self._stamps.items() if stamp > told.get(name, since)]

    def adopt_newer(self, stamps: Mapping[str, int]) -> None:
        """What is later there than here."""
        for name, stamp in stamps.items():
            if stamp > self.of(name) and name != _ALL:
                self.adopt(name, stamp)

    def of_told(self, told: Collection[str], told_stamps: Mapping[str, int]) -> dict[str, int]:
        """The stamps of another broker's table: what it has without one is as late as it says of all.

        But for entries of which nobody has said anything here: those are compared without stamps.
        """
        stamps = {name: stamp for name, stamp in told_stamps.items() if name != _ALL}
        if told_stamps.get(_ALL, 0):
            stamps |= {name: at for name in told if name not in stamps and (at := self.of_entry(name, told_stamps))}
        return stamps

    def of_entry(self, name: str, told_stamps: Mapping[str, int]) -> int:
        """As :meth:`of_told`, of one that another broker has; 0 if it has none."""
        return told_stamps.get(name, 0) or (told_stamps.get(_ALL, 0) if name in self._stamps else 0)

    def to_json(self) -> dict[str, int]:
        """A copy, as a member of the table has it."""
        return {_ALL: self._all, **self._stamps} if self._all else dict(self._stamps)


def choose_newer(
    told: Mapping[str, _Entry],
    told_stamps: Mapping[str, int],
    known: Mapping[str, _Entry],
    stamps: ChangeStamps,
    *,
    is_newer: bool,
) -> dict[str, _Entry | None]:
    """What another broker's table says later than the one that is ``known``; None: the entry was deleted.

    Args:
        told: its entries.
        told_stamps: when it was told of which (:meth:`ChangeStamps.of_told`).
        known: the entries here.
        stamps: likewise.
        is_newer: whether it counts, too, where neither has a stamp; else an entry does that is not known here.
    """
    chosen: dict[str, _Entry | None] = {}
    for name in told.keys() | told_stamps.keys():
        theirs = told_stamps.get(name, 0)
        if theirs > stamps.latest(name):
            chosen[name] = told.get(name)
        elif theirs == stamps.of(name) == 0 and (name not in known or (is_newer and told[name] != known[name])):
            chosen[name] = told[name]
    return chosen


def stamps_of_version(stamps: Mapping[str, int] | None, data_version: tuple[int, int]) -> Mapping[str, int]:
    """Those beside a table that is taken over as a whole; without any: its time (ms), if it has had a change.

    Not so where it is merged: a slave of RocketMQ's may have it from a master that lost its own, as of a moment ago.
    """
    if stamps is not None:
        return stamps
    timestamp, counter = data_version
    return {_ALL: timestamp} if counter > 0 and timestamp > 0 else {}


def decode_stamps(value: Any) -> dict[str, int] | None:
    """A member that :meth:`ChangeStamps.to_json` made; None if there is none, as in a table of RocketMQ's.

    Raises:
        AttributeError, TypeError, ValueError: it is something else, or larger than any of ours.
    """
    if value is None:
        return None
    stamps = {name: _stamp(stamp) for name, stamp in value.items() if type(name) is str}
    if len(stamps) < len(value) or sum(map(_size_of, stamps)) > STAMPS_SIZE_MAX:
        raise ValueError("those are no stamps of a table")
    return stamps


def _stamp(value: object) -> int:
    if type(value) is not int or not 0 < value < _STAMP_MAX:
        raise ValueError(f"{value!r:.40} is no stamp")
    return value


def _size_of(name: str) -> int:
    is_plain = name.isascii() and name.isprintable() and '"' not in name and "\\" not in name
    return (len(name) + 2 if is_plain else len(java_json.dumps(name).encode())) + _ENTRY_SIZE


def date_of_all(stamps: Mapping[str, int]) -> int:
    """Of a table in which everything was said at one time, as in one that RocketMQ wrote last; 0: it is none."""
    return stamps.get(_ALL, 0) if len(stamps) == 1 else 0
