"""JSON as fastjson writes it, which is more than JSON: integers and whole objects as keys, and references.

    {"offsetTable":{"TopicTest@g1":{0:5280,1:5312}}}                    integer keys, unquoted
    {"offsetTable":{{"brokerName":"a","queueId":0,"topic":"t"}:{...}}}  objects as keys
    [{"a":1},{"$ref":"$[0]"}]                                           the same object again

:func:`loads` reads all of it and plain JSON; :func:`dumps` writes integer and object keys as Java does.

Source: spec: commitlog §11, remoting.
"""

import json
import re
from collections.abc import Iterator, Sequence
from math import isfinite
from operator import methodcaller
from types import NoneType
from typing import Any, Final

from rmqha.errors import RemoteProtocolError

DEPTH_MAX: Final = 64
_INTEGER_SIZE_MAX: Final = 4000
"""Python itself refuses to read a number of more than 4,300 digits."""

REFERRED_MAX: Final = 16_384
"""Values that all references of a text together may stand for; without it, reading them might never end."""
REFERRED_TEXT_MAX: Final = 1 << 20
"""Characters of these: memory has them once, but what shows them, or encodes them, writes each."""

_SPACE: Final = re.compile(r"[ \t\r\n]*")
_INTEGER_KEY: Final = re.compile(r"-?[0-9]+(?=[ \t\r\n]*:)")
_BARE_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?=[ \t\r\n]*:)")
_REFERENCE_STEP: Final = re.compile(r"\.([A-Za-z0-9_@%|-]+)|\[([0-9]{1,9})\]")
_HALF_PAIR: Final = re.compile("[\ud800-\udfff]")


def _finite(text: str) -> float:
    """NaN, Infinity and 1e999 are refused: nobody who asks for an ``int`` expects them."""
    value = float(text)
    if not isfinite(value):
        raise ValueError(f"{text[:20]} is no finite number")
    return value


_decoder: Final = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)
_scalar = _decoder.raw_decode


class ObjectKey(str):
    """A key that is an object: its JSON text. Pass it to :func:`loads` for the values."""

    __slots__ = ()


def loads(raw: str | bytes | bytearray | memoryview, *, java_keys: bool = True) -> Any:
    """Decode; unquoted integer keys become ``int``, object keys :class:`ObjectKey`.

    Args:
        raw: the text, in UTF-8 if it is bytes.
        java_keys: read such keys at all: in a text that holds some this takes ten times as long.

    Raises:
        RemoteProtocolError: it is neither JSON nor what fastjson makes of it.
    """
    try:
        text = raw if isinstance(raw, str) else bytes(raw).decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"JSON is not UTF-8: {error}") from None
    try:
        value = _decoder.decode(text)
    except (ValueError, RecursionError) as error:
        if not java_keys:
            raise RemoteProtocolError(f"JSON does not parse: {str(error)[:200]}") from None
        value, end = _value(text, _skip(text, 0), 0)
        if _skip(text, end) != len(text):
            raise RemoteProtocolError(f"JSON: unexpected text at character {end}") from None
    try:
        if "\\ud" in text or "\\uD" in text:
            _refuse_half_pairs(value)
        return _resolved(value) if '"$ref"' in text else value
    except RecursionError:
        raise RemoteProtocolError("JSON is nested too deeply") from None


_encode: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=methodcaller("to_json")).encode
"""As json.dumps, which makes an encoder for each call with other than its defaults; objects say what they are."""
_LEAVES: Final = (str, int, float, NoneType)


_INTEGERS_ONLY: Final = frozenset({int})
_GONE: Final = object()


def dumps(value: Any) -> str:
    """Encode compactly, with unquoted integer and object keys wherever a key is ``int`` or :class:`ObjectKey`."""
    if isinstance(value, dict) and not _is_flat(value):
        if _INTEGERS_ONLY.issuperset(map(type, value)) and _INTEGERS_ONLY.issuperset(map(type, value.values())):
            return "{" + ",".join([f"{key}:{item}" for key, item in value.items()]) + "}"  # a topic's offsets: hot
        return "{" + ",".join([f"{_key_text(key)}:{dumps(item)}" for key, item in value.items()]) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join([dumps(item) for item in value]) + "]"
    return _encode(value)


def dump_parts(value: Any) -> Iterator[str]:
    """What :func:`dumps` makes, in small pieces; between two of them dictionaries in ``value`` may change.

    What goes before it was its turn is left out.
    """
    if isinstance(value, list | tuple):
        yield from _dump_items(value)
        return
    if not isinstance(value, dict):
        yield dumps(value)
        return
    if _is_flat(value):
        yield _encode(value)
        return
    yield "{"
    before = ""
    for key in list(value):
        item = value.get(key, _GONE)
        if item is not _GONE:
            yield f"{before}{_key_text(key)}:"
            yield from dump_parts(item)
            before = ","
    yield "}"


def _dump_items(items: Sequence[Any]) -> Iterator[str]:
    before = "["
    for item in items:
        yield before
        yield from dump_parts(item)
        before = ","
    yield "]" if items else "[]"


def _is_flat(members: dict[Any, Any]) -> bool:
    """Whether nothing in it needs more than plain JSON."""
    return all(type(key) is str and isinstance(item, _LEAVES) for key, item in members.items())


def _key_text(key: object) -> str:
    if isinstance(key, ObjectKey) or (isinstance(key, int) and not isinstance(key, bool)):
        return str(key)
    return _encode(str(key))


def _skip(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def _value(text: str, at: int, depth: int) -> tuple[Any, int]:
    if depth > DEPTH_MAX:
        raise RemoteProtocolError(f"JSON is nested deeper than {DEPTH_MAX}")
    if text.startswith("{", at):
        return _object(text, at, depth)
    if text.startswith("[", at):
        return _array(text, at, depth)
    try:
        return _scalar(text, at)
    except (json.JSONDecodeError, ValueError):
        raise RemoteProtocolError(f"JSON: no value at character {at}") from None


def _object(text: str, at: int, depth: int) -> tuple[dict[Any, Any], int]:
    members: dict[Any, Any] = {}
    at = _skip(text, at + 1)
    while not text.startswith("}", at):
        key, at = _key(text, at, depth)
        at = _skip(text, at)
        if not text.startswith(":", at):
            raise RemoteProtocolError(f"JSON: ':' expected at character {at}")
        members[key], at = _value(text, _skip(text, at + 1), depth + 1)
        at = _after_item(text, at, "}")
    return members, at + 1


def _array(text: str, at: int, depth: int) -> tuple[list[Any], int]:
    items: list[Any] = []
    at = _skip(text, at + 1)
    while not text.startswith("]", at):
        item, at = _value(text, at, depth + 1)
        items.append(item)
        at = _after_item(text, at, "]")
    return items, at + 1


def _after_item(text: str, at: int, closing: str) -> int:
    at = _skip(text, at)
    if text.startswith(",", at):
        return _skip(text, at + 1)
    if not text.startswith(closing, at):
        raise RemoteProtocolError(f"JSON: ',' or '{closing}' expected at character {at}")
    return at


def _key(text: str, at: int, depth: int) -> tuple[int | str, int]:
    if text.startswith("{", at):
        _, end = _value(text, at, depth + 1)
        return ObjectKey(text[at:end]), end
    if match := _INTEGER_KEY.match(text, at):
        if match.end() - at > _INTEGER_SIZE_MAX:
            raise RemoteProtocolError(f"JSON: a key of {match.end() - at} digits at character {at}")
        return int(match.group()), match.end()
    if match := _BARE_KEY.match(text, at):
        return match.group(), match.end()
    key, end = _value(text, at, depth)
    if not isinstance(key, str):
        raise RemoteProtocolError(f"JSON: a key expected at character {at}")
    return key, end


def _refuse_half_pairs(value: Any) -> None:
    """Half a surrogate pair can be written in JSON, but not in UTF-8: storing or logging it would fail."""
    if isinstance(value, dict):
        for key, item in value.items():
            _refuse_half_pairs(key)
            _refuse_half_pairs(item)
    elif isinstance(value, list):
        for item in value:
            _refuse_half_pairs(item)
    elif isinstance(value, str) and _HALF_PAIR.search(value):
        raise RemoteProtocolError("JSON: half a surrogate pair is no text")


def _resolved(root: Any) -> Any:
    """``root`` with each ``{"$ref": path}`` replaced by what it points to."""
    left, left_text = REFERRED_MAX, REFERRED_TEXT_MAX

    def walk(value: Any) -> Any:
        nonlocal left, left_text
        if isinstance(value, dict):
            reference = value.get("$ref") if len(value) == 1 else None
            if isinstance(reference, str):
                referred = _follow(root, reference)
                count, size = _count(referred, at_most=left)
                left, left_text = left - count, left_text - size
                if left_text < 0:
                    limit = f"more than {REFERRED_TEXT_MAX} characters"
                    raise RemoteProtocolError(f"JSON: its references stand for {limit}")
                return referred
            return {key: walk(item) for key, item in value.items()}
        return [walk(item) for item in value] if isinstance(value, list) else value

    return walk(root)


def _count(value: Any, *, at_most: int) -> tuple[int, int]:
    """How many values this one is made of, itself included, and how many characters their texts and keys have.

    Raises:
        RemoteProtocolError: more values than ``at_most``.
    """
    found, size = [value], 0
    for item in found:  # which grows meanwhile
        if isinstance(item, dict):
            found += item.values()
            size += sum(map(_size, item))
        elif isinstance(item, list):
            found += item
        else:
            size += _size(item)
        if len(found) > at_most:
            raise RemoteProtocolError(f"JSON: its references stand for more than {REFERRED_MAX} values")
    return len(found), size


def _size(item: object) -> int:
    """The characters of a text, or of a number, about."""
    if isinstance(item, str):
        return len(item)
    return item.bit_length() // 3 if isinstance(item, int) else 0


def _follow(root: Any, reference: str) -> Any:
    """Only paths from the root are followed: the others (``@``, ``..``) mean cycles, which no message has."""
    steps = _REFERENCE_STEP.findall(reference)
    if not reference.startswith("$") or "".join(f".{n}" if n else f"[{i}]" for n, i in steps) != reference[1:]:
        raise RemoteProtocolError(f"JSON: reference {reference[:80]!r} is not supported")
    value = root
    for name, index in steps:
        try:
            value = value[name] if name else value[int(index)]
        except (KeyError, IndexError, TypeError):
            raise RemoteProtocolError(f"JSON: reference {reference[:80]!r} points nowhere") from None
    if isinstance(value, dict) and "$ref" in value:
        raise RemoteProtocolError(f"JSON: reference {reference[:80]!r} points to another reference")
    return value
