"""What one seed's cluster looks like, and what may be done to it: each seed is another corner of the room.

A fault that breaks what the mode promises proves nothing, so the configuration also is the fault budget.
"""

from dataclasses import dataclass
from random import Random
from typing import Final

from tests.sim.sim_clock import stream

CHAOS_S: Final = 8.0
"""Faults happen, and messages are sent, in the first so many virtual seconds."""


@dataclass(frozen=True, slots=True)
class Swarm:
    """One configuration."""

    slaves: int
    sync_master: bool
    sync_flush: bool
    ack_durable: bool
    in_sync_replicas: int
    segment_size: int
    body_size_min: int
    body_size_max: int
    producers: int
    messages: int
    """By all producers together, during the chaos."""
    burst: int
    """So many messages arrive in one request list at most."""
    chopping: float
    peers: bool
    """The master asks its slaves at its start for what it may have lost (haPeers)."""
    real_probe: bool
    """Brokers ask each other by real remoting; otherwise the world answers for them, which is faster."""
    network: str
    """``instant``, ``fast`` or ``slow``; with no latencies there is less to simulate, and more that coincides."""
    instant_disk: bool
    fault_rate: float

    # ---- the budget

    @property
    def losses_allowed(self) -> int:
        """So many machines may be destroyed, and so many changes of the master made by hand."""
        if not (self.sync_master and self.sync_flush and self.ack_durable):
            return 0
        return self.in_sync_replicas - 1

    def may_lose_power(self, node: str) -> bool:
        """Whether an acknowledged message survives a power cut of this node."""
        if self.sync_master:
            return self.ack_durable or node == "n1"
        return self.sync_flush or node != "n0"

    @property
    def may_fail_sync(self) -> bool:
        """Whether an acknowledged message survives when a node forgets what it could not flush."""
        return self.sync_flush or (self.sync_master and self.ack_durable)

    @property
    def master_forgets(self) -> bool:
        """Whether the master may come back without acknowledged messages that a slave has."""
        return not self.sync_flush


def draw(seed: int) -> Swarm:
    """The configuration of a seed."""
    random: Random = stream(seed, "swarm")
    slaves = random.choice((1, 1, 2))
    body_min, body_max = random.choice(((40, 40), (300, 300), (10, 400), (0, 1500)))
    sync_master = random.random() < 0.85
    sync_flush = random.random() < 0.7
    return Swarm(
        slaves=slaves,
        sync_master=sync_master,
        sync_flush=sync_flush,
        ack_durable=random.random() < 0.85,
        in_sync_replicas=random.randint(2, slaves + 1),
        segment_size=random.choice((4096, 8192, 8192, 32768)),
        body_size_min=body_min,
        body_size_max=body_max,
        producers=random.randint(1, 3),
        messages=random.randint(6, 24),
        burst=random.choice((1, 1, 3, 6)),
        chopping=random.choice((0.0, 0.0, 0.05, 0.3)),
        peers=random.random() < 0.3 or not sync_flush,
        real_probe=random.random() < 0.05,
        network=random.choice(("instant", "instant", "fast", "fast", "slow")),
        instant_disk=random.random() < 0.4,
        fault_rate=random.choice((0.15, 0.4, 0.8)),
    )
