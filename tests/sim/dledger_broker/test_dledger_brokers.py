"""The short form of what scripts/simulate --dledger-brokers does at length: no violation, and not blind."""

import os
from dataclasses import replace

import pytest

from tests.sim import campaign
from tests.sim.dledger_broker.mutants import PLANTED
from tests.sim.dledger_broker.plan import momentary_absences
from tests.sim.dledger_broker.swarm import ACKNOWLEDGED_MIN, draw
from tests.sim.dledger_broker.world import simulate
from tests.sim.world import Outcome

SEEDS = int(os.environ.get("RMQHA_SIM_DLEDGER_BROKER_SEEDS", "8"))
EASILY_FOUND = (
    "a leader is master at once",
    "a new master does not learn where queues end",
    "what this disk has counts as a majority's",
    "of three messages one is not dispatched",
    "followers take no tables over",
)


@pytest.fixture(autouse=True)
def _quiet() -> None:
    campaign.quiet()


def test_no_schedule_of_brokers_on_a_group_violates_an_invariant() -> None:
    summary = campaign.Summary()
    for outcome in campaign.outcomes(range(SEEDS), jobs=1, run=simulate):
        summary.add(outcome)
    assert [(outcome.seed, outcome.violations) for outcome in summary.failed] == []
    assert summary.acked >= ACKNOWLEDGED_MIN * SEEDS
    assert summary.counts["master"] > SEEDS  # the leader changes


def test_the_same_seed_is_the_same_schedule() -> None:
    assert len({simulate(2).digest for _ in range(2)}) == 1
    assert simulate(3).digest != simulate(4).digest


@pytest.mark.parametrize("name", EASILY_FOUND)
def test_a_bug_that_is_planted_into_a_broker_on_a_group_is_found(name: str) -> None:
    count, outcome = campaign.first_failure(PLANTED[name], range(10), run=simulate)
    assert count is not None
    assert outcome is not None
    assert outcome.violations


def test_leaders_that_are_away_for_a_moment_find_what_chance_does_not() -> None:
    """What waits for a majority is overwritten by the next leader, and the place is passed while it still waits."""

    def run(seed: int, *, is_last: bool = False) -> Outcome:
        swarm = replace(draw(seed), producers=3, rate=20.0, heart_beat_s=0.2, network="fast", stubborn=0.0)
        return simulate(seed, swarm=swarm, plan=momentary_absences(seed, swarm), is_last=is_last)

    planted = PLANTED["puts that wait outlive the leadership"]
    assert campaign.first_failure(planted, range(25), run=run)[0] is not None


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_bug_fits_the_code(name: str) -> None:
    assert PLANTED[name].fits()
