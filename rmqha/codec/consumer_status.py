"""GetConsumerStatusBody: how far a consumer is in its own mind, as it answers 221, and as 223 hands it on.

    {"messageQueueTable":{{"brokerName":"b","queueId":0,"topic":"t"}:7}}
    {"consumerTable":{"10.0.0.1@7":{{"brokerName":"b","queueId":0,"topic":"t"}:7}}}

Source: rocketmq-all-4.9.8 GetConsumerStatusBody.java.
"""

from collections.abc import Mapping
from typing import Final

from rmqha.codec import java_json
from rmqha.errors import RemoteProtocolError

STATUS_SIZE_MAX: Final = 64 * 1024
"""Bytes of one consumer's answer: some 700 queues."""
_INT64_MAX: Final = 2**63 - 1


def decode_consumer_status(body: bytes) -> str:
    """The table of a consumer's answer, as JSON again: that takes a tenth of the memory of what it says.

    Raises:
        RemoteProtocolError: it is none, or too large.
    """
    if len(body) > STATUS_SIZE_MAX:
        raise RemoteProtocolError(f"a consumer's status has {len(body)} bytes: at most {STATUS_SIZE_MAX} are taken")
    value = java_json.loads(body)
    table = value.get("messageQueueTable") if isinstance(value, dict) else None
    if not isinstance(table, dict) or not all(map(_is_offset, table.values())):
        raise RemoteProtocolError("the status of a consumer is no table of queues and offsets")
    return java_json.dumps(table)


def _is_offset(value: object) -> bool:
    return type(value) is int and -1 <= value <= _INT64_MAX


def encode_consumer_table(tables: Mapping[str, str]) -> bytes:
    """The answer to 223: by clientId what :func:`decode_consumer_status` made of each consumer's."""
    members = ",".join([f"{java_json.dumps(client_id)}:{table}" for client_id, table in tables.items()])
    return f'{{"consumerTable":{{{members}}}}}'.encode()
