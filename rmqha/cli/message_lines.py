"""A message as a line: for eyes, or as JSON; and as a page of facts. Pure."""

import base64
import hashlib
import json
from typing import Any

from rmqha.cli.output import takes_unicode
from rmqha.cli.table import time_text
from rmqha.client import MessageExt
from rmqha.logs import escaped


def text_line(message: MessageExt) -> str:
    """Return the body, if it is text without control characters as it is, otherwise with escapes."""
    return escaped(message.body.decode("utf-8", "backslashreplace"))


def json_line(message: MessageExt) -> str:
    """Return everything about the message as one JSON object."""
    try:
        body = {"body": message.body.decode("utf-8")}
    except UnicodeDecodeError:
        body = {"bodyBase64": base64.b64encode(message.body).decode("ascii")}
    facts: dict[str, Any] = {
        "topic": message.topic,
        "brokerName": message.queue.broker_name,
        "queueId": message.queue.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "msgId": message.msg_id,
        "offsetMsgId": message.offset_msg_id,
        "tags": message.tags,
        "keys": list(message.keys),
        "bornTimestamp": message.born_timestamp_ms,
        "bornHost": message.born_host,
        "storeTimestamp": message.store_timestamp_ms,
        "storeHost": message.store_host,
        "reconsumeTimes": message.reconsume_times,
        "properties": message.properties,
        "bodyLength": len(message.body),
        "bodySha256": hashlib.sha256(message.body).hexdigest(),
    }
    return json.dumps(facts | body, ensure_ascii=not takes_unicode(), separators=(",", ":"))


def fact_lines(message: MessageExt) -> str:
    """Everything about the message for eyes: a fact a line, the body last."""
    queue = message.queue
    facts = {
        "topic": f"{message.topic}, queue {queue.queue_id} of {queue.broker_name}, offset {message.queue_offset:,}",
        "id": message.msg_id,
        "offset id": f"{message.offset_msg_id} (physical offset {message.physical_offset:,})",
        "tag": message.tags,
        "keys": " ".join(message.keys),
        "born": f"{time_text(message.born_timestamp_ms)} at {message.born_host}",
        "stored": f"{time_text(message.store_timestamp_ms)} at {message.store_host}",
        "consumed": f"again, {message.reconsume_times} times so far" if message.reconsume_times else None,
    }
    lines = [f"{name:<9}  {escaped(text)}" for name, text in facts.items() if text]
    lines += [f"property   {escaped(f'{name}={value}')}" for name, value in message.properties.items()]
    problem = f", as stored: {message.body_problem}" if message.body_problem else ""
    lines.append(f"body       {len(message.body):,} bytes{escaped(problem)}")
    return "\n".join([*lines, text_line(message)])
