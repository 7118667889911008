"""Which records are from before their queue began anew: those that lie before its 0th message in the log.

A RocketMQ master that deletes a topic, and makes it again, numbers its messages from 0 again. The log still holds the
earlier ones, and no queue leads to them any more.
"""

from rmqha.codec.record.dispatch import read_dispatch
from rmqha.store.consume_queue import ConsumeQueue
from rmqha.store.log import Log


def beginning_of(queue: ConsumeQueue | None, log: Log) -> int:
    """Where the queue's 0th message lies, by the queue's words and by its own; 0 if that is not proven, or it has none.

    Raises:
        StoreReadError: the log cannot be read at present.
    """
    unit = None if queue is None else queue.unit(0)
    record = None if unit is None else log.record_at(unit[0], end=log.max_offset)
    if queue is None or unit is None or record is None or len(record) != unit[1]:
        return 0
    requests, _ = read_dispatch(record, 0, len(record), phy_offset_base=unit[0])
    places = [(one.topic, one.queue_id, one.queue_offset) for one in requests]
    return unit[0] if places == [(queue.topic, queue.queue_id, 0)] else 0
