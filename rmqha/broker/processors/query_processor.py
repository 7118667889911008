"""QueryProcessor: offsets of queues, single messages, consumer offsets.

Source: spec: remoting §2.5, codes 14, 15, 29, 30, 31, 32, 33; rocketmq-all-4.9.8 AdminBrokerProcessor.java,
QueryMessageProcessor.java, ConsumerManageProcessor.java.
"""

from collections.abc import Callable
from itertools import islice
from typing import Final

import trio

from rmqha.broker.processors.pull_rules import PullRules
from rmqha.broker.pull_request_hold_service import PullRequestHoldService
from rmqha.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from rmqha.broker.visible import PATIENCE_S, comes_soon
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import (
    EarliestMsgStoretimeResponseHeader,
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
    ViewMessageRequestHeader,
    decode_header,
    encode_header,
)
from rmqha.codec.remoting import FLAG_RESPONSE, RemotingCommand
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.store.consume_queue import ConsumeQueue
from rmqha.store.message_store import DefaultMessageStore

_PLACES_MAX: Final = 256
"""So many queues of a topic say where a group is: a millisecond's work."""
_HEARD_OF_WITHIN_MS: Final = 120_000
"""Clients ask for routes every 30 s and share queues out every 20 s; others are consumed meanwhile."""


class QueryProcessor:
    """Answers from the consume queues and the log; an unknown queue has offsets 0, as in RocketMQ."""

    def __init__(
        self,
        store: DefaultMessageStore,
        offsets: ConsumerOffsetManager,
        holds: PullRequestHoldService,
        *,
        rules: PullRules,
    ) -> None:
        self._store = store
        self._offsets = offsets
        self._holds = holds
        self._far_behind_bytes = rules.far_behind_bytes

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Take the codes this processor answers."""
        dispatcher.register(RequestCode.GET_MAX_OFFSET, self.get_max_offset)
        dispatcher.register(RequestCode.GET_MIN_OFFSET, self.get_min_offset)
        dispatcher.register(RequestCode.GET_EARLIEST_MSG_STORETIME, self.get_earliest_msg_storetime)
        dispatcher.register(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, self.search_offset_by_timestamp)
        dispatcher.register(RequestCode.VIEW_MESSAGE_BY_ID, self.view_message_by_id)
        dispatcher.register(RequestCode.QUERY_CONSUMER_OFFSET, self.query_consumer_offset)
        dispatcher.register(RequestCode.UPDATE_CONSUMER_OFFSET, self.update_consumer_offset)

    def get_max_offset(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """30: the offset the next message of the queue will get, as far as it can be seen."""
        header = decode_header(QueueRequestHeader, request)
        return self._once_visible(
            connection,
            request,
            header.topic,
            header.queue_id,
            lambda: self._store.get_max_offset_in_queue(header.topic, header.queue_id),
        )

    def _once_visible(
        self,
        connection: Connection,
        request: RemotingCommand,
        topic: str,
        queue_id: int,
        offset: Callable[[], int],
    ) -> RemotingCommand | None:
        """Answer once all of the queue can be seen, or soon: who reads up to there leaves nothing acknowledged out."""
        seen_end = self._store.get_max_offset_in_queue(topic, queue_id)
        if not comes_soon(self._store, topic, queue_id, seen_end=seen_end):
            return _offset(offset())
        self._store.request_flush()
        request = connection.let_go(request)

        def answer(_arrived: bool) -> None:
            if not connection.closed:
                with connection.fenced(request):
                    connection.respond(
                        request, ResponseCode.SUCCESS, ext_fields=encode_header(OffsetResponseHeader(offset()))
                    )

        self._holds.suspend_pull_request(
            topic,
            queue_id,
            offset=self._store.next_queue_offset(topic, queue_id) - 1,
            queue_end=seen_end,
            deadline=trio.current_time() + PATIENCE_S,
            retry=answer,
            peer=connection.peer,
        )
        return None

    def get_min_offset(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """31: the offset of the oldest message that is still there."""
        header = decode_header(QueueRequestHeader, request)
        return _offset(self._store.get_min_offset_in_queue(header.topic, header.queue_id))

    def get_earliest_msg_storetime(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """32: when the oldest message of the queue that is still there was stored."""
        header = decode_header(QueueRequestHeader, request)
        time_ms = self._store.earliest_message_time_in_queue_ms(header.topic, header.queue_id)
        return RemotingCommand(
            ResponseCode.SUCCESS, ext_fields=encode_header(EarliestMsgStoretimeResponseHeader(time_ms))
        )

    def search_offset_by_timestamp(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """29: the offset stored nearest to a time."""
        header = decode_header(SearchOffsetRequestHeader, request)
        topic, queue_id, time_ms = header.topic, header.queue_id, header.timestamp
        return self._once_visible(
            connection,
            request,
            topic,
            queue_id,
            lambda: self._store.get_offset_in_queue_by_time(topic, queue_id, timestamp_ms=time_ms),
        )

    def view_message_by_id(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """33: one stored message, by its physical offset; uncopied, as it may have megabytes."""
        offset = decode_header(ViewMessageRequestHeader, request).offset
        record = self._store.look_message_by_offset(offset)
        if record is None:
            return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=f"can not find message by offset {offset}")
        if request.is_oneway:
            return RemotingCommand(ResponseCode.SUCCESS)
        response = RemotingCommand(ResponseCode.SUCCESS, request.opaque, FLAG_RESPONSE, serialize=request.serialize)
        connection.send_response(response.encode_header(len(record)), record, size=request.size)
        return None

    def query_consumer_offset(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """14: where a group goes on; without a commit, or with a negative one, where the queue begins if that is there.

        It begins at 0, or where its topic was deleted. Clients that are told that nothing is found begin where they
        choose, by default at the end: also a new group, if the beginning is far behind
        (accessMessageInMemoryMaxRatio).
        Source: rocketmq-all-4.9.8 ConsumerManageProcessor.java, queryConsumerOffset.
        """
        header = decode_header(QueryConsumerOffsetRequestHeader, request)
        offset = self._offsets.query_offset(header.consumer_group, header.topic, header.queue_id)
        if offset is None:
            self._offsets.check_known()
        if offset is None or offset < 0:
            begins_at = self._store.queues.deleted_end(header.topic, header.queue_id)
            is_whole = self._store.get_min_offset_in_queue(header.topic, header.queue_id) <= begins_at
            is_wanted = is_whole and not self._may_choose(header, begins_at)
            offset = begins_at if is_wanted else None
        if offset is None:
            return RemotingCommand(
                ResponseCode.QUERY_NOT_FOUND, remark="Not found, maybe this group consumer boot first"
            )
        return _offset(offset)

    def _may_choose(self, header: QueryConsumerOffsetRequestHeader, begins_at: int) -> bool:
        """Whether the queue's beginning is far behind, and came before whatever the group has had of the topic.

        Else the queue was added to what the group consumes: RocketMQ's passes over what it holds. Queues of which
        nothing is left, or nothing ever was, tell nothing of that.
        """
        topic = header.topic
        queue = self._store.queues.find(topic, header.queue_id)
        unit = None if queue is None else next(queue.units(begins_at, 1), None)
        if unit is None or self._store.max_offset - unit[0] <= self._far_behind_bytes:
            return False
        places = self._offsets.query_offsets(header.consumer_group, topic)
        some = islice(places.items(), _PLACES_MAX)
        stands = [self._stands_at(topic, queue_id, place) for queue_id, place in some if place >= 0]
        known = [place for place in stands if place is not None]
        if not known:
            return True
        _, *least = min(known)
        since_ms = self._store.store_time_in_queue(topic, header.queue_id, begins_at)
        return self._store.store_time_in_queue(topic, *least) - since_ms > _HEARD_OF_WITHIN_MS

    def _stands_at(self, topic: str, queue_id: int, place: int) -> tuple[int, int, int] | None:
        """Offset in the log, queue and index of the last message before ``place``; of the first behind if that is gone.

        None: nothing of the queue is there.
        """
        queue = self._store.queues.find(topic, queue_id)
        if queue is None:
            return None
        had = min(place, queue.max_offset_in_queue) - 1
        following = max(had + 1, queue.min_offset_in_queue)
        last, first = (self._phy_offset_of(queue, index) for index in (had, following))
        if last is not None:
            return last, queue_id, had
        return None if first is None else (first, queue_id, following)

    def _phy_offset_of(self, queue: ConsumeQueue, index: int) -> int | None:
        unit = queue.unit(index)
        return None if unit is None or unit[0] < self._store.min_offset else unit[0]

    def update_consumer_offset(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """15: a group commits how far it is; a slave takes it too."""
        header = decode_header(UpdateConsumerOffsetRequestHeader, request)
        self._offsets.commit_offset(
            header.consumer_group, header.topic, header.queue_id, offset=header.commit_offset, peer=connection.peer
        )
        return RemotingCommand(ResponseCode.SUCCESS)


def _offset(offset: int) -> RemotingCommand:
    return RemotingCommand(ResponseCode.SUCCESS, ext_fields=encode_header(OffsetResponseHeader(offset)))
