"""What one seed's group looks like, and what may be done to it: each seed is another corner of the room."""

from dataclasses import dataclass
from random import Random
from typing import Final

from tests.sim.sim_clock import stream
from tests.sim.sim_disk import LATENCY_S

CHAOS_S: Final = 12.0
"""Faults happen in the first so many virtual seconds."""
OPERATIONS_MIN: Final = 200
"""A history has at least so many that were answered."""
_RESTS: Final = 0.3
_HANDS_OVER: Final = 0.3
_ELECTS: Final = 0.3
_NETWORK_LATENCY_S: Final = {"instant": (0.0, 0.0), "fast": (0.0001, 0.002), "slow": (0.005, 0.1)}


@dataclass(frozen=True, slots=True)
class Swarm:
    """One configuration."""

    members: int
    clients: int
    rate: float
    """So many operations a second all clients together begin, if they are answered at once."""
    reads: float
    """This part of all operations."""
    stubborn: float
    """So often a client asks a member of its own choice first: it may not lead, or not any more."""
    body_size_max: int
    data_size: int
    index_size: int
    heart_beat_s: float
    batch_size: int
    """``maxBatchPushSize``; 0: entries are pushed one by one."""
    acks_flushed: bool
    """``dledgerAck``: with ``written`` nothing may lose what it has written."""
    network: str
    instant_disk: bool
    capacity: int
    """So many bytes are under way on a line at most."""
    chopping: float
    check_point_s: float
    creation_s: float
    recovery_s: float
    fault_rate: float
    calm: bool
    """Nothing goes wrong at all: then every append is acknowledged at once."""
    cleans: bool
    """Data files expire as soon as a clock jumps by a day."""
    prefers: bool
    """One member is preferred as the leader."""
    directories: int = 1
    """So many hold a member's data files."""
    rests: bool = False
    """In the end the group is left alone for a while: nobody may ask for votes then."""
    hands_over: bool = False
    """In the end leadership is handed over, several times."""
    elects: bool = False
    """In the end the leader's disk fails for good, and all members are restarted."""
    chaos_s: float = CHAOS_S

    @property
    def disk_latency_s(self) -> tuple[float, float]:
        """Least and most that a call of a disk takes."""
        return (0.0, 0.0) if self.instant_disk else LATENCY_S

    @property
    def network_latency_s(self) -> tuple[float, float]:
        """Least and most that bytes are under way."""
        return _NETWORK_LATENCY_S[self.network]

    @property
    def names(self) -> list[str]:
        """Of all members."""
        return [f"n{number}" for number in range(self.members)]

    @property
    def quorum(self) -> int:
        """More than half of the members."""
        return self.members // 2 + 1


def draw(seed: int) -> Swarm:
    """The configuration of a seed."""
    random: Random = stream(seed, "dledger/swarm")
    network = random.choice(("instant", "instant", "fast", "fast", "slow"))
    return Swarm(
        members=random.choice((3, 3, 3, 3, 5)),
        clients=random.randint(3, 6),
        rate=random.choice((15.0, 20.0, 30.0)),
        reads=random.choice((0.2, 0.4, 0.6)),
        stubborn=random.choice((0.0, 0.1, 0.4)),
        body_size_max=random.choice((0, 60, 200, 700)),
        data_size=random.choice((1024, 4096, 4096, 32768)),
        index_size=random.choice((320, 960, 32000)),
        heart_beat_s=random.choice((0.2, 0.2, 0.5, 0.5, 2.0)),
        batch_size=random.choice((0, 0, 300, 4096)),
        acks_flushed=random.random() < 0.9,
        network=network,
        instant_disk=random.random() < 0.4,
        capacity=65536 if network == "slow" else random.choice((700, 3000, *[65536] * 6)),
        chopping=random.choice((0.0, 0.0, 0.05, 0.3)),
        check_point_s=random.choice((0.1, 1.0, 3.0)),
        creation_s=random.choice((0.0, 0.0, 0.05)),
        recovery_s=random.choice((0.0, 0.0, 0.4)),
        fault_rate=random.choice((0.5, 1.0, 2.0)),
        calm=random.random() < 0.04,
        cleans=random.random() < 0.15,
        prefers=random.random() < 0.1,
        directories=stream(seed, "dledger/directories").choice((1, 1, 1, 2, 3)),
        rests=stream(seed, "dledger/rests").random() < _RESTS,
        hands_over=stream(seed, "dledger/hands over").random() < _HANDS_OVER,
        elects=stream(seed, "dledger/elects").random() < _ELECTS,
    )
