"""The JSON form of a remoting header: reading what any client writes, and quickly what Java writes.

    {"code":310,"extFields":{"a":"group",...},"flag":0,"language":"JAVA","opaque":5,
     "serializeTypeCurrentRPC":"JSON","version":409}

Java's members stand in this order without blanks, and many headers have no fields. Of such a header only the fields and
the opaque change from request to request: the rest is looked up by its bytes, and the fields are left as they are until
somebody asks for them.
Source: spec: remoting §1.2.
"""

import json
import re
from json.encoder import encode_basestring
from typing import Any, Final

from rmqha.codec.codes import LanguageCode
from rmqha.errors import RemoteProtocolError

_TEXT_ONLY: Final = frozenset({str})
_scan_json: Final = json.JSONDecoder().scan_once  # type: ignore[attr-defined]

_USUAL: Final = re.compile(
    rb'\{"code":(\d{1,9}),(?:"extFields":\{[ -z|~]*\},)?"flag":(\d),"language":"([A-Z]{1,20})",'
    rb'"opaque":\d{1,9},"serializeTypeCurrentRPC":"JSON","version":(\d{1,5})\}'
)
_OPAQUE: Final = b'"opaque":'
_REMEMBERED_MAX: Final = 1024
FIELDS_MAX: Final = 1024
"""Of one header; RocketMQ's have some twenty. Decoded, a field of 8 bytes takes a hundred, in requests that wait."""

Usual = tuple[int, int, LanguageCode, int]
"""Code, flag, language and version."""

remembered: Final[dict[tuple[bytes, bytes, bytes], Usual]] = {}
"""By what stands before the fields, between them and the opaque, and behind it."""
_language_by_name: Final = {language.name.encode(): language for language in LanguageCode}


def usual_header(header: bytes) -> tuple[Usual, int, bytes | None] | None:
    """What ``header`` says, if it looks as Java's do, with its opaque and its undecoded fields, if it has any.

    The fields begin with the first brace and end with the first closing one, and are not checked any further:
    :func:`json_fields` does that.
    """
    fields_at = header.find(b"{", 1)
    fields_end = header.find(b"}") + 1 if fields_at > 0 else 0
    opaque_at = header.find(_OPAQUE, fields_end) + len(_OPAQUE)
    opaque_end = header.find(b",", opaque_at)
    around = (header[: max(fields_at, 0)], header[fields_end:opaque_at], header[opaque_end:])
    opaque = header[opaque_at:opaque_end]
    usual = remembered.get(around) or _learn(header, around)
    if usual is None or len(opaque) > 9 or not opaque.isdigit():
        return None
    return usual, int(opaque), header[fields_at:fields_end] if fields_end else None


def _learn(header: bytes, around: tuple[bytes, bytes, bytes]) -> Usual | None:
    match = _USUAL.fullmatch(header)
    if match is None:
        return None
    code, flag, language, version = match.groups()
    if len(remembered) >= _REMEMBERED_MAX:
        remembered.clear()
    known = remembered[around] = (
        int(code),
        int(flag),
        _language_by_name.get(language, LanguageCode.OTHER),
        int(version),
    )
    return known


def json_header(raw: bytes) -> dict[str, Any]:
    """The object that ``raw`` is.

    Raises:
        RemoteProtocolError: it is none, or holds what UTF-8 cannot.
    """
    try:
        text = raw.decode()
        if "\\ud" in text or "\\uD" in text:
            _check_pairs(text)
        if text.startswith("{"):
            header, header_end = _scan_json(text, 0)
            if header_end == len(text):
                return header  # type: ignore[no-any-return]
        header = json.loads(text)  # with blanks around it, or not at all
    except (ValueError, RecursionError, StopIteration) as error:
        raise RemoteProtocolError(f"JSON header does not parse: {error}") from None
    if type(header) is not dict:
        raise RemoteProtocolError("JSON header is no object")
    return header


def _check_pairs(text: str) -> None:
    """Half a surrogate pair can be written in JSON, but not in UTF-8: storing or logging it would fail."""
    json.dumps(json.loads(text), ensure_ascii=False).encode()


def json_fields(value: object) -> dict[str, str] | None:
    """``extFields`` as names and texts; None if there are none.

    Raises:
        RemoteProtocolError: it is no object, or holds too many, or more than texts and numbers.
    """
    if value is None:
        return None
    if type(value) is not dict:
        raise RemoteProtocolError("extFields of a JSON header is no object")
    if len(value) > FIELDS_MAX:
        raise RemoteProtocolError(f"a header with {len(value)} fields: at most {FIELDS_MAX} are taken")
    if _TEXT_ONLY.issuperset(map(type, value.values())):
        return value
    return {name: _json_text(field) for name, field in value.items() if field is not None}


def _json_text(value: object) -> str:
    """Numbers and booleans as the strings they should have been."""
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) in (str, int, float):
        return str(value)
    raise RemoteProtocolError("a value of a JSON header is neither text nor number")


def json_remark(value: object) -> str | None:
    """``remark`` as text.

    Raises:
        RemoteProtocolError: it is neither text nor number.
    """
    return value if value is None or type(value) is str else _json_text(value)


def json_object(fields: dict[str, str]) -> str:
    """``extFields`` as Java writes them."""
    return "{" + ",".join(f"{encode_basestring(k)}:{encode_basestring(v)}" for k, v in fields.items()) + "}"
