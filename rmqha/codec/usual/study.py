"""How a send's header is learned: by asking the general code what it says, and what it would say with other bytes.

Where the changing parts lie is guessed from the names around them, which every client has to write, however it orders
them. Then these parts are replaced, and the general code has to find in the header just what was put there, and
nothing else changed. So there is one set of rules: what a header means nobody but the general code decides.
"""

import re
from itertools import pairwise
from typing import Any, Final, NamedTuple

from rmqha.codec.codes import RequestCode
from rmqha.codec.remoting import SerializeType, decode_header
from rmqha.codec.send_headers import SendMessageRequestDecoder, SendMessageRequestHeader
from rmqha.codec.usual.layout import Head, Layout, Places, Shape
from rmqha.errors import ProtocolError

_JSON_OPAQUE: Final = re.compile(rb'"opaque"[ ]?:[ ]?([1-9][0-9]{0,9})(?![0-9])')
_JSON_BORN: Final = re.compile(rb'"g"[ ]?:[ ]?"?([1-9][0-9]{12})(?![0-9])')
_JSON_PROPERTIES: Final = re.compile(rb'"i"[ ]?:[ ]?"([^"]*)"')
_BINARY_OPAQUE: Final = (5, 9)
_BINARY_BORN: Final = re.compile(rb"\x00\x01g\x00\x00\x00\x0d([0-9]{13})")
_BINARY_PROPERTIES: Final = re.compile(rb"\x00\x01i(....)", re.DOTALL)
_KEY: Final = re.compile(rb"(?:\A|\x02|\\u0002)UNIQ_KEY(?:\x01|\\u0001)([0-9A-Za-z]{1,64})(?=\x02|\\u0002|\Z)")
_KEY_BEGINS: Final = b"\2UNIQ_KEY\1"
_OTHER_DIGIT: Final = bytes.maketrans(b"0123456789", b"1212121212")
"""Not zero, with which no number begins; ten of them are an int32 still."""
_PLACEHOLDERS: Final = (b"K", b"L")
"""What stands elsewhere in a header, and counts, may look like one of them, but not like both."""
READINGS: Final = 1 + len(_PLACEHOLDERS)
"""So often the general code reads a header of which a head is made."""


def places_in(header: bytes, serialize: int) -> Places | None:
    """Where the changing parts seem to lie; None if that is not plain to see."""
    if serialize == SerializeType.JSON:
        found = [[*places.finditer(header)] for places in (_JSON_OPAQUE, _JSON_BORN, _JSON_PROPERTIES)]
        if any(len(matches) != 1 for matches in found):
            return None
        opaque, born, properties = (matches[0].span(1) for matches in found)
    else:
        borns, lengths = [*_BINARY_BORN.finditer(header)], [*_BINARY_PROPERTIES.finditer(header)]
        if len(borns) != 1 or len(lengths) != 1:
            return None
        opaque, born, begin = _BINARY_OPAQUE, borns[0].span(1), lengths[0].end()
        properties = (begin, begin + int.from_bytes(lengths[0][1], "big"))
    key = _KEY.search(header[properties[0] : properties[1]])
    key_at = (properties[1],) * 2 if key is None else (properties[0] + key.start(1), properties[0] + key.end(1))
    places = Places(opaque, born, properties, key_at)
    in_order = sorted(places[:3])
    is_apart = all(one[1] <= next_one[0] for one, next_one in pairwise(in_order))
    return places if is_apart and properties[1] <= len(header) else None


def understand_head(layout: Layout, header: bytes) -> Head | None:
    """What such a send says, if its changing parts lie where ``layout`` has them."""
    said, at = _read(layout, header), layout.properties_at
    if said is None:
        return None
    parts = [*layout.cut.unpack(header)]
    for placeholder in _PLACEHOLDERS:
        parts = _with_other_numbers(layout, parts)
        for place in (at, at + 2, at + 4):
            parts[place] = placeholder * len(parts[place])
        if _read(layout, layout.cut.pack(*parts)) != _expected(said, layout, parts):
            return None
    return Head(said.header._replace(born_timestamp_ms=0, properties=b""))


def understand_shape(layout: Layout, header: bytes) -> Shape | None:
    """The properties around the key, if nothing but the key changes where ``layout`` has it."""
    parts, at = [*layout.cut.unpack(header)], layout.properties_at
    before, after, key = layout.plain(parts[at]), layout.plain(parts[at + 4]), parts[at + 2]
    if before is None or after is None or not _is_key(before, key, after):
        return None
    key = parts[at + 2] = _PLACEHOLDERS[0] * len(key)
    found = _read(layout, layout.cut.pack(*parts))
    return (
        Shape(before, after, len(key))
        if found is not None and found.header.properties == before + key + after
        else None
    )


def _is_key(before: bytes, key: bytes, after: bytes) -> bool:
    """Whether what stands there is all of a unique key, and not a part of something that means more; or nothing."""
    return not key or ((b"\2" + before).endswith(_KEY_BEGINS) and after[:1] in (b"", b"\2"))


def _with_other_numbers(layout: Layout, parts: list[Any]) -> list[Any]:
    """Others, and others again when these are given: what says the same both times is said elsewhere."""
    parts = [*parts]
    parts[layout.born_at] = parts[layout.born_at].translate(_OTHER_DIGIT)
    opaque = parts[layout.opaque_at]
    parts[layout.opaque_at] = opaque.translate(_OTHER_DIGIT) if layout.is_json else opaque ^ 1
    return parts


class _Said(NamedTuple):
    opaque: int
    header: SendMessageRequestHeader


def _expected(said: _Said, layout: Layout, parts: list[Any]) -> _Said:
    """What a header should say of which only the changing parts are others."""
    at = layout.properties_at
    changed = said.header._replace(
        born_timestamp_ms=int(parts[layout.born_at]), properties=b"".join(parts[at : at + 5])
    )
    return _Said(int(parts[layout.opaque_at]), changed)


def _read(layout: Layout, header: bytes) -> _Said | None:
    """What the general code finds in it; None if that is no plain send."""
    try:
        command = decode_header(header, layout.serialize)
        if command.code != RequestCode.SEND_MESSAGE_V2 or command.flag:
            return None
        return _Said(command.opaque, SendMessageRequestDecoder().decode(command))
    except ProtocolError:
        return None
