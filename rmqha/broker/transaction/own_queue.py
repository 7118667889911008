"""OwnQueue: a queue of the broker's own, of half messages or marks, which is read on behind the record that stopped it.

Half messages have the places there that the log proves them to have: producers were told of these, and marks name
them. Those of marks are counted: nobody names them, and none is to be left out.
"""

from bisect import bisect_left
from typing import Final

from rmqha.broker.transaction.half_message import OP_TOPIC, QUEUE_ID
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.passed_over import Places
from rmqha.store.stopped_queues import StoppedQueue

_NOTHING: Final = Places((), ())


class OwnQueue:
    """What can be read of it."""

    def __init__(self, store: DefaultMessageStore, topic: str) -> None:
        self._store: Final = store
        self._key: Final = (topic, QUEUE_ID)
        self._is_counted: Final = topic == OP_TOPIC

    @property
    def _stopped(self) -> StoppedQueue | None:
        return self._store.queues.stopped.get(self._key)

    @property
    def _behind(self) -> Places:
        stopped = self._stopped
        if stopped is None or stopped.passed is None:
            return _NOTHING
        return stopped.passed.counted if self._is_counted else stopped.passed.proven

    @property
    def _begin_by_log(self) -> int | None:
        stopped = self._stopped
        return None if self._is_counted or stopped is None or stopped.passed is None else stopped.passed.begin

    @property
    def stopped_at(self) -> int | None:
        """The place where it stopped, if it did: from there on :meth:`records_behind` are read.

        Where its one unit lies about its place, that is its first.
        """
        stopped, begin = self._stopped, self._begin_by_log
        return begin if stopped is None or begin is not None else stopped.end

    @property
    def has_begun_anew(self) -> bool:
        """Whether the log holds messages of it to which it does not lead any more."""
        return self._store.queues.hidden.end_of(self._key) > 0

    @property
    def begin(self) -> int:
        """Its first place."""
        begin = self._begin_by_log
        return begin if begin is not None else self._store.get_min_offset_in_queue(*self._key)

    @property
    def end(self) -> int:
        """Behind its last place, as far as it can be read."""
        places = self._behind.places
        return places[-1] + 1 if places else self._store.get_max_offset_in_queue(*self._key)

    def position_of(self, place: int) -> int | None:
        """Where in the log the message at this place lies; None if it is not there. Raises StoreReadError."""
        queue, (places, offsets) = self._store.queues.find(*self._key), self._behind
        at = bisect_left(places, place)
        if at < len(places) and places[at] == place:
            return offsets[at]
        unit = None if queue is None or self._begin_by_log is not None else queue.unit(place)
        return None if unit is None else unit[0]

    def first_behind(self, physical_offset: int) -> int:
        """The place of the first message that lies at or behind this position of the log. Raises StoreReadError.

        Where it is one of those that are not kept, it is the place where the queue stopped.
        """
        queue, stopped, (places, offsets) = self._store.queues.find(*self._key), self._stopped, self._behind
        if stopped is not None and (physical_offset >= stopped.phy_offset or self._begin_by_log is not None):
            at = bisect_left(offsets, physical_offset)
            if at == 0 and self._is_counted:
                return stopped.end
            return places[at] if at < len(places) else self.end
        return 0 if queue is None else max(queue.end_before(physical_offset), queue.min_offset_in_queue)

    def records_behind(self, place: int, *, count: int) -> list[tuple[int, memoryview | None]]:
        """At most so many records with their places, from ``place`` on, behind where the queue stopped.

        None in place of one that cannot be found in the log. Raises StoreReadError.
        """
        self._store.queues.find(*self._key)
        log, (places, offsets) = self._store.commit_log, self._behind
        at = bisect_left(places, place)
        found = zip(places[at : at + count], offsets[at : at + count], strict=True)
        return [(there, log.record_at(offset, end=log.max_offset)) for there, offset in found]
