"""From a seed that fails to the least that still fails, told as a test."""

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any, TypeVar

from tests.sim.nemesis import Fault, draw_plan
from tests.sim.swarm import Swarm, draw
from tests.sim.workload import numbers
from tests.sim.world import Outcome, simulate

T = TypeVar("T")

_RUNS_MAX = 250


@dataclass(frozen=True)
class Tape:
    """Everything that decides a run."""

    seed: int
    swarm: Swarm
    plan: list[Fault]
    drawn: list[Fault]
    """All faults of the seed when it was recorded: near them messages are sent."""
    messages: frozenset[int]

    def play(self, *, keep_events: bool = False) -> Outcome:
        """Run it."""
        return simulate(
            self.seed,
            swarm=self.swarm,
            plan=self.plan,
            drawn=self.drawn,
            only_messages=self.messages,
            keep_events=keep_events,
        )

    def to_json(self) -> dict[str, Any]:
        """For the corpus."""
        swarm = {name: getattr(self.swarm, name) for name in Swarm.__dataclass_fields__}
        return {
            "seed": self.seed,
            "swarm": swarm,
            "plan": [list(astuple(fault)) for fault in self.plan],
            "drawn": [list(astuple(fault)) for fault in self.drawn],
            "messages": sorted(self.messages),
        }

    @classmethod
    def from_json(cls, tape: dict[str, Any]) -> "Tape":
        """From the corpus."""
        plan, drawn = ([Fault(*fault) for fault in tape[which]] for which in ("plan", "drawn"))
        return cls(tape["seed"], Swarm(**tape["swarm"]), plan, drawn, frozenset(tape["messages"]))


def record(seed: int) -> Tape:
    """The whole tape of a seed."""
    swarm = draw(seed)
    drawn = draw_plan(seed, swarm)
    return Tape(seed, swarm, drawn, drawn, frozenset(numbers(swarm, drawn)))


def shrink(tape: Tape) -> Tape:
    """Drop faults, then messages, as long as the same invariant is violated."""
    wanted = kinds(tape.play())
    runs = 0

    def fails(candidate: Tape) -> bool:
        nonlocal runs
        runs += 1
        return runs <= _RUNS_MAX and bool(wanted & kinds(candidate.play()))

    tape = replace(tape, plan=ddmin(tape.plan, lambda plan: fails(replace(tape, plan=list(plan)))))
    messages = ddmin(sorted(tape.messages), lambda some: fails(replace(tape, messages=frozenset(some))))
    return replace(tape, messages=frozenset(messages))


def kinds(outcome: Outcome) -> set[str]:
    """Which invariants were violated."""
    return {violation.partition(":")[0] for violation in outcome.violations}


def ddmin(items: Sequence[T], fails: Callable[[Sequence[T]], bool]) -> list[T]:
    """A subset that fails and of which no tried part does (Zeller's ddmin, complements only)."""
    rest, parts = list(items), 2
    while rest:
        size = -(-len(rest) // parts)
        for start in range(0, len(rest), size):
            complement = rest[:start] + rest[start + size :]
            if fails(complement):
                rest, parts = complement, max(parts - 1, 2)
                break
        else:
            if size == 1:
                break
            parts = min(2 * parts, len(rest))
    return rest


def as_test(tape: Tape, outcome: Outcome) -> str:
    """A pytest file that fails as long as the bug is there."""
    plan, drawn = ("\n".join(f"        {fault!r}," for fault in faults) for faults in (tape.plan, tape.drawn))
    said = "\n".join(f"    {violation}" for violation in outcome.violations)
    return f'''"""Seed {tape.seed}, shrunk.

{said}
"""

from tests.sim.nemesis import Fault
from tests.sim.swarm import Swarm
from tests.sim.world import simulate


def test_seed_{tape.seed}() -> None:
    swarm = {tape.swarm!r}
    plan = [
{plan}
    ]
    drawn = [
{drawn}
    ]
    messages = frozenset({sorted(tape.messages)})
    outcome = simulate({tape.seed}, swarm=swarm, plan=plan, drawn=drawn, only_messages=messages)
    assert outcome.violations == []
'''
