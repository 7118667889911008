"""PullApi: the requests a consumer makes, and which broker is asked."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from rmqha.client.consumer_options import ConsumerOptions
from rmqha.client.message import MessageExt, MessageQueue, read_message
from rmqha.client.results import PULL_STATUS_BY_CODE, PullResult, PullStatus, broker_error
from rmqha.codec.codes import NO_GROUP, RequestCode, ResponseCode
from rmqha.codec.headers import (
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    PullSysFlag,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
    decode_header,
    encode_header,
)
from rmqha.codec.heartbeat import SUBSCRIBE_ALL
from rmqha.codec.properties import TAGS
from rmqha.codec.record.message import StoredMessage, decode_message
from rmqha.codec.remoting import RemotingCommand, SerializeType
from rmqha.codec.route import MASTER_ID, BrokerData
from rmqha.errors import MQClientError, NoRouteError, RemoteProtocolError, RemotingError, StoreError
from rmqha.remoting.connections import Connections

_ANSWER_LATER_S: Final = 10.0
"""How much longer than the time it may hold a pull a broker is given to answer."""

INFLATED_TOGETHER_MAX: Final = 16 * 1024 * 1024
"""Bytes that bodies grow by, behind which no more messages of an answer are inflated before these are handed out."""

_CLOCKS_DIFFER_MS: Final = 5000
"""By no more, it is assumed, do the clocks of a master and its successor differ."""


class Pulled(NamedTuple):
    """The answer to a pull: the records that have passed the tag filter, with bodies as they are stored."""

    status: PullStatus
    records: Sequence[StoredMessage]
    next_begin_offset: int
    min_offset: int
    max_offset: int
    suggest_which_broker_id: int


class PullApi:
    """Asks the brokers of one topic on behalf of one group, or of none."""

    def __init__(self, connections: Connections, *, group: str | None, tags: str, options: ConsumerOptions) -> None:
        self._connections = connections
        self._group = group or NO_GROUP
        self._subscription = tags.strip() or SUBSCRIBE_ALL
        self._tags = frozenset(tag for part in self._subscription.split("||") if (tag := part.strip()))
        if not self._tags:
            raise MQClientError(f"the tag expression {tags!r} names no tag: use '*' or 'TagA || TagB'")
        self._timeout_s = options.timeout_s
        self._body_size_max = options.body_size_max
        self._brokers: dict[str, dict[int, str]] = {}
        self._read: dict[MessageQueue, tuple[int, int]] = {}
        """Where the last pull of a queue led to, and when the last record was stored that one found."""

    def set_brokers(self, broker_datas: Iterable[BrokerData]) -> None:
        """The addresses as the route tells them. A broker that it no longer names keeps its last ones."""
        for broker in broker_datas:
            self._brokers[broker.broker_name] = broker.broker_addrs

    def broker_ids(self, queue: MessageQueue) -> list[int]:
        """The brokers that hold the queue: 0 the master, if there is one, then the slaves."""
        return sorted(self._brokers.get(queue.broker_name, ()))

    def suggested_id(self, queue: MessageQueue, pulled: Pulled) -> int:
        """Of the broker that is to be asked next, as the one that answered says."""
        ids = self.broker_ids(queue)
        return pulled.suggest_which_broker_id if pulled.suggest_which_broker_id in ids else min(ids, default=0)

    def _address(self, queue: MessageQueue, broker_id: int) -> str:
        addresses = self._brokers.get(queue.broker_name)
        if not addresses:
            raise NoRouteError(f"no address of broker {queue.broker_name} is known")
        return addresses.get(broker_id) or addresses[min(addresses)]

    async def pull(
        self, queue: MessageQueue, offset: int, *, max_messages: int, suspend_s: float, broker_id: int = 0
    ) -> Pulled:
        """Records from ``offset`` on; if there are none, the broker waits for up to ``suspend_s``.

        A queue that ends before a place to which pulls of it have led was cut there, as when a slave was made master
        that held less, and what came since lies in places that were read already: ``next_begin_offset`` is then the
        first message that may be new, by its store time.

        Raises:
            RemotingError, MQBrokerError: no answer, or a refusal.
            RemoteProtocolError: the answer holds what is no message.
        """
        pulled = await self._pull_once(
            queue, offset, max_messages=max_messages, suspend_s=suspend_s, broker_id=broker_id
        )
        led_to, stored_ms = self._read.get(queue, (-1, 0))
        if pulled.status is PullStatus.OFFSET_ILLEGAL and pulled.max_offset < offset == led_to:
            begin = await self.search_offset(queue, stored_ms - _CLOCKS_DIFFER_MS)
            return pulled._replace(next_begin_offset=min(begin, pulled.next_begin_offset))
        if pulled.records:
            self._read[queue] = (pulled.next_begin_offset, pulled.records[-1].store_timestamp_ms)
        elif offset == led_to:
            self._read[queue] = (pulled.next_begin_offset, stored_ms)
        return pulled

    async def _pull_once(
        self, queue: MessageQueue, offset: int, *, max_messages: int, suspend_s: float, broker_id: int = 0
    ) -> Pulled:
        header = PullMessageRequestHeader(
            self._group,
            queue.topic,
            queue.queue_id,
            queue_offset=offset,
            max_msg_nums=max_messages,
            sys_flag=PullSysFlag.SUBSCRIPTION | (PullSysFlag.SUSPEND if suspend_s else 0),
            commit_offset=0,
            suspend_timeout_millis=int(suspend_s * 1000),
            subscription=self._subscription,
            expression_type="TAG",
        )
        timeout_s = suspend_s + _ANSWER_LATER_S if suspend_s else self._timeout_s
        response = await self._ask(queue, RequestCode.PULL_MESSAGE, header, timeout_s, broker_id)
        status = PULL_STATUS_BY_CODE.get(response.code)
        if status is None:
            raise broker_error(response)
        found = decode_header(PullMessageResponseHeader, response)
        return Pulled(
            status,
            self._read_records(response.body, queue),
            found.next_begin_offset,
            found.min_offset,
            found.max_offset,
            found.suggest_which_broker_id,
        )

    def _read_records(self, body: bytes, queue: MessageQueue) -> list[StoredMessage]:
        """Brokers filter by hash code; here the tags themselves are compared."""
        records = []
        at = 0
        while at < len(body):
            try:
                stored = decode_message(body, at)
            except StoreError as error:
                raise RemoteProtocolError(f"broker {queue.broker_name} sent what is no message: {error}") from None
            at += stored.store_size
            if self._subscription == SUBSCRIBE_ALL or stored.properties.get(TAGS) in self._tags:
                records.append(stored)
        return records

    def read_some(
        self, records: Sequence[StoredMessage], queue: MessageQueue
    ) -> tuple[list[MessageExt], Sequence[StoredMessage]]:
        """The first of these messages, and the records that are left: small bodies may inflate to large ones.

        At least one is read, and all if they grow by no more than :data:`INFLATED_TOGETHER_MAX` together.
        """
        messages, grown = list[MessageExt](), 0
        for stored in records:
            if grown > INFLATED_TOGETHER_MAX:
                return messages, records[len(messages) :]
            message = read_message(stored, queue.broker_name, body_size_max=self._body_size_max)
            grown += self._body_size_max if message.body_problem else len(message.body) - len(stored.body)
            messages.append(message)
        return messages, ()

    async def pull_messages(self, queue: MessageQueue, offset: int, *, max_messages: int) -> PullResult:
        """As :meth:`pull`, without waiting; of messages that inflate to much the first ones. Raises the same."""
        pulled = await self._pull_once(queue, offset, max_messages=max_messages, suspend_s=0)
        messages, left = self.read_some(pulled.records, queue)
        next_begin_offset = left[0].queue_offset if left else pulled.next_begin_offset
        return PullResult(
            pulled.status,
            messages,
            next_begin_offset,
            pulled.min_offset,
            pulled.max_offset,
            pulled.suggest_which_broker_id,
        )

    async def min_offset(self, queue: MessageQueue) -> int:
        """The first offset there is. Raises RemotingError, MQBrokerError."""
        return await self._offset(queue, RequestCode.GET_MIN_OFFSET, QueueRequestHeader(queue.topic, queue.queue_id))

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset that the next message will get. Raises RemotingError, MQBrokerError."""
        return await self._offset(queue, RequestCode.GET_MAX_OFFSET, QueueRequestHeader(queue.topic, queue.queue_id))

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The offset nearest to a store time. Raises RemotingError, MQBrokerError."""
        header = SearchOffsetRequestHeader(queue.topic, queue.queue_id, timestamp_ms)
        return await self._offset(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def committed_offset(self, queue: MessageQueue) -> int | None:
        """Where the group goes on, or None if it never committed. Raises RemotingError, MQBrokerError.

        A broker says 0, too, of a group that never committed, as long as the queue still begins there.
        """
        header = QueryConsumerOffsetRequestHeader(self._group, queue.topic, queue.queue_id)
        response = await self._ask_any(queue, RequestCode.QUERY_CONSUMER_OFFSET, header)
        return None if response.code == ResponseCode.QUERY_NOT_FOUND else _read_offset(response)

    async def commit_offset(self, queue: MessageQueue, offset: int) -> None:
        """The group goes on at ``offset``. Raises RemotingError, MQBrokerError."""
        header = UpdateConsumerOffsetRequestHeader(self._group, queue.topic, queue.queue_id, offset)
        response = await self._ask_any(queue, RequestCode.UPDATE_CONSUMER_OFFSET, header)
        if response.code != ResponseCode.SUCCESS:
            raise broker_error(response)

    async def _offset(self, queue: MessageQueue, code: RequestCode, header: object) -> int:
        return _read_offset(await self._ask_any(queue, code, header))

    async def _ask_any(self, queue: MessageQueue, code: RequestCode, header: object) -> RemotingCommand:
        """The answer of the queue's master, or of the first slave that answers while it does not."""
        *others, last = self.broker_ids(queue) or [MASTER_ID]
        for broker_id in others:
            with suppress(RemotingError):
                return await self._ask(queue, code, header, self._timeout_s, broker_id)
        return await self._ask(queue, code, header, self._timeout_s, last)

    async def _ask(
        self, queue: MessageQueue, code: RequestCode, header: object, timeout_s: float, broker_id: int
    ) -> RemotingCommand:
        request = RemotingCommand(code, ext_fields=encode_header(header), serialize=SerializeType.ROCKETMQ)
        return await self._connections.invoke(self._address(queue, broker_id), request, timeout_s=timeout_s)


def _read_offset(response: RemotingCommand) -> int:
    if response.code != ResponseCode.SUCCESS:
        raise broker_error(response)
    return decode_header(OffsetResponseHeader, response).offset
