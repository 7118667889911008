"""Make a failing schedule of a group small: its faults, and the clients that it needs."""

from dataclasses import dataclass, replace

from tests.sim.dledger.faults import draw_plan
from tests.sim.dledger.swarm import Swarm, draw
from tests.sim.dledger.world import simulate
from tests.sim.nemesis import Fault
from tests.sim.shrink import ddmin, kinds
from tests.sim.world import Outcome


@dataclass(frozen=True)
class Tape:
    """All that makes a schedule."""

    seed: int
    swarm: Swarm
    plan: list[Fault]

    def play(self) -> Outcome:
        """Run it."""
        return simulate(self.seed, swarm=self.swarm, plan=self.plan)


def record(seed: int) -> Tape:
    """The whole tape of a seed."""
    swarm = draw(seed)
    return Tape(seed, swarm, draw_plan(seed, swarm))


def shrink(tape: Tape) -> Tape:
    """Drop faults, then what makes the group complicated, as long as the same invariant is violated."""
    wanted = kinds(tape.play())

    def fails(candidate: Tape) -> bool:
        return bool(wanted & kinds(candidate.play()))

    tape = replace(tape, plan=ddmin(tape.plan, lambda plan: fails(replace(tape, plan=list(plan)))))
    simpler = ({"chopping": 0.0}, {"capacity": 65536}, {"batch_size": 0}, {"cleans": False}, {"recovery_s": 0.0})
    for change in simpler:
        candidate = replace(tape, swarm=replace(tape.swarm, **change))
        if candidate != tape and fails(candidate):
            tape = candidate
    return tape


def as_test(tape: Tape, outcome: Outcome) -> str:
    """A pytest file that fails as long as the bug is there."""
    faults = "\n".join(f"        {fault!r}," for fault in tape.plan)
    said = "\n".join(f"    {violation}" for violation in outcome.violations)
    return f'''"""Seed {tape.seed}, shrunk.

{said}
"""

from tests.sim.dledger.swarm import Swarm
from tests.sim.dledger.world import simulate
from tests.sim.nemesis import Fault


def test_seed_{tape.seed}() -> None:
    swarm = {tape.swarm!r}
    plan = [
{faults}
    ]
    assert simulate({tape.seed}, swarm=swarm, plan=plan).violations == []
'''
