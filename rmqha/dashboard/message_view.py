"""What the page shows of a message: its facts, its properties, and its body as text or as a dump. Pure and bounded."""

import re
from codecs import getincrementaldecoder
from itertools import islice
from typing import Any, Final

from rmqha.client import MessageExt
from rmqha.dashboard.bounded import number, text

BODY_SIZE_MAX: Final = 64 * 1024
"""Bytes of a body that are shown as text; of a dump a quarter."""
_PROPERTIES_MAX: Final = 128
_PROPERTY_SIZE_MAX: Final = 4_096
_LINE_SIZE: Final = 16
_CONTROL: Final = re.compile("[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x7f]")


def message_view(message: MessageExt) -> dict[str, Any]:
    """An object of plain values; ``body`` is its beginning, ``bodyKind`` says as what: text or hex."""
    kind, body, shown = _body(message.body)
    properties = islice(message.properties.items(), _PROPERTIES_MAX)
    return {
        "topic": text(message.topic),
        "broker": text(message.queue.broker_name),
        "queue": number(message.queue.queue_id),
        "queueOffset": number(message.queue_offset),
        "offset": number(message.physical_offset),
        "msgId": text(message.msg_id),
        "offsetMsgId": text(message.offset_msg_id),
        "tags": text(message.tags),
        "keys": text(" ".join(message.keys)),
        "bornMs": number(message.born_timestamp_ms),
        "bornHost": text(message.born_host),
        "storedMs": number(message.store_timestamp_ms),
        "storeHost": text(message.store_host),
        "reconsumed": number(message.reconsume_times),
        "properties": [[text(name), text(value, _PROPERTY_SIZE_MAX)] for name, value in properties],
        "bodySize": len(message.body),
        "bodyShown": shown,
        "bodyKind": kind,
        "body": body,
        "bodyProblem": text(message.body_problem),
    }


def _body(body: bytes) -> tuple[str, str, int]:
    """As what it is shown, how, and how many bytes of it."""
    start = body[:BODY_SIZE_MAX]
    if (decoded := _as_text(start, is_cut=len(start) < len(body))) is not None:
        return "text", decoded, len(start)
    start = start[: BODY_SIZE_MAX // 4]
    return "hex", hex_dump(start), len(start)


def _as_text(body: bytes, *, is_cut: bool) -> str | None:
    """None if it is none. A character that the cut went through is left out."""
    try:
        decoded = getincrementaldecoder("utf-8")().decode(body, final=not is_cut)
    except UnicodeDecodeError:
        return None
    return None if _CONTROL.search(decoded) else decoded


def hex_dump(data: bytes) -> str:
    """Lines of an offset, sixteen bytes, and what of them is ASCII."""
    lines = []
    for at in range(0, len(data), _LINE_SIZE):
        line = data[at : at + _LINE_SIZE]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in line)
        lines.append(f"{at:08x}  {line.hex(' '):<{3 * _LINE_SIZE - 1}}  {shown}")
    return "\n".join(lines)
