"""Whatever slaves come, go, come back with another log and report: SEND_OK is true, and does not fail to appear."""

from collections.abc import Callable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test

from rmqha.broker.puts.durability import Durability, ReplicaPromise
from rmqha.ha.group_transfer_service import GroupTransferService
from rmqha.replication.in_sync import InSyncReplicas, Replica
from rmqha.replication.slave_identity import SlaveIdentity
from rmqha.replication.watermark import Watermark
from rmqha.store.status import PutMessageStatus

TIMEOUT_S = 3.0
SLAVES = st.integers(1, 3)
SHARES = st.sampled_from([0.0, 0.3, 0.5, 0.9, 1.0])
Span = tuple[int, int]


class SlavesOfAMaster(RuleBasedStateMachine):
    """A slave holds what it was sent since it connected; what it had before that may be anything."""

    write_error: Exception | None = None

    @initialize(replicas=st.integers(2, 3), is_aligned=st.booleans())
    def start(self, replicas: int, is_aligned: bool) -> None:
        self.is_aligned = is_aligned  # our slaves begin and end with whole records, RocketMQ's anywhere
        self.now = 0.0
        self.end = 0
        self.needed = replicas - 1
        self.live: dict[int, Replica] = {}
        self.messages: list[Span] = []
        self.held: set[Span] = set()
        self.seen_to = 0
        self.flushed = Watermark()
        self.in_sync = InSyncReplicas(replicas, slave_fallbehind_max=1_000_000)
        self.transfer = GroupTransferService(self.in_sync, self.flushed)
        self.durability = Durability(
            self, clock=lambda: self.now, flush=None, replica=ReplicaPromise(self.transfer, TIMEOUT_S)
        )

    @rule(sizes=st.lists(st.integers(1, 40), min_size=1, max_size=3))
    def put(self, sizes: list[int]) -> None:
        self.put_batch(sizes)

    def put_batch(self, sizes: list[int]) -> list[PutMessageStatus]:
        spans = []
        for size in sizes:
            spans.append((self.end, self.end + size))
            self.end += size
        self.messages += spans
        statuses: list[PutMessageStatus] = []
        self.durability.answer_when_durable(spans[0][0], [end for _, end in spans], self.answer(spans, statuses))
        return statuses

    def answer(self, spans: list[Span], into: list[PutMessageStatus]) -> Callable[[list[PutMessageStatus]], None]:
        def check(statuses: list[PutMessageStatus]) -> None:
            assert not into, "each batch is answered once"
            into.extend(statuses)
            for span, status in zip(spans, statuses, strict=True):
                assert status is not PutMessageStatus.PUT_OK or span in self.held, f"{span} is held by too few"

        return check

    @rule(slave=SLAVES, share=SHARES)
    def connect(self, slave: int, share: float) -> None:
        self.leave(slave)
        at = self.place(share, since=0)
        self.live[slave] = replica = Replica(SlaveIdentity(f"10.0.0.{slave}"), begins_at=at)
        self.in_sync.add(replica)
        self.acknowledge(slave, at)

    @rule(slave=SLAVES, share=SHARES)
    def report(self, slave: int, share: float) -> None:
        if slave in self.live:
            self.acknowledge(slave, self.place(share, since=self.live[slave].reported))

    def place(self, share: float, *, since: int) -> int:
        at = since + int(share * (self.end - since))
        return max((since, *(end for _, end in self.messages if end <= at))) if self.is_aligned else at

    def acknowledge(self, slave: int, offset: int) -> None:
        replica = self.live[slave]
        spans = [(one.begins_at, max(one.reported, offset * (one is replica))) for one in self.live.values()]
        for begin, end in self.messages:
            if sum(first <= begin and end <= last for first, last in spans) >= self.needed:
                self.held.add((begin, end))
        self.in_sync.acknowledge(replica, offset, begins_at=replica.begins_at)
        self.transfer.notify_transfer_some()
        self.look()

    def look(self) -> None:
        """Consumers see nothing that is neither flushed nor held, and what they saw stays."""
        visible = self.transfer.held_offset
        assert visible >= self.seen_to
        self.seen_to = visible
        if self.is_aligned:
            unflushed = [span for span in self.messages if self.flushed.value < span[1] <= visible]
            assert self.held.issuperset(unflushed)

    @rule(slave=SLAVES)
    def leave(self, slave: int) -> None:
        if slave in self.live:
            self.in_sync.remove(self.live.pop(slave))

    @rule(share=SHARES)
    def flush(self, share: float) -> None:
        self.flushed.advance(self.place(share, since=self.flushed.value))
        self.look()

    @rule(seconds=st.sampled_from([1.0, 3.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.transfer.acked.deadlines.expire(self.now)

    @precondition(lambda self: len(self.live) >= self.needed)
    @rule()
    def what_all_live_slaves_take_is_send_ok(self) -> None:
        statuses = self.put_batch([10, 20])
        for slave in list(self.live):
            self.acknowledge(slave, self.end)
        assert statuses == [PutMessageStatus.PUT_OK] * 2


def test_whatever_slaves_do_send_ok_is_true_and_comes() -> None:
    run_state_machine_as_test(
        SlavesOfAMaster, settings=settings(max_examples=200, stateful_step_count=40, deadline=None)
    )
