"""The typed request and response headers, read from and written to ``ext_fields``.

Every value travels as a string under its camelCase name. A class below is the table of its header: a field without
default is required, ``Int32`` and ``Int64`` say how far a number may go, and unknown fields are ignored.
SEND_MESSAGE, the hot one, and its answer have modules of their own: :mod:`rmqha.codec.send_headers`,
:mod:`rmqha.codec.send_answers`.

Source: spec: remoting §2.3-2.6.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, Final, NamedTuple, TypeVar, get_args, get_type_hints

from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import RemoteProtocolError

Int32 = Annotated[int, 32]
Int64 = Annotated[int, 64]
Header = TypeVar("Header")


@dataclass(frozen=True, slots=True)
class GetRouteInfoRequestHeader:
    """105 GET_ROUTEINFO_BY_TOPIC."""

    topic: str
    accept_standard_json_only: bool = False


@dataclass(frozen=True, slots=True)
class PullMessageRequestHeader:
    """11 PULL_MESSAGE and 361 LITE_PULL_MESSAGE; ``sys_flag`` holds :class:`PullSysFlag` bits."""

    consumer_group: str
    topic: str
    queue_id: Int32
    queue_offset: Int64
    max_msg_nums: Int32
    sys_flag: Int32
    commit_offset: Int64
    suspend_timeout_millis: Int64
    subscription: str | None = None
    sub_version: Int64 = 0
    expression_type: str | None = None
    bname: str | None = None


class PullSysFlag:
    """Bits of ``sys_flag`` in a pull request."""

    COMMIT_OFFSET = 0x1
    SUSPEND = 0x2
    SUBSCRIPTION = 0x4
    CLASS_FILTER = 0x8
    LITE_PULL = 0x10


@dataclass(frozen=True, slots=True)
class PullMessageResponseHeader:
    """All four are always present in answers 0, 19, 20 and 21."""

    suggest_which_broker_id: Int64
    next_begin_offset: Int64
    min_offset: Int64
    max_offset: Int64


@dataclass(frozen=True, slots=True)
class QueryConsumerOffsetRequestHeader:
    """14 QUERY_CONSUMER_OFFSET."""

    consumer_group: str
    topic: str
    queue_id: Int32


@dataclass(frozen=True, slots=True)
class UpdateConsumerOffsetRequestHeader:
    """15 UPDATE_CONSUMER_OFFSET."""

    consumer_group: str
    topic: str
    queue_id: Int32
    commit_offset: Int64


@dataclass(frozen=True, slots=True)
class SaveConsumerOffsetsRequestHeader:
    """21022 SAVE_CONSUMER_OFFSETS: where this group is in this topic is to be durable. Not one of RocketMQ's."""

    consumer_group: str
    topic: str


@dataclass(frozen=True, slots=True)
class QueueRequestHeader:
    """30 GET_MAX_OFFSET, 31 GET_MIN_OFFSET, 32 GET_EARLIEST_MSG_STORETIME."""

    topic: str
    queue_id: Int32


@dataclass(frozen=True, slots=True)
class QueueEndsRequestHeader:
    """GET_QUEUE_ENDS: where queues ended when the log ended at ``before``; a page, from the ``start``-th queue on."""

    before: Int64
    start: Int64 = 0


@dataclass(frozen=True, slots=True)
class SearchOffsetRequestHeader:
    """29 SEARCH_OFFSET_BY_TIMESTAMP; ``timestamp`` in milliseconds."""

    topic: str
    queue_id: Int32
    timestamp: Int64


@dataclass(frozen=True, slots=True)
class OffsetResponseHeader:
    """Answer to 14, 29, 30 and 31."""

    offset: Int64


@dataclass(frozen=True, slots=True)
class ViewMessageRequestHeader:
    """33 VIEW_MESSAGE_BY_ID; ``offset`` is physical."""

    offset: Int64


@dataclass(frozen=True, slots=True)
class QueryMessageRequestHeader:
    """12 QUERY_MESSAGE: messages of a topic by their key; times in milliseconds."""

    topic: str
    key: str
    max_num: Int32
    begin_timestamp: Int64
    end_timestamp: Int64


UNIQUE_KEY_QUERY: Final = "_UNIQUE_KEY_QUERY"
"""Beside it: ``true`` if the key is a UNIQ_KEY."""


@dataclass(frozen=True, slots=True)
class QueryMessageResponseHeader:
    """Answer to 12: of the message that is last in the index."""

    index_last_update_timestamp: Int64
    index_last_update_phyoffset: Int64


@dataclass(frozen=True, slots=True)
class EarliestMsgStoretimeResponseHeader:
    """Answer to 32: milliseconds; -1 without a message."""

    timestamp: Int64


@dataclass(frozen=True, slots=True)
class UnregisterClientRequestHeader:
    """35 UNREGISTER_CLIENT."""

    client_i_d: str
    producer_group: str | None = None
    consumer_group: str | None = None


def decode_header(kind: type[Header], command: RemotingCommand) -> Header:
    """The header of ``command`` as ``kind``, one of the classes above.

    Raises:
        RemoteProtocolError: a required field is absent, or a number is none; answer with SYSTEM_ERROR.
    """
    ext_fields = command.ext_fields
    values = []
    for field in _fields_of(kind):
        text = ext_fields.get(field.wire_name)
        if text is not None:
            values.append(field.parse(field.wire_name, text))
        elif field.required:
            raise RemoteProtocolError(f"required header field {field.wire_name} is absent")
        else:
            values.append(field.default)
    return kind(*values)


def encode_header(header: object) -> dict[str, str]:
    """The ``ext_fields`` of a header; what is None is left out."""
    encoded = {}
    for field in _fields_of(type(header)):
        value = getattr(header, field.name)
        if value is not None:
            encoded[field.wire_name] = str(value) if type(value) is not bool else str(value).lower()
    return encoded


def parse_int(name: str, text: str | bytes, *, bits: int) -> int:
    """A header value as a signed number of ``bits`` bits.

    Raises:
        RemoteProtocolError: it is none.
    """
    try:
        value = int(text) if text.isascii() else None
    except ValueError:
        value = None
    if value is None:
        raise RemoteProtocolError(f"header field {name} is no number: {text[:40]!r}")
    if not -(1 << bits - 1) <= value < 1 << bits - 1:
        raise RemoteProtocolError(f"header field {name} is no int{bits}: {value}")
    return value


def required(ext_fields: Mapping[str, str], name: str) -> str:
    """The text of a field that must be there.

    Raises:
        RemoteProtocolError: it is absent.
    """
    text = ext_fields.get(name)
    if text is None:
        raise RemoteProtocolError(f"required header field {name} is absent")
    return text


class _Field(NamedTuple):
    name: str
    wire_name: str
    parse: Callable[[str, str], Any]
    required: bool
    default: Any


_FIELDS: Final[dict[type, tuple[_Field, ...]]] = {}


def _fields_of(kind: type) -> tuple[_Field, ...]:
    if kind not in _FIELDS:
        _FIELDS[kind] = _read_fields(kind)
    return _FIELDS[kind]


def _read_fields(kind: Any) -> tuple[_Field, ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        _Field(
            field.name,
            _camel_case(field.name),
            _parser_of(hints[field.name]),
            field.default is MISSING,
            None if field.default is MISSING else field.default,
        )
        for field in fields(kind)
    )


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _parser_of(hint: Any) -> Callable[[str, str], Any]:
    for inner in (hint, *get_args(hint)):
        if inner is bool:
            return _parse_bool
        if hasattr(inner, "__metadata__"):
            return _parse_int32 if inner.__metadata__ == (32,) else _parse_int64
    return _parse_text


def _parse_bool(_name: str, text: str) -> bool:
    return text.lower() == "true"


def _parse_int32(name: str, text: str) -> int:
    return parse_int(name, text, bits=32)


def _parse_int64(name: str, text: str) -> int:
    return parse_int(name, text, bits=64)


def _parse_text(_name: str, text: str) -> str:
    return text
