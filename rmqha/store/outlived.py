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
    return unit[0] if queue is not None and unit is not None and leads_to_its_message(queue, 0, log) else 0


def leads_to_its_message(queue: ConsumeQueue, index: int, log: Log) -> bool:
    """Whether the queue's unit ``index`` leads to a record that says that it is this queue's message ``index``.

    Raises:
        StoreReadError: the log cannot be read at present.
    """
    unit = queue.unit(index)
    record = None if unit is None else log.record_at(unit[0], end=log.max_offset)
    if unit is None or record is None or len(record) != unit[1]:
        return False
    requests, _ = read_dispatch(record, 0, len(record), phy_offset_base=unit[0])
    return [(*one[:2], one.queue_offset) for one in requests] == [(queue.topic, queue.queue_id, index)]


def may_stop(queue: ConsumeQueue, log: Log) -> bool:
    """Whether a queue that has units may stop behind the last: the log says of its last message that it is that.

    Or it holds none of them any more: the queue is due to be built again as soon as it has stopped
    (:meth:`~rmqha.store.stopped_queues.StoppedQueues.due`). Raises StoreReadError: the log cannot be read at present.
    """
    return not queue.has_messages or leads_to_its_message(queue, queue.max_offset_in_queue - 1, log)
