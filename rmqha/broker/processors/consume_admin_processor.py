"""ConsumeAdminProcessor: how far consumer groups are, and setting them back.

Source: spec: remoting §2.7 (208, 222, 300, 314, 317); rocketmq-all-4.9.8 AdminBrokerProcessor.java, Broker2Client.java.
"""

from functools import partial
from typing import Any, Final

import structlog

from rmqha.broker.broker_stats_manager import BrokerStatsManager
from rmqha.broker.clients.consumer_manager import ConsumerManager
from rmqha.broker.clients.not_committed import not_committed
from rmqha.broker.processors.topic_stats_processor import pause
from rmqha.broker.tables.metadata import MetadataService
from rmqha.broker.tables.topic_config import TopicConfig
from rmqha.broker.visible import wait_visible
from rmqha.codec.admin_headers import (
    CloneGroupOffsetRequestHeader,
    GetConsumeStatsInBrokerHeader,
    GetConsumeStatsRequestHeader,
    ResetOffsetRequestHeader,
    TopicRequestHeader,
)
from rmqha.codec.codes import NOT_COMMITTED_FIELD, LanguageCode, RequestCode, ResponseCode
from rmqha.codec.headers import decode_header, encode_header
from rmqha.codec.message_queue import message_queue, message_queue_key
from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import LocalProtocolError, RemoteProtocolError
from rmqha.log_limit import LogLimit
from rmqha.remoting.answers_in_turns import AnswersInTurns
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.store.config_files import encode_in_turns
from rmqha.store.message_store import DefaultMessageStore

logger = structlog.get_logger()

TOLD_BYTES_MAX: Final = 1024 * 1024
"""Of a table that each member of a group is sent: some 10,000 queues."""
ENTRIES_MAX: Final = 160_000
"""Queues in one answer: each takes more than 100 bytes of its frame, and some 500 while it is made."""
_TO_THE_END: Final = -1
"""A time: every message counts as consumed."""
_NOT_HERE: Final = (
    "Can't modify offsets from slave broker, please execute it from master broker: with its return they would be the "
    "master's again"
)


class ConsumeAdminProcessor:
    """Reads the offsets, and sets them for groups that an operator names."""

    def __init__(
        self,
        store: DefaultMessageStore,
        metadata: MetadataService,
        consumers: ConsumerManager,
        stats: BrokerStatsManager,
        *,
        broker_name: str,
        address: str,
        answers: AnswersInTurns,
    ) -> None:
        self._store: Final = store
        self._topics: Final = metadata.topics
        self._offsets: Final = metadata.offsets
        self._consumers: Final = consumers
        self._stats: Final = stats
        self._broker_name: Final = broker_name
        self._address: Final = address
        self._answers: Final = answers
        self._visible: Final = partial(wait_visible, store)
        self._lines: Final = LogLimit()

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Take the codes this processor answers."""
        dispatcher.register(RequestCode.GET_CONSUME_STATS, self.get_consume_stats)
        dispatcher.register(RequestCode.GET_BROKER_CONSUME_STATS, self.get_broker_consume_stats)
        dispatcher.register(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, self.query_topic_consume_by_who)
        dispatcher.register(RequestCode.CLONE_GROUP_OFFSET, self.clone_group_offset)
        dispatcher.register(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, self.reset_offset)

    # ---- how far they are

    def get_consume_stats(self, connection: Connection, request: RemotingCommand) -> None:
        """208: where each queue ends that is read, and where the group is in it."""
        header = decode_header(GetConsumeStatsRequestHeader, request)
        answer = partial(self._consume_stats, header, with_all=_wants_all(request))
        self._answers.answer(connection, request, answer, prepare=self._visible)

    async def _consume_stats(self, header: GetConsumeStatsRequestHeader, *, with_all: bool) -> RemotingCommand:
        group = header.consumer_group
        committed = await self._offsets.topics_of_in_turns(group) if with_all or not header.topic else []
        topics = [header.topic] if header.topic else committed
        table: dict[str, dict[str, int]] = {}
        tps = 0.0
        for config in self._subscribed(group, topics):
            table |= await self._stats_of_topic(group, config, queues=range(config.read_queue_nums))
            _check_fits(len(table))
            tps += self._stats.tps_group_get_nums(group, config.topic_name)
        got = await self._stats.got_in_turns() if with_all else {}
        for config in self._not_committed(group, committed, got) if with_all else ():
            if header.topic in (None, config.topic_name) and len(table) + config.read_queue_nums <= ENTRIES_MAX:
                table |= await self._not_committed_stats(config)
        return await _answer({"consumeTps": tps, "offsetTable": table})

    def _subscribed(self, group: str, topics: list[str]) -> list[TopicConfig]:
        """Of these topics those that there are and, if members are online, that these subscribe to."""
        configs = [config for topic in topics if (config := self._topics.select(topic)) is not None]
        online = self._consumers.find_group(group)
        return configs if online is None else [one for one in configs if one.topic_name in online.subscriptions]

    def _not_committed(self, group: str, committed: list[str], got: dict[str, list[str]]) -> list[TopicConfig]:
        """Topics that there are, and that it consumes and has committed nothing of."""
        topics = not_committed(group, self._consumers.find_group(group), committed=committed, got=got)
        return [config for topic in topics if (config := self._topics.select(topic)) is not None]

    async def _not_committed_stats(self, config: TopicConfig) -> dict[str, dict[str, Any]]:
        """Of each queue all that is there is left to consume."""
        table: dict[str, dict[str, Any]] = {}
        for queue_id in range(config.read_queue_nums):
            await pause(queue_id)
            first, end = self._store.queues.readable_range_of(config.topic_name, queue_id)
            key = message_queue_key(config.topic_name, queue_id, broker_name=self._broker_name)
            table[key] = {"brokerOffset": end, "consumerOffset": first, "lastTimestamp": 0, NOT_COMMITTED_FIELD: True}
        return table

    async def _stats_of_topic(self, group: str, config: TopicConfig, *, queues: range) -> dict[str, dict[str, int]]:
        table: dict[str, dict[str, int]] = {}
        for queue_id in queues:
            await pause(queue_id)
            key = message_queue_key(config.topic_name, queue_id, broker_name=self._broker_name)
            table[key] = self._stats_of_queue(group, config.topic_name, queue_id)
        return table

    def _stats_of_queue(self, group: str, topic: str, queue_id: int) -> dict[str, int]:
        end = self._store.get_max_offset_in_queue(topic, queue_id)
        consumed = max(self._offsets.query_offset(group, topic, queue_id) or 0, 0)
        consumed_ms = self._store.store_time_in_queue(topic, queue_id, consumed - 1) if consumed else 0
        return {"brokerOffset": end, "consumerOffset": consumed, "lastTimestamp": max(consumed_ms, 0)}

    def get_broker_consume_stats(self, connection: Connection, request: RemotingCommand) -> None:
        """317: the same of all groups. RocketMQ leaves out what is read and not written any more."""
        header = decode_header(GetConsumeStatsInBrokerHeader, request)
        answer = partial(self._broker_consume_stats, header, with_all=_wants_all(request))
        self._answers.answer(connection, request, answer, prepare=self._visible)

    async def _broker_consume_stats(self, header: GetConsumeStatsInBrokerHeader, *, with_all: bool) -> RemotingCommand:
        by_group: list[dict[str, Any]] = []
        total_diff = entries = 0
        committed = await self._offsets.topics_by_group_in_turns()
        for group, topics in committed.items():
            stats: list[dict[str, Any]] = []
            for config in self._subscribed(group, topics):
                if header.is_order and not config.order:
                    continue
                table = await self._stats_of_topic(group, config, queues=config.all_queues)
                _check_fits(entries := entries + len(table))
                total_diff += sum(one["brokerOffset"] - one["consumerOffset"] for one in table.values())
                tps = self._stats.tps_group_get_nums(group, config.topic_name)
                stats.append({"consumeTps": tps, "offsetTable": table})
            by_group.append({group: stats})
        if with_all:
            by_group += await self._all_not_committed(committed, room=ENTRIES_MAX - entries)
        return await _answer({"brokerAddr": self._address, "consumeStatsList": by_group, "totalDiff": total_diff})

    async def _all_not_committed(self, committed: dict[str, list[str]], *, room: int) -> list[dict[str, Any]]:
        """Groups with topics that they consume and have committed nothing of; of so many queues at most."""
        by_group: list[dict[str, Any]] = []
        got = await self._stats.got_in_turns()
        for number, group in enumerate(dict.fromkeys([*got, *self._consumers.names()])):
            await pause(number)
            for config in self._not_committed(group, committed.get(group, []), got):
                if config.read_queue_nums > room:
                    return by_group
                room -= config.read_queue_nums
                by_group.append({group: [{"consumeTps": 0.0, "offsetTable": await self._not_committed_stats(config)}]})
        return by_group

    def query_topic_consume_by_who(self, connection: Connection, request: RemotingCommand) -> None:
        """300: the groups that subscribe to a topic, or have consumed it."""
        topic = decode_header(TopicRequestHeader, request).topic
        self._answers.answer(connection, request, partial(self._groups_of, topic))

    async def _groups_of(self, topic: str) -> RemotingCommand:
        online = await self._consumers.groups_of_in_turns(topic)
        return await _answer({"groupList": sorted({*online, *await self._offsets.groups_of_in_turns(topic)})})

    # ---- setting them

    def clone_group_offset(self, connection: Connection, request: RemotingCommand) -> None:
        """314: another group goes on where this one is; not by a slave's word."""
        self._check_role()
        header = decode_header(CloneGroupOffsetRequestHeader, request)
        self._answers.answer(connection, request, partial(self._clone, header, connection.peer))

    def _check_role(self) -> None:
        if not self._store.role.is_master:
            raise RemoteProtocolError(_NOT_HERE)

    async def _clone(self, header: CloneGroupOffsetRequestHeader, peer: str) -> RemotingCommand:
        self._check_role()  # it may have changed while others had their turns, and may again between these
        source, target = header.src_group, header.dest_group
        topics = [header.topic] if header.topic else await self._offsets.topics_of_in_turns(source)
        for config in self._subscribed(source, topics):
            offsets = self._offsets.query_offsets(source, config.topic_name)
            for number, (queue_id, offset) in enumerate(offsets.items()):
                await pause(number)
                self._check_role()
                self._offsets.commit_offset(target, config.topic_name, queue_id, offset=offset, peer=peer)
        return RemotingCommand(ResponseCode.SUCCESS)

    def reset_offset(self, connection: Connection, request: RemotingCommand) -> None:
        """222: tell a group's members to go on at a time."""
        header = decode_header(ResetOffsetRequestHeader, request)
        is_cpp = request.language == LanguageCode.CPP
        answer = partial(self._reset, header, is_cpp=is_cpp, peer=connection.peer)
        self._answers.answer(connection, request, answer, prepare=self._visible)

    async def _reset(self, header: ResetOffsetRequestHeader, *, is_cpp: bool, peer: str) -> RemotingCommand:
        topic, group = header.topic, header.group
        config = self._topics.select(topic)
        if config is None:
            remark = f"[reset-offset] reset offset failed, no topic in this broker. topic={topic:.200}"
            return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=remark)
        queue_ids, only = config.all_queues, -1 if header.queue_id is None else header.queue_id
        if only >= 0:
            queue_ids = range(only, only + 1)
            if problem := self._why_no_place(header, len(config.all_queues)):
                return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=problem)
        offsets: dict[int, int] = {}
        for queue_id in queue_ids:
            await pause(queue_id)
            consumed = self._offsets.query_offset(group, topic, queue_id)
            if consumed is None and queue_id >= config.write_queue_nums and queue_id != only:
                continue  # only read, and by this group never
            if consumed is None:
                remark = f"THe consumer group <{group:.255}> not exist"
                return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=remark)
            wanted = self._wanted(header, queue_id)
            offsets[queue_id] = wanted if header.is_force or wanted < consumed else consumed
        if not await self._tell_members(header, offsets, is_cpp=is_cpp):
            if not self._store.role.is_master:  # told that nobody is online, mqadmin would commit the offsets here
                return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=f"no member of it is here; {_NOT_HERE}")
            remark = (
                f"Consumer not online, so can not reset offset, Group: {group:.255} Topic: {topic:.127} "
                f"Timestamp: {header.timestamp}"
            )
            return RemotingCommand(ResponseCode.CONSUMER_NOT_ONLINE, remark=remark)
        facts = {"group": group, "topic": topic, "timestamp_ms": header.timestamp, "by": peer}
        self._lines.log(logger.info, "consumer_offset.reset", **facts)
        return await _answer({"offsetTable": self._by_queue(topic, offsets)})

    def _why_no_place(self, header: ResetOffsetRequestHeader, queue_nums: int) -> str:
        """Why the one queue, or the offset in it, is none; empty if both are."""
        topic, queue_id, offset = header.topic, header.queue_id or 0, header.offset
        if queue_id >= queue_nums:
            return f"topic {topic:.127} has no queue {queue_id}, but {queue_nums}"
        begin = self._store.get_min_offset_in_queue(topic, queue_id)
        end = self._store.get_max_offset_in_queue(topic, queue_id)
        if offset is not None and offset >= 0 and not begin <= offset <= end:
            return f"offset {offset} is not in queue {queue_id} of topic {topic:.127}, which has {begin} to {end}"
        return ""

    def _wanted(self, header: ResetOffsetRequestHeader, queue_id: int) -> int:
        if header.queue_id == queue_id and header.offset is not None and header.offset >= 0:
            return header.offset
        if header.timestamp == _TO_THE_END:
            return self._store.get_max_offset_in_queue(header.topic, queue_id)
        return self._store.get_offset_in_queue_by_time(header.topic, queue_id, timestamp_ms=header.timestamp)

    def _by_queue(self, topic: str, offsets: dict[int, int]) -> dict[str, int]:
        name = self._broker_name
        return {message_queue_key(topic, queue_id, broker_name=name): offset for queue_id, offset in offsets.items()}

    async def _tell_members(self, header: ResetOffsetRequestHeader, offsets: dict[int, int], *, is_cpp: bool) -> bool:
        """Send 220 to each; False if there is none.

        Raises:
            LocalProtocolError: the table is too large to be sent to them all.
        """
        found = self._consumers.find_group(header.group)
        if found is None:
            return False
        table: Any = self._by_queue(header.topic, offsets)
        if is_cpp:
            name = self._broker_name
            table = [message_queue(header.topic, one, broker_name=name) | {"offset": offsets[one]} for one in offsets]
        body = await encode_in_turns({"offsetTable": table})
        if len(body) > TOLD_BYTES_MAX:
            raise LocalProtocolError(
                f"the offsets of {len(offsets)} queues take {len(body)} bytes, and each member of a group is sent no "
                f"more than {TOLD_BYTES_MAX}, the limit: stop the group, then reset it"
            )
        for number, member in enumerate([*found.members]):
            await pause(number)
            member.notify(
                RemotingCommand(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, ext_fields=encode_header(header), body=body)
            )
        return True


def _wants_all(request: RemotingCommand) -> bool:
    return NOT_COMMITTED_FIELD in (request.ext_fields or {})


def _check_fits(entries: int) -> None:
    """Raises LocalProtocolError: the answer would not fit a frame. Made to its end, it might take gigabytes."""
    if entries > ENTRIES_MAX:
        raise LocalProtocolError(
            f"the offsets of more than {ENTRIES_MAX} queues do not fit an answer: ask by group and topic "
            "(mqadmin consumerProgress -g GROUP -t TOPIC)"
        )


async def _answer(body: dict[str, Any]) -> RemotingCommand:
    return RemotingCommand(ResponseCode.SUCCESS, body=await encode_in_turns(body))
