"""TopicConfigManager: which topics exist, with how many queues and which permissions.

The commitlog is the truth: a topic found in the consume queues but missing here is known again after a restart
(:meth:`TopicConfigManager.learn_queue`), so losing ``topics.json`` loses no message.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import structlog

from rmqha.broker.tables.change_stamps import ChangeStamps, choose_newer, stamps_of_version
from rmqha.broker.tables.deleted_topics import DELETED_QUEUES_MAX, DeletedTopics
from rmqha.broker.tables.made_since import MadeSince
from rmqha.broker.tables.refused_topics import RefusedTopics
from rmqha.broker.tables.system_topics import TopicRules, built_in_topics
from rmqha.broker.tables.topic_config import CHANGED_TOPICS, TopicConfig, TopicTable
from rmqha.broker.tables.topic_shares import TopicShares
from rmqha.broker.tables.untold_topics import UntoldTopics
from rmqha.codec.host import host_of
from rmqha.codec.limits import TABLE_SIZE_MAX, topic_problem
from rmqha.codec.route import PERM_INHERIT, QUEUE_NUMS_MAX
from rmqha.errors import RemoteProtocolError
from rmqha.replication.watermark import Watermark

logger = structlog.get_logger()

_TOLD_MAX: Final = 100


class TopicConfigManager:
    """The table of topics of one broker.

    Invariants: ``data_version`` (timestamp ms, counter) changes with every change of the table; ``unsaved`` holds the
    topics made by sends and by operators that ``saved`` has not passed.
    """

    def __init__(self, rules: TopicRules, *, now_ms: Callable[[], int]) -> None:
        self._rules = rules
        self._now_ms = now_ms
        self._table: dict[str, TopicConfig] = {}
        self.learned: Final = set[str]()
        """Topics of which nothing but the log tells how many queues there are: at least as many as are known."""
        self.learned_before = frozenset[str]()
        """Those of them that were so when the file was saved: clients know them, perhaps."""
        self._told: Final = set[str]()
        """Topics of which it is logged that they have a queue with a number that none can have."""
        self.deleted: Final = DeletedTopics()
        """Of which topics the log holds messages that nobody is to see."""
        self.changed: Final = ChangeStamps(now_ms)
        """When operators changed, or deleted, which topic last."""
        self.dirty = False
        """The table has changed since it was saved."""
        self.data_version: tuple[int, int] = (now_ms(), 0)
        self._has_changed = False
        """Since it was taken over: another broker's table may have got the same version, in the same millisecond."""
        self.on_put: Callable[[], None] = lambda: None
        """Called when a topic is made or grows, or awaited: the table should be saved soon."""
        self.on_learned: Callable[[], None] = lambda: None
        """Called when the log tells of a topic that is not known."""
        self.made = 0
        """How many topics sends have made, and operators have made, changed or deleted."""
        self.unsaved: dict[str, int] = {}
        """Topics that no client may be told of yet, each with ``made`` when it was: a restart may not know them."""
        self.made_since: Final = MadeSince("madeTopics")
        """Those that sends have made since others were lost: that they were deleted before says nothing of them."""
        self.refused = RefusedTopics()
        """Those that sends would have made, had there been room."""
        self.saved: Final = Watermark()
        """So many of them are in ``topics.json``; waiters are told when a save succeeds, and when it fails."""
        self.saved.subscribe(self._note_saved)
        self.untold: Final = UntoldTopics(self.saved, save=self._save_soon)
        """Those that are not saved, and those that name servers do not know yet."""
        for topic in built_in_topics(rules):
            self._table[topic.topic_name] = topic
        self.queues_max: Final = rules.max_queues + self._count_queues()
        """``maxQueues``, and the built-in topics' besides."""
        self._queues = self._count_queues()
        self._size = self._count_size()
        self._shares = TopicShares()

    def _count_queues(self) -> int:
        return sum(topic.queue_nums for topic in self._table.values())

    def _count_size(self) -> int:
        return sum(topic.json_size for topic in self._table.values())

    def __iter__(self) -> Iterator[TopicConfig]:
        return iter(self._table.values())

    def select(self, topic: str) -> TopicConfig | None:
        """The topic's configuration, or None if it does not exist."""
        return self._table.get(topic)

    def create_topic_in_send_message_method(
        self, topic: str, *, default_topic: str, client_default_topic_queue_nums: int, peer: str = ""
    ) -> TopicConfig | None:
        """The topic's configuration, created on first use as the default topic allows; None if it may not be.

        Args:
            topic: its name.
            default_topic: what it is made after.
            client_default_topic_queue_nums: how many queues the client asks for.
            peer: the client; empty: a topic that is not made for a client's host.

        It has at least one queue, whatever the client asks for: one is made by the first message in any case.

        Raises:
            RemoteProtocolError: with its queues there would be more than ``queues_max``, the table would be larger
                than slaves can fetch, or sends of this host have made as much of either as is left for all others.

        Source: spec: remoting §2.3, auto topic creation.
        """
        known = self._table.get(topic)
        if known is not None:
            return known
        template = self._table.get(default_topic)
        if template is None or not template.perm & PERM_INHERIT:
            return None
        queue_nums = max(1, min(client_default_topic_queue_nums, template.write_queue_nums))
        return self._create(TopicConfig(topic, queue_nums, queue_nums, template.perm & ~PERM_INHERIT), peer)

    def create_topic_in_send_message_back_method(
        self, topic: str, *, queue_nums: int, topic_sys_flag: int = 0, peer: str = ""
    ) -> TopicConfig:
        """The topic's configuration, created on first use whatever ``autoCreateTopicEnable`` says: a group's own topic.

        It has no more queues than a topic can have, whatever a table of groups says.

        Raises:
            RemoteProtocolError: it is no topic, or there is no room for it, as above.
        """
        known = self._table.get(topic)
        if known is not None:
            return known
        if problem := topic_problem(topic):
            raise RemoteProtocolError(f"topic {topic[:80]} is not made: {problem}")
        queue_nums = min(queue_nums, QUEUE_NUMS_MAX)
        return self._create(TopicConfig(topic, queue_nums, queue_nums, topic_sys_flag=topic_sys_flag), peer)

    def _create(self, created: TopicConfig, peer: str) -> TopicConfig:
        free = (self.queues_max - self._queues, TABLE_SIZE_MAX - self._size - self.deleted.json_size)
        try:
            self._check_room(created)
            self._shares.take(created.topic_name, (created.queue_nums, created.json_size), free, host=host_of(peer))
        except RemoteProtocolError as error:
            self.refused.note(created.topic_name, str(error), now_ms=self._now_ms())
            raise
        self._count_made(created.topic_name)
        self.changed.note_again(created.topic_name)
        self.made_since.note(created.topic_name)
        self._put(created)
        return created

    def _check_room(self, topic: TopicConfig) -> None:
        """Whether it may take its place in the table, or that of the one with its name."""
        former = self._table.get(topic.topic_name)
        queues = topic.queue_nums - (former.queue_nums if former else 0)
        size = topic.json_size - (former.json_size if former else 0)
        if queues > 0 and self._queues + queues > self.queues_max:
            raise RemoteProtocolError(
                f"topic {topic.topic_name} is not made: with its {topic.queue_nums} queues there would be more than "
                f"maxQueues allows ({self._rules.max_queues} besides the built-in topics')"
            )
        if size > 0 and self._size + self.deleted.json_size + size > TABLE_SIZE_MAX:
            raise RemoteProtocolError(
                f"topic {topic.topic_name} is not made: the table of topics that slaves can fetch has {TABLE_SIZE_MAX} "
                f"bytes, and {len(self._table)} topics take {self._size}. Shorter names take less"
            )

    def is_system_topic(self, topic: str) -> bool:
        """Whether no operator may make, change or delete it."""
        return self._rules.is_system_topic(topic)

    def system_topics(self) -> list[str]:
        """Those of them that every broker of the cluster knows, and this broker's own."""
        return self._rules.system_topics()

    def update_topic_config(self, topic: TopicConfig) -> None:
        """Make or change a topic, as an operator wishes; ``saved`` reaches ``made`` when it is in the file.

        Raises:
            RemoteProtocolError: there would be too many queues, or the table would be too large for slaves.
        """
        self._check_room(topic)
        self.learned.discard(topic.topic_name)
        if topic.topic_name in self._table:
            self.made += 1
        else:
            self._count_made(topic.topic_name)
        self.changed.note(topic.topic_name)
        self._put(topic)

    def grow(self, topic: str, queue_nums: int) -> None:
        """Let a topic, if it is there, have so many queues at least; otherwise as :meth:`update_topic_config`."""
        known = self._table.get(topic)
        if known is not None and known.write_queue_nums < queue_nums:
            read_queue_nums = max(known.read_queue_nums, queue_nums)
            self.update_topic_config(replace(known, read_queue_nums=read_queue_nums, write_queue_nums=queue_nums))

    def delete_topic_config(self, topic: str, ends: Mapping[int, int], *, before: int) -> None:
        """Forget a topic, and hide its messages; ``saved`` reaches ``made`` when that is in the file.

        Args:
            topic: its name.
            ends: its queues that have ever had a message, each with the position of the next one.
            before: where the log ends.

        Raises:
            RemoteProtocolError: too much of what was deleted is still in the log.
        """
        former = self._table.get(topic)
        is_noted = ends or (former is not None and before > 0)  # what waits in the log may belong to an empty one, too
        if is_noted and self.deleted.queue_count + self.deleted.more_queues(topic, ends) > DELETED_QUEUES_MAX:
            raise RemoteProtocolError(
                f"topic {topic} is not deleted: the log still holds messages of {self.deleted.queue_count} queues that "
                f"were, at most {DELETED_QUEUES_MAX} are remembered. Try again when the log's oldest files have gone"
            )
        self._remove(topic)
        if is_noted:
            self.deleted.add(topic, ends, before=before, number=self.made + 1)
        self.made += 1
        self.changed.note(topic)
        self._note_change()

    def _remove(self, topic: str) -> None:
        former = self._table.pop(topic, None)
        if former is not None:
            self._queues -= former.queue_nums
            self._size -= former.json_size
        self._shares.give_back(topic)
        self.unsaved.pop(topic, None)
        self.untold.numbers.pop(topic, None)
        self.learned.discard(topic)
        self.made_since.drop(topic)

    def was_deleted(self, topic: str, *, since: int) -> bool:
        """Whether there is no such topic, as it was deleted since the log ended at ``since``."""
        deleted = self.deleted.find(topic)
        return deleted is not None and since < deleted.before and topic not in self._table

    def expire_deleted(self) -> None:
        """Forget of which topics messages were deleted that the log does not hold any more."""
        if self.deleted.expire():
            self._note_change()

    def _count_made(self, topic: str) -> None:
        self.made += 1
        self.unsaved[topic] = self.untold.numbers[topic] = self.made

    def _save_soon(self) -> None:
        self.on_put()

    def _note_saved(self) -> None:
        self.deleted.note_saved(self.saved.value)
        self.unsaved = {topic: number for topic, number in self.unsaved.items() if number > self.saved.value}

    def learn_queue(self, topic: str, queue_id: int) -> None:
        """Take notice that the log holds this queue: the topic exists and has at least that many queues.

        A number beyond those that clients make room for is damage: they would make as many queues, and so would
        whatever goes through all of a topic's.
        Of a topic that is known it can be read, but is not written: an operator may have taken it away. One that is
        written, and not read, is so as an operator wishes (spec: remoting §6, trap 39).
        """
        if queue_id >= QUEUE_NUMS_MAX:
            self._tell_of(topic, queue_id)
            return
        known = self._table.get(topic)
        queue_nums = queue_id + 1
        if known is None:
            self.learned.add(topic)
            self._put(TopicConfig(topic, queue_nums, queue_nums))
            self.on_learned()
        elif max(known.read_queue_nums, known.write_queue_nums) < queue_nums:
            write_queue_nums = queue_nums if topic in self.learned else known.write_queue_nums
            self._put(replace(known, read_queue_nums=queue_nums, write_queue_nums=write_queue_nums))

    def grow_learned(self, table: TopicTable) -> None:
        """Take the topics that only the log has told of as ``table`` has them, where they have more queues there."""
        for name in sorted(self.learned):
            told = table.topics.get(name)
            if told is not None and told.queue_nums > self._table[name].queue_nums:
                self.learned.discard(name)
                self._put(told)

    def merge(
        self, table: TopicTable, *, log_end: int, is_lost: bool, used_since: Collection[str] = frozenset()
    ) -> None:
        """Take what a ``table`` of another broker of this group says later than the one here.

        Args:
            table: what it has.
            used_since: topics of which messages were stored here since they were deleted there.
            log_end: where its log ends: what it has deleted lies before that.
            is_lost: whether the table here was lost, so that what it says without a stamp counts less.
        """
        stamps = self.changed.of_told(table.topics, table.changed or {})
        is_newer = is_lost or table.data_version[1] > self.data_version[1]
        known = {name: topic for name, topic in self._table.items() if name not in self.learned}
        told = {name: topic for name, topic in table.topics.items() if name not in table.learned}
        chosen = choose_newer(told, stamps, known, self.changed, is_newer=is_newer)
        for name, topic in chosen.items():
            if topic is None and (name in self.made_since or (name in used_since and name in self._table)):
                self.changed.adopt(name, stamps[name])
                self.changed.note(name)
            elif topic is None:
                self._remove(name)
            elif name in stamps or name in table.deleted or self.deleted.find(name) is None:
                self._take(topic, may_have_more=name not in table.deleted)
        for name, deleted in table.deleted.items():
            if name in chosen or stamps.get(name, 0) >= self.changed.latest(name):
                self.deleted.merge(name, deleted, log_end=log_end)
        forgotten = {name for name, topic in chosen.items() if topic is None and name not in table.deleted}
        self.deleted.merge_forgotten(forgotten, before=min(table.deleted_before, log_end))
        if chosen:
            self.changed.adopt_newer(stamps)
            self.data_version = (self.data_version[0], max(self.data_version[1], table.data_version[1]))
            self._note_change()

    def _take(self, told: TopicConfig, *, may_have_more: bool) -> None:
        """Of a topic that only the log has told of there may be more queues here, if none of it is deleted there."""
        if told.topic_name not in self._table:  # as if it were made now: no send is answered before it is saved
            self._count_made(told.topic_name)
        is_learned = may_have_more and told.topic_name in self.learned
        queue_nums = self._table[told.topic_name].queue_nums if is_learned else 0
        self.learned.discard(told.topic_name)
        self._put(told)
        if queue_nums:
            self.learn_queue(told.topic_name, queue_nums - 1)

    def _tell_of(self, topic: str, queue_id: int) -> None:
        if topic not in self._told and len(self._told) < _TOLD_MAX:
            self._told.add(topic)
            reason = f"a topic has at most {QUEUE_NUMS_MAX} queues: the record is damaged, and no consumer sees it"
            logger.error("topic.no_such_queue", topic=topic, queue_id=queue_id, reason=reason)

    def _put(self, topic: TopicConfig) -> None:
        former = self._table.get(topic.topic_name)
        self._queues += topic.queue_nums - (former.queue_nums if former else 0)
        self._size += topic.json_size - (former.json_size if former else 0)
        self._table[topic.topic_name] = topic
        self._note_change()

    def _note_change(self) -> None:
        self.data_version = (self.changed.version_time(), self.data_version[1] + 1)
        self._has_changed = True
        self.dirty = True
        self.on_put()

    def to_json(self) -> dict[str, Any]:
        """The whole table, as ``topics.json`` and the answer to request 21 hold it."""
        timestamp, counter = self.data_version
        return {
            "dataVersion": {"counter": counter, "timestamp": timestamp},
            "topicConfigTable": dict(self._table),
            CHANGED_TOPICS: self.changed.to_json(),
            **({"learnedTopics": sorted(self.learned)} if self.learned else {}),
            **self.deleted.to_json(),
        }

    async def to_json_in_turns(self) -> dict[str, Any]:
        """As :meth:`to_json`, which takes one short turn."""
        return self.to_json()

    def replace_from_json(self, value: dict[str, Any]) -> bool:
        """As :meth:`replace`. Raises RemoteProtocolError if it is no table of topics; nothing has changed."""
        table = TopicTable.from_json(value)
        self.made_since.replace_from_json(value)
        is_new = self.replace(table)
        self.learned_before = frozenset(table.learned & self._table.keys())
        self.learned.update(self.learned_before)
        return is_new

    def replace(self, table: TopicTable) -> bool:
        """Take over a table (our own file's, or the master's); False if it was taken over before."""
        if table.data_version == self.data_version and not self._has_changed:
            return False
        built_in = {topic.topic_name: topic for topic in built_in_topics(self._rules)}
        former, self._table = self._table, built_in | table.topics
        for topic in former.keys() - self._table.keys():
            self._shares.give_back(topic)
        self._queues, self._size = self._count_queues(), self._count_size()
        self.learned.clear()
        self.deleted.replace(table.deleted, forgotten_before=table.deleted_before)
        self.changed.replace(stamps_of_version(table.changed, table.data_version))
        self.data_version, self._has_changed = table.data_version, False
        self.dirty = True
        return True
