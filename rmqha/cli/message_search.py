"""Looking for messages at one broker. Each function returns what was found, and why if that is nothing."""

from rmqha.cli.ask import BrokerConnection, RefusedError
from rmqha.client.message import MessageExt, read_message
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import UNIQUE_KEY_QUERY, QueryMessageRequestHeader, ViewMessageRequestHeader
from rmqha.codec.message_id import decode_message_id
from rmqha.codec.record.message import decode_message
from rmqha.errors import RemoteProtocolError, StoreError
from rmqha.logs import escaped

Found = tuple[list[MessageExt], str]

_BODIES_SIZE_MAX = 64 << 20
"""Of the bodies that are inflated, together; what is beyond is shown as it is stored."""
_UNIQUE_MAX = 32


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


def _query(connection: BrokerConnection, header: QueryMessageRequestHeader, broker_name: str, *, unique: str) -> Found:
    try:
        answer = connection.ask_for(RequestCode.QUERY_MESSAGE, header, more={UNIQUE_KEY_QUERY: unique})
    except RefusedError as error:
        if error.code == ResponseCode.QUERY_NOT_FOUND:
            return [], error.remark
        raise
    return _read(bytes(answer.body), broker_name), ""


def _read(body: bytes, broker_name: str) -> list[MessageExt]:
    messages, at, left = list[MessageExt](), 0, _BODIES_SIZE_MAX
    while at < len(body):
        try:
            stored = decode_message(body, at)
        except StoreError as error:
            raise RemoteProtocolError(f"what came is no message: {escaped(str(error))}") from None
        at += stored.store_size
        message = read_message(stored, broker_name, body_size_max=max(left, 0))
        left -= _BODIES_SIZE_MAX if message.body_problem else len(message.body) - len(stored.body)
        messages.append(message)
    return messages
