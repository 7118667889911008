"""LostQueue: a consume queue with missing or damaged files, until it is built again (store/queue_rebuild.py).

So is one whose messages were deleted with their topic: of what it held nothing is built again.
"""

from dataclasses import dataclass

from rmqha.codec.consume_queue import QUEUE_OFFSET_MAX


@dataclass(slots=True, eq=False)
class LostQueue:
    """What memory still knows of it."""

    topic: str
    queue_id: int
    path: str
    """The file that is missing, is no queue file any more, or is damaged; of a deleted one its directory."""
    first: int
    """Offset in the queue of its first message."""
    end: int
    """Offset in the queue of its next message: dispatch goes on counting."""
    begins_at: int
    """No record of this queue lies before this offset of the log."""
    ends_at: int = 0
    """Where the last of its records ends that dispatch has passed over."""
    is_deleted: bool = False
    """Nothing is amiss: it is to begin anew, at ``first``."""

    def pass_over(self, queue_offset: int, ends_at: int) -> None:
        """Dispatch has met a record of this queue, and left it to the rebuilding: a 0th begins it anew."""
        if queue_offset == 0:
            self.first, self.end = 0, 1
        if queue_offset <= QUEUE_OFFSET_MAX:  # before any other it stops
            self.end = max(self.end, queue_offset + 1)
        self.ends_at = max(self.ends_at, ends_at)
