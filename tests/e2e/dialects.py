"""How clients write the header of a send: RocketMQ's own, in both forms, and those in other languages.

A :class:`Template` is a header with places for what changes from message to message. All of it is written against the
protocol, not with rmqha's codec.
"""

import json
import struct
from collections.abc import Callable, Mapping
from typing import Final

_PLACES: Final = {"KEY": "%032d", "KEYS": "order-%09d", "TAG": "tag-%03d"}
_SIZE: Final = struct.Struct(">i")
_PAIR_KEY: Final = struct.Struct(">H")
_FIXED: Final = struct.Struct(">hBhiiii")

Template = Callable[[int, int], bytes]
"""``template(number, opaque)``: the header of message ``number``."""
Dialect = Callable[[int, Mapping[str, str]], Template]
"""``dialect(code, fields)``: a template for these fields, which may name :data:`_PLACES` in braces."""


def _changing(text: str) -> tuple[str, list[str]]:
    """``text`` as a ``%`` format, and which of the places follow each other in it."""
    text, names = text.replace("%", "%%"), []
    while (at := min((found for name in _PLACES if (found := text.find("{" + name + "}")) >= 0), default=-1)) >= 0:
        name = text[at + 1 : text.index("}", at)]
        text = text.replace("{" + name + "}", _PLACES[name], 1)
        names.append(name)
    return text, names


def _values(names: list[str], number: int) -> tuple[int, ...]:
    return tuple(number % 1000 if name == "TAG" else number for name in names)


def _json_template(header: dict[str, object]) -> Template:
    """Where the header says ``OPAQUE``, that goes."""
    text = json.dumps(header, separators=(",", ":"))
    head, tail = (_changing(part) for part in text.split('"OPAQUE"'))
    head_format, tail_format = head[0].encode(), tail[0].encode()

    def fill(number: int, opaque: int) -> bytes:
        return b"%b%d%b" % (
            head_format % _values(head[1], number),
            opaque,
            tail_format % _values(tail[1], number),
        )

    return fill


def java_json(code: int, fields: Mapping[str, str]) -> Template:
    """As fastjson writes it: members by name."""
    header = {"code": code, "extFields": dict(fields), "flag": 0, "language": "JAVA", "opaque": "OPAQUE"}
    return _json_template(header | {"serializeTypeCurrentRPC": "JSON", "version": 395})


def other_json(code: int, fields: Mapping[str, str]) -> Template:
    """As rocketmq-client-go writes it: members in the order of its struct, fields by name; others differ likewise."""
    header: dict[str, object] = {"code": code, "language": "GO", "version": 317, "opaque": "OPAQUE", "flag": 0}
    return _json_template(header | {"remark": "", "extFields": dict(sorted(fields.items(), reverse=True))})


def java_binary(code: int, fields: Mapping[str, str]) -> Template:
    """``rocketmq.serialize.type=ROCKETMQ``."""
    formats = {name: _changing(value) for name, value in fields.items()}

    def fill(number: int, opaque: int) -> bytes:
        parts: list[bytes] = []
        for name, (text, places) in formats.items():
            value = (text % _values(places, number)).encode()
            parts += (_PAIR_KEY.pack(len(name)), name.encode(), _SIZE.pack(len(value)), value)
        ext = b"".join(parts)
        return _FIXED.pack(code, 0, 395, opaque, 0, 0, len(ext)) + ext

    return fill


DIALECTS: Final[dict[str, tuple[int, Dialect]]] = {
    "java-json": (0, java_json),
    "java-binary": (1, java_binary),
    "other-json": (0, other_json),
}
"""Each with its serialize type."""


def read_answer(header: bytes, serialize: int) -> tuple[int, int]:
    """``(code, opaque)`` of an answer."""
    if serialize:
        code, _, _, opaque, _, _, _ = _FIXED.unpack_from(header)
        return code, opaque
    opaque_at, code_at = header.index(b'"opaque":') + 9, header.index(b'"code":') + 7
    code_end = header.index(b",", code_at)
    return int(header[code_at:code_end]), int(header[opaque_at : header.index(b",", opaque_at)])
