"""Fates: what became lately of half messages, so that none is committed twice and none asked about that has ended."""

from collections import OrderedDict
from typing import Final

KEPT_MAX: Final = 131_072
"""Places that are remembered of half messages that have ended, and of others: some 20 MB each.

Of one that is forgotten only its mark in the log tells.
"""

_ENDED: Final[list[int]] = []
"""In place of the places of a half message: it has ended."""
_TOLD_HERE: Final = 1 << 63
"""In place of a mark's: it ended since the marks were read, so behind all that was there."""


class Fates:
    """By places in the queue of half messages. A half message may be written again and then has several of them.

    RocketMQ remembers none of this: there a producer that commits while its half message is being written again is
    asked once more, and commits the message twice.

    Attributes:
        known_from: of half messages from here on it is known here whether they have ended; of one that lies before,
            and has not as far as is remembered, the log has to be asked.
        undecided_before: of those before here that are not known to have ended nobody knows it: marks behind them are
            damaged.
        marks_begin: the first mark that was read before anybody was told.
    """

    def __init__(self, *, kept_max: int = KEPT_MAX) -> None:
        self.known_from = self.undecided_before = self.marks_begin = 0
        self._kept_max = kept_max
        self._places = OrderedDict[int, list[int]]()
        """By each place of one that has not ended all places where it is known to lie, in order."""
        self._ended = OrderedDict[int, int]()
        """Places of those that have, to the place of the mark that told it, or ``_TOLD_HERE``.

        Of marks there may be many: they are not remembered in place of the others.
        """
        self._ending = dict[int, list[int]]()
        """By the last of its places: what ends it waits to be stored, and may be refused yet."""

    def note_renewed(self, offset: int, renewed_offset: int) -> bool:
        """The half message at ``offset`` lies at ``renewed_offset`` as well; False if it has ended meanwhile."""
        self.unite(offset, renewed_offset)
        return not self.has_ended(renewed_offset)

    def unite(self, offset: int, other_offset: int) -> None:
        """Both are places of one half message."""
        places, others = self._places_of(offset), self._places_of(other_offset)
        if places is others:
            return
        if places is _ENDED or others is _ENDED:
            self.finish_end([offset, other_offset, *places, *others])
            return
        if others[-1] in self._ending:
            places, others = others, places
        ending = self._ending.pop(places[-1], None)
        places[:] = sorted({*places, *others})
        if ending is not None:
            self._ending[places[-1]] = places
        for place in places:
            self._places[place] = places
            self._forget_oldest(self._places)

    def begin_end(self, offset: int) -> list[int]:
        """The half message at ``offset`` ends as soon as what ends it is stored: finish_end or take_back follows.

        Returns:
            All its places, to which those are added where it is written again meanwhile; empty if it has ended before,
            or is ending.
        """
        places = self._places_of(offset)
        if places is _ENDED or places[-1] in self._ending:
            return []
        self._ending[places[-1]] = places
        return places

    def finish_end(self, places: list[int], *, mark: int = _TOLD_HERE) -> None:
        """What ends it is stored; or its ``mark`` was read, at this place in the queue of marks."""
        self.take_back(places)
        for place in places:
            self._places.pop(place, None)
            self._ended[place] = mark
            self._ended.move_to_end(place)
            self._forget_oldest(self._ended)

    def take_back(self, places: list[int]) -> None:
        """It has not ended after all: what ends it could not be stored."""
        self._ending.pop(places[-1], None)

    def end(self, offset: int, *, mark: int = _TOLD_HERE) -> list[int]:
        """The half message at ``offset`` has ended, at each of its places; :meth:`finish_end`.

        Returns:
            These places; empty if it has ended before.
        """
        if (places := self._places_of(offset)) is not _ENDED:
            self.finish_end(places, mark=mark)
        return places

    def is_ending(self, *offsets: int | None) -> bool:
        """Whether what ends a half message, the last of whose places is one of these, waits to be stored."""
        return any(offset in self._ending for offset in offsets)

    def has_ended(self, offset: int) -> bool:
        """Whether the half message at ``offset``, or at another place of it, is known to have ended."""
        return offset in self._ended

    def had_ended(self, offset: int, *, before: int) -> bool:
        """Whether the half message at ``offset`` had ended when the queue of marks ended at ``before``."""
        return self._ended.get(offset, _TOLD_HERE) < before

    def is_left(self, offset: int) -> bool:
        """Whether nothing is to be done at ``offset``: the half message there has ended, or lies at a later place."""
        return offset in self._ended or self._places.get(offset, [offset])[-1] != offset

    def is_known(self, offset: int) -> bool:
        """Whether it is known here if the half message at ``offset`` has ended, at whichever of its places."""
        places = self._places_of(offset)
        return places is _ENDED or (places[0] >= self.known_from and not self.is_undecided(offset))

    def is_undecided(self, offset: int) -> bool:
        """Whether a mark that is damaged may be that of the half message at ``offset``, at its last place, too."""
        places = self._places_of(offset)
        return places is not _ENDED and places[-1] < self.undecided_before

    def _places_of(self, offset: int) -> list[int]:
        if offset in self._ended:
            return _ENDED
        places = self._places.get(offset)
        if places is None:
            places = self._ending.get(offset)
        return [offset] if places is None else places

    def _forget_oldest(self, remembered: "OrderedDict[int, list[int]] | OrderedDict[int, int]") -> None:
        if len(remembered) > self._kept_max:
            forgotten, _ = remembered.popitem(last=False)
            self.known_from = max(self.known_from, forgotten + 1)
