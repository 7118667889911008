"""DeletedTopics: whose messages are still in the log although an operator has deleted their topic.

The log keeps them until its files go, in RocketMQ as here. There a topic made again begins at 0: the same positions are
in the log twice, so a slave takes the new messages for old ones, and a start after a crash may bring the old ones back.
Here the positions go on, and what was deleted stays so: it is in

    ROOT/config/topics.json    "deletedTopics":{"TopicTest":{"before":73400320,"queues":{0:5280,1:5312}}}

beside the topics, of which slaves get it as well: both change together, or not at all. Once the log holds nothing of a
topic's it is left out, and ``"deletedBefore"`` is its ``before`` or more: a slave's log may begin earlier, and what is
deleted there stays so. RocketMQ reads neither.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from rmqha.codec.deleted_topic import DeletedQueue, DeletedTopic
from rmqha.store.consume_queue_table import ConsumeQueueTable, QueueKey

DELETED_QUEUES_MAX: Final = 65_536
"""Queues of topics that were deleted, and of which the log still holds messages: more are not deleted."""
_QUEUE_SIZE: Final = len("2147483647:72057594037927936,")
_ENTRY_SIZE: Final = len('"":{"before":9223372036854775807,"queues":{}},')


class DeletedTopics:
    """The table, which the consume queues obey.

    Attributes:
        queue_count: so many queues there are in it; a topic without any counts as one.
        json_size: the bytes that it has at most. Both are asked for each topic that is made.
        forgotten_before: the largest ``before`` of what was forgotten, here or by a master.
    """

    def __init__(self) -> None:
        self._table: dict[str, DeletedTopic] = {}
        self._unsaved: dict[str, int] = {}
        """The number that was given with each topic of which that is not saved yet."""
        self.queue_count = self.json_size = self.forgotten_before = 0
        self._queues: ConsumeQueueTable | None = None
        self._log_begins_at: Callable[[], int] = lambda: 0

    def connect(self, queues: ConsumeQueueTable, *, log_begins_at: Callable[[], int]) -> None:
        """Have these queues, of a log that begins there, hide what is deleted."""
        self._queues, self._log_begins_at = queues, log_begins_at

    def find(self, topic: str) -> DeletedTopic | None:
        """What is deleted of a topic."""
        return self._table.get(topic)

    def more_queues(self, topic: str, ends: Mapping[int, int]) -> int:
        """By how much ``queue_count`` grows if the topic is deleted which has these queues."""
        known = self._table.get(topic)
        return max(1, len(ends.keys() | known.ends.keys())) - max(1, len(known.ends)) if known else max(1, len(ends))

    def add(self, topic: str, ends: Mapping[int, int], *, before: int, number: int = 0) -> None:
        """All messages of the topic are deleted, which has these queues; nothing of them is dispatched from now on.

        The queues' files go when :meth:`note_saved` reaches ``number``.
        """
        self._unsaved[topic] = number
        known = self._table.get(topic)
        former = known.ends if known else {}
        queues = {queue_id: max(former.get(queue_id, 0), ends.get(queue_id, 0)) for queue_id in former.keys() | ends}
        self._hide(topic, DeletedTopic(before, queues))

    def _count(self, topic: str, deleted: DeletedTopic | None, sign: int) -> None:
        if deleted is not None:
            self.queue_count += sign * max(1, len(deleted.ends))
            self.json_size += sign * (len(topic) + _ENTRY_SIZE + len(deleted.ends) * _QUEUE_SIZE)

    def _hide(self, topic: str, deleted: DeletedTopic) -> None:
        self._count(topic, self._table.get(topic), -1)
        self._count(topic, deleted, +1)
        self._table[topic] = deleted
        if self._queues is not None:
            self._queues.hide(deleted.queues(topic))

    def note_saved(self, number: int) -> None:
        """All deletions up to this number are saved: no crash takes them back."""
        for topic in [topic for topic, other in self._unsaved.items() if other <= number]:
            del self._unsaved[topic]
            self.drop(topic)

    def drop(self, topic: str) -> None:
        """Delete its consume queues: it is saved that they are, or need not be."""
        deleted = self._table.get(topic)
        if deleted is not None and self._queues is not None:
            self._queues.drop_hidden(deleted.queues(topic), before=deleted.before)

    def drop_all(self) -> None:
        """As :meth:`drop`, of all topics: the process before may have come no further than to save it."""
        for topic in self._table:
            self.drop(topic)

    def expire(self) -> bool:
        """Forget what the log holds nothing of any more; whether there was any."""
        log_begins_at = self._log_begins_at()
        gone = {topic: one for topic, one in self._table.items() if one.before <= log_begins_at}
        for topic, deleted in gone.items():
            del self._table[topic]
            self._count(topic, deleted, -1)
            self.forgotten_before = max(self.forgotten_before, deleted.before)
            if self._queues is not None:
                self._queues.forget_hidden(deleted.queues(topic))
        return bool(gone)

    def replace(self, table: Mapping[str, DeletedTopic], *, forgotten_before: int = 0) -> None:
        """Take over our own file's table, or the master's, which has forgotten what it deleted before there.

        What was deleted and is not any more comes back: another master, which had not heard of it, leads now. But
        what a master leaves out because its log holds nothing of it stays deleted, and here as long as ours does.
        """
        self.forgotten_before = max(self.forgotten_before, forgotten_before)
        former, self._table = self._table, {}
        self.queue_count = self.json_size = 0
        for topic, deleted in table.items():
            if former.get(topic) == deleted:  # there may be tens of thousands
                self._count(topic, deleted, +1)
                self._table[topic] = deleted
            else:
                again = self._show_more(topic, former.get(topic), deleted)
                self._hide(topic, deleted)
                if self._queues is not None:
                    gone = [key for key in deleted.queues(topic) if key not in again]
                    self._queues.drop_hidden(gone, before=deleted.before)
        for topic, deleted in former.items():
            if topic not in table:
                self._leave_out(topic, deleted)

    def merge(self, topic: str, told: DeletedTopic, *, log_end: int) -> None:
        """Another broker, whose log reaches to ``log_end``, has deleted messages: what comes behind that is new."""
        known = self._table.get(topic) or DeletedTopic(0, {})
        ends = {
            number: max(known.ends.get(number, 0), told.ends.get(number, 0)) for number in {**known.ends, **told.ends}
        }
        merged = DeletedTopic(max(known.before, min(told.before, log_end)), ends)
        if merged != known and merged.before > 0:
            self._hide(topic, merged)
            self.drop(topic)

    def merge_forgotten(self, topics: Collection[str], *, before: int) -> None:
        """Another broker deleted these, and its log holds nothing of them any more: all goes that lies ``before``.

        Raises:
            StoreReadError: one of their queues cannot be read at present.
        """
        if self._queues is None or not topics:
            return
        ends = {key: end for key, end in self._queues.known_ends.items() if key[0] in topics}
        for queue in self._queues:
            if queue.topic in topics and queue.has_messages:
                key = queue.topic, queue.queue_id
                ends[key] = max(queue.end_before(before), ends.get(key, 0))
        tables: defaultdict[str, dict[int, int]] = defaultdict(dict)
        for (topic, queue_id), end in ends.items():
            tables[topic][queue_id] = end
        for topic, queues in tables.items():
            self.merge(topic, DeletedTopic(before, queues), log_end=before)

    def _show_more(self, topic: str, former: DeletedTopic | None, deleted: DeletedTopic) -> dict[QueueKey, None]:
        """Less of these queues is deleted than was: a later deletion was undone. They are built again."""
        if former is None or self._queues is None:
            return {}
        now = deleted.queues(topic)
        none = DeletedQueue(0, 0)
        again = {
            key: None
            for key, was in former.queues(topic).items()
            if was.end > now.get(key, none).end or (was.end and was.before > now.get(key, none).before)
        }
        if again:
            self._queues.show_again(again)
        return again

    def _leave_out(self, topic: str, deleted: DeletedTopic) -> None:
        is_gone = deleted.before <= self._log_begins_at()
        if not is_gone and deleted.before <= self.forgotten_before:
            self._hide(topic, deleted)
        elif self._queues is not None:
            (self._queues.forget_hidden if is_gone else self._queues.show_again)(deleted.queues(topic))

    def to_json(self) -> dict[str, Any]:
        """The members ``deletedTopics`` and ``deletedBefore``, where there is anything to tell."""
        members = {"deletedTopics": dict(self._table), "deletedBefore": self.forgotten_before}
        return {name: value for name, value in members.items() if value}
