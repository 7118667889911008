"""What the log is to take of a transactional send: a half message.

Source: spec: remoting §2.4; rocketmq-all-4.9.8 SendMessageProcessor.java, TransactionalMessageBridge.java.
"""

from typing import Final

from rmqha.broker.puts.sent_records import SendRules
from rmqha.broker.puts.stored_properties import SendRefusedError
from rmqha.broker.transaction.half_message import HALF_TOPIC, QUEUE_ID, half_properties
from rmqha.codec.codes import ResponseCode
from rmqha.codec.properties import TRAN_MSG, pairs_of
from rmqha.codec.record.encoder import PreparedRecord, prepare
from rmqha.codec.record.layout import PROPERTIES_SIZE_MAX, SysFlag
from rmqha.codec.send_headers import SendMessageRequestHeader

_NOTED_BYTES: Final = 128
"""Room for what is noted of it later: how often its producer was asked, and where it lay first."""
_PROPERTIES_SIZE_MAX: Final = PROPERTIES_SIZE_MAX - _NOTED_BYTES


def half_of(
    header: SendMessageRequestHeader,
    body: bytes,
    *,
    rules: SendRules,
    born_host: bytes,
    queue_id: int,
    properties: bytes,
) -> PreparedRecord:
    """As :func:`~rmqha.broker.puts.sent_records.records_of`, of a message that is to be seen only after a commit.

    Raises:
        SendRefusedError: this broker takes none, it is too large, or leaves no room for what is noted of it later.
        LocalProtocolError: it does not fit its record.
    """
    if rules.rejects_transactions:
        raise SendRefusedError(
            ResponseCode.NO_PERMISSION, "this broker takes no transactional messages: rejectTransactionMessage is true"
        )
    rules.check_body(len(body))
    kept = half_properties(properties, topic=header.topic, queue_id=queue_id)
    if len(kept) > _PROPERTIES_SIZE_MAX:
        raise SendRefusedError(
            ResponseCode.MESSAGE_ILLEGAL,
            f"properties of {len(kept)} bytes, a transactional message may have {_PROPERTIES_SIZE_MAX}",
        )
    record = prepare(
        HALF_TOPIC,
        body,
        queue_id=QUEUE_ID,
        born_timestamp_ms=header.born_timestamp_ms,
        born_host_raw=born_host,
        store_host_raw=rules.store_host,
        properties_raw=kept,
        flag=header.flag,
        sys_flag=header.sys_flag & ~SysFlag.TRANSACTION_TYPE,
        reconsume_times=header.reconsume_times,
    )
    if record.size + _NOTED_BYTES + max(0, len(header.topic) - len(HALF_TOPIC)) > rules.record_size_max:
        reason = (
            f"{record.size} bytes, what is noted of a transactional message, and its topic are more than the log takes"
        )
        raise SendRefusedError(ResponseCode.MESSAGE_ILLEGAL, reason)
    return record


def no_transaction(header: SendMessageRequestHeader) -> SendMessageRequestHeader:
    """Of what a consumer sends to get it again: clients before 4.6.1 leave on it that it was transactional."""
    pairs = pairs_of(header.properties)
    del pairs[TRAN_MSG.encode()]
    sys_flag = header.sys_flag & ~SysFlag.TRANSACTION_TYPE
    return header._replace(properties=b"\x02".join(pairs.values()), sys_flag=sys_flag)
