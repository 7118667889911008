"""What the log is to take of a send: a record, or for a batch one for each of its messages. Hot path.

Source: spec: commitlog §3; rocketmq-all-4.9.8 CommitLog.java:1897-1990.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final

from rmqha.broker.stored_properties import SendRefusedError
from rmqha.codec.batch import BATCH_MESSAGES_MAX, decode_batch, merge_properties
from rmqha.codec.codes import ResponseCode
from rmqha.codec.record_encoder import PreparedRecord, prepare
from rmqha.codec.send_headers import SendMessageRequestHeader
from rmqha.store.commit_log import PutRequest

_BATCH_GROWTH_MAX: Final = 4
"""A batch's records take at most so many times maxMessageSize; in RocketMQ 4.9 they have to fit into that."""


@dataclass(frozen=True, slots=True)
class SendRules:
    """What the broker's configuration says about sends."""

    cluster_name: str
    store_host: bytes
    """What message ids are made of: the advertised IP and port (commitlog §2.1, field 12)."""
    message_size_max: int
    writable: bool = True
    """brokerPermission has the write bit."""


def records_of(
    header: SendMessageRequestHeader,
    body: bytes,
    *,
    rules: SendRules,
    born_host: bytes,
    queue_id: int,
    properties: bytes,
) -> PutRequest:
    """What to append for a send.

    Args:
        header: the producer's.
        body: a message's, or a batch.
        rules: the broker's.
        born_host: the producer's address.
        queue_id: where to.
        properties: what is stored of the header's; each message of a batch gets them besides its own.

    Raises:
        SendRefusedError: the batch is too large: it would keep everybody else waiting.
        LocalProtocolError: a message does not fit its record.
        RemoteProtocolError: the batch does not parse.
    """
    if not header.batch:
        return prepare(
            header.topic,
            body,
            queue_id=queue_id,
            born_timestamp_ms=header.born_timestamp_ms,
            born_host_raw=born_host,
            store_host_raw=rules.store_host,
            properties_raw=properties,
            flag=header.flag,
            sys_flag=header.sys_flag,
            reconsume_times=header.reconsume_times,
        )
    if len(body) > rules.message_size_max:
        raise SendRefusedError(ResponseCode.MESSAGE_ILLEGAL, f"a batch has at most {rules.message_size_max} bytes")
    return _records_of_batch(header, body, rules=rules, born_host=born_host, queue_id=queue_id, shared=properties)


def _records_of_batch(
    header: SendMessageRequestHeader, body: bytes, *, rules: SendRules, born_host: bytes, queue_id: int, shared: bytes
) -> list[PreparedRecord]:
    make = partial(
        prepare,
        header.topic,
        queue_id=queue_id,
        born_timestamp_ms=header.born_timestamp_ms,
        born_host_raw=born_host,
        store_host_raw=rules.store_host,
        sys_flag=header.sys_flag,
        reconsume_times=header.reconsume_times,
    )
    records: list[PreparedRecord] = []
    size_left = _BATCH_GROWTH_MAX * rules.message_size_max
    for flag, message_body, own in decode_batch(body):
        record = make(message_body, properties_raw=merge_properties(own, shared), flag=flag)
        size_left -= record.size
        if len(records) == BATCH_MESSAGES_MAX or size_left < 0:
            raise SendRefusedError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"a batch has at most {BATCH_MESSAGES_MAX} messages, and their records, with the properties of all, "
                f"{_BATCH_GROWTH_MAX} times maxMessageSize: send them in several",
            )
        records.append(record)
    return records
