"""StoppedQueues: consume queues that end before a record whose number does not fit, while all other queues go on.

A record's number (QUEUEOFFSET) is its place in its queue. One that is neither the next, nor 0, nor a repeat has none:
messages before it are missing, or another has its place. Either way a unit written for it would give one position two
messages, or have consumers pass over some. So the queue stops there (decision 19):

* consumers are given what is before it, and no later message of this queue, until the log tells where it begins:
  by a 0th message, or when the last message before that record has gone from the log;
* a master takes no message for it: nothing is acknowledged that consumers might not see;
* the records stay in the log, and replication goes on.

The broker's own queues of half messages and marks are read behind that place, too, by where their records lie in the
log (broker/transaction/): all transactions would wait. Messages for these are taken.

That follows from the log alone, so each start comes to the same.
"""

from collections.abc import Container
from dataclasses import dataclass
from itertools import count
from typing import Final

import structlog

from rmqha.codec.consume_queue import QUEUE_OFFSET_MAX
from rmqha.codec.record.dispatch import DispatchRequest
from rmqha.store.passed_over import PassedOver
from rmqha.store.unit_group import UnitGroup

logger = structlog.get_logger()

_READ_ON: Final = frozenset({"RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"})
_NAMED_MAX: Final = 5
_NEXT: Final = "see docs/operations.md, 'A queue that stopped'"

_Queue = tuple[str, int]


@dataclass(slots=True)
class StoppedQueue:
    """What is known of one."""

    end: int
    """Consumers are given the messages before this one, and none from it on."""
    number: int
    """QUEUEOFFSET of the record that does not fit."""
    phy_offset: int
    """Where that record lies in the log."""
    goes_on_at: int
    """The queue is built again when the log begins here, or later: nothing is left of what is before the record."""
    next: int
    """Behind all positions that the log has given to messages of this queue."""
    last: int
    """Where the last record lies that was passed over."""
    messages: int = 1
    """So many were passed over, that record among them."""
    passed: PassedOver | None = None
    """They, if this queue is read on."""

    @property
    def shown_from(self) -> int:
        """The first place of those that this is about."""
        begin = None if self.passed is None else self.passed.begin
        return self.end if begin is None else begin

    def passes_over(self, request: DispatchRequest) -> bool:
        """Whether this record of the queue gets no unit; one with the number 0 begins the queue anew."""
        if request.commit_log_offset < self.phy_offset or request.queue_offset == 0:
            return False
        if request.commit_log_offset > self.last:
            self.messages += 1
            self.last = request.commit_log_offset
            self.note(request)
        return True

    def note(self, request: DispatchRequest) -> None:
        """This record of the queue is passed over."""
        if self.passed is None:
            self.next = _behind(request.queue_offset, self.next)
        else:
            self.passed.note(request.queue_offset, request.commit_log_offset)
            self.next = self.passed.next


def is_read_on(topic: str) -> bool:
    """Whether a queue of this topic is read behind the record at which it stopped."""
    return topic in _READ_ON


def stop_before(request: DispatchRequest, group: UnitGroup) -> StoppedQueue:
    """Let a queue end with this group, before this record."""
    group.stop()
    has_messages = group.units or group.queue.has_units
    goes_on_at = group.last_ends_at if has_messages else request.commit_log_offset + request.msg_size
    number, end, phy_offset = request.queue_offset, group.end, request.commit_log_offset
    is_end_proven = end - group.queue.min_offset_in_queue != 1
    passed = PassedOver(end, is_end_proven=is_end_proven) if is_read_on(request.topic) else None
    stopped = StoppedQueue(end, number, phy_offset, goes_on_at, next=end, last=phy_offset, passed=passed)
    stopped.note(request)
    return stopped


class StoppedQueues(dict[_Queue, StoppedQueue]):
    """By topic and queue id. At most as many as there are queues."""

    def note(self, key: _Queue, stopped: StoppedQueue) -> None:
        """This one has; the log is told of each such record once."""
        known = self.get(key)
        self[key] = stopped
        if known is None or known.phy_offset != stopped.phy_offset:
            facts = {"topic": key[0], "queue_id": key[1], "ends_at": stopped.end, "queue_offset": stopped.number}
            logger.error("consume_queue.stopped", **facts, offset=stopped.phy_offset, next=_NEXT)

    def grown(self) -> list[tuple[str, int, int]]:
        """Queues that are read on, with their ends, where those are others than when this was called last."""
        read_on = [(key, one.passed) for key, one in self.items() if one.passed is not None]
        return [(*key, end) for key, passed in read_on if (end := passed.grown_to()) is not None]

    def goes_on(self, key: _Queue) -> None:
        """The log tells where it begins."""
        if self.pop(key, None) is not None:
            logger.info("consume_queue.goes_on", topic=key[0], queue_id=key[1])

    def due(self, log_begins_at: int) -> set[_Queue]:
        """Queues to be built again."""
        return {key for key, stopped in self.items() if stopped.goes_on_at <= log_begins_at}

    def next_of(self, key: _Queue, end: int) -> int:
        """The place of the next message of a queue that ends at ``end``."""
        stopped = self.get(key)
        if stopped is None:
            return end
        return stopped.next if stopped.passed is not None else max(stopped.next, end)

    def messages_of(self, key: _Queue) -> int:
        """So many were passed over."""
        return self[key].messages if key in self else 0

    def takes(self, topic: str, queue_id: int) -> bool:
        """Whether a message for this queue is taken: it has not stopped, or is read on."""
        return (topic, queue_id) not in self or is_read_on(topic)

    def refusal(self, topic: str, queue_id: int) -> str:
        """Why a message for a queue that has stopped is not taken."""
        stopped = self[topic, queue_id]
        return f"queue {topic}/{queue_id} takes no messages: {reason_of(stopped)}; {_NEXT}"

    def instead_of(self, topic: str, queue_id: int, *, lost: Container[_Queue]) -> int:
        """The queue that takes what waited to go to this one: itself, or the topic's first that has not stopped.

        The latter may be new: consumers find it when the message is dispatched. It is none of the ``lost``, which may
        have stopped, too. Nobody relies on the order of messages that waited, and those behind cannot wait for this
        queue.
        """
        if (topic, queue_id) not in self:
            return queue_id
        return next(other for other in count() if (topic, other) not in self and (topic, other) not in lost)

    def describe(self) -> str:
        """Which have stopped, where and why; empty if none has."""
        if not self:
            return ""
        named = [
            f"{topic}/{queue_id} {_shows(one)} from {one.shown_from} on ({one.messages:,} messages): {reason_of(one)}"
            for (topic, queue_id), one in [*self.items()][:_NAMED_MAX]
        ]
        more = f"; and {len(self) - _NAMED_MAX} more" if len(self) > _NAMED_MAX else ""
        return f"queues have stopped, all others go on: {'; '.join(named)}{more}; {_NEXT}"


def _shows(stopped: StoppedQueue) -> str:
    return "shows nothing" if stopped.passed is None else "is read from the log"


def _behind(number: int, end: int) -> int:
    return max(end, number + 1) if number <= QUEUE_OFFSET_MAX else end


def reason_of(stopped: StoppedQueue) -> str:
    """For an operator."""
    record = f"the record at {stopped.phy_offset} of the log is message {stopped.number} of its queue by its own words"
    if not 0 <= stopped.number <= QUEUE_OFFSET_MAX:
        return f"{record}: none can be that"
    if stopped.number > stopped.end:
        return f"{record}, which ends at {stopped.end}: messages before it are missing"
    return f"{record}, which ends at {stopped.end}: that place belongs to another"
