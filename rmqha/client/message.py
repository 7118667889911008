"""Messages as a caller sees them: what is sent, what is received, and the queues they lie in."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from rmqha.client.compression import decompress_body
from rmqha.codec import properties as names
from rmqha.codec.host import decode_host
from rmqha.codec.limits import properties_problem, topic_problem
from rmqha.codec.record.layout import PROPERTIES_SIZE_MAX, SysFlag
from rmqha.codec.record.message import StoredMessage
from rmqha.errors import MQClientError
from rmqha.memory import BytesLike

DELAY_LEVEL_MAX: Final = 18
_host_text = lru_cache(maxsize=1024)(decode_host)

_RESERVED: Final = frozenset(
    {names.KEYS, names.TAGS, names.WAIT, names.DELAY, names.UNIQ_KEY, names.RETRY_TOPIC, names.REAL_TOPIC}
    | {names.REAL_QID, names.TRAN_MSG, names.PGROUP, names.CLUSTER, names.ORIGIN_MESSAGE_ID}
    | {names.MAX_RECONSUME_TIMES, names.RECONSUME_TIME, names.TRANSACTION_CHECK_TIMES}
)


class MessageQueue(NamedTuple):
    """One queue of a topic on one broker."""

    topic: str
    broker_name: str
    queue_id: int


@dataclass(slots=True)
class Message:
    """What a producer sends.

    Attributes:
        tags: one tag, by which consumers filter.
        keys: words by which the message can be looked up; none may hold a blank.
        properties: further names and values, neither empty.
        delay_level: 0 none; 1..18 deliver 1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h later.
        flag: a number of the caller's own.
        wait_store_msg_ok: False: the broker answers before the message is flushed and replicated.
    """

    topic: str
    body: bytes
    tags: str | None = None
    keys: str | Sequence[str] = ()
    properties: Mapping[str, str] | None = None
    delay_level: int = 0
    flag: int = 0
    wait_store_msg_ok: bool = True


class MessageExt(NamedTuple):
    """What a consumer receives.

    Attributes:
        body: decompressed; if that was impossible as stored, and then ``body_problem`` says why.
        msg_id: the producer's id, or ``offset_msg_id`` if it gave none.
        offset_msg_id: where the message is stored, as hexadecimal text.
    """

    topic: str
    queue: MessageQueue
    queue_offset: int
    body: bytes
    tags: str | None
    keys: tuple[str, ...]
    properties: dict[str, str]
    msg_id: str
    offset_msg_id: str
    flag: int
    sys_flag: int
    born_timestamp_ms: int
    born_host: str
    store_timestamp_ms: int
    store_host: str
    physical_offset: int
    reconsume_times: int
    body_problem: str = ""


def render_properties(message: Message, msg_id: str) -> bytes:
    """The stored form of everything but the body.

    Raises:
        MQClientError: a broker would refuse it, or store something else than what was meant.
    """
    parts = [f"UNIQ_KEY\x01{msg_id}\x02WAIT\x01{'true' if message.wait_store_msg_ok else 'false'}"]
    if message.tags:
        parts.append(f"TAGS\x01{message.tags}")
    if message.keys:
        parts.append(f"KEYS\x01{message.keys if isinstance(message.keys, str) else ' '.join(message.keys)}")
    if message.delay_level:
        if not 0 <= message.delay_level <= DELAY_LEVEL_MAX:
            raise MQClientError(f"delay level {message.delay_level} is not in 0..{DELAY_LEVEL_MAX}")
        parts.append(f"DELAY\x01{message.delay_level}")
    if message.properties:
        parts += [f"{name}\x01{value}" for name, value in _checked(message.properties).items()]
    text = "\x02".join(parts)
    if text.count("\x02") != len(parts) or text.count("\x01") != len(parts) + 1:
        raise MQClientError("tags, keys or properties hold U+0001 or U+0002, which nothing can escape: remove it")
    try:
        rendered = text.encode()
    except UnicodeEncodeError as error:
        raise MQClientError(f"tags, keys or properties cannot be written as UTF-8: {error}") from None
    if len(rendered) > PROPERTIES_SIZE_MAX:
        raise MQClientError(properties_problem(len(rendered)))
    return rendered


def _checked(properties: Mapping[str, str]) -> Mapping[str, str]:
    for name, value in properties.items():
        if not name or not value:
            raise MQClientError(f"property {name!r}: neither a name nor a value may be empty")
        if name in _RESERVED:
            raise MQClientError(
                f"property {name!r} is RocketMQ's own: leave it out; keys and tags have places of their own"
            )
    return properties


def check_message(message: Message, *, message_size_max: int) -> None:
    """Raise MQClientError for a body or flag that any broker would refuse."""
    if not isinstance(message.body, BytesLike):
        raise MQClientError(f"the body is {type(message.body).__name__}, not bytes: encode it")
    if not 0 < len(message.body) <= message_size_max:
        if message.body:
            raise MQClientError(f"body of {len(message.body)} bytes, at most {message_size_max} are accepted")
        raise MQClientError("the body is empty: RocketMQ's clients refuse that")
    if not -0x80000000 <= message.flag <= 0x7FFFFFFF:
        raise MQClientError(f"flag {message.flag} is no int32")


def check_topic(topic: str) -> None:
    """Raise MQClientError for a name that no topic can have."""
    if problem := topic_problem(topic):
        raise MQClientError(problem)


def read_message(stored: StoredMessage, broker_name: str, *, body_size_max: int) -> MessageExt:
    """A stored record as a consumer sees it."""
    properties = stored.properties
    body, problem = stored.body, ""
    if stored.sys_flag & SysFlag.COMPRESSED:
        body, problem = decompress_body(body, stored.sys_flag, size_max=body_size_max)
    offset_msg_id = stored.offset_msg_id
    return MessageExt(
        topic=stored.topic,
        queue=MessageQueue(stored.topic, broker_name, stored.queue_id),
        queue_offset=stored.queue_offset,
        body=body,
        tags=properties.get(names.TAGS),
        keys=tuple(properties.get(names.KEYS, "").split()),
        properties=properties,
        msg_id=properties.get(names.UNIQ_KEY) or offset_msg_id,
        offset_msg_id=offset_msg_id,
        flag=stored.flag,
        sys_flag=stored.sys_flag,
        born_timestamp_ms=stored.born_timestamp_ms,
        born_host=_host_text(stored.born_host_raw),
        store_timestamp_ms=stored.store_timestamp_ms,
        store_host=_host_text(stored.store_host_raw),
        physical_offset=stored.physical_offset,
        reconsume_times=stored.reconsume_times,
        body_problem=problem,
    )
