"""Looking for messages at one broker. Each function returns what was found, and why if that is nothing."""

import time
from collections.abc import Iterable, Iterator

from rmqha.cli.ask import BrokerConnection, RefusedError
from rmqha.cli.broker_tables import topic_stats
from rmqha.cli.errors import CliError
from rmqha.cli.pages import Page
from rmqha.client.message import MessageExt, read_message
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import (
    UNIQUE_KEY_QUERY,
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullSysFlag,
    QueryMessageRequestHeader,
    SearchOffsetRequestHeader,
    ViewMessageRequestHeader,
    decode_header,
)
from rmqha.codec.message_id import decode_message_id
from rmqha.codec.record.message import StoredMessage, decode_message
from rmqha.errors import CorruptLogError, RemoteProtocolError, StoreError
from rmqha.logs import escaped

Found = tuple[list[MessageExt], str]

_BODIES_SIZE_MAX = 64 << 20
"""Of the bodies that are inflated, together; what is beyond is shown as it is stored."""
_BODY_CRC = "BODYCRC"
"""As decode_message begins to say of a body that is not what was sent."""
_UNIQUE_MAX = 32
_QUEUES_MAX = 256
_SEARCH_S = 30.0
"""Then no more queues are asked: each may take as long as a question may."""
_PULLED_MAX = 32
_NOTHING_THERE = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED)
_TOOLS_CONSUMER = "TOOLS_CONSUMER"
"""The group that RocketMQ's own tools pull as; every broker has it."""


def by_offset(connection: BrokerConnection, offset: int, *, broker_name: str) -> Found:
    """The message at a physical offset.

    Raises:
        RefusedError: not that it is not found.
        UnreachableError, RemoteProtocolError: no answer, or one that holds no message.
    """
    try:
        body = connection.ask_for(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageRequestHeader(offset)).body
    except RefusedError as error:
        if error.code == ResponseCode.SYSTEM_ERROR and "AclException" not in error.remark:
            return [], error.remark
        raise
    return _read(bytes(body), broker_name), ""


def by_id(connection: BrokerConnection, msg_id: str, topic: str | None, *, broker_name: str) -> Found:
    """The message with this offsetMsgId; or with this msgId, if its topic is known. Raises as :func:`by_offset`."""
    found, reason = list[MessageExt](), "it is no offsetMsgId of 32 or 56 hexadecimal characters"
    if (offset := _offset_of(msg_id)) is not None:
        reason = "no message lies where this id says, if it is an offsetMsgId"
        messages, _ = by_offset(connection, offset, broker_name=broker_name)
        found = [message for message in messages if message.offset_msg_id == msg_id.upper()]
    if found or topic is None:
        return found, reason
    header = QueryMessageRequestHeader(topic, msg_id, _UNIQUE_MAX, 0, (1 << 63) - 1)
    messages, reason = _query(connection, header, broker_name, unique="true")
    return [message for message in messages if message.msg_id == msg_id], reason


def _offset_of(msg_id: str) -> int | None:
    """The physical offset that an offsetMsgId holds; None if it is none."""
    try:
        _, offset = decode_message_id(msg_id)
    except RemoteProtocolError:
        return None
    return offset if offset >= 0 else None


def by_key(
    connection: BrokerConnection, topic: str, key: str, *, broker_name: str, limit: int, between_ms: tuple[int, int]
) -> Found:
    """The newest messages with a key, stored in a range of time. Raises as :func:`by_offset`.

    A RocketMQ broker compares hash codes alone.
    """
    header = QueryMessageRequestHeader(topic, key, limit, *between_ms)
    messages, reason = _query(connection, header, broker_name, unique="false")
    return [message for message in messages if key in (*message.keys, message.msg_id)], reason


def by_time(
    connection: BrokerConnection, topic: str, *, broker_name: str, limit: int, between_ms: tuple[int, int]
) -> Found:
    """The first messages of a topic that were stored in a range of time, oldest first. Raises as :func:`by_offset`."""
    queues = [queue for queue in topic_stats(connection, topic) if queue.first < queue.end]
    first, asked, until = list[StoredMessage](), 0, time.monotonic() + _SEARCH_S
    for queue in queues[:_QUEUES_MAX]:
        if time.monotonic() > until:
            break
        asked += 1
        in_queue = 0
        for one in _pull_since(connection, SearchOffsetRequestHeader(topic, queue.queue_id, between_ms[0]), queue.end):
            if one.store_timestamp_ms > between_ms[1] or in_queue == limit or time.monotonic() > until:
                break
            if one.store_timestamp_ms >= between_ms[0]:
                in_queue += 1
                first.append(one)
        first = sorted(first, key=lambda one: (one.store_timestamp_ms, one.physical_offset))[:limit]
    where = f"the {asked} queues that were asked" if asked < len(queues) or time.monotonic() > until else "any queue"
    return _readable(first, broker_name), f"no message of this topic was stored then, in {where}"


def _pull_since(connection: BrokerConnection, since: SearchOffsetRequestHeader, end: int) -> Iterator[StoredMessage]:
    """Of one queue, up to the offset ``end``; the first may be older: a broker finds one that is near."""
    offset = decode_header(
        OffsetResponseHeader, connection.ask_for(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, since)
    ).offset
    while offset < end:
        header = PullMessageRequestHeader(
            _TOOLS_CONSUMER,
            since.topic,
            since.queue_id,
            queue_offset=offset,
            max_msg_nums=_PULLED_MAX,
            sys_flag=PullSysFlag.SUBSCRIPTION,
            commit_offset=0,
            suspend_timeout_millis=0,
            subscription="*",
        )
        try:
            pulled = list(_stored(bytes(connection.ask_for(RequestCode.PULL_MESSAGE, header).body)))
        except RefusedError as error:
            if error.code in _NOTHING_THERE:
                return
            raise
        if not pulled or pulled[-1].queue_offset < offset:
            return
        yield from pulled
        offset = pulled[-1].queue_offset + 1


def _query(connection: BrokerConnection, header: QueryMessageRequestHeader, broker_name: str, *, unique: str) -> Found:
    try:
        answer = connection.ask_for(RequestCode.QUERY_MESSAGE, header, more={UNIQUE_KEY_QUERY: unique})
    except RefusedError as error:
        if error.code == ResponseCode.QUERY_NOT_FOUND:
            return [], error.remark
        raise
    return _read(bytes(answer.body), broker_name), ""


def _read(body: bytes, broker_name: str) -> list[MessageExt]:
    return _readable(_stored(body), broker_name)


def _stored(body: bytes) -> Iterable[StoredMessage]:
    at = 0
    while at < len(body):
        try:
            stored = decode_message(body, at)
        except StoreError as error:
            if isinstance(error, CorruptLogError) and error.reason.startswith(_BODY_CRC):
                raise _damaged(error.reason) from None
            raise RemoteProtocolError(f"what came is no message: {escaped(str(error))}") from None
        at += stored.store_size
        yield stored


def _damaged(reason: str) -> CliError:
    """A broker gave a record that is not what was stored."""
    hint = f"a replica may have it whole: name one with --broker. {Page.DAMAGED}"
    return CliError("the record there is damaged in the broker's log", why=escaped(reason), hint=hint)


def _readable(stored: Iterable[StoredMessage], broker_name: str) -> list[MessageExt]:
    messages, left = list[MessageExt](), _BODIES_SIZE_MAX
    for one in stored:
        message = read_message(one, broker_name, body_size_max=max(left, 0))
        left -= _BODIES_SIZE_MAX if message.body_problem else len(message.body) - len(one.body)
        messages.append(message)
    return messages
