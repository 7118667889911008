"""MetadataService: saves the broker's tables, and reads what was saved.

Source: spec: ha §12.
"""

from collections.abc import Awaitable, Callable
from dataclasses import asdict, replace
from math import inf
from typing import Any, Final, Protocol

import structlog
import trio

from rmqha.broker.schedule.delay_offsets import DelayOffsets
from rmqha.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from rmqha.broker.tables.made_since import MadeSince
from rmqha.broker.tables.offset_table import CHANGED_OFFSETS
from rmqha.broker.tables.queue_ends import QueueEnds
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupManager
from rmqha.broker.tables.tables_origin import DATED_TABLES, TablesOrigin, origin_of
from rmqha.broker.tables.topic_config import CHANGED_TOPICS
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.errors import StoreReadError, StoreWriteError
from rmqha.store.config_files import (
    CONSUMER_OFFSET,
    DELAY_OFFSET,
    QUEUE_ENDS,
    SUBSCRIPTION_GROUP,
    TABLES_ORIGIN,
    TOPICS,
    ConfigFiles,
)
from rmqha.store.consume_queue_table import ConsumeQueueTable
from rmqha.waiting import DeadlineService

logger = structlog.get_logger()

_PAUSE_SHARE: Final = 3
"""After each save a pause so many times as long: topics made meanwhile share the next, which may be a large one."""
_PAUSE_MAX_S: Final = 0.5
"""A disk that hung for a minute may be well again; sends to new topics wait two seconds for a save."""
_NOTED_AFTER_MS: Final = 60_000
"""Of two members that have the same the one that was there longer is to be seen, though nothing changes."""
_QUEUES_AT_ONCE: Final = 1000
_SAVE_S: Final = 10.0
"""A save that takes longer is told of."""
_TABLES: Final = (TOPICS, CONSUMER_OFFSET, SUBSCRIPTION_GROUP, DELAY_OFFSET, QUEUE_ENDS)


class SavedTable(Protocol):
    """A table that has its own file."""

    dirty: bool
    """It has changed since it was saved."""

    async def to_json_in_turns(self) -> dict[str, Any]:
        """The table as its file holds it. It may change meanwhile, and is dirty then; everybody else goes on."""
        ...


class _Saves:
    """Saves some of the tables, one save at a time; what fails is told once, and tried again."""

    def __init__(self, save: Callable[[], Awaitable[None]], *, on_failure: Callable[[], None] = lambda: None) -> None:
        """``save`` raises StoreWriteError or StoreReadError; then it is ``on_failure``."""
        self._save: Final = save
        self._on_failure: Final = on_failure
        self._saving: Final = trio.Lock()
        self._changed = trio.Event()
        self._begun_at = inf
        self._not_saved = ""

    @property
    def trouble(self) -> str:
        """Why what has changed is not on the disk; empty if it is, or will be at once."""
        if (taken_s := trio.current_time() - self._begun_at) > _SAVE_S:
            return f"config/*.json cannot be saved at present: its disk has not answered for {taken_s:.0f} s"
        return self._not_saved and f"config/*.json cannot be saved at present, it tries again: {self._not_saved}"

    def soon(self) -> None:
        """Have :meth:`run` save at once."""
        self._changed.set()

    async def run(self, interval_s: float) -> None:
        """Save every ``interval_s``, and :meth:`soon`."""
        while True:
            with trio.move_on_after(interval_s):
                await self._changed.wait()
            self._changed = trio.Event()
            begun_at = trio.current_time()
            await self.now()
            await trio.sleep(min(_PAUSE_SHARE * (trio.current_time() - begun_at), _PAUSE_MAX_S))

    async def now(self) -> None:
        """Save, behind a save that is under way."""
        try:
            async with self._saving:
                self._begun_at = trio.current_time()
                try:
                    await self._save()
                finally:
                    self._begun_at = inf
        except (StoreWriteError, StoreReadError) as error:
            self._on_failure()
            if self._not_saved != str(error):
                self._not_saved = str(error)
                logger.warning("metadata.not_saved", reason=self._not_saved)
        else:
            self._not_saved = ""


class MetadataService:
    """Topics, consumer groups and consumer offsets on disk, and the ends of queues without messages.

    Attributes:
        topics: which there are, with how many queues.
        offsets: how far consumer groups are.
        groups: which groups of consumers there are, and what each is allowed.
        delay_offsets: how far delayed messages are delivered.
        queue_ends: where queues end that hold no message.
        had_topics: whether :meth:`load` found a table of topics, which a broker saves before all others.
        had_offsets: whether it found one of consumers' offsets.
        found: whose tables :meth:`load` found, as far as the disk says so; -1: it does not, -2: there was none.
        origin: says whose tables these are, to be noted on the disk; a member of a group that elects its master knows.
        why_withheld: says why other brokers may not take over what is here; empty: they may.
        why_withheld_from: likewise of a host: why one that replaces its own tables, as RocketMQ's slaves do, may not.
        why_awaited: says why the tables here may lack what this group had; empty: they do not.
    """

    def __init__(
        self,
        files: ConfigFiles,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        groups: SubscriptionGroupManager,
        queue_ends: QueueEnds,
        *,
        delay_offsets: DelayOffsets,
        interval_s: float,
    ) -> None:
        self.files: Final = files
        self.topics: Final = topics
        self.offsets: Final = offsets
        self.groups: Final = groups
        self.delay_offsets: Final = delay_offsets
        self.queue_ends: Final = queue_ends
        self.had_topics = self.had_offsets = False
        self.found = TablesOrigin()
        self.origin: Callable[[], TablesOrigin] = TablesOrigin
        self._was_ours = False
        """The table of topics is one that rmqha wrote last, and so noted before which tables there are."""
        self._is_of_rocketmq = False
        """RocketMQ has written one of those that were found since."""
        self._not_found = frozenset[str]()
        self._noted = TablesOrigin()
        self._late_noted = TablesOrigin()
        """What the file says of how late tables are."""
        self._names_noted = list[str]()
        self._saved_since = True
        """A table was saved since it was noted whose tables these are, and which there are."""
        self.why_withheld: Callable[[], str] = str
        self.why_withheld_from: Callable[[str], str] = lambda _host: ""
        self.why_awaited: Callable[[], str] = str
        self._interval_s = interval_s
        self._awaited: Final = _Saves(self._save_awaited, on_failure=groups.saved.fail_all)
        """Of tables for which clients and operators wait: they do not wait for the others, which may be large."""
        self._others: Final = _Saves(self._save_others, on_failure=offsets.saved.fail_all)
        self._deadlines = DeadlineService(topics.saved.deadlines)
        topics.on_put, queue_ends.on_learned = self._awaited.soon, self.save_soon

    @property
    def trouble(self) -> str:
        """Why tables that have changed are not on the disk, in a sentence; empty if they are, or will be at once."""
        return self._awaited.trouble or self._others.trouble

    @property
    def lost(self) -> list[str]:
        """What was lost of the tables before this start, or is yet to come back, a sentence each."""
        return [*self.files.lost.values(), *filter(None, [self.why_awaited()])]

    @property
    def has_decided(self) -> bool:
        """Whether an operator has changed anything in this process."""
        return any(table.changed.has_noted for table in (self.topics, self.offsets, self.groups))

    def save_soon(self) -> None:
        """Have :meth:`run` save all that changed, rather than at its next interval."""
        self._awaited.soon()
        self._others.soon()

    def load(self) -> None:
        """Read what was saved; a file that is missing is none, and what was no table is told (``files.lost``).

        Raises:
            StoreReadError: the system does not let one be read, which the first save would replace.
        """
        topics = self.files.load(TOPICS, self.topics.replace_from_json)
        self.had_topics, self._was_ours = topics is not None, topics is not None and CHANGED_TOPICS in topics
        offsets = self.files.load(CONSUMER_OFFSET, self.offsets.replace_from_json)
        self.had_offsets = offsets is not None
        is_of_rocketmq = offsets is not None and CHANGED_OFFSETS not in offsets
        if is_of_rocketmq:  # and there is no time in it
            self.offsets.changed.date_all(self.files.modified_ms(CONSUMER_OFFSET))
        self._is_of_rocketmq = is_of_rocketmq or (self.had_topics and not self._was_ours)
        groups = self.files.load(SUBSCRIPTION_GROUP, self.groups.replace_from_json)
        found = zip(DATED_TABLES, (topics, offsets, groups), strict=True)
        self._not_found = frozenset(name for name, table in found if table is None)
        self.files.load(DELAY_OFFSET, self.delay_offsets.replace_from_json)
        self.files.load(QUEUE_ENDS, self.queue_ends.merge_from_json)
        self.found = self._find_origin()

    def check_found(self) -> None:
        """Tell if the table is missing that a master saves before anything is sent, and so before a log begins.

        A slave has it from its master. A member of a group that elects its master has saved it as well, by the first
        messages that came, and may lead before it has taken over anything.
        """
        if not self.had_topics and TOPICS not in self.files.lost:
            self.files.note_missing(TOPICS)

    def forget_made_since(self) -> None:
        """What was lost has come, or is not awaited any more: what clients made meanwhile is like everything else."""
        self.topics.dirty = self.topics.made_since.clear() or self.topics.dirty
        self.groups.dirty = self.groups.made_since.clear() or self.groups.dirty
        self.offsets.dirty = self.offsets.made_since.clear() or self.offsets.dirty

    async def learn_queues(self, queues: ConsumeQueueTable) -> None:
        """Have topics for all queues that hold messages which consumers may see. In turns."""
        start = 0
        while page := queues.next_offsets(start, _QUEUES_AT_ONCE):
            for (topic, queue_id), end in page.items():
                if max(queues.range_of(topic, queue_id)[0], queues.deleted_end(topic, queue_id)) < end:
                    self.topics.learn_queue(topic, queue_id)
            start += len(page)
            await trio.lowlevel.checkpoint()

    def _find_origin(self) -> TablesOrigin:
        """A note is of all tables that were saved when it was made: if one is lost it says how late the others are.

        It says nothing of what RocketMQ, which does not know it, has written since.
        """
        are_lost = bool(self.files.lost)
        if self._was_ours and not self.files.has(TABLES_ORIGIN):
            self.files.note_missing(TABLES_ORIGIN)
        noted = self.files.load(TABLES_ORIGIN) or {}
        names, origin = noted.get("tables"), origin_of(noted)
        missing = [name for name in _TABLES if isinstance(names, list) and name in names and not self.files.has(name)]
        known = replace(origin, log_end=-1, is_in_step=False, lost=()) if self._is_of_rocketmq else origin
        gone = {*missing, *self.files.lost} & self._not_found | {*known.lost}
        late = TablesOrigin(
            log_end=known.log_end,
            is_in_step=known.is_in_step,
            lost=tuple(name for name in DATED_TABLES if name in gone),
        )
        if not self.had_topics:
            return late
        for name in missing:
            self.files.note_missing(name)
        self._late_noted = origin
        if missing or are_lost:
            return late
        self._names_noted = names if isinstance(names, list) else []
        if isinstance(names, list) and origin.is_of_a_master:
            return replace(known, was_master=False)
        return replace(known, term=-1, was_master=False, for_ms=0, are_awaited=False, lack_some=False)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Save what changed, every ``interval_s``, and at once topics that are made and ends that are learned.

        It has started when topics and groups are saved that this broker took over before it serves. As in RocketMQ
        a new topic is saved before a send to it is answered. A RocketMQ broker that opens our store knows no other
        topics than the saved ones; ours finds them in the log, but not how many queues they had.
        """
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._deadlines.run)
            await self._awaited.now()
            task_status.started()
            nursery.start_soon(self._awaited.run, self._interval_s)
            nursery.start_soon(self._others.run, self._interval_s)

    async def save(self) -> None:
        """Save what changed. What fails is tried again, and told once; sends that need the topic are refused."""
        await self._awaited.now()
        await self._others.now()

    async def _save_awaited(self) -> None:
        await self._save_topics()
        made = self.groups.made
        await self._save_if_dirty(self.groups, SUBSCRIPTION_GROUP, self.groups.made_since)
        self.groups.saved.advance(made)

    async def _save_others(self) -> None:
        awaited, origin = self.offsets.awaited, self.origin()
        await self._save_if_dirty(self.offsets, CONSUMER_OFFSET, self.offsets.made_since)
        self.offsets.saved.advance(awaited)
        await self._save_if_dirty(self.delay_offsets, DELAY_OFFSET)
        await self.queue_ends.note_gone()
        await self._save_if_dirty(self.queue_ends, QUEUE_ENDS)
        await self._note_origin(origin)

    async def _note_origin(self, origin: TablesOrigin) -> None:
        """Which tables there are, and whose all are that are saved by now: a start misses those that are gone.

        They may be somewhat older ones, as a start takes the newest there are. A table that changes meanwhile has
        nothing to do with it: what is saved may be newer than what is noted.
        """
        last = self._noted
        is_new = origin.term != last.term or origin.for_ms >= last.for_ms + _NOTED_AFTER_MS
        late = self._late_noted
        is_gone = self.files.has_vanished(TABLES_ORIGIN)
        is_known = not (origin.is_of_a_master and is_new) and origin.how_late == late.how_late
        if is_known and not self._saved_since and not is_gone:
            return
        await self._awaited.now()
        if self.topics.dirty or self.groups.dirty:
            return
        self._saved_since = False
        try:
            names = [name for name in _TABLES if self.files.has(name)]
            is_later = origin.how_late != late.how_late or origin.log_end != late.log_end
            if origin.is_of_a_master or is_later or is_gone or names != self._names_noted:
                told = asdict(origin if origin.is_of_a_master else replace(origin, term=-1))
                await self.files.save(TABLES_ORIGIN, told | {"tables": names})
        except BaseException:
            self._saved_since = True
            raise
        self._noted, self._late_noted, self._names_noted = origin, origin, names

    async def save_ends(self, before: int) -> bool:
        """Save where queues end whose messages all lie ``before`` an offset of the log, and are about to go.

        It is tried once. False: they are not saved; only if the log's disk is too full may its files go all the same.
        """
        await self.queue_ends.note_going(before)
        await self.save()
        return not self.queue_ends.dirty

    async def _save_topics(self) -> None:
        made = self.topics.made
        try:
            if self.topics.dirty and not self.files.has(TABLES_ORIGIN):
                self._names_noted, kept = [], self.files.kept  # some, if the note itself is what somebody removed
                await self.files.save(TABLES_ORIGIN, {"term": -1, "tables": [name for name in _TABLES if name in kept]})
            await self._save_if_dirty(self.topics, TOPICS, self.topics.made_since)
        except (StoreWriteError, StoreReadError):
            self.topics.saved.fail_all()
            raise
        self.topics.saved.advance(made)

    async def _save_if_dirty(self, table: SavedTable, name: str, made_since: MadeSince | None = None) -> None:
        if not self.files.has_vanished(name) and not table.dirty:
            return
        table.dirty, self._saved_since = False, True
        try:
            value = await table.to_json_in_turns()
            await self.files.save(name, value | made_since.to_json() if made_since is not None else value)
        except BaseException:  # or cancelled: the last save, at the end, must not miss it
            table.dirty = True
            raise
