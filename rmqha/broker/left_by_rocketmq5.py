"""What RocketMQ 5 left in a store for itself to deliver. Nobody else does, so the log says so at a start."""

from typing import Any, Final

import structlog
import trio

from rmqha.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from rmqha.store.consume_queue import ConsumeQueue
from rmqha.store.consume_queue_table import ConsumeQueueTable
from rmqha.store.disk import Disk

logger = structlog.get_logger()

_TIMER_TOPIC: Final = "rmq_sys_wheel_timer"
_REVIVE_TOPIC: Final = "rmq_sys_REVIVE_LOG_"
_REVIVE_GROUP: Final = "CID_RMQ_SYS_REVIVE_GROUP"
"""Source: rocketmq-all-5.3.3 TimerMessageStore.java, PopAckConstants.java."""
_QUEUES_AT_ONCE: Final = 1000
_WHAT: Final = {
    "timer_messages": "what may wait for its time, notes of POP consumers among it (rmq_sys_wheel_timer)",
    "pop_checkpoints": "notes of what POP consumers took, and may not have acknowledged (rmq_sys_REVIVE_LOG)",
    "batch_topics": "topics with queue.type=BatchCQ",
}


async def tell_undelivered(queues: ConsumeQueueTable, offsets: ConsumerOffsetManager, *, disk: Disk, root: str) -> None:
    """One warning, if there is anything that this broker will never deliver. In turns.

    Args:
        queues: all of the broker's.
        offsets: where groups go on.
        disk: the store's.
        root: its directory; RocketMQ 5 has the queues of batches beside the others.

    Raises:
        StoreReadError: it cannot be listed.
    """
    timer_messages = pop_checkpoints = 0
    for number, queue in enumerate([*queues]):
        if queue.topic == _TIMER_TOPIC:
            timer_messages += queue.max_offset_in_queue - queue.min_offset_in_queue
        elif queue.topic.startswith(_REVIVE_TOPIC):
            pop_checkpoints += _lag(queue, offsets)
        if number % _QUEUES_AT_ONCE == 0:
            await trio.lowlevel.checkpoint()
    counts = {"timer_messages": timer_messages, "pop_checkpoints": pop_checkpoints}
    facts: dict[str, Any] = {**counts, "batch_topics": disk.listdir(f"{root}/batchconsumequeue")}
    left = {name: value for name, value in facts.items() if value}
    if left:
        what = "; ".join(_WHAT[name] for name in left)
        reason = f"RocketMQ 5 left here: {what}. Only RocketMQ 5 delivers these: docs/migration.md, 'From RocketMQ 5'"
        logger.warning("rocketmq5.not_delivered", **left, reason=reason)


def _lag(queue: ConsumeQueue, offsets: ConsumerOffsetManager) -> int:
    """How many of its messages RocketMQ 5 had still to look at."""
    done = offsets.query_offset(_REVIVE_GROUP, queue.topic, queue.queue_id) or 0
    return max(0, queue.max_offset_in_queue - max(done, queue.min_offset_in_queue))
