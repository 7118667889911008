"""SlaveSynchronize: what a broker takes over from its master beside the log: topics, groups, offsets, deliveries.

Source: spec: ha §12 (every 10 s). RocketMQ's slaves ask 3 s after their start first.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any, Final, NamedTuple

import structlog
import trio

from rmqha.broker.master_link import REFUSED_ACCOUNT, MasterLink
from rmqha.broker.questions import ask_log_end, ask_table
from rmqha.broker.schedule.delay_offsets import decode_delay_offsets
from rmqha.broker.tables.heard_logs import HeardLogs
from rmqha.broker.tables.heard_offsets import cut_at, later_offsets
from rmqha.broker.tables.metadata import MetadataService
from rmqha.broker.tables.offset_table import (
    TOPIC_GROUP_SEPARATOR,
    OffsetTable,
    decode_changed_offsets,
    decode_offsets,
    name_of_queue,
)
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupTable
from rmqha.broker.tables.tables_origin import TablesOrigin
from rmqha.broker.tables.topic_config import TopicTable
from rmqha.broker.tables.undone_changes import tell_undone
from rmqha.broker.transaction.half_message import CONSUMER_GROUP, HALF_TOPIC, OP_TOPIC
from rmqha.codec.codes import RequestCode
from rmqha.codec.deleted_topic import DeletedTopic
from rmqha.errors import RemoteProtocolError, RemotingError, StoreError
from rmqha.remoting.client import RemotingClient
from rmqha.replication.log_master import BrokerProcess
from rmqha.store.config_files import CONSUMER_OFFSET, SUBSCRIPTION_GROUP, TOPICS
from rmqha.store.consume_queue_table import QueueKey

logger = structlog.get_logger()

_TakeOver = Callable[[RemotingClient], Awaitable[None]]
NextOffset = Callable[[str, int], int]
"""Of a topic and the number of a queue: the offset of the next message."""
FirstStoredFrom = Callable[[str, int, int], int | None]
"""Of a topic, the number of a queue and milliseconds since 1970: the first message since then, if any."""

_FIRST_AFTER_S: Final = 3.0
"""At the latest, as RocketMQ's slaves; so soon again what has never been taken over yet."""
_INTERVAL_S: Final = 10.0
_AWAITED_S: Final = 60.0
"""A master asks its peers every ten seconds; who cannot be asked takes what there is."""
_LOOKED_AT_ONCE: Final = 256
"""Of a hundred thousand offsets, before everybody else has a turn."""
_NEWS_AFTER_S: Final = 1.0
_ACCOUNT_NEXT: Final = (
    "correct the account in the file of aclCredentialsPath (it is read again; without that key set it), or have the "
    "master's globalWhiteRemoteAddresses name this broker; see docs/security.md, 'Accounts (ACL)'"
)
_TRANSACTION_KEYS: Final = tuple(topic + TOPIC_GROUP_SEPARATOR + CONSUMER_GROUP for topic in (HALF_TOPIC, OP_TOPIC))


class Merged(NamedTuple):
    """What came of :meth:`SlaveSynchronize.merge`."""

    failure: str = ""
    """Why nothing was taken: who does not have one table itself says little by the others."""
    lacks_some: bool = False
    """That broker says that it has not had all of its master's tables."""


class SlaveSynchronize:
    """Asks by short connections: a question every few seconds needs no connection of its own.

    Attributes:
        failure: why a table could not be taken over the last time; empty if all were.
        rounds: how often all were.
        taken_at: when the last round began in which all were, of a master that had them (trio's clock).
        taken_to: where that one's log ended then.
        origin: whose tables those were, of the last round in which all were.
        has_taken: whether all were since :meth:`run` began.
        are_its_lost: the master's tables were lost, and it has yet to hear a peer of its: what is known later here
            stays.
    """

    def __init__(self, link: MasterLink, metadata: MetadataService) -> None:
        self._link: Final = link
        self._topics = metadata.topics
        self._offsets = metadata.offsets
        self._groups = metadata.groups
        self._delay_offsets = metadata.delay_offsets
        self._unsettled: tuple[int, OffsetTable] | None = None
        """Where the master's log ended, and how far it had dealt with half messages: they may lie beyond this log."""
        self._told_before: tuple[BrokerProcess | None, OffsetTable] = None, {}
        self.failure = ""
        self.rounds = 0
        self.taken_at, self.taken_to = -inf, 0
        self._told_end = 0
        self.origin = TablesOrigin()
        self.has_taken = False
        self._awaited_since = inf
        self.are_its_lost = False
        self._known_topics = frozenset[str]()
        """Those that the log alone had told of when tables were asked for the last time."""
        self._woken = trio.Event()
        self._topics.on_learned = self.look

    @property
    def has_news(self) -> bool:
        """Whether the log has told of a topic since tables were asked for: its first messages do not say all of it."""
        return not self._topics.learned <= self._known_topics

    async def run(
        self,
        address: str,
        *,
        is_joined: Callable[[], bool] = lambda: True,
        is_apart: Callable[[], bool] = lambda: False,
        term: int | None = None,
    ) -> None:
        """Keep the tables like those of the master at ``address``, until cancelled; but not while ``is_apart``.

        They are asked for as soon as the log ``is_joined`` to the master's, and without that after some seconds: who
        has the log alone could not give a master with an empty store its tables back. Then every ten seconds, and a
        second after the last time if the log has told of a topic that no table had, or the master is lost: clients
        are told of such a topic once the table has come, or cannot come.

        Args:
            address: its listenPort.
            is_joined: whether the log here goes on with that of the master.
            is_apart: whether it never will.
            term: of a DLedger leader: nothing is taken of it before it is the master of this term.
        """
        self._unsettled, self._told_before, self.has_taken = None, (None, {}), False
        with trio.move_on_after(_FIRST_AFTER_S):
            while not is_joined():
                await self._woken.wait()
        while True:
            was_joined, self._known_topics = is_joined(), frozenset(self._topics.learned)
            if not is_apart():
                await self.synchronize(address, term=term)
            else:
                await self._link.complain(address)
            with trio.move_on_after(_INTERVAL_S if self.has_taken else _FIRST_AFTER_S):
                await trio.sleep(_NEWS_AFTER_S)
                while not self.has_news and is_joined() >= was_joined:
                    await self._woken.wait()

    def look(self) -> None:
        """Have :meth:`run` look again whether its log is joined to the master's, and whether there are news."""
        self._woken.set()
        self._woken = trio.Event()

    async def synchronize(self, address: str, *, term: int | None = None) -> None:
        """Take over the tables; a failure is logged when it changes, and the next round tries again.

        All of them from ``listenPort``: RocketMQ's slaves ask for topics on ``listenPort - 2``, where firewalls forget
        about them (#2819), but its masters answer on both.
        """
        failures, origin, self.are_its_lost, now = list[str](), TablesOrigin(), False, trio.current_time()
        try:
            async with self._link.open(address) as client:
                origin = await self._link.check_group(client)
                self.are_its_lost = origin.are_awaited
                self._check_are_its(origin, term, now=now)
                take_over_offsets = partial(self._take_over_offsets, origin=origin)
                tables: list[_TakeOver] = [self._take_over_topics, take_over_offsets, self._take_over_groups]
                for take_over in (*tables, self._take_over_delay_offsets):
                    try:
                        await take_over(client)
                    except RemoteProtocolError as error:
                        failures.append(str(error))
        except (RemotingError, RemoteProtocolError, StoreError, OSError) as error:
            failures.append(str(error))
        failure = "; ".join(failures)
        if failure and failure != self.failure:
            told = {"next": _ACCOUNT_NEXT} if REFUSED_ACCOUNT in failure else {}
            logger.warning("master_link.not_synchronized", address=address, reason=failure, **told)
        self.failure = failure
        if failure and self._link.asked is None:  # it may have been started again meanwhile
            self._told_before = None, {}
        if not failure:
            self.rounds, self.origin = self.rounds + 1, origin
            if origin.log_end < 0 or not self.are_its_lost:
                self.taken_at, self.taken_to = now, self._told_end if origin.log_end < 0 else origin.log_end
        self.has_taken = self.has_taken or not failure

    def _check_are_its(self, origin: TablesOrigin, term: int | None, *, now: float) -> None:
        """Raises RemoteProtocolError: that broker lacks tables, and may be about to ask for those here."""
        is_rocketmqs = origin.term == 0
        if term is not None and not (origin.was_master and (origin.term >= term or is_rocketmqs)):
            raise RemoteProtocolError("it leads, and is no master yet: its tables may be older than those here")
        self._awaited_since = min(self._awaited_since, now) if origin.are_awaited else inf
        if now < self._awaited_since + _AWAITED_S and origin.are_awaited:
            raise RemoteProtocolError("its tables were lost, and it has yet to ask its peers for those of this group")

    async def merge(
        self,
        address: str,
        *,
        is_lost: bool,
        next_offset: NextOffset | None,
        ends: Mapping[QueueKey, int] | None = None,
        first_stored_from: FirstStoredFrom = lambda *_: None,
        takes_unknown: bool = False,
        may_lack_deliveries: bool = False,
        heard: HeardLogs | None = None,
        are_taken: bool = False,
        sets_back: bool = False,
        follows_from: float = inf,
    ) -> Merged:
        """Take what the broker at ``address``, of this group, knows later than what is known here.

        That is what operators have changed of topics, groups and offsets, and how far groups have come; deliveries go
        forward alone. How far half messages are dealt with the log tells. A broker of RocketMQ's does not say what was
        changed when: where its tables have had more changes than those here, they count.

        Args:
            address: its listenPort.
            is_lost: whether the tables here are lost, and nobody has told any since: what has no stamp counts as there.
            next_offset: of a queue here. Of a broker of RocketMQ's only what was consumed behind that is new, as a
                smaller offset may have been chosen here. None: none was.
            first_stored_from: what was stored here after a topic was deleted there is not what was deleted, whose log's
                tail may be gone.
            takes_unknown: what a broker of RocketMQ's says of groups that have no offset here counts.
            may_lack_deliveries: a broker that was never told how far delayed messages are delivered tells the rest.
            heard: who has told before, if anybody can have: what a broker of RocketMQ's says without stamps is later
                than what those say was decided whose logs end before its own.
            are_taken: whether the tables here are other brokers': what RocketMQ wrote later counts in any case.
            sets_back: whether offsets here are other brokers' alone: a smaller one that is later counts.
            follows_from: whose log goes farther, and no farther than this one, may have followed it since: who cannot
                say how late its tables are is no later than those that told before.
            ends: of the queues in the log there, beyond which no offset counts; None: that log comes here first.
        """
        try:
            async with self._link.open(address) as client:
                origin = await self._link.check_group(client)
                topics, groups, (offsets, changed) = await _ask_tables(client)
                log_end = await ask_log_end(client)
                may_lack = may_lack_deliveries or changed is None or log_end == 0
                deliveries = await self._ask_deliveries(client, may_lack=may_lack)
                log_end = max(log_end, await ask_log_end(client))
            has_stamps, heard = changed is not None, heard or HeardLogs(log_end)
            may_follow = not has_stamps and ends is not None and log_end > follows_from
            by_then = min(log_end, heard.end) if may_follow else log_end
            late_as = origin.late_as(CONSUMER_OFFSET, by_then)
            told = {key: offsets[key] for key in offsets.keys() - _TRANSACTION_KEYS}
            later, changed = await later_offsets(told, changed, self._offsets, late_as, heard, sets_back=sets_back)
            if not has_stamps and next_offset is not None:
                takes_unknown = takes_unknown or groups.data_version[1] > self._groups.data_version[1]
                later = await self._behind(next_offset, told, later if takes_unknown else {})
            if ends is not None:
                later = await cut_at(later, ends)
            if topics:
                late_as = origin.late_as(TOPICS, by_then)
                is_older = is_lost or (are_taken and heard.is_later(TOPICS, late_as, topics.changed))
                topics = heard.topics_by_now(late_as, topics, self._topics.select)
                await self._merge_topics(topics, first_stored_from, log_end=log_end, is_lost=is_older)
            late_as = origin.late_as(SUBSCRIPTION_GROUP, by_then)
            is_older = is_lost or (are_taken and heard.is_later(SUBSCRIPTION_GROUP, late_as, groups.changed))
            self._groups.merge(heard.groups_by_now(late_as, groups, self._groups.select), is_lost=is_older)
            self._delay_offsets.take_newer(deliveries, log_end=log_end)
            await self._offsets.merge_from_master(later, changed=changed)
            heard.note(origin, by_then, may_be_later=log_end if may_follow else -1, has_stamps=has_stamps)
        except (RemotingError, RemoteProtocolError, StoreError, OSError) as error:
            return Merged(str(error))
        return Merged(lacks_some=origin.lack_some)

    async def _merge_topics(
        self, topics: TopicTable, first_stored_from: FirstStoredFrom, *, log_end: int, is_lost: bool
    ) -> None:
        topics, used_since = await self._without_new(topics, first_stored_from)
        self._topics.merge(topics, used_since=used_since, log_end=log_end, is_lost=is_lost)

    async def _without_new(self, told: TopicTable, first_stored_from: FirstStoredFrom) -> tuple[TopicTable, set[str]]:
        """The table, whose deletions leave out what was stored since; and topics of which anything was.

        That may be in queues that held nothing at the deletion.
        """
        deleted, used_since = dict(told.deleted), set[str]()
        for topic, stamp in (told.changed or {}).items():
            known, ends = self._topics.select(topic), dict(deleted[topic].ends) if topic in deleted else {}
            is_there = topic in told.topics and topic not in told.learned
            queues = ends.keys() | set(range(known.queue_nums if known and not is_there else 0))
            for queue_id in queues if topic else ():
                if (new := first_stored_from(topic, queue_id, stamp + 1)) is not None:
                    ends |= {queue_id: min(ends[queue_id], new)} if queue_id in ends else {}
                    used_since.add(topic)
                await trio.lowlevel.checkpoint()
            if topic in deleted:
                deleted[topic] = DeletedTopic(deleted[topic].before, ends)
        return replace(told, deleted=deleted), used_since

    async def _ask_deliveries(self, client: RemotingClient, *, may_lack: bool) -> dict[int, int]:
        """A slave of RocketMQ's answers with an error until it has had them, and one of ours whose log is empty."""
        try:
            return await ask_table(client, RequestCode.GET_ALL_DELAY_OFFSET, decode_delay_offsets)
        except RemoteProtocolError:
            if may_lack:
                return {}
            raise

    async def _behind(self, next_offset: NextOffset, told: OffsetTable, counts: OffsetTable) -> OffsetTable:
        """What lies behind the queues of this log; and what ``counts`` has of groups that are new there."""
        table: OffsetTable = {}
        for seen, (key, queues) in enumerate(told.items(), 1):
            if seen % _LOOKED_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            topic, _, group = key.partition(TOPIC_GROUP_SEPARATOR)
            for number, offset in queues.items():
                is_new = number in counts.get(key, {}) and self._offsets.query_offset(group, topic, number) is None
                if is_new or offset > next_offset(topic, number):
                    table.setdefault(key, {})[number] = offset
        return table

    async def grow_learned_topics(self, address: str) -> None:
        """Have topics of which the log alone has told with as many queues as the broker at ``address`` knows of."""
        try:
            async with self._link.open(address) as client:
                await self._link.check_group(client)
                if topics := await ask_table(client, RequestCode.GET_ALL_TOPIC_CONFIG, _decode_topics):
                    self._topics.grow_learned(topics)
        except (RemotingError, RemoteProtocolError, OSError) as error:
            logger.debug("master_link.no_answer", address=address, reason=str(error))

    async def _take_over_topics(self, client: RemotingClient) -> None:
        topics = await ask_table(client, RequestCode.GET_ALL_TOPIC_CONFIG, _decode_topics)
        if topics and self.are_its_lost:
            self._topics.merge(topics, log_end=await ask_log_end(client), is_lost=False)
        elif topics:
            undone = self._topics.changed.unknown_to(topics.changed)
            if self._topics.replace(topics):
                tell_undone(TOPICS, undone, address=client.address)

    async def _take_over_offsets(self, client: RemotingClient, *, origin: TablesOrigin) -> None:
        """What a broker has found on its disk, and nothing newer, says nothing of what it lacks."""
        offsets, changed = await ask_table(client, RequestCode.GET_ALL_CONSUMER_OFFSET, _decode_offsets)
        await self._offsets.make_room_for(offsets)
        told = {key: offsets.pop(key) for key in _TRANSACTION_KEYS if key in offsets}
        if changed is None:
            changed = await self._set_back(offsets)
        await self._offsets.merge_from_master(offsets, is_whole=origin.is_of_a_master, changed=changed)
        if told and self._unsettled is None:
            self._unsettled = await ask_log_end(client), told
        if self._unsettled is not None and self._delay_offsets.is_settled(self._unsettled[0]):
            await self._offsets.merge_from_master(self._unsettled[1])
            self._unsettled = None

    async def _set_back(self, offsets: OffsetTable) -> Mapping[str, int]:
        """Stamps for what a master of RocketMQ's, which has none, tells smaller than the last time: somebody did that.

        Not if it was started again since: it may have come back with an older table.
        """
        (process, before), self._told_before = self._told_before, (self._link.asked, offsets)
        before = before if process == self._link.asked else {}
        stamps: dict[str, int] = {}
        for seen, (key, queues) in enumerate(offsets.items(), 1):
            if seen % _LOOKED_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            known = before.get(key, {})
            back = [queue_id for queue_id, offset in queues.items() if offset < known.get(queue_id, 0)]
            stamps |= {name_of_queue(key, queue_id): self._offsets.changed.next_stamp() for queue_id in back}
        return stamps

    async def _take_over_groups(self, client: RemotingClient) -> None:
        code = RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG
        groups = await ask_table(client, code, SubscriptionGroupTable.from_json)
        if self.are_its_lost:
            self._groups.merge(groups, is_lost=False)
        else:
            undone = self._groups.changed.unknown_to(groups.changed)
            if self._groups.replace(groups):
                tell_undone(SUBSCRIPTION_GROUP, undone, address=client.address)

    async def _take_over_delay_offsets(self, client: RemotingClient) -> None:
        """What was delivered when the offsets were told lies before the end that the master's log has after that."""
        offsets = await ask_table(client, RequestCode.GET_ALL_DELAY_OFFSET, decode_delay_offsets)
        self._told_end = await ask_log_end(client)
        self._delay_offsets.take_over(offsets, log_end=self._told_end)


async def _ask_tables(
    client: RemotingClient,
) -> tuple[TopicTable | None, SubscriptionGroupTable, tuple[OffsetTable, Mapping[str, int] | None]]:
    topics = await ask_table(client, RequestCode.GET_ALL_TOPIC_CONFIG, _decode_topics)
    groups = await ask_table(client, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, SubscriptionGroupTable.from_json)
    return topics, groups, await ask_table(client, RequestCode.GET_ALL_CONSUMER_OFFSET, _decode_offsets)


def _decode_offsets(value: dict[str, Any]) -> tuple[OffsetTable, Mapping[str, int] | None]:
    return decode_offsets(value), decode_changed_offsets(value)


def _decode_topics(value: dict[str, Any]) -> TopicTable | None:
    return TopicTable.from_json(value) if value else None
