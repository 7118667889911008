"""Fates: what became lately of half messages, so that none is committed twice and none asked about that has ended."""

from collections import OrderedDict
from typing import Final

KEPT_MAX: Final = 131_072
"""Half messages that are remembered: some 20 MB. Of one that is forgotten only its mark in the log tells."""
_ENDED: Final = -1


class Fates:
    """By places in the queue of half messages. A half message may be written again and then has several of them.

    RocketMQ remembers none of this: there a producer that commits while its half message is being written again is
    asked once more, and commits the message twice.
    """

    def __init__(self, *, kept_max: int = KEPT_MAX) -> None:
        self._kept_max = kept_max
        self._fates = OrderedDict[int, int]()
        """Where it was written again, or that it has ended."""
        self._ending = dict[int, list[int]]()
        """By the last of its places: what ends it waits to be stored, and may be refused yet."""

    def note_renewed(self, offset: int, renewed_offset: int) -> bool:
        """The half message at ``offset`` lies at ``renewed_offset`` as well; False if it has ended meanwhile."""
        if self.has_ended(offset):
            self._note(renewed_offset, _ENDED)
            return False
        if places := self._ending.pop(offset, None):
            places.append(renewed_offset)
            self._ending[renewed_offset] = places
        self._note(offset, renewed_offset)
        return True

    def begin_end(self, offset: int) -> list[int]:
        """The half message at ``offset`` ends as soon as what ends it is stored: finish_end or take_back follows.

        Returns:
            This and its later places, to which those are added where it is written again meanwhile; empty if it has
            ended before, or is ending.
        """
        places = self._places_from(offset)
        if self.has_ended(places[-1]) or self.is_ending(places[-1]):
            return []
        self._ending[places[-1]] = places
        return places

    def finish_end(self, places: list[int]) -> None:
        """What ends it is stored."""
        self.take_back(places)
        self._note(places[-1], _ENDED)

    def take_back(self, places: list[int]) -> None:
        """It has not ended after all: what ends it could not be stored."""
        self._ending.pop(places[-1], None)

    def end(self, offset: int) -> None:
        """The half message at ``offset`` has ended, at each of its places."""
        self.finish_end(self._places_from(offset))

    def is_ending(self, *offsets: int | None) -> bool:
        """Whether what ends a half message, the last of whose places is one of these, waits to be stored."""
        return any(offset in self._ending for offset in offsets)

    def has_ended(self, offset: int) -> bool:
        """Whether the half message at ``offset``, or at a later place of it, is known to have ended."""
        fate: int | None = offset
        while fate is not None and fate != _ENDED:
            fate = self._fates.get(fate)
        return fate == _ENDED

    def is_left(self, offset: int) -> bool:
        """Whether nothing is to be done at ``offset``: the half message there has ended, or lies at a later place."""
        return offset in self._fates

    def _places_from(self, offset: int) -> list[int]:
        places = [offset]
        while (fate := self._fates.get(places[-1])) is not None and fate > places[-1]:
            places.append(fate)
        return places

    def _note(self, offset: int, fate: int) -> None:
        self._fates[offset] = fate
        if len(self._fates) > self._kept_max:
            self._fates.popitem(last=False)
