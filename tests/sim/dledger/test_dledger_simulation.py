"""The short form of what scripts/simulate --dledger does at length: histories without violation, and not blind."""

import os
from dataclasses import replace

import pytest

from tests.sim import campaign
from tests.sim.dledger import shrink
from tests.sim.dledger.faults import FOLLOWER, LEADER
from tests.sim.dledger.mutants import PLANTED
from tests.sim.dledger.swarm import OPERATIONS_MIN, draw
from tests.sim.dledger.world import simulate
from tests.sim.nemesis import Fault
from tests.sim.world import Outcome

SEEDS = int(os.environ.get("RMQHA_SIM_DLEDGER_SEEDS", "4"))
EASILY_FOUND = (
    "a vote is not saved",
    "who was restarted leads its old term again",
    "a vote for a shorter log",
    "a follower acknowledges what it has not flushed",
    "what was sent counts as stored",
)
AMBUSHED = {
    "a late TRUNCATE cuts what counts": "late_truncate",
    "what is committed is cut": "late_truncate",
    "a heartbeat before the read proves it": "stale_read",
    "the tail is cut in memory only": "cut_point",
    "a unit is written with its entry": "torn",
    "a flush counts beside one that failed": "told_once",
}
HANDED_OVER = ("who has taken over once never does again", "a leader that could not hand over refuses appends")


@pytest.fixture(autouse=True)
def _quiet() -> None:
    campaign.quiet()


def test_no_history_of_a_group_violates_an_invariant() -> None:
    summary = campaign.Summary()
    for outcome in campaign.outcomes(range(SEEDS), jobs=1, run=simulate):
        summary.add(outcome)
    assert [(outcome.seed, outcome.violations) for outcome in summary.failed] == []
    assert summary.counts["history: operations"] >= OPERATIONS_MIN * SEEDS
    assert summary.acked > 20 * SEEDS


@pytest.mark.parametrize("seed", [10263, 10728])
def test_what_was_found(seed: int) -> None:
    """10263: all had it, and one had deleted it. 10728: a log that began anew in vain, and was refused as another's."""
    assert simulate(seed).violations == []


def test_the_same_seed_is_the_same_history() -> None:
    assert len({simulate(2).digest for _ in range(2)}) == 1
    assert simulate(3).digest != simulate(4).digest


@pytest.mark.parametrize("name", EASILY_FOUND)
def test_a_bug_that_is_planted_into_a_group_is_found(name: str) -> None:
    count, outcome = campaign.first_failure(PLANTED[name], range(10), run=simulate)
    assert count is not None
    assert outcome is not None
    assert outcome.violations


@pytest.mark.parametrize(("name", "kind"), AMBUSHED.items())
def test_an_ambush_alone_finds_what_chance_does_not(name: str, kind: str) -> None:
    def run(seed: int, *, is_last: bool = False) -> Outcome:
        swarm = replace(draw(seed), body_size_max=700, heart_beat_s=0.5, network="fast", acks_flushed=True, calm=False)
        if kind == "told_once":
            swarm = replace(swarm, data_size=1024)
        node = FOLLOWER if kind == "told_once" else LEADER
        plan = [Fault(at, kind, node, FOLLOWER, value=3.0) for at in (2.0, 7.0)]
        return simulate(seed, swarm=swarm, plan=plan, is_last=is_last)

    assert campaign.first_failure(PLANTED[name], range(5), run=run)[0] is not None


@pytest.mark.parametrize("name", HANDED_OVER)
def test_handovers_find_what_is_wrong_only_the_second_time(name: str) -> None:
    def run(seed: int, *, is_last: bool = False) -> Outcome:
        swarm = replace(draw(seed), hands_over=True, prefers=False, rests=False, network="fast")
        return simulate(seed, swarm=swarm, plan=[], is_last=is_last)

    assert run(0).violations == []
    assert campaign.first_failure(PLANTED[name], range(1), run=run)[0] is not None


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_fits_the_group_s_code(name: str) -> None:
    assert PLANTED[name].fits()


def test_a_failure_of_a_group_is_shrunk() -> None:
    with PLANTED["who was restarted leads its old term again"]:
        tape = next(t for t in map(shrink.record, range(20)) if t.play().violations)
        least = shrink.shrink(tape)
        outcome = least.play()
        assert outcome.violations
        assert len(least.plan) < len(tape.plan)
        scope: dict[str, object] = {}
        exec(compile(shrink.as_test(least, outcome), "told", "exec"), scope)
        with pytest.raises(AssertionError):
            scope[f"test_seed_{tape.seed}"]()  # type: ignore[operator]
