"""ProcessQueue: where one queue of a consumer stands."""


class ProcessQueue:
    """Where one queue stands. At most one pull is under way; its answer counts only if ``epoch`` is unchanged.

    Attributes:
        next_offset: where the next pull begins: behind everything received.
        delivered_offset: behind everything handed to the caller.
        processed_offset: behind everything handed to the caller before his latest poll.
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
