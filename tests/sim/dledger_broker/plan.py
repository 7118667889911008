"""What happens to a group of brokers: what happens to members, and often leaders that are away for a moment."""

from typing import Final

from tests.sim.dledger.faults import LEADER, draw_plan
from tests.sim.dledger_broker.swarm import BrokerSwarm
from tests.sim.nemesis import Fault
from tests.sim.sim_clock import stream

_MOMENTS: Final = 0.3
_AWAY_BEATS: Final = (4.0, 8.0)
"""So many heartbeats: another is elected, and the first comes back before those who wait for it give up."""


def draw(seed: int, swarm: BrokerSwarm) -> list[Fault]:
    """All faults of a seed, in order."""
    random = stream(seed, "dledger_broker/plan")
    if swarm.calm or random.random() >= _MOMENTS:
        return draw_plan(seed, swarm, has_ambushes=False)
    return momentary_absences(seed, swarm)


def momentary_absences(seed: int, swarm: BrokerSwarm) -> list[Fault]:
    """Leaders that are cut off, one after the other, with messages that wait for a majority."""
    random = stream(seed, "dledger_broker/absences")
    times = [at + random.uniform(0.0, 0.5) for at in (1.0, 2.7, 4.4)]
    beat_s, name = swarm.heart_beat_s, swarm.names[0]
    return [Fault(at, "isolate", LEADER, name, value=beat_s * random.uniform(*_AWAY_BEATS)) for at in times]
