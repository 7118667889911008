"""DeletedMessages: which messages of the log were deleted with their topic (decision 13)."""

from rmqha.codec.deleted_topic import DeletedQueue
from rmqha.codec.record.dispatch import DispatchRequest
from rmqha.store.consume_queue import ConsumeQueue


class DeletedMessages(dict[tuple[str, int], DeletedQueue]):
    """By topic and queue id; the log may still hold them."""

    def holds(self, request: DispatchRequest) -> bool:
        """Whether this message is one of them."""
        deleted = self.get((request.topic, request.queue_id))
        return deleted is not None and deleted.holds(request.queue_offset, request.commit_log_offset)

    def end_in(self, topic: str, queue_id: int, queue: ConsumeQueue | None) -> int:
        """No message of the queue before this one is there, as they are deleted; 0 if none was.

        And 0 if it has begun anew behind them: a RocketMQ master knows nothing of the deletion, and numbers from 0.
        """
        if (deleted := self.get((topic, queue_id))) is None:
            return 0
        if queue is None or not queue.min_offset_in_queue < min(deleted.end, queue.max_offset_in_queue):
            return deleted.end
        first = queue.unit(queue.min_offset_in_queue)
        return 0 if first is not None and first[0] >= deleted.before else deleted.end
