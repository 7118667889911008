"""Message properties: ``name U+0001 value`` pairs, joined by U+0002.

Writers since 4.9.1 leave out the last U+0002, older ones and some clients write it; both are read. A pair counts if its
name and its value are not empty, a later pair of the same name wins, and nothing can be escaped.

Source: spec: commitlog §2.5; rocketmq-all-4.9.8 MessageDecoder.java:474-524.
"""

import re
from collections.abc import Mapping
from typing import Final

from rmqha.errors import LocalProtocolError

NAME_VALUE_SEPARATOR: Final = "\x01"
PROPERTY_SEPARATOR: Final = "\x02"

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
WAIT: Final = "WAIT"
DELAY: Final = "DELAY"
RETRY_TOPIC: Final = "RETRY_TOPIC"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QID: Final = "REAL_QID"
TRAN_MSG: Final = "TRAN_MSG"
PGROUP: Final = "PGROUP"
UNIQ_KEY: Final = "UNIQ_KEY"
CLUSTER: Final = "CLUSTER"
ORIGIN_MESSAGE_ID: Final = "ORIGIN_MESSAGE_ID"
MAX_RECONSUME_TIMES: Final = "MAX_RECONSUME_TIMES"
RECONSUME_TIME: Final = "RECONSUME_TIME"
TRANSACTION_CHECK_TIMES: Final = "TRANSACTION_CHECK_TIMES"

_ENCODED_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")
_REPLACEMENT: Final = "�".encode()


def decode_utf8(raw: bytes) -> str:
    """UTF-8 with U+FFFD for what is invalid, exactly where Java puts it.

    The two languages differ only in an encoded surrogate: Java replaces all of it by one U+FFFD, Python each byte.
    (``str(raw, "utf-8")`` would let one through on PyPy.)
    """
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return str(_ENCODED_SURROGATE.sub(_REPLACEMENT, raw), "utf-8", "replace")


def parse_properties(raw: bytes | str) -> dict[str, str]:
    """Name to value of every well-formed pair; the others are passed over."""
    text = raw if isinstance(raw, str) else decode_utf8(raw)
    properties = {}
    for pair in text.split(PROPERTY_SEPARATOR):
        name, _, value = pair.partition(NAME_VALUE_SEPARATOR)
        if name and value:
            properties[name] = value
    return properties


def format_properties(properties: Mapping[str, str]) -> str:
    """The flat string, without a last separator.

    Raises:
        LocalProtocolError: a name or value holds a separator, which nothing can escape.
    """
    text = PROPERTY_SEPARATOR.join(f"{name}{NAME_VALUE_SEPARATOR}{value}" for name, value in properties.items())
    expected = max(0, len(properties) - 1)
    if text.count(PROPERTY_SEPARATOR) != expected or text.count(NAME_VALUE_SEPARATOR) != len(properties):
        raise LocalProtocolError("a property's name or value holds U+0001 or U+0002: remove it")
    return text


def pairs_of(raw: bytes) -> dict[bytes, bytes]:
    """Name to the whole pair, of every well-formed one; U+0002 joins the values to a text again."""
    pairs = {}
    for pair in raw.split(b"\x02"):
        name, _, value = pair.partition(b"\x01")
        if name and value:
            pairs[name] = pair
    return pairs


def find_property(raw: bytes, name: bytes) -> bytes | None:
    """The value of one property without parsing the others. Hot path: once per dispatched record."""
    mark = b"\x02" + name + b"\x01"
    before = len(raw)
    while (at := raw.rfind(mark, 0, before)) >= 0:
        if value := _value_at(raw, at + len(mark)):
            return value
        before = at  # a pair with an empty value does not count, so an earlier one of the same name may
    return (_value_at(raw, len(mark) - 1) or None) if raw.startswith(mark[1:]) else None


def _value_at(raw: bytes, start: int) -> bytes:
    end = raw.find(b"\x02", start)
    return raw[start:] if end < 0 else raw[start:end]
