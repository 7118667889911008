r"""SEND_MESSAGE's header (10 V1, 310 and 320 V2). Hot path. The answer is in send_answers.py.

    V2  V1                     type            V2  V1                 type
    a   producerGroup          text            h   flag               int32
    b   topic                  text            i   properties         text, optional
    c   defaultTopic           text            j   reconsumeTimes     int32, optional
    d   defaultTopicQueueNums  int32           k   unitMode           bool, optional
    e   queueId                int32           l   maxReconsumeTimes  int32, optional
    f   sysFlag                int32           m   batch              bool, optional
    g   bornTimestamp          int64, ms       n   bname              text, optional

Of a producer's header only g, h and i change from message to message: what stands before g and after i is looked up by
its bytes instead of being parsed again.

Source: spec: remoting §2.4; rocketmq-all-4.9.8 SendMessageRequestHeaderV2.java.
"""

import re
import struct
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeVar

from rmqha.codec.codes import RequestCode
from rmqha.codec.headers import parse_int, required
from rmqha.codec.properties import decode_utf8
from rmqha.codec.remoting import (
    FLAG_ONEWAY,
    RemotingCommand,
    SerializeType,
    decode_ext_fields,
    encode_binary_frame,
    encode_ext_fields,
)
from rmqha.errors import RemoteProtocolError

_V1_NAMES: Final = [
    "producerGroup",
    "topic",
    "defaultTopic",
    "defaultTopicQueueNums",
    "queueId",
    "sysFlag",
    "bornTimestamp",
    "flag",
    "properties",
    "reconsumeTimes",
    "unitMode",
    "maxReconsumeTimes",
    "batch",
    "bname",
]
_V2_NAMES: Final = tuple("abcdefghijklmn")
_V2_BY_V1: Final = dict(zip(_V1_NAMES, _V2_NAMES, strict=True))

_BORN_KEY: Final = b"\0\1g\0\0\0\x0d"
_FLAG_KEY: Final = b"\0\1h\0\0\0\1"
_PROPERTIES_KEY: Final = b"\0\1i"
_CHANGING: Final = struct.Struct(">7s13s7s1s3sI")  # a time of 13 digits, a flag of one, the properties' size
_SIZE: Final = struct.Struct(">i")
_ROCKETMQ: Final = int(SerializeType.ROCKETMQ)
_V1: Final = int(RequestCode.SEND_MESSAGE)

_JSON_FIELDS: Final = re.compile(
    rb'(\{"a":"[^"\\]*","b":"[^"\\]*","c":"[^"\\]*","d":"\d+","e":"-?\d+","f":"\d+"),"g":"\d{1,18}","h":"\d{1,9}",'
    rb'"i":"[^"\\]*(?:\\u000[12][^"\\]*)*("(?:,"[j-n]":"[^"\\]*")*\})'
)
"""Java's fields in their order; of all escapes only those of the properties' separators."""
_JSON_BORN: Final = b',"g":"'
_JSON_BETWEEN: Final = b'","h":"0","i":"'
_JSON_BORN_SIZE: Final = 13
_JSON_PLAIN: Final = bytes(c for c in range(0x20, 0x7F) if c not in b'"\\')

_CACHED_ENTRIES_MAX: Final = 1024
_CACHED_BYTES_MAX: Final = 1024


Head = tuple[str, str, str, int, int, int]
Tail = tuple[int, bool, int | None, bool, str | None]
Key = bytes | tuple[str | None, ...]
Value = TypeVar("Value")

_SINGLE_TAIL: Final = encode_ext_fields({"j": "0", "k": "false", "m": "false"})
_TRUE: Final = ("true", "1")
"""The C++ client writes 1. RocketMQ takes that for false, and stores its batches each as one message."""
_BATCH_TAIL: Final = encode_ext_fields({"j": "0", "k": "false", "m": "true"})


class SendMessageRequestHeader(NamedTuple):
    """What a producer says about the message (or batch) in the body.

    ``properties`` are the bytes to store: valid UTF-8, bad bytes replaced by U+FFFD as Java does.
    ``batch`` alone decides whether the body is a batch, not the code.
    """

    producer_group: str
    topic: str
    default_topic: str
    default_topic_queue_nums: int
    queue_id: int
    sys_flag: int
    born_timestamp_ms: int
    flag: int
    properties: bytes
    reconsume_times: int
    unit_mode: bool
    max_reconsume_times: int | None
    batch: bool
    broker_name: str | None


class SendMessageRequestDecoder:
    """Decodes send requests, remembering the parts that repeat. One serves a whole broker.

    Attributes:
        heads: what stands before the properties of a request, by its bytes or its fields; bounded.
        tails: likewise what stands behind them.
    """

    def __init__(self) -> None:
        self.heads: dict[Key, Head] = {}
        self.tails: dict[Key, Tail] = {}

    def decode(self, command: RemotingCommand) -> SendMessageRequestHeader:
        """The header of a request with code 10, 310 or 320.

        Raises:
            RemoteProtocolError: a required field is absent, or a number is none; answer with SYSTEM_ERROR.
        """
        raw = command.ext_raw
        if raw is not None and command.serialize != _ROCKETMQ:
            return self._decode_json(raw, command)
        if raw is not None and command.code != _V1:
            at = max(raw.find(_BORN_KEY), 0)
            head = self.heads.get(raw[:at])
            if head is not None:
                return self._decode_changing(raw, at, head, command)
            self._remember_head(raw[:at])
        return self._decode_fields(command)

    def _decode_changing(self, raw: bytes, at: int, head: Head, command: RemotingCommand) -> SendMessageRequestHeader:
        """Read g, h and i in their usual order and sizes; anything else is left to the general decoder."""
        properties_at = at + _CHANGING.size
        if properties_at > len(raw):
            return self._decode_fields(command)
        born_key, born, flag_key, flag, properties_key, properties_size = _CHANGING.unpack_from(raw, at)
        end = properties_at + properties_size
        tail = self.tails.get(raw[end:])
        usual = born_key == _BORN_KEY and flag_key == _FLAG_KEY and properties_key == _PROPERTIES_KEY
        if not usual or tail is None or not born.isdigit() or not flag.isdigit() or end > len(raw):
            if usual:
                self._remember_tail(raw[end:])
            return self._decode_fields(command)
        properties = raw[properties_at:end]
        if not properties.isascii():
            properties = decode_utf8(properties).encode()
        return tuple.__new__(SendMessageRequestHeader, (*head, int(born), int(flag), properties, *tail))

    def _decode_json(self, raw: bytes, command: RemotingCommand) -> SendMessageRequestHeader:
        """As :meth:`_decode_changing`, for the JSON that Java writes."""
        at = raw.find(_JSON_BORN)
        born_at = at + len(_JSON_BORN)
        between_at = born_at + _JSON_BORN_SIZE
        properties_at = between_at + len(_JSON_BETWEEN)
        end = raw.find(b'"', properties_at)
        head, tail = self.heads.get(raw[:at]), self.tails.get(raw[end:])
        born, properties = raw[born_at:between_at], raw[properties_at:end]
        if (
            head is None
            or tail is None
            or raw[between_at:properties_at] != _JSON_BETWEEN
            or not born.isdigit()
            or command.code == _V1
        ):
            self._remember_json(raw, command)
            return self._decode_fields(command)
        if (escapes := properties.translate(None, _JSON_PLAIN)) != b"":
            properties = properties.replace(b"\\u0001", b"\1").replace(b"\\u0002", b"\2")
            if len(properties) + 5 * len(escapes) != end - properties_at or b"\\" in properties:
                return self._decode_fields(command)
        return tuple.__new__(SendMessageRequestHeader, (*head, int(born), 0, properties, *tail))

    def _remember_json(self, raw: bytes, command: RemotingCommand) -> None:
        match = _JSON_FIELDS.fullmatch(raw)
        if match is not None and command.code != _V1:
            named = command.ext_fields
            if tuple(named)[:9] == _V2_NAMES[:9]:  # else a name stands twice, and the last one counts
                head_raw, tail_raw = match.groups()
                _remember(self.heads, head_raw, _head_of(named))
                _remember(self.tails, tail_raw, _tail_of(named))

    def _decode_fields(self, command: RemotingCommand) -> SendMessageRequestHeader:
        named = command.ext_fields
        if command.code == _V1:
            named = {_V2_BY_V1[name]: value for name, value in named.items() if name in _V2_BY_V1}
        get = named.get
        head_key = (get("a"), get("b"), get("c"), get("d"), get("e"), get("f"))
        head = self.heads.get(head_key)
        if head is None:
            head = _head_of(named)
            _remember(self.heads, head_key, head)
        tail_key = (get("j"), get("k"), get("l"), get("m"), get("n"))
        tail = self.tails.get(tail_key)
        if tail is None:
            tail = _tail_of(named)
            _remember(self.tails, tail_key, tail)
        born = parse_int("g", required(named, "g"), bits=64)
        flag = parse_int("h", required(named, "h"), bits=32)
        properties = get("i", "").encode(errors="replace")
        return tuple.__new__(SendMessageRequestHeader, (*head, born, flag, properties, *tail))

    def _remember_head(self, raw: bytes) -> None:
        """Only what parses to a..f and ends there: else ``g`` was found inside a value, or the order is another."""
        try:
            named = decode_ext_fields(raw)
            if tuple(named) == _V2_NAMES[:6]:
                _remember(self.heads, raw, _head_of(named))
        except RemoteProtocolError:
            return

    def _remember_tail(self, raw: bytes) -> None:
        named = decode_ext_fields(raw)
        if not named.keys() & set(_V2_NAMES[:9]):
            _remember(self.tails, raw, _tail_of(named))


def _remember(cache: dict[Key, Value], key: Key, value: Value) -> None:
    """Keep at most 1,024 entries with keys of at most 1 KiB, so that nobody can fill the memory."""
    if sum(map(len, filter(None, (key,) if isinstance(key, bytes) else key))) <= _CACHED_BYTES_MAX:
        if len(cache) >= _CACHED_ENTRIES_MAX:
            cache.clear()
        cache[key] = value


def _head_of(named: Mapping[str, str]) -> Head:
    return (
        required(named, "a"),
        required(named, "b"),
        required(named, "c"),
        parse_int("d", required(named, "d"), bits=32),
        parse_int("e", required(named, "e"), bits=32),
        parse_int("f", required(named, "f"), bits=32),
    )


def _tail_of(named: Mapping[str, str]) -> Tail:
    max_reconsume_times = named.get("l")
    return (
        parse_int("j", named.get("j", "0"), bits=32),
        named.get("k", "").lower() == "true",
        None if max_reconsume_times is None else parse_int("l", max_reconsume_times, bits=32),
        named.get("m", "").lower() in _TRUE,
        named.get("n"),
    )


class SendMessageRequestEncoder:
    """Encodes whole send requests of one producer group, in the binary form."""

    def __init__(self, producer_group: str, *, default_topic: str, default_topic_queue_nums: int) -> None:
        self._group = producer_group
        self._default_topic = default_topic
        self._default_topic_queue_nums = default_topic_queue_nums
        self._heads: dict[tuple[str, int, int], bytes] = {}

    def encode(
        self,
        topic: str,
        body: bytes,
        *,
        opaque: int,
        queue_id: int,
        sys_flag: int,
        flag: int,
        properties: bytes,
        born_timestamp_ms: int,
        batch: bool = False,
        oneway: bool = False,
    ) -> bytes:
        """The frame of one request: 320 for a batch, else 310.

        Raises:
            LocalProtocolError: it exceeds 16 MiB.
        """
        head = self._heads.get((topic, queue_id, sys_flag)) or self._render_head(topic, queue_id, sys_flag)
        flag_text = b"%d" % flag
        ext = b"%b\0\1g\0\0\0\x0d%013d\0\1h\0\0\0%c%b\0\1i%b%b%b" % (
            head,
            born_timestamp_ms,
            len(flag_text),
            flag_text,
            _SIZE.pack(len(properties)),
            properties,
            _BATCH_TAIL if batch else _SINGLE_TAIL,
        )
        code = RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2
        return encode_binary_frame(code, opaque, FLAG_ONEWAY if oneway else 0, ext, body)

    def _render_head(self, topic: str, queue_id: int, sys_flag: int) -> bytes:
        values = (self._group, topic, self._default_topic, self._default_topic_queue_nums, queue_id, sys_flag)
        head = encode_ext_fields(dict(zip(_V2_NAMES, map(str, values), strict=False)))
        if len(self._heads) >= _CACHED_ENTRIES_MAX:
            self._heads.clear()
        self._heads[topic, queue_id, sys_flag] = head
        return head
