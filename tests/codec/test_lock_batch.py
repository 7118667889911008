"""The bodies of 41 and 42, as Java's clients write them."""

import pytest

from rmqha.codec.lock_batch import LOCK_BATCH_SIZE_MAX, MessageQueue, decode_lock_batch, encode_lock_ok
from rmqha.errors import RemoteProtocolError

RECORDED = (
    b'{"clientId":"10.45.0.1@cp","consumerGroup":"CG_WORKERS_ORD",'
    b'"mqSet":[{"brokerName":"gold-a","queueId":3,"topic":"TopicTest"}]}'
)
ANSWER = b'{"lockOKMQSet":[{"brokerName":"gold-a","queueId":3,"topic":"TopicTest"}]}'


def test_recorded_bodies_are_read_and_written() -> None:
    asked = decode_lock_batch(RECORDED)
    assert (asked.client_id, asked.consumer_group) == ("10.45.0.1@cp", "CG_WORKERS_ORD")
    assert asked.mq_set == (MessageQueue("TopicTest", "gold-a", 3),)
    assert encode_lock_ok(asked.mq_set) == ANSWER
    assert encode_lock_ok([]) == b'{"lockOKMQSet":[]}'


def test_what_may_be_missing_may_be_missing() -> None:
    body = b'{"clientId":"c","consumerGroup":"g","mqSet":null,"onlyThisBroker":true}'
    assert decode_lock_batch(body).mq_set == ()


@pytest.mark.parametrize(
    "queue",
    [
        *("7", "[]", "{}", '{"topic":"t","brokerName":"b"}', '{"topic":7,"brokerName":"b","queueId":1}'),
        '{"topic":"t","brokerName":"b","queueId":-1}',
        '{"topic":"t","brokerName":"b","queueId":2147483648}',
        '{"topic":"%s","brokerName":"b","queueId":0}' % ("t" * 300),
    ],
)
def test_what_is_no_queue_is_refused(queue: str) -> None:
    with pytest.raises(RemoteProtocolError, match="do not parse"):
        decode_lock_batch(f'{{"clientId":"c","consumerGroup":"g","mqSet":[{queue}]}}'.encode())


def test_too_many_are_not_even_read() -> None:
    with pytest.raises(RemoteProtocolError, match="at once"):
        decode_lock_batch(b" " * (LOCK_BATCH_SIZE_MAX + 1))
