"""PassedOver: records of a queue behind the one at which it stopped, for those who read on there.

A record may lie about its place: a bit has flipped in its number. The log proves a place if the records that were
passed over since the last proven one may have all those in between, or if the next record has the next one.
"""

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

from rmqha.codec.consume_queue import QUEUE_OFFSET_MAX

_KEPT_MAX: Final = 131_072
"""As many transactions as a broker remembers. Twice as many are kept at most."""


class Places(NamedTuple):
    """Places in a queue, and where in the log the records lie that have them; both ascend."""

    places: Sequence[int]
    offsets: Sequence[int]


class PassedOver:
    """The last of them.

    Attributes:
        next: behind all places that are proven, and those that the records behind these may have.
    """

    def __init__(self, end: int) -> None:
        """``end``: of the queue that stopped."""
        self.next = self._counted_from = end
        self._offsets: Final = array("q")
        self._proven_places: Final = array("q")
        self._proven_offsets: Final = array("q")
        self._told_end = end
        self._proven = self._before = end - 1
        """The last place that is proven, and that of the record before by its own words."""

    @property
    def counted(self) -> Places:
        """All records, at places that are counted on from the queue's end, whatever they say."""
        return Places(range(self._counted_from, self._counted_from + len(self._offsets)), self._offsets)

    @property
    def proven(self) -> Places:
        """Records whose places are proven."""
        return Places(self._proven_places, self._proven_offsets)

    def grown_to(self) -> int | None:
        """Behind the last place that is proven, if that is another one than at the last call."""
        known, self._told_end = self._told_end, self._proven + 1
        return None if known == self._told_end else self._told_end

    def note(self, number: int, offset: int) -> None:
        """The next record, and its place by its own words."""
        if self._proven < self._before == number - 1 <= QUEUE_OFFSET_MAX:
            self._prove(self._before, self._offsets[-1])
        if self._proven < number <= self.next:
            self._prove(number, offset)
        else:
            self.next += 1
        self._before = number
        self._counted_from += _trim(self._offsets)
        self._offsets.append(offset)

    def _prove(self, place: int, offset: int) -> None:
        self._proven, self.next = place, place + 1
        for places, value in ((self._proven_places, place), (self._proven_offsets, offset)):
            _trim(places)
            places.append(value)


def _trim(numbers: "array[int]") -> int:
    """Forget the older half, if there are too many; returns how many that were."""
    forgotten = _KEPT_MAX if len(numbers) >= 2 * _KEPT_MAX else 0
    del numbers[:forgotten]
    return forgotten
