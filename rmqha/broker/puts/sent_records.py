"""What the log is to take of a send: a record, or for a batch one for each of its messages. Hot path.

Source: spec: commitlog §3; rocketmq-all-4.9.8 CommitLog.java:1897-1990.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from rmqha.broker.puts.stored_properties import DelayAsked, SendRefusedError
from rmqha.codec.batch import BATCH_MESSAGES_MAX, ENTRY_SIZE_MIN, cut_batch
from rmqha.codec.codes import ResponseCode
from rmqha.codec.delayed_message import delay_level2_queue_id, waiting_properties
from rmqha.codec.host import parse_host
from rmqha.codec.limits import body_problem
from rmqha.codec.record.encoder import PreparedRecord, prepare
from rmqha.codec.record.layout import SCHEDULE_TOPIC
from rmqha.codec.record.prepared_batch import PreparedBatch
from rmqha.codec.send_headers import SendMessageRequestHeader

_BATCH_GROWTH_MAX: Final = 4
"""A batch's records take at most so many times maxMessageSize; in RocketMQ 4.9 they have to fit into that."""

_MESSAGES_A_STEP: Final = 256
_BYTES_A_STEP: Final = 256 * 1024
_RECORD_COST: Final = 300
"""Bytes that a record takes in memory beside its body and properties."""
LARGE_BYTES: Final = 256 * 1024
"""Of records in memory: what more than that may become of is prepared a few at one time."""


Asked = tuple[int, int, bool, int, int]
"""What an answer needs of its request: opaque, serialize, whether it is one-way, the queue the producer is told, and
its size on the wire."""


@lru_cache(maxsize=4096)
def born_host_of(peer: str) -> bytes:
    """A client's address as a record has it."""
    return parse_host(peer)


@dataclass(frozen=True, slots=True)
class SendRules:
    """What the broker's configuration says about sends."""

    cluster_name: str
    store_host: bytes
    """What message ids are made of: the advertised IP and port (commitlog §2.1, field 12)."""
    message_size_max: int
    """Bytes of a body, of clients' sends alone: what the broker puts again was let in before."""
    writable: bool = True
    """brokerPermission has the write bit."""
    rejects_transactions: bool = False
    """rejectTransactionMessage."""
    stores_replies: bool = True
    """storeReplyMessageEnable."""
    delay_levels: int = 18
    """How many there are."""
    record_size_max: int = 2**31 - 1
    """Bytes; the log takes no more."""

    def check_body(self, size: int) -> None:
        """Of a message, or a whole batch, that a client sends. Raises SendRefusedError: it is too large."""
        if problem := body_problem(size, message_size_max=self.message_size_max):
            raise SendRefusedError(ResponseCode.MESSAGE_ILLEGAL, problem)


def records_of(
    header: SendMessageRequestHeader,
    body: bytes,
    *,
    rules: SendRules,
    born_host: bytes,
    queue_id: int,
    properties: bytes,
) -> "PreparedRecord | SentBatch":
    """What to append for a send; the records of a batch are still to be prepared.

    Args:
        header: the producer's.
        body: a message's, or a batch.
        rules: the broker's.
        born_host: the producer's address.
        queue_id: where to.
        properties: what is stored of the header's; each message of a batch gets them besides its own.

    Raises:
        SendRefusedError: the message, or the batch, is too large.
        RemoteProtocolError: it does not parse.
        LocalProtocolError: the message does not fit its record.
    """
    rules.check_body(len(body))
    record = prepare(
        header.topic,
        b"" if header.batch else body,
        queue_id=queue_id,
        born_timestamp_ms=header.born_timestamp_ms,
        born_host_raw=born_host,
        store_host_raw=rules.store_host,
        properties_raw=b"" if header.batch else properties,
        flag=header.flag,
        sys_flag=header.sys_flag,
        reconsume_times=header.reconsume_times,
    )
    if not header.batch:
        return record
    return SentBatch(record, body, shared=properties, size_max=_BATCH_GROWTH_MAX * rules.message_size_max)


def put_to_wait(record: PreparedRecord, delay: DelayAsked, *, rules: SendRules) -> PreparedRecord:
    """The record of a message that waits in the schedule topic before it becomes ``record``.

    Args:
        record: with its topic and queue.
        delay: how long it waits; the highest level there is, if it asks for more.
        rules: the broker's.

    Raises:
        SendRefusedError: it would not fit into a file of the log when its time comes, or there are no levels.
        LocalProtocolError: its properties and the place where it goes are too large.
    """
    delay_level = min(delay.level, rules.delay_levels)
    if not delay_level:
        raise SendRefusedError(ResponseCode.MESSAGE_ILLEGAL, "messageDelayLevel is empty: there are no delays")
    properties = waiting_properties(delay.pairs, delay_level=delay_level, topic=record.topic, queue_id=record.queue_id)
    waiting = prepare(
        SCHEDULE_TOPIC,
        record.body,
        queue_id=delay_level2_queue_id(delay_level),
        born_timestamp_ms=record.born_timestamp_ms,
        born_host_raw=record.born_host_raw,
        store_host_raw=record.store_host_raw,
        properties_raw=properties,
        flag=record.flag,
        sys_flag=record.sys_flag,
        reconsume_times=record.reconsume_times,
    )
    if waiting.size + len(record.topic) - len(SCHEDULE_TOPIC) > rules.record_size_max:
        reason = f"{waiting.size} bytes and the name of their topic are more than the log takes when their time comes"
        raise SendRefusedError(ResponseCode.MESSAGE_ILLEGAL, reason)
    return waiting


class SentBatch(PreparedBatch):
    """A batch's records, which :meth:`prepare` adds in steps: there may be thousands."""

    def __init__(self, like: PreparedRecord, body: bytes, *, shared: bytes, size_max: int) -> None:
        """Cut its first messages. Raises RemoteProtocolError: they do not parse."""
        super().__init__(like)
        self._shared = shared
        self._size_max = size_max
        messages_a_step = max(1, min(_MESSAGES_A_STEP, _BYTES_A_STEP // (len(shared) + _RECORD_COST)))
        self._portions = cut_batch(body, messages_max=messages_a_step, portion_bytes=_BYTES_A_STEP)
        self._next = next(self._portions, None)
        count_max = 0 if self._next is None else len(self._next.bodies) + self._next.left_bytes // ENTRY_SIZE_MIN
        self.cost = len(body) + count_max * (len(shared) + _RECORD_COST)
        """Bytes that its records take in memory at most, if it is not refused."""
        self.is_large = self.cost > LARGE_BYTES
        """One that is not takes a millisecond at most."""

    def prepare(self) -> Iterator[bool]:
        """Add the records, less than a millisecond's work a step.

        Raises:
            SendRefusedError: the batch is too large: its append would keep everybody else waiting.
            LocalProtocolError: a message does not fit its record.
            RemoteProtocolError: the batch does not parse.
        """
        while self._next is not None:
            flags, bodies, properties, _ = self._next
            self.add(flags, bodies, properties, shared=self._shared)
            if len(self) > BATCH_MESSAGES_MAX or self.size > self._size_max:
                raise SendRefusedError(
                    ResponseCode.MESSAGE_ILLEGAL,
                    f"a batch has at most {BATCH_MESSAGES_MAX} messages, and their records, with the properties of "
                    f"all, {_BATCH_GROWTH_MAX} times maxMessageSize: send them in several",
                )
            yield False
            self._next = next(self._portions, None)
