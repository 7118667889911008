"""ProcessQueue: where one queue of a consumer stands."""

from typing import Final

from rmqha.errors import MQClientError

_PAUSE_S: Final = 1.0


class ProcessQueue:
    """Where one queue stands. At most one pull is under way; its answer counts only if ``epoch`` is unchanged.

    Attributes:
        next_offset: where the next pull begins: behind everything received.
        delivered_offset: behind everything handed to the caller.
        processed_offset: behind everything handed to the caller before the latest poll.
        broker_id: whom to ask: 0 the master, larger a slave.
        not_before: no pull before this time (trio's clock).
        stay_until: after the master failed, no return to it before this time.
    """

    def __init__(self, offset: int) -> None:
        self.next_offset = self.delivered_offset = self.processed_offset = offset
        self.epoch = 0
        self.pulling = False
        self.broker_id = 0
        self.not_before = 0.0
        self.stay_until = 0.0
        self.failures = 0
        self._was_moved = False

    def note_answer(self, *, is_moved: bool, now: float) -> bool:
        """Whether the broker answered with another offset, having none here; if it always does, it has a pause."""
        if is_moved and self._was_moved:
            self.not_before = now + _PAUSE_S
        self._was_moved = is_moved
        self.failures = 0
        return is_moved

    def seek(self, offset: int) -> None:
        """Go on at ``offset`` at once; the answer to a pull that is under way does not count any more."""
        self.epoch += 1
        self.pulling = False
        self.next_offset = self.delivered_offset = self.processed_offset = offset
        self.not_before = 0.0


def check_offset(offset: int) -> None:
    """Raise MQClientError for an offset that no queue has."""
    if offset < 0:
        raise MQClientError(f"offset {offset} is negative")
