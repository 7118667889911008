"""PassedOver: records of a queue behind the one at which it stopped, for those who read on there.

A record may lie about its place: a bit has flipped in its number. The log proves a place if the records that were
passed over since the last proven one may have all those in between, or if the next record has the next one. The last
record is believed where it may lie behind missing ones: what comes next is numbered behind it, and no place is given
twice.

Where a queue stopped behind its first unit, it may be that one that lies, and what follows proves lower places.
"""

from array import array
from collections.abc import Sequence
from typing import Final, NamedTuple

from rmqha.codec.consume_queue import QUEUE_OFFSET_MAX

_KEPT_MAX: Final = 131_072
"""As many transactions as a broker remembers. Twice as many are kept at most."""
_MISSING_MAX: Final = 100
"""So many records in a row are missing at most."""


class Places(NamedTuple):
    """Places in a queue, and where in the log the records lie that have them; both ascend."""

    places: Sequence[int]
    offsets: Sequence[int]


class PassedOver:
    """The last of them.

    Attributes:
        begin: where the queue begins, if the log proves that its one unit lies about its place; else None.
    """

    def __init__(self, end: int, *, is_end_proven: bool = True) -> None:
        """``end``: of the queue that stopped; it is not proven where the queue has one unit only."""
        self._counted_from = end
        self.begin: int | None = None
        self._counted_next: int = end
        """Behind the last place that is proven, and those that the records behind it may have."""
        self._offsets: Final = array("q")
        self._proven_places: Final = array("q")
        self._proven_offsets: Final = array("q")
        self._end = self._told_end = end
        self._proven = self._before = end - 1
        """The last place that is proven, and that of the record before by its own words."""
        self._runs_behind = end - 1 if is_end_proven else -1
        """Records that follow each other prove their places only behind this one."""
        self._is_last_believed = False
        """The last place counts as proven until the next record comes."""

    @property
    def next(self) -> int:
        """The place of the next message of this queue."""
        return self._before + 1 if self._is_last_believed else self._counted_next

    @property
    def counted(self) -> Places:
        """All records, at places that are counted on from the queue's end, whatever they say."""
        return Places(range(self._counted_from, self._counted_from + len(self._offsets)), self._offsets)

    @property
    def proven(self) -> Places:
        """Records whose places are proven, and the last one where its place is believed."""
        return Places(self._proven_places, self._proven_offsets)

    def grown_to(self) -> int | None:
        """Behind the last place that is proven, if that is another one than at the last call."""
        known, self._told_end = self._told_end, self._proven_places[-1] + 1 if self._proven_places else self._end
        return None if known == self._told_end else self._told_end

    def note(self, number: int, offset: int) -> None:
        """The next record, and its place by its own words."""
        if self._is_last_believed:
            self._take_back_last()
        if self._runs_behind < self._before == number - 1 < QUEUE_OFFSET_MAX and self._before != self._proven:
            if self._before < self._end:
                self.begin = max(self._before - (self._counted_from + len(self._offsets) - self._end), 0)
            self._prove(self._before, self._offsets[-1])
        if self._proven < number <= self._counted_next:
            self._prove(number, offset)
        else:
            if _is_behind_missing(number, self._counted_next):
                self._add(number, offset)
                self._is_last_believed = True
            self._counted_next += 1
        self._before = number
        self._counted_from += _trim(self._offsets)
        self._offsets.append(offset)

    def _prove(self, place: int, offset: int) -> None:
        self._proven = self._runs_behind = place
        self._counted_next = place + 1
        self._add(place, offset)

    def _add(self, place: int, offset: int) -> None:
        for places, value in ((self._proven_places, place), (self._proven_offsets, offset)):
            _trim(places)
            places.append(value)

    def _take_back_last(self) -> None:
        self._is_last_believed = False
        self._proven_places.pop()
        self._proven_offsets.pop()


def _is_behind_missing(number: int, counted: int) -> bool:
    """Whether the records before this one are rather missing than that it lies, which is ``counted`` to be the next.

    A bit that flipped makes the number another one by a power of two; but it is one record that is missing, most often.
    """
    missing = number - counted
    is_one_bit = (number ^ counted).bit_count() == 1
    return missing == 1 or (1 < missing <= _MISSING_MAX and not is_one_bit)


def _trim(numbers: "array[int]") -> int:
    """Forget the older half, if there are too many; returns how many that were."""
    forgotten = _KEPT_MAX if len(numbers) >= 2 * _KEPT_MAX else 0
    del numbers[:forgotten]
    return forgotten
