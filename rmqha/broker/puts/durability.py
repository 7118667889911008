"""Hot path: answers appended messages when what SEND_OK promises has come true.

A put waits for the disk (SYNC_FLUSH) and for the replicas (SYNC_MASTER) at the same time, by two watermarks; a whole
batch from one connection waits as one, at the end of its last message. When the last wait is over every message of
the batch gets its own status: an expired wait still finds those messages good that the watermark has passed.

A log's tail may be cut while a put waits (a Raft follower's, in another term). What was cut is answered with
UNKNOWN_ERROR, and never by a watermark that passes the same place with other bytes: its producer sends it again.

Source: spec: commitlog §5 step 4, §6.3; ha §6. If both waits fail the replica's status is reported, as in RocketMQ.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from rmqha.replication.watermark import Watermark
from rmqha.store.status import PutMessageStatus

_UNREPLICATED: Final = (PutMessageStatus.SLAVE_NOT_AVAILABLE, PutMessageStatus.FLUSH_SLAVE_TIMEOUT)

Answer = Callable[[list[PutMessageStatus]], None]


class WriteErrorSource(Protocol):
    """What the store tells about itself: not None from the first failed write or flush on."""

    @property
    def write_error(self) -> Exception | None:
        """The first failure; it is final for this process."""
        ...


@dataclass(frozen=True, slots=True)
class FlushPromise:
    """SYNC_FLUSH: wait until ``flushed`` passes the message."""

    flushed: Watermark
    request_flush: Callable[[], None]
    timeout_s: float


class Acknowledgements(Protocol):
    """What is known of the slaves (rmqha.ha.group_transfer_service)."""

    @property
    def acked(self) -> Watermark:
        """Where what enough live slaves hold ends; where a log's tail is cut, it is cut too (:meth:`Watermark.cut`)."""
        ...

    @property
    def acked_from(self) -> int:
        """Where it begins; what lies before may be held by nobody."""
        ...

    def is_slave_ok(self, next_offset: int) -> bool:
        """Whether there is a point in waiting at all (spec: ha §6 step 2)."""
        ...


@dataclass(slots=True)
class ReplicaPromise:
    """Wait until enough replicas hold the whole message: live slaves of a SYNC_MASTER, or most of a DLedger group."""

    acknowledgements: Acknowledgements
    timeout_s: float
    unreplicated: int = 0
    """How many messages were answered without the replicas that were promised."""
    late: PutMessageStatus = PutMessageStatus.FLUSH_SLAVE_TIMEOUT
    """The status of messages that the replicas did not hold in time."""


class Durability:
    """Waits for what the broker's roles promise; one object a broker."""

    def __init__(
        self,
        store: WriteErrorSource,
        *,
        clock: Callable[[], float],
        flush: FlushPromise | None,
        replica: ReplicaPromise | None,
        note_time: Callable[[float, int], None] = lambda _elapsed_s, _puts: None,
        note_unsafe: Callable[[Sequence[PutMessageStatus]], None] = lambda _statuses: None,
    ) -> None:
        """Make it.

        Args:
            store: tells of the first failure.
            clock: seconds.
            flush: what SEND_OK promises of the disk.
            replica: what it promises of other nodes.
            note_time: told after how many seconds so many puts are answered.
            note_unsafe: told the statuses of a batch of which not every put is PUT_OK.
        """
        self._store = store
        self._clock = clock
        self._flush = flush
        self._replica = replica
        self._note_time = note_time
        self._note_unsafe = note_unsafe
        self.cuts = 0
        """How often the log's tail was cut."""
        self.cut_to = 0
        """Where the log ended after the last cut."""
        if flush is not None:
            flush.flushed.on_cut(self._on_cut)
        if replica is not None:
            replica.acknowledgements.acked.on_cut(self._on_cut)

    def _on_cut(self, end: int) -> None:
        """Those whom this concerns are failed next, so there is no need to remember the cut before."""
        self.cuts, self.cut_to = self.cuts + 1, end

    def count(self, statuses: Sequence[PutMessageStatus]) -> None:
        """Messages were answered so, not all of them with PUT_OK."""
        self._note_unsafe(statuses)
        if self._replica is not None:
            self._replica.unreplicated += sum(status in _UNREPLICATED for status in statuses)

    def note_answered(self, begun_at: float, puts: int) -> None:
        """So many messages that were appended then are answered now."""
        self._note_time(self._clock() - begun_at, puts)

    def answer_when_durable(self, begin: int, ends: Sequence[int], answer: Answer) -> None:
        """Call ``answer`` once, with one status for each message.

        Args:
            begin: where the first message begins in the log.
            ends: where each message ends there, ascending, at least one. None begins before the end of the one before.
            answer: may be called before this returns.
        """
        now = self._clock()
        pending = _PendingPuts(self, begin, ends, self._store, answer, begun_at=now)
        last = ends[-1]
        replica, flush = self._replica, self._flush
        if replica is not None:
            if replica.acknowledgements.is_slave_ok(last):
                pending.await_replica(replica, now)
            else:
                pending.replica_failure = PutMessageStatus.SLAVE_NOT_AVAILABLE
        if flush is not None:
            flush.flushed.add(last, now + flush.timeout_s, pending.on_flushed)
            pending.outstanding += 1
            flush.request_flush()
        pending.start()


class _PendingPuts:
    """A batch of appended messages on its way to an answer."""

    __slots__ = (
        "acknowledgements", "answer", "begin", "begun_at", "cuts", "durability", "ends", "flushed_to", "late",
        "outstanding", "replica_failure", "replicated_from", "replicated_to", "started", "store",
    )  # fmt: skip

    def __init__(
        self,
        durability: Durability,
        begin: int,
        ends: Sequence[int],
        store: WriteErrorSource,
        answer: Answer,
        *,
        begun_at: float,
    ) -> None:
        self.durability = durability
        self.begun_at = begun_at
        self.cuts = durability.cuts
        self.begin = begin
        self.ends = ends
        self.store = store
        self.answer = answer
        self.flushed_to = self.replicated_to = ends[-1]
        self.replicated_from = 0
        self.replica_failure: PutMessageStatus | None = None
        self.acknowledgements: Acknowledgements | None = None
        self.late = PutMessageStatus.FLUSH_SLAVE_TIMEOUT
        self.outstanding = 0
        self.started = False

    def await_replica(self, replica: ReplicaPromise, now: float) -> None:
        self.outstanding += 1
        self.acknowledgements, self.late = replica.acknowledgements, replica.late
        replica.acknowledgements.acked.add(self.ends[-1], now + replica.timeout_s, self.on_replicated)

    def on_flushed(self, reached: bool, value: int) -> None:
        if not reached:
            self.flushed_to = value
        self._one_done()

    def on_replicated(self, reached: bool, value: int) -> None:
        if not reached:
            self.replicated_to = value
        assert self.acknowledgements is not None, "it is what was waited for"
        self.replicated_from = self.acknowledgements.acked_from
        self._one_done()

    def _one_done(self) -> None:
        self.outstanding -= 1
        if self.outstanding == 0 and self.started:
            self._finish()

    def start(self) -> None:
        self.started = True
        if self.outstanding == 0:
            self._finish()

    def _finish(self) -> None:
        self.durability.note_answered(self.begun_at, len(self.ends))
        if self.store.write_error is None and self.replica_failure is None and self._reached_all():
            self.answer([PutMessageStatus.PUT_OK] * len(self.ends))
        else:
            begins = (self.begin, *self.ends)
            statuses = [self._status(begin, end) for begin, end in zip(begins, self.ends, strict=False)]
            self.durability.count(statuses)
            self.answer(statuses)

    def _reached_all(self) -> bool:
        if self.cuts != self.durability.cuts:
            return False
        last = self.ends[-1]
        return self.flushed_to >= last and self.replicated_to >= last and self.begin >= self.replicated_from

    def _status(self, begin: int, end: int) -> PutMessageStatus:
        if self.cuts != self.durability.cuts and end > self.durability.cut_to:
            return PutMessageStatus.UNKNOWN_ERROR
        if self.replica_failure is not None:
            return self.replica_failure
        if begin < self.replicated_from or end > self.replicated_to:
            return self.late
        if end > self.flushed_to or self.store.write_error is not None:
            return PutMessageStatus.FLUSH_DISK_TIMEOUT
        return PutMessageStatus.PUT_OK
