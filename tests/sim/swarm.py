"""What one seed's cluster looks like, and what may be done to it: each seed is another corner of the room.

A fault that breaks what the mode promises proves nothing, so the configuration also is the fault budget.
"""

from dataclasses import dataclass, replace
from random import Random
from typing import Final

from tests.sim.sim_clock import stream
from tests.sim.sim_disk import LATENCY_S

CHAOS_S: Final = 8.0
"""Faults happen, and messages are sent, in the first so many virtual seconds."""
_NETWORK_LATENCY_S: Final = {"instant": (0.0, 0.0), "fast": (0.0001, 0.002), "slow": (0.005, 0.2)}
_INTERVALS_S: Final = (0.3, 2.0, 2.0, 10.0, 10.0, 60.0)
RECORD_OVERHEAD: Final = 200
"""A record is so much larger than its body, at most."""
DELAY_LEVELS_S: Final = (1.0, 3.0, 15.0)
"""Of delayed messages, where there are any. The last one outlasts a change of master."""
_TAKEN_OVER: Final = 0.08
"""In so many schedules masters are replaced once all is in order again."""
_EXPIRES: Final = 0.2
"""In so many of those all that is in older segments has expired before."""
_SMALL_SEGMENT: Final = 8192
_CRUMBS_S: Final = 0.25
"""A pause in which a broker lets a frame gather that comes byte by byte (``remoting/connection.py``)."""
_PATIENCE_S: Final = 0.01
_SMALL_FRAME: Final = 150
_LARGE: Final = 0.03
"""So many schedules have messages that are larger than a line, and frames of more than 64 KiB."""


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
    creation_s: float = 0.0
    """Making a segment takes up to so much longer than a flush."""
    calm: bool = False
    """Nothing goes wrong at all: what is not in order then is a bug, however quickly it passes."""
    overlap_size: int = 65536
    """A slave that reconnects has at least so much compared; its first report, an acknowledgement, is that old."""
    consumers: int = 0
    capacity: int = 65536
    """So many bytes are under way on a line at most: from 100 on, so that even a report may leave in parts."""
    slave_timeout_s: float = 3.0
    ha_heartbeat_s: float = 5.0
    flush_s: float = 2.0
    """ASYNC_FLUSH looks so often for enough to flush; thoroughly (:attr:`thorough_s`) whatever there is."""
    thorough_s: float = 10.0
    queue_flush_s: float = 4.0
    """The same for consume queues, and with them the checkpoint."""
    queue_thorough_s: float = 60.0
    save_s: float = 20.0
    """Tables are saved so often, beside what new topics ask for."""
    port_reuse: float = 0.0
    cleans: bool = False
    """Segments expire at once when everybody who is connected has them; who was away is rebuilt."""
    transfer_batch_size: int = 32 * 1024
    """Most bytes in one frame to a slave that keeps up; with small ones an append leaves in several frames."""
    report_capacity: int = 65536
    """So many bytes of reports are under way to a master at most: from 10 on, so that they leave in parts."""
    mixed: bool = False
    """Some bursts are sent as a batch, some messages one-way."""
    recovery_s: float = 0.0
    """What a broker does in a thread while it starts takes up to so long."""
    asks_first: bool = False
    """Consumers ask where they are before they pull, as clients do; not where messages expire under their feet."""
    edges: bool = False
    """Records often end where a segment ends, or some bytes before."""
    keys: bool = False
    """Messages have keys, for the index; those of older tapes have none."""

    takeovers: int = 0
    """So often masters are replaced when all is in order again; with any there are delayed messages, transactions, and
    topics that are changed and deleted (``tests/sim/takeover``)."""
    check_interval_s: float = 60.0
    """Producers are asked about their half messages so often..."""
    check_after_s: float = 6.0
    """...once these are so old."""

    @property
    def disk_latency_s(self) -> tuple[float, float]:
        """Least and most that a call of a disk takes."""
        return (0.0, 0.0) if self.instant_disk else LATENCY_S

    @property
    def network_latency_s(self) -> tuple[float, float]:
        """Least and most that bytes are under way."""
        return _NETWORK_LATENCY_S[self.network]

    def answer_s(self, burst_bytes: int) -> float:
        """A burst is answered within this time while nothing is wrong.

        Each byte crosses two disks and the network, and may find one of each at work for somebody else. On a disk it
        waits for the flush that runs and for its own, in each segment, and for the next segment to be made. What
        arrives in crumbs is received some at a time.
        """
        at_once = burst_bytes + self.producers * self.burst * (self.body_size_max + RECORD_OVERHEAD)
        trips = 5 + 3 * (at_once // self.capacity)
        segments = 2 + at_once // self.segment_size
        disk_s = segments * (3 * self.disk_latency_s[1] + self.creation_s)
        disk_s += 10 * self.disk_latency_s[1]  # a new topic: the save that runs, the pause, the next; two files each
        crumbs_s = (2 + at_once // self.capacity) * _CRUMBS_S
        return 2 * disk_s + trips * self.network_latency_s[1] + crumbs_s + _PATIENCE_S

    @property
    def patience_s(self) -> float:
        """Every request is answered within this time, whatever happens: syncFlushTimeout is 5 s, the rest is spare."""
        return 3.0 + max(5.0, self.slave_timeout_s) + self.network_latency_s[1]

    # ---- the budget

    @property
    def losses_allowed(self) -> int:
        """So many machines may be destroyed, and so many changes of the master made by hand."""
        if not (self.sync_master and self.sync_flush and self.ack_durable) or self.cleans:
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
    swarm, random = _draw(seed), stream(seed, "takeovers")
    if random.random() >= _TAKEN_OVER:
        return swarm
    cleans = random.random() < _EXPIRES and swarm.body_size_max < _SMALL_SEGMENT // 2
    return replace(
        swarm,
        takeovers=random.choice((1, 1, 2)),
        check_interval_s=random.choice((2.0, 4.0)),
        check_after_s=random.choice((0.5, 2.0, 12.0)),
        calm=random.random() < 0.3,
        peers=swarm.peers or random.random() < 0.5,
        save_s=2.0,
        flush_s=2.0,
        thorough_s=2.0,
        queue_flush_s=2.0,
        queue_thorough_s=2.0,
        real_probe=True,
        cleans=cleans,
        segment_size=min(swarm.segment_size, _SMALL_SEGMENT) if cleans else swarm.segment_size,
        asks_first=swarm.asks_first and not cleans,
    )


def _draw(seed: int) -> Swarm:
    random: Random = stream(seed, "swarm")
    slaves = random.choice((1, 1, 2))
    body_min, body_max = random.choice(((40, 40), (300, 300), (10, 400), (0, 1500), (900, 2500)))
    sync_master = random.random() < 0.85
    sync_flush = random.random() < 0.7
    network = random.choice(("instant", "instant", "fast", "fast", "slow"))
    swarm = Swarm(
        slaves=slaves,
        sync_master=sync_master,
        sync_flush=sync_flush,
        ack_durable=random.random() < 0.85,
        in_sync_replicas=random.randint(2, slaves + 1),
        segment_size=random.choice((4096, 4096, 8192, 32768)),
        body_size_min=body_min,
        body_size_max=body_max,
        producers=random.randint(1, 3),
        messages=random.randint(4, 16),
        burst=random.choice((1, 1, 3, 6)),
        chopping=random.choice((0.0, 0.0, 0.05, 0.3)),
        peers=random.random() < 0.3 or not sync_flush,
        real_probe=random.random() < 0.5,
        network=network,
        instant_disk=random.random() < 0.4,
        fault_rate=random.choice((0.15, 0.4, 0.8)),
        creation_s=random.choice((0.0, 0.004, 0.05, 0.3)),
        calm=random.random() < 0.05,
        overlap_size=random.choice((1, 600, 65536)),
        consumers=random.choice((0, 0, 1, 1, 2)),
        capacity=65536 if network == "slow" else random.choice((100, 500, 3000, *[65536] * 9)),
        slave_timeout_s=random.choice((3.0, 3.0, 20.0)),
        ha_heartbeat_s=random.choice((1.0, 5.0, 5.0)),
        flush_s=random.choice(_INTERVALS_S),
        thorough_s=random.choice(_INTERVALS_S),
        queue_flush_s=random.choice(_INTERVALS_S),
        queue_thorough_s=random.choice(_INTERVALS_S),
        save_s=random.choice(_INTERVALS_S[1:]),
        edges=random.random() < 0.2,
        port_reuse=random.choice((0.0, 0.0, 0.3)),
        cleans=random.random() < 0.15,
        transfer_batch_size=random.choice((_SMALL_FRAME, 600, *[32 * 1024] * 4)),
        report_capacity=65536 if network == "slow" else random.choice((10, 13, *[65536] * 4)),
        mixed=random.random() < 0.3,
    )
    swarm = replace(
        swarm,
        recovery_s=random.choice((0.0, 0.0, 0.0, 0.4, 3.0)),
        asks_first=not swarm.cleans and stream(seed, "asks").random() < 0.5,
        keys=stream(seed, "keys").random() < 0.5,
    )
    if random.random() < _LARGE:
        return replace(
            swarm, segment_size=1 << 18, body_size_min=20_000, body_size_max=60_000, transfer_batch_size=1 << 17,
            capacity=max(swarm.capacity, 65536), messages=8, burst=3,
        )  # fmt: skip
    if swarm.transfer_batch_size == _SMALL_FRAME:  # who pauses for longer than a heartbeat, and then fills the line
        capacity = swarm.capacity if network == "slow" else random.choice((200, 500, 1000))
        return replace(swarm, capacity=capacity, ha_heartbeat_s=0.3, burst=6)
    return swarm
