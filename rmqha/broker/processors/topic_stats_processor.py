"""TopicStatsProcessor: what the queues of a topic hold, and when that was stored.

Source: spec: remoting §2.7 (202, 303, 321); rocketmq-all-4.9.8 AdminBrokerProcessor.java.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import trio

from rmqha.broker.clients.consumer_manager import ConsumerManager
from rmqha.broker.tables.metadata import MetadataService
from rmqha.broker.visible import wait_visible
from rmqha.codec import java_json
from rmqha.codec.admin_headers import (
    QueryConsumeQueueRequestHeader,
    QueryConsumeTimeSpanRequestHeader,
    TopicRequestHeader,
)
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import decode_header
from rmqha.codec.heartbeat import subscription_json
from rmqha.codec.message_queue import message_queue, message_queue_key
from rmqha.codec.remoting import RemotingCommand
from rmqha.remoting.answers_in_turns import AnswersInTurns
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.store.config_files import encode_in_turns
from rmqha.store.message_store import DefaultMessageStore

_QUEUES_AT_ONCE: Final = 25
"""The store time of a message may have to be read: a millisecond."""
_UNITS_MAX: Final = 10_000
"""Of one answer to 321: a megabyte."""


class TopicStatsProcessor:
    """Reads queues, and changes nothing."""

    def __init__(
        self,
        store: DefaultMessageStore,
        metadata: MetadataService,
        consumers: ConsumerManager,
        *,
        broker_name: str,
        answers: AnswersInTurns,
        now_ms: Callable[[], int],
    ) -> None:
        self._store: Final = store
        self._topics: Final = metadata.topics
        self._offsets: Final = metadata.offsets
        self._consumers: Final = consumers
        self._broker_name: Final = broker_name
        self._answers: Final = answers
        self._visible: Final = partial(wait_visible, store)
        self._now_ms: Final = now_ms

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Take the codes this processor answers."""
        dispatcher.register(RequestCode.GET_TOPIC_STATS_INFO, self.get_topic_stats_info)
        dispatcher.register(RequestCode.QUERY_CONSUME_TIME_SPAN, self.query_consume_time_span)
        dispatcher.register(RequestCode.QUERY_CONSUME_QUEUE, self.query_consume_queue)
        dispatcher.register(RequestCode.GET_TOPIC_CONFIG, self.get_topic_config)

    def get_topic_config(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """351, of RocketMQ 5's tools and proxies: one topic, as the table of all has it."""
        topic = decode_header(TopicRequestHeader, request).topic
        config = self._topics.select(topic)
        if config is None:
            remark = f"No topic in this broker. topic: {topic:.127}"
            return RemotingCommand(ResponseCode.TOPIC_NOT_EXIST, remark=remark)
        return RemotingCommand(ResponseCode.SUCCESS, body=java_json.dumps(config.to_json()).encode())

    def get_topic_stats_info(self, connection: Connection, request: RemotingCommand) -> None:
        """202: where each queue begins and ends, and when its last message was stored."""
        topic = decode_header(TopicRequestHeader, request).topic
        self._answers.answer(connection, request, partial(self._topic_stats, topic), prepare=self._visible)

    async def _topic_stats(self, topic: str) -> RemotingCommand:
        table: dict[str, dict[str, int]] = {}
        for queue_id in self._queues_of(topic):
            await pause(queue_id)
            first, end = self._store.queues.readable_range_of(topic, queue_id)
            stored_ms = self._store.store_time_in_queue(topic, queue_id, end - 1) if end else 0
            key = message_queue_key(topic, queue_id, broker_name=self._broker_name)
            table[key] = {"lastUpdateTimestamp": stored_ms, "maxOffset": end, "minOffset": first}
        return await self._answer_of_topic(topic, {"offsetTable": table})

    def query_consume_time_span(self, connection: Connection, request: RemotingCommand) -> None:
        """303: from when to when the messages of each queue are, and up to when a group has consumed them."""
        header = decode_header(QueryConsumeTimeSpanRequestHeader, request)
        self._answers.answer(connection, request, partial(self._time_spans, header), prepare=self._visible)

    async def _time_spans(self, header: QueryConsumeTimeSpanRequestHeader) -> RemotingCommand:
        spans: list[dict[str, Any]] = []
        for queue_id in self._queues_of(header.topic):
            await pause(queue_id)
            spans.append(self._time_span(header, queue_id))
        return await self._answer_of_topic(header.topic, {"consumeTimeSpanSet": spans})

    def _time_span(self, header: QueryConsumeTimeSpanRequestHeader, queue_id: int) -> dict[str, Any]:
        topic = header.topic
        time_of = partial(self._store.store_time_in_queue, topic, queue_id)
        first, end = self._store.queues.readable_range_of(topic, queue_id)
        consumed = self._offsets.query_offset(header.group, topic, queue_id) or 0
        begins_ms = time_of(first)
        return {
            "consumeTimeStamp": time_of(consumed - 1) if consumed > 0 else begins_ms,
            "delayTime": self._now_ms() - time_of(max(consumed, first)) if consumed < end else 0,
            "maxTimeStamp": time_of(end - 1),
            "messageQueue": message_queue(topic, queue_id, broker_name=self._broker_name),
            "minTimeStamp": begins_ms,
        }

    def _queues_of(self, topic: str) -> range:
        """Those that are read or written, as with RocketMQ 5; 4.9 leaves out what is only read."""
        config = self._topics.select(topic)
        return config.all_queues if config is not None else range(0)

    async def _answer_of_topic(self, topic: str, body: dict[str, Any]) -> RemotingCommand:
        if self._topics.select(topic) is None:
            return RemotingCommand(ResponseCode.TOPIC_NOT_EXIST, remark=f"topic[{topic:.200}] not exist")
        return RemotingCommand(ResponseCode.SUCCESS, body=await encode_in_turns(body))

    def query_consume_queue(self, connection: Connection, request: RemotingCommand) -> None:
        """321: the units of a queue, and what a group subscribes to of its topic, if one is named."""
        header = decode_header(QueryConsumeQueueRequestHeader, request)
        self._answers.answer(connection, request, partial(self._units, header), prepare=self._visible)

    async def _units(self, header: QueryConsumeQueueRequestHeader) -> RemotingCommand:
        queue = self._store.queues.find(header.topic, header.queue_id)
        if queue is None:
            remark = f"{header.queue_id}@{header.topic:.200} is not exist!"
            return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=remark)
        begins = max(header.index, queue.min_offset_in_queue)
        units = queue.units(begins, min(max(header.count, 0), _UNITS_MAX))
        data = [
            {"eval": False, "physicOffset": at, "physicSize": size, "tagsCode": tags_code}
            for at, size, tags_code in units
        ]
        body: dict[str, Any] = {
            "maxQueueIndex": queue.max_offset_in_queue,
            "minQueueIndex": queue.min_offset_in_queue,
            "queueData": data,
            **self._subscription(header.consumer_group, header.topic),
        }
        return RemotingCommand(ResponseCode.SUCCESS, body=await encode_in_turns(body))

    def _subscription(self, group: str | None, topic: str) -> dict[str, Any]:
        """As RocketMQ tells it: ``filterData`` is JSON of what SQL92 needs, null for tags, or says who is away."""
        if group is None:
            return {}
        members = self._consumers.find_group(group)
        known = members.subscriptions.get(topic) if members is not None else None
        if known is None:
            return {"filterData": f"{group:.200}@{topic:.200} is not online!"}
        return {"filterData": "null", "subscriptionData": subscription_json(known)}


async def pause(number: int) -> None:
    """Let everybody else go on before every so many queues."""
    if number % _QUEUES_AT_ONCE == 0:
        await trio.lowlevel.checkpoint()
