"""Half messages, and the records that come of one.

A half message is a producer's message in a topic that nobody subscribes to, with its own destination among its
properties. A commit writes it once more, to its destination; commit and rollback alike write a mark into a second
topic, whose body is the half message's place in its queue. All of this is read by RocketMQ's brokers, too, which may
go on with a store of ours, or have left one.

Source: spec: remoting §2.4, commitlog §2.5, §3; rocketmq-all-4.9.8 TransactionalMessageBridge.java,
EndTransactionProcessor.java, DefaultTransactionalMessageCheckListener.java.
"""

from collections.abc import Callable
from dataclasses import replace
from hashlib import blake2b
from typing import Final, NamedTuple

from rmqha.codec.crc import crc32
from rmqha.codec.limits import topic_problem
from rmqha.codec.properties import (
    PGROUP,
    REAL_QID,
    REAL_TOPIC,
    TRANSACTION_CHECK_TIMES,
    UNIQ_KEY,
    find_property,
    pairs_of,
)
from rmqha.codec.record.encoder import PreparedRecord, prepare, without_nul
from rmqha.codec.record.layout import SysFlag, fields_struct, fixed_part, physical_offset_at
from rmqha.codec.record.message import StoredMessage
from rmqha.errors import RemoteProtocolError
from rmqha.store.status import AppendResult

HALF_TOPIC: Final = "RMQ_SYS_TRANS_HALF_TOPIC"
OP_TOPIC: Final = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
CHECK_MAX_TIME_TOPIC: Final = "TRANS_CHECK_MAX_TIME_TOPIC"
"""Of half messages about which producers were asked for too long."""
CONSUMER_GROUP: Final = "CID_RMQ_SYS_TRANS"
"""As which the broker itself reads the first two; how far it is stands in consumerOffset.json."""
QUEUE_ID: Final = 0
"""Each of these topics has one queue."""
CHECK_IMMUNITY_TIME: Final = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PREPARED_QUEUE_OFFSET: Final = "TRAN_PREPARED_QUEUE_OFFSET"
"""Where the half message lay first, which its producer was told of."""

_MARK_PROPERTIES: Final = b"WAIT\x01true\x02TAGS\x01d"
_NOTED: Final = (TRANSACTION_CHECK_TIMES.encode(), PREPARED_QUEUE_OFFSET.encode())
_NO_TRANSACTION: Final = ~SysFlag.TRANSACTION_TYPE
_FIELDS: Final = fields_struct("body_crc", "queue_offset", "sys_flag", "born_timestamp", "body_size")
_TOPIC_SIZE: Final = 1 + len(OP_TOPIC) + 2
"""Of the topic with its length, and the length of the properties."""
_KEY_SIZE: Final = 16
_DIGITS_MAX: Final = 18
"""Any number of so many is an int64."""


class Mark(NamedTuple):
    """What says that half messages are done with."""

    queue_offset: int
    """Its own place."""
    half_offsets: list[int]
    """Theirs."""
    physical_offset: int | None
    """Where it lies in the log; None: it cannot be read, and may be of any half message before it."""


def half_properties(stored: bytes, *, topic: str, queue_id: int) -> bytes:
    """The properties of a half message whose own are ``stored``, and whose destination is this.

    What only brokers note is left out, as of a message that a producer got in a question and sends again.
    """
    pairs = pairs_of(stored)
    for name in (TRANSACTION_CHECK_TIMES, PREPARED_QUEUE_OFFSET):
        pairs.pop(name.encode(), None)
    stored = set_property(b"\x02".join(pairs.values()), REAL_TOPIC, topic)
    return set_property(stored, REAL_QID, str(queue_id))


def real_destination(half: StoredMessage) -> tuple[str, int]:
    """Topic and queue of a half message.

    Raises:
        RemoteProtocolError: it does not say.
    """
    topic, queue_id = text_property(half, REAL_TOPIC), number_property(half, REAL_QID)
    if topic_problem(topic) or queue_id is None or queue_id >= 1 << 31:
        raise RemoteProtocolError("the half message does not say where it belongs")
    return topic, queue_id


def committed(
    half: StoredMessage, *, store_host: bytes, queue_for: Callable[[str, int], int] = lambda _topic, queue_id: queue_id
) -> PreparedRecord:
    """The message that consumers see. Its properties are those of the half message, as in RocketMQ.

    ``queue_for(topic, queue_id)`` is the queue of the topic that it goes to in place of its own.

    Raises:
        RemoteProtocolError: it does not say where it belongs.
        LocalProtocolError: it cannot be stored there.
    """
    topic, queue_id = real_destination(half)
    return _copy(
        half,
        topic,
        queue_id=queue_for(topic, queue_id),
        properties=half.properties_raw,
        store_host=store_host,
        sys_flag=half.sys_flag & _NO_TRANSACTION | SysFlag.TRANSACTION_COMMIT,
        prepared_transaction_offset=half.physical_offset,
    )


def checked_once_more(half: StoredMessage, *, store_host: bytes) -> PreparedRecord:
    """The half message as it is written again before its producer is asked, which is then counted."""
    times = str(check_times(half) + 1)
    return _half_again(half, set_property(half.properties_raw, TRANSACTION_CHECK_TIMES, times), store_host=store_host)


def put_off(half: StoredMessage, *, store_host: bytes) -> PreparedRecord:
    """The half message as it is written again while its producer is not to be asked."""
    return _half_again(half, half.properties_raw, store_host=store_host)


def first_place(half: StoredMessage) -> int:
    """The place in its queue that its producer was told at first, as far as it says."""
    first = number_property(half, PREPARED_QUEUE_OFFSET)
    return half.queue_offset if first is None else first


def without_first_place(half: StoredMessage) -> StoredMessage:
    """The half message if it lay at no place before that is known."""
    pairs = pairs_of(half.properties_raw)
    pairs.pop(PREPARED_QUEUE_OFFSET.encode(), None)
    return replace(half, properties_raw=b"\x02".join(pairs.values()))


def moved(half: StoredMessage, record: PreparedRecord, result: AppendResult) -> StoredMessage:
    """The half message as it was written again in ``record``, and where that is."""
    return replace(
        half,
        physical_offset=result.wrote_offset,
        queue_offset=result.queue_offset,
        store_size=record.size,
        store_host_raw=record.store_host_raw,
        sys_flag=record.sys_flag,
        properties_raw=record.tail[1 + len(HALF_TOPIC) + 2 :],
    )


def discarded(half: StoredMessage, *, store_host: bytes, queue_for: Callable[[str, int], int]) -> PreparedRecord:
    """The half message where nobody asks about it any more; ``queue_for`` as of :func:`committed`."""
    topic, properties = CHECK_MAX_TIME_TOPIC, half.properties_raw
    return _copy(half, topic, queue_id=queue_for(topic, QUEUE_ID), properties=properties, store_host=store_host)


def removal_mark(queue_offset: int, *, store_host: bytes, born_timestamp_ms: int) -> PreparedRecord:
    """Byte for byte what RocketMQ writes when the half message at ``queue_offset`` is done with."""
    return prepare(
        OP_TOPIC,
        b"%d" % queue_offset,
        queue_id=QUEUE_ID,
        born_timestamp_ms=born_timestamp_ms,
        born_host_raw=store_host,
        store_host_raw=store_host,
        properties_raw=_MARK_PROPERTIES,
    )


def mark_in(record: memoryview) -> Mark:
    """Of a record in the log that a broker stored; damaged if its body is.

    There may be many to read before anybody may end a transaction: this takes a fraction of the time of decoding.
    """
    crc, queue_offset, _, body_at, topic_at = _parts_of(record)
    body = bytes(record[body_at:topic_at])
    if crc32(body) & 0x7FFFFFFF != crc:
        return Mark(queue_offset, [], None)
    half_offsets = _numbers(bytes(record[topic_at + _TOPIC_SIZE :]), body)
    return Mark(queue_offset, half_offsets, physical_offset_at(record))


HalfKey = bytes
"""A digest of what a half message has at each of its places, and another one has not: group, unique key, destination,
when it was born, and its body. A producer that sends one message object again sends its unique key again, and others
may send it, too; the key may have 32 KB, and many are remembered."""


class HalfPlace(NamedTuple):
    """Of a half message in the log, whose body is not looked at."""

    queue_offset: int
    properties: bytes
    key: HalfKey | None
    """None: it has no unique key."""


def key_of(half: StoredMessage) -> HalfKey | None:
    """As :attr:`HalfPlace.key`."""
    return _key(half.properties_raw, half.born_timestamp_ms, half.body_crc, len(half.body))


def is_committed_by(half: StoredMessage, commit: StoredMessage) -> bool:
    """Whether that message is what consumers see of this half message: all brokers copy what is compared."""
    return (
        commit.topic == real_destination(half)[0]
        and commit.born_timestamp_ms == half.born_timestamp_ms
        and commit.body == half.body
        and find_property(commit.properties_raw, UNIQ_KEY.encode())
        == find_property(half.properties_raw, UNIQ_KEY.encode())
    )


def place_of(record: memoryview) -> HalfPlace:
    """Of a half message in the log."""
    crc, queue_offset, born_timestamp_ms, body_at, topic_at = _parts_of(record)
    properties = bytes(record[topic_at + 1 + len(HALF_TOPIC) + 2 :])
    return HalfPlace(queue_offset, properties, _key(properties, born_timestamp_ms, crc, topic_at - body_at))


def _key(properties: bytes, born_timestamp_ms: int, body_crc: int, body_size: int) -> HalfKey | None:
    properties = without_nul(properties)  # as a copy has them
    unique_key = find_property(properties, UNIQ_KEY.encode())
    if not unique_key:
        return None
    digest = blake2b(digest_size=_KEY_SIZE)
    for name in (PGROUP, REAL_TOPIC, REAL_QID):
        digest.update(_sized(find_property(properties, name.encode()) or b""))
    digest.update(b"%d,%d,%d," % (born_timestamp_ms, body_crc, body_size))
    digest.update(unique_key)
    return digest.digest()


def _sized(text: bytes) -> bytes:
    """So that no end of one may be the beginning of the next."""
    return b"%d," % len(text) + text


def _parts_of(record: memoryview) -> tuple[int, int, int, int, int]:
    """BODYCRC, QUEUEOFFSET, BORNTIMESTAMP, and where the body begins and ends."""
    crc, queue_offset, sys_flag, born_timestamp_ms, body_size = _FIELDS.unpack_from(record)
    fixed = fixed_part(sys_flag)
    if sys_flag & SysFlag.HOSTS_V6:
        body_size = fixed.unpack_from(record)[-1]
    return crc, queue_offset, born_timestamp_ms, fixed.size, fixed.size + body_size


def _numbers(properties: bytes, body: bytes) -> list[int]:
    """RocketMQ 5 marks several at once, with commas between them."""
    if find_property(properties, b"TAGS") != b"d":
        return []
    return [int(text) for text in body.split(b",") if _is_number(text)]


def is_written_again(properties: bytes) -> bool:
    """Whether a half message with these properties lay at an earlier place before."""
    return any(_is_number(find_property(properties, name) or b"") for name in _NOTED)


def check_times(half: StoredMessage) -> int:
    """How often the producer was asked about it."""
    return number_property(half, TRANSACTION_CHECK_TIMES) or 0


def text_property(half: StoredMessage, name: str) -> str:
    """Empty if it is not there."""
    return str(find_property(half.properties_raw, name.encode()) or b"", "utf-8", "replace")


def number_property(half: StoredMessage, name: str) -> int | None:
    """None if there is none, or no int64 that is 0 or more."""
    raw = find_property(half.properties_raw, name.encode()) or b""
    return int(raw) if _is_number(raw) else None


def _is_number(text: bytes) -> bool:
    return text.isdigit() and len(text) <= _DIGITS_MAX


def set_property(raw: bytes, name: str, value: str) -> bytes:
    """Properties in which ``name`` has this value; malformed pairs are left out, all others stay as they are."""
    pairs = pairs_of(raw)
    pairs[name.encode()] = f"{name}\x01{value}".encode()
    return b"\x02".join(pairs.values())


def _half_again(half: StoredMessage, properties: bytes, *, store_host: bytes) -> PreparedRecord:
    """RocketMQ forgets FLAG and RECONSUMETIMES here; the committed message is to have what its producer gave it.

    RocketMQ notes the first place only of one that is put off. Here its mark tells of all of them that they have ended.
    """
    properties = set_property(properties, PREPARED_QUEUE_OFFSET, str(first_place(half)))
    return _copy(half, HALF_TOPIC, queue_id=half.queue_id, properties=properties, store_host=store_host)


def _copy(
    half: StoredMessage,
    topic: str,
    *,
    queue_id: int,
    properties: bytes,
    store_host: bytes,
    sys_flag: int | None = None,
    prepared_transaction_offset: int = 0,
) -> PreparedRecord:
    return prepare(
        topic,
        half.body,
        queue_id=queue_id,
        born_timestamp_ms=half.born_timestamp_ms,
        born_host_raw=half.born_host_raw,
        store_host_raw=store_host,
        properties_raw=without_nul(properties),
        flag=half.flag,
        sys_flag=half.sys_flag if sys_flag is None else sys_flag,
        reconsume_times=half.reconsume_times,
        prepared_transaction_offset=prepared_transaction_offset,
    )
