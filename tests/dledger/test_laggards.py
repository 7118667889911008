"""Laggards: for how long a member has lacked something."""

from types import SimpleNamespace
from typing import Any

from rmqha.dledger.laggards import Laggards
from rmqha.dledger.quorum_ack_checker import QuorumAckChecker
from tests.dledger.members import leader, put
from tests.sim.sim_disk import SimDisk

PEERS = frozenset({"n0", "n1"})


def test_each_leadership_counts_anew() -> None:
    """Of what a member took in between only another leader knew: it would be called stuck at once."""
    store = leader(SimDisk(latency_s=(0, 0)).mount())
    put(store, b"one")
    store.update_committed_index(1, 0)
    checker = QuorumAckChecker(PEERS, inherited_index=-1, max_pending_requests_num=10)
    pusher: Any = SimpleNamespace(checker=checker, dispatchers={"n1": None})
    laggards = Laggards(store, pusher)
    for now in (1.0, 2.0, 3.0):
        laggards.step(now=now)
    assert laggards.since("n1") == 1.0
    pusher.checker = None
    laggards.step(now=50.0)
    pusher.checker = QuorumAckChecker(PEERS, inherited_index=0, max_pending_requests_num=10)
    laggards.step(now=100.0)
    laggards.step(now=101.0)
    assert laggards.since("n1") == 100.0
