"""What is known to be held, by how many, and from where on."""

import pytest

from rmqha.ha.group_transfer_service import GroupTransferService
from rmqha.replication.in_sync import InSyncReplicas, Replica
from rmqha.replication.slave_identity import SlaveIdentity
from rmqha.replication.watermark import Watermark


class Master:
    """Counts what its slaves report, as HAService does."""

    def __init__(self, in_sync_replicas: int = 2) -> None:
        self.in_sync = InSyncReplicas(in_sync_replicas, 10_000)
        self.flushed = Watermark()
        self.transfer = GroupTransferService(self.in_sync, self.flushed)

    def report(self, host: str, offset: int, *, begins_at: int) -> None:
        """A new connection of the slave at ``host`` has been sent the log from ``begins_at`` on."""
        replica = Replica(SlaveIdentity(host))
        self.in_sync.add(replica)
        self.in_sync.acknowledge(replica, offset, begins_at=begins_at)
        self.transfer.notify_transfer_some()

    @property
    def held(self) -> tuple[int, int, int]:
        return self.transfer.acked_from, self.transfer.acked.value, self.transfer.held_offset


def test_what_is_flushed_here_is_held() -> None:
    master = Master()
    master.flushed.advance(300)
    assert master.held == (0, 0, 300)


@pytest.mark.parametrize(("begins_at", "held"), [(399, 600), (400, 600), (401, 400)])
def test_what_follows_without_a_gap_is_held_together(begins_at: int, held: int) -> None:
    master = Master()
    master.report("10.0.0.1", 400, begins_at=0)
    master.report("10.0.0.2", 600, begins_at=begins_at)
    assert master.held == (begins_at, 600, held)


def test_a_gap_that_was_flushed_meanwhile_is_none() -> None:
    """What reaches back behind it is held from then on, also if nobody asked between the flush and the next report."""
    master = Master()
    master.report("10.0.0.1", 400, begins_at=0)
    master.report("10.0.0.2", 700, begins_at=500)
    assert master.held == (500, 700, 400)
    master.flushed.advance(600)
    master.report("10.0.0.3", 800, begins_at=650)
    assert master.held == (650, 800, 800)


def test_a_gap_stays_one_however_much_is_confirmed_behind_it() -> None:
    """Only the first proof skips it; those that follow without a gap among themselves show no more of it."""
    master = Master()
    master.report("10.0.0.1", 700, begins_at=500)
    master.report("10.0.0.1", 800, begins_at=500)
    assert master.held == (500, 800, 0)
    master.report("10.0.0.1", 900, begins_at=800)
    assert master.held == (800, 900, 0)


def test_what_was_cut_is_held_by_nobody_whatever_was_said_before() -> None:
    master = Master()
    master.flushed.advance(300)
    master.report("10.0.0.1", 700, begins_at=500)
    master.transfer.cut(400)
    assert master.held == (400, 400, 300)
    master.flushed.advance(450)
    assert master.held == (400, 400, 450)


def test_what_slaves_alone_held_ends_with_a_cut() -> None:
    """Nothing of it is flushed here, and other bytes may come to lie there."""
    master = Master()
    master.report("10.0.0.1", 400, begins_at=0)
    master.report("10.0.0.2", 700, begins_at=300)
    assert master.held == (300, 700, 700)
    master.transfer.cut(500)
    assert master.held == (300, 500, 500)


def test_where_nobody_is_needed_a_cut_has_nobody_wait() -> None:
    master = Master(in_sync_replicas=1)
    before = master.held
    master.transfer.cut(0)
    assert master.held == before


def test_one_report_may_complete_two_proofs() -> None:
    """Of one slave the old connection shows the beginning, the new one the end; the other slave has it all."""
    master = Master(in_sync_replicas=3)
    master.report("10.0.0.1", 500, begins_at=0)
    master.report("10.0.0.1", 800, begins_at=400)
    assert master.held == (0, 0, 0)
    master.report("10.0.0.2", 900, begins_at=0)
    assert master.held == (400, 800, 800)
