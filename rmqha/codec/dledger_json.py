"""Values of DLedger's JSON: what fastjson writes for a field, and what it reads as one.

    type            written                         read, besides
    int             number                          within 64 bits; within 32 if annotated so
    str             string
    bytes           base64, with its padding        an array of numbers from -128 to 127
    Enum            its name                        its value, which is Java's ordinal; any other as the first
    dict[str, str]  object
    DLedgerEntry    object with the entry's fields
    a dataclass     object with the names of its fields in camelCase

What is None is not written, and null reads as if it were absent. Everything takes time in proportion to its bytes.

Source: spec: dledger §5.4, §5.5.
"""

import json
import struct
from base64 import b64encode
from binascii import Error as Base64Error
from binascii import a2b_base64
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from math import isfinite
from types import UnionType
from typing import Annotated, Any, Final, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

from rmqha.codec.dledger_entry import DLedgerEntry
from rmqha.errors import RemoteProtocolError
from rmqha.memory import BytesLike

Int32 = Annotated[int, 32]
_Kind = TypeVar("_Kind")
Most = tuple[tuple[bytes, int], ...]
_MOST: Final[Most] = ((b'"', 1 << 12), (b",", 1 << 16), (b"{", 1 << 10), (b"[", 1 << 10))
"""What a message may hold of each: a value takes many times the room that it has on the wire, and longer to read."""
MOST_OF_A_PUSH: Final[Most] = ((b'"', 1 << 18), (b",", 1 << 17), (b"{", 1 << 14), (b"[", 1 << 14))
"""The same of a batch that is not in the usual form: some 14,000 entries."""
_FEW: Final = min(at_most for _mark, at_most in _MOST)
_DIGITS_MAX: Final = 40
_ENTRY_NUMBERS: Final = struct.Struct(">5i3q")


def wire_name(name: str) -> dict[str, str]:
    """The metadata of a dataclass's field that has another name on the wire."""
    return {"wire": name}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return members


def _finite(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text[:20]} is no finite number")
    return value


def _integer(text: str) -> int:
    """Python takes long for thousands of digits, and would read 4,300 of them."""
    if len(text) > _DIGITS_MAX:
        raise ValueError(f"{text[:20]}... has {len(text)} digits")
    return int(text)


_decoder: Final = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_integer, parse_float=_finite, parse_constant=_finite
)
_scan: Final = _decoder.scan_once  # type: ignore[attr-defined]
_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), sort_keys=True).encode


def read_object(raw: BytesLike, *, most: Most = _MOST) -> dict[str, Any]:
    """The JSON object that ``raw`` is.

    Raises:
        RemoteProtocolError: it is none, or a key stands in it twice, or it has more parts than any message.
    """
    data = bytes(raw)
    if len(data) > _FEW and any(data.count(mark) > at_most for mark, at_most in most):
        raise RemoteProtocolError(f"JSON of {len(data)} bytes has more parts than any message of DLedger")
    try:
        text = data.decode()
        value, end = _scan(text, 0) if text.startswith("{") else (None, 0)
        if end != len(text):
            value = _decoder.decode(text)  # with blanks around it, or no object at all
    except (ValueError, RecursionError, StopIteration) as error:
        raise RemoteProtocolError(f"JSON does not parse: {str(error)[:200]}") from None
    if type(value) is not dict:
        raise RemoteProtocolError("a message of DLedger is a JSON object, and this is none")
    return value


def write_object(members: dict[str, Any]) -> bytes:
    """A JSON object, its keys in alphabetical order, as fastjson sorts them."""
    return _encode(members).encode(errors="replace")


def encode_text(value: str | None) -> str:
    """A JSON string, for templates; an empty text stands for no member."""
    return _encode(value)


def decode_bytes(value: object) -> bytes:
    """Base64, or an array of Java's bytes.

    Raises:
        RemoteProtocolError: it is neither.
    """
    return decode_base64(value.encode(errors="replace")) if type(value) is str else _byte_array(value)


def decode_base64(text: bytes) -> bytes:
    """Standard base64, with its padding.

    Raises:
        RemoteProtocolError: it is something else, such as base64 for URLs.
    """
    try:
        data = a2b_base64(text)
    except Base64Error as error:
        raise RemoteProtocolError(f"no base64: {error}") from None
    if len(text) % 4 or len(data) != len(text) // 4 * 3 - text[-2:].count(b"="):
        raise RemoteProtocolError("no base64: it has characters that are none of it")  # which a2b_base64 passes over
    return data


def _byte_array(value: object) -> bytes:
    if type(value) is not list:
        raise RemoteProtocolError("bytes are neither base64 nor an array of numbers")
    try:
        return struct.pack(f">{len(value)}b", *value)
    except struct.error:
        raise RemoteProtocolError("an array of bytes holds what is no number from -128 to 127") from None


def entry_object(value: object) -> DLedgerEntry:
    """An entry.

    Raises:
        RemoteProtocolError: it is none, or a field does not fit.
    """
    if type(value) is not dict:
        raise RemoteProtocolError("an entry is no JSON object")
    get = value.get
    numbers = (get("magic", 0), get("size", 0), get("channel", 0), get("chainCrc", 0), get("bodyCrc", 0))
    index, term, pos = get("index", 0), get("term", 0), get("pos", 0)
    try:
        _ENTRY_NUMBERS.pack(*numbers, index, term, pos)
    except struct.error as error:
        raise RemoteProtocolError(f"an entry's field does not fit: {error}") from None
    magic, size, channel, chain_crc, body_crc = numbers
    return DLedgerEntry(decode_bytes(get("body")), index, term, pos, magic, size, channel, chain_crc, body_crc)


class Field(NamedTuple):
    """One field of a dataclass as it travels."""

    name: str
    wire: str
    parse: Callable[[Any], Any]
    default: Any


_FIELDS: Final[dict[type, tuple[Field, ...]]] = {}


def fields_of(kind: type) -> tuple[Field, ...]:
    """How the fields of a dataclass travel; one without a default is absent as -1, ``""`` or the enum's first."""
    if kind not in _FIELDS:
        _FIELDS[kind] = _read_fields(kind)
    return _FIELDS[kind]


def _read_fields(kind: Any) -> tuple[Field, ...]:
    hints = get_type_hints(kind, include_extras=True)
    return tuple(
        Field(
            field.name,
            field.metadata.get("wire") or _camel_case(field.name),
            _parser_of(hints[field.name]),
            _default_of(hints[field.name]) if field.default is MISSING else field.default,
        )
        for field in fields(kind)
        if field.init
    )


def parse_object(kind: type[_Kind], members: dict[str, Any]) -> _Kind:
    """A dataclass from the members of an object; those that it does not have are passed over.

    Raises:
        RemoteProtocolError: a member is not of its field's type; the text names it.
    """
    values = []
    for name, wire, parse, default in fields_of(kind):
        value = members.get(wire)
        try:
            values.append(default if value is None else parse(value))
        except RemoteProtocolError as error:
            raise RemoteProtocolError(f"{kind.__name__}.{name}: {error}") from None
    return kind(*values)


def members_of(message: Any) -> dict[str, Any]:
    """What :func:`write_object` takes of a dataclass."""
    members = {}
    for name, wire, _parse, _default in fields_of(type(message)):
        value = getattr(message, name)
        if value is not None:
            members[wire] = value if type(value) in {int, str} else plain(value)
    return members


def plain(value: Any) -> Any:
    """A field's value as JSON has it."""
    if isinstance(value, Enum):
        return value.value if isinstance(value, int) else value.name
    if isinstance(value, bytes):
        return b64encode(value).decode("ascii")
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    return members_of(value) if is_dataclass(value) else value


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


def _default_of(hint: Any) -> Any:
    if isinstance(hint, type) and issubclass(hint, Enum):
        return next(iter(hint))
    return "" if hint is str else -1


def _parser_of(hint: Any) -> Callable[[Any], Any]:
    if isinstance(hint, UnionType):
        hint = next(inner for inner in get_args(hint) if inner is not type(None))
    if get_origin(hint) is tuple:
        parse = _parser_of(get_args(hint)[0])
        return lambda value: _parse_list(parse, value)
    if hint in _PARSERS:
        return _PARSERS[hint]
    if issubclass(hint, Enum):
        return lambda value: _parse_enum(hint, value)
    return lambda value: _parse_nested(hint, value)


def _refuse(what: str, value: object) -> Any:
    raise RemoteProtocolError(f"{str(value)[:40]!r} is not {what}")


def _parse_int32(value: object) -> int:
    return value if type(value) is int and -(1 << 31) <= value < 1 << 31 else _refuse_number(value)


def _parse_int64(value: object) -> int:
    return value if type(value) is int and -(1 << 63) <= value < 1 << 63 else _refuse_number(value)


def _refuse_number(value: object) -> Any:
    if type(value) is int:
        raise RemoteProtocolError(f"a number of {value.bit_length()} bits does not fit")
    _refuse("a number", value)


def _parse_text(value: object) -> str:
    if type(value) is not str:
        return _refuse("a text", value)  # type: ignore[no-any-return]
    try:
        value.encode()
    except UnicodeEncodeError:
        raise RemoteProtocolError("half a surrogate pair is no text") from None
    return value


def _parse_texts(value: object) -> dict[str, str]:
    if type(value) is not dict:
        return _refuse("an object", value)  # type: ignore[no-any-return]
    return {_parse_text(key): _parse_text(text) for key, text in value.items() if text is not None}


def _parse_bool(value: object) -> bool:
    return value if type(value) is bool else _refuse("true or false", value)


def _parse_enum(kind: type[Enum], value: object) -> Enum:
    if type(value) is str:
        return kind.__members__.get(value) or next(iter(kind))
    try:
        return kind(_parse_int32(value))
    except ValueError:
        return next(iter(kind))


def _parse_nested(kind: type, value: object) -> object:
    return parse_object(kind, value) if type(value) is dict else _refuse("an object", value)


def _parse_list(parse: Callable[[Any], Any], value: object) -> tuple[Any, ...]:
    return tuple(map(parse, value)) if type(value) is list else _refuse("an array", value)


_PARSERS: Final[dict[Any, Callable[[Any], Any]]] = {
    int: _parse_int64,
    Int32: _parse_int32,
    bool: _parse_bool,
    str: _parse_text,
    bytes: decode_bytes,
    dict[str, str]: _parse_texts,
    DLedgerEntry: entry_object,
}
