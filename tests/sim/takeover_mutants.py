"""Planted bugs of what a change of master must not cost: delayed messages, transactions, and a slave's tables."""

from typing import Any, Final

from rmqha.broker import questions, slave_synchronize
from rmqha.broker.classic import takes_tables_back
from rmqha.broker.processors import end_transaction_processor
from rmqha.broker.schedule import delay_offsets, deliver_delayed_message
from rmqha.broker.tables import (
    consumer_offset_manager,
    deleted_topics,
    metadata,
    offset_table,
    queue_ends,
    queue_ends_client,
    subscription_group_manager,
    topic_config,
    topic_config_manager,
)
from rmqha.broker.transaction import fates, transactional_message_bridge, transactional_message_service
from rmqha.broker.transaction.half_message import HALF_TOPIC
from rmqha.codec.codes import RequestCode
from rmqha.codec.record.layout import SCHEDULE_TOPIC
from rmqha.store.config_files import DELAY_OFFSET
from tests.sim.mutant import always, mutant, nothing_async

Synchronize: Final = slave_synchronize.SlaveSynchronize
Delay: Final = delay_offsets.DelayOffsets
Deliver: Final = deliver_delayed_message.DeliverDelayedMessageTask
Service: Final = transactional_message_service.TransactionalMessageService
Bridge: Final = transactional_message_bridge.TransactionalMessageBridge
Topics: Final = topic_config_manager.TopicConfigManager
Deleted: Final = deleted_topics.DeletedTopics
Offsets: Final = consumer_offset_manager.ConsumerOffsetManager
Groups: Final = subscription_group_manager.SubscriptionGroupManager
Metadata: Final = metadata.MetadataService
EndTransaction: Final = end_transaction_processor.EndTransactionProcessor

_SOURCE: Final = "a change of master"
_deliver_init: Final = Deliver.__init__
_replace_topics: Final = Topics.replace
_replace_groups: Final = Groups.replace
_delete_topic: Final = Topics.delete_topic_config
_present: Final = Service._present


# ---- delayed messages


def _settle_everything(self: Any) -> None:
    while self._unsettled:
        self._table |= self._unsettled.popleft()[1]


def _take_over_at_once(self: Any, offsets: Any, *, log_end: int) -> None:
    self._table |= offsets
    self.dirty = self.dirty or bool(log_end)


def _begin_at_the_end(self: Any, delay_level: int, delay_ms: int, **parts: Any) -> None:
    _deliver_init(self, delay_level, delay_ms, **parts)
    self._offset = max(self._offset, parts["store"].get_max_offset_in_queue(SCHEDULE_TOPIC, self._queue_id))


def _begin_one_further(self: Any, delay_level: int, delay_ms: int, **parts: Any) -> None:
    _deliver_init(self, delay_level, delay_ms, **parts)
    self._offset += 1 if self._offset else 0


def _all_is_due(self: Any) -> tuple[int, float]:
    first, end = self._store.queues.range_of(SCHEDULE_TOPIC, self._queue_id)
    self._offset = max(first, self._offset)
    return min(end - self._offset, 1), 1.0


def _load_all_but_delays(self: Any) -> None:
    load, self.files.load = self.files.load, lambda name, take: None if name == DELAY_OFFSET else load(name, take)
    _load(self)
    self.files.load = load


_load: Final = Metadata.load


# ---- transactions


def _places_beyond(mastership: Any, bridge: Any) -> Any:
    mastership.half_offset = bridge._store.next_queue_offset(HALF_TOPIC, 0)
    return mastership


def _present_at_the_end(self: Any) -> Any:
    is_new = self._mastership is None or self._mastership.term != self._role.term
    mastership = _present(self)
    return _places_beyond(mastership, self._bridge) if is_new else mastership


async def _learn_no_marks(bridge: Any, _fates: Any) -> set[int]:
    return {1} if bridge is None else set()


def _finish_nothing(self: Any, places: list[int], **_: Any) -> None:
    self.take_back(places)


def _end_without_marks(self: Any, _place: int) -> Any:
    return _mark(self, 1 << 40)


_mark: Final = EndTransaction._mark


async def _take_over_all_offsets_at_once(self: Any, client: Any, **_: Any) -> None:
    offsets = await questions.ask_table(client, RequestCode.GET_ALL_CONSUMER_OFFSET, offset_table.decode_offsets)
    await self._offsets.merge_from_master(offsets)


async def _take_over_no_halves(self: Any, client: Any, **_: Any) -> None:
    offsets = await questions.ask_table(client, RequestCode.GET_ALL_CONSUMER_OFFSET, offset_table.decode_offsets)
    await self._offsets.merge_from_master({key: one for key, one in offsets.items() if "RMQ_SYS_TRANS" not in key})


# ---- topics, groups, offsets


def _replace_but_keep_deleted(self: Any, table: Any) -> bool:
    return _replace_topics(self, topic_config.TopicTable(table.data_version, table.topics))


def _merge_topics(self: Any, table: Any) -> bool:
    merged = dict(self._table) | table.topics
    return _replace_topics(
        self, topic_config.TopicTable(table.data_version, merged, table.deleted, table.deleted_before)
    )


def _add_new_topics(self: Any, table: Any) -> bool:
    merged = table.topics | {name: one for name, one in self._table.items() if name in table.topics}
    return _replace_topics(
        self, topic_config.TopicTable(table.data_version, merged, table.deleted, table.deleted_before)
    )


def _replace_unsaved(self: Any, table: Any) -> bool:
    was_dirty, is_new = self.dirty, _replace_topics(self, table)
    self.dirty = was_dirty
    return is_new


def _delete_without_a_trace(self: Any, topic: str, ends: Any, *, before: int) -> None:
    _delete_topic(self, topic, {}, before=before + 0 * len(ends))


def _replace_groups_that_are_new(self: Any, table: Any) -> None:
    known = {name: one for name, one in self._table.items() if name in table.groups}
    _replace_groups(self, subscription_group_manager.SubscriptionGroupTable(table.data_version, table.groups | known))


def _merge_new_offsets_only(self: Any, entries: Any, changed: Any, **how: Any) -> int:
    return _merge(self, [one for one in entries if one[1] not in self._table.get(one[0], {})], changed, **how)


def _merge_without_saving(self: Any, entries: Any, changed: Any, **how: Any) -> int:
    was_dirty, left_out = self.dirty, _merge(self, entries, changed, **how)
    self.dirty = was_dirty
    return left_out


_merge: Final = Offsets._merge


def _delete_all_but_the_last(self: Any, topic: str, ends: Any, *, before: int) -> None:
    _delete_topic(self, topic, {queue_id: end - 1 for queue_id, end in ends.items() if end > 1}, before=before)


async def _learn_nothing(self: Any, *, before: int) -> bool:
    self.failure = ""
    return before >= 0


def _plant_delayed() -> None:
    mutant("a slave takes no delay offsets over", _SOURCE, (Synchronize, "_take_over_delay_offsets", nothing_async))
    mutant("a delivery counts before it is settled", "#2259", (Delay, "_settle", _settle_everything))
    mutant("a slave takes delay offsets over that its log lacks", "#2259", (Delay, "take_over", _take_over_at_once))
    mutant("a new master begins at the end of each level", _SOURCE, (Deliver, "__init__", _begin_at_the_end))
    mutant("a new master passes over one delayed message", _SOURCE, (Deliver, "__init__", _begin_one_further))
    mutant("a delayed message is due at once", _SOURCE, (Deliver, "_count_due", _all_is_due))
    mutant("delay offsets are not read at a start", _SOURCE, (Metadata, "load", _load_all_but_delays))


def _plant_transactions() -> None:
    mutant("a new master asks about its own half messages only", _SOURCE, (Service, "_present", _present_at_the_end))
    mutant(
        "what a former master has ended is not known", _SOURCE,
        (transactional_message_service, "learn_marks", _learn_no_marks),
    )  # fmt: skip
    mutant("what ended is not remembered", _SOURCE, (fates.Fates, "finish_end", _finish_nothing))
    mutant("an end leaves a mark of something else", _SOURCE, (EndTransaction, "_mark", _end_without_marks))
    mutant("a rollback commits", _SOURCE, (end_transaction_processor, "_commits", always(True)))
    mutant(
        "a slave knows too early what was dealt with", _SOURCE,
        (Synchronize, "_take_over_offsets", _take_over_all_offsets_at_once),
    )  # fmt: skip
    mutant(
        "a slave never knows which half messages were dealt with", _SOURCE,
        (Synchronize, "_take_over_offsets", _take_over_no_halves),
    )  # fmt: skip


def _plant_tables() -> None:
    mutant("a slave takes no topics over", _SOURCE, (Synchronize, "_take_over_topics", nothing_async))
    mutant("a slave knows nothing of deleted topics", "decision 13", (Topics, "replace", _replace_but_keep_deleted))
    mutant("a slave keeps topics that its master deleted", _SOURCE, (Topics, "replace", _merge_topics))
    mutant("a slave keeps permissions that its master changed", _SOURCE, (Topics, "replace", _add_new_topics))
    mutant("a slave does not save its topics", _SOURCE, (Topics, "replace", _replace_unsaved))
    mutant("what is deleted is not saved", "decision 13", (Deleted, "to_json", always({})))
    mutant(
        "a deleted topic is merely forgotten", "decision 13", (Topics, "delete_topic_config", _delete_without_a_trace)
    )
    mutant(
        "a deletion spares the last message", _SOURCE,
        (Topics, "delete_topic_config", _delete_all_but_the_last),
    )  # fmt: skip
    mutant("a slave takes no groups over", _SOURCE, (Synchronize, "_take_over_groups", nothing_async))
    mutant("a slave keeps groups as it first knew them", _SOURCE, (Groups, "replace", _replace_groups_that_are_new))
    mutant(
        "a slave takes a group's first offset over, and no later one",
        _SOURCE,
        (Offsets, "_merge", _merge_new_offsets_only),
    )
    mutant("a slave does not save consumers' offsets", _SOURCE, (Offsets, "_merge", _merge_without_saving))
    mutant(
        "a master that lost its store asks for no tables", _SOURCE,
        (takes_tables_back.TakesTablesBack, "take", nothing_async),
    )  # fmt: skip
    mutant(
        "a slave does not learn where queues end", "#8539",
        (queue_ends_client.QueueEndsClient, "learn", _learn_nothing),
    )  # fmt: skip
    mutant(
        "ends of queues that are going are not noted",
        "#8539",
        (queue_ends.QueueEnds, "note_going", nothing_async),
        (queue_ends.QueueEnds, "note_gone", nothing_async),
    )


def plant() -> None:
    """Register them all."""
    _plant_delayed()
    _plant_transactions()
    _plant_tables()
