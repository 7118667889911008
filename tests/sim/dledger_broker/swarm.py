"""What one seed's group of brokers looks like."""

from dataclasses import dataclass, fields
from typing import Final

from tests.sim.dledger import swarm
from tests.sim.sim_clock import stream

CHAOS_S: Final = 6.0
ACKNOWLEDGED_MIN: Final = 30
"""So many messages are SEND_OK in a schedule at least."""
DELAY_LEVELS_S: Final = (1, 3)
"""Of delayed messages."""
_HANDS_OVER: Final = 0.5
_HEART_BEAT_S: Final = (0.2, 0.2, 0.5)


@dataclass(frozen=True, slots=True)
class BrokerSwarm(swarm.Swarm):
    """One configuration: a group's, and what its brokers and their clients do."""

    producers: int = 2
    consumers: int = 1
    delayed: float = 0.0
    """This part of all messages is delayed."""
    queue_flush_ms: int = 1000
    save_ms: int = 5000
    """Pause between two savings of the tables."""


def draw(seed: int) -> BrokerSwarm:
    """The configuration of a seed: of the group as of members alone, with short timers."""
    random, group = stream(seed, "dledger_broker/swarm"), swarm.draw(seed)
    drawn = {one.name: getattr(group, one.name) for one in fields(group)}
    drawn |= {
        "rate": random.choice((10.0, 20.0)),
        "heart_beat_s": random.choice(_HEART_BEAT_S),
        "data_size": random.choice((4096, 16384)),
        "members": 5 if random.random() < 0.05 else 3,
        "cleans": False,
        "rests": False,
        "hands_over": random.random() < _HANDS_OVER,
        "directories": 1,
        "chaos_s": CHAOS_S,
    }
    return BrokerSwarm(
        **drawn,
        producers=random.randint(1, 3),
        consumers=random.randint(1, 2),
        delayed=random.choice((0.0, 0.1)),
        queue_flush_ms=random.choice((100, 1000)),
        save_ms=random.choice((300, 5000)),
    )
