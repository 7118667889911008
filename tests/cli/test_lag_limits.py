"""`rmqha status --warn-lag --crit-lag`."""

import pytest

from rmqha.cli.lag_limits import LagLimits, within_limits
from rmqha.cli.main import run
from rmqha.cli.verdict import judge
from rmqha.cli.when import parse_span
from rmqha.codec.codes import RequestCode
from tests.cli.facts import connection, master
from tests.cli.fake_brokers import FakeBrokers, runtime

A = "10.0.0.1:10911"
GONE = {"peer": "10.0.0.3:5000", "name": "a/2", "last_s_ago": 120.0, "slave_ack_offset": 1, "reason": "reset"}


@pytest.mark.parametrize(("text", "seconds"), [("500ms", 0.5), ("10s", 10), ("1.5m", 90), ("2h", 7200), ("1d", 86_400)])
def test_spans(text: str, seconds: float) -> None:
    assert parse_span(text) == seconds


@pytest.mark.parametrize("text", ["", "10", "s", "-1s", "0s", "1e3s", "10 s", "1w"])
def test_what_is_no_span(text: str) -> None:
    with pytest.raises(ValueError, match="is no span of time"):
        parse_span(text)


@pytest.mark.parametrize(
    ("lag_s", "level", "said"),
    [(9.0, "ok", ""), (11.0, "degraded", "--warn-lag 10 s"), (61.0, "failed", "--crit-lag 60 s")],
)
def test_a_replica_beyond_a_limit(lag_s: float, level: str, said: str) -> None:
    facts = master(connection(lag_s=lag_s))
    verdict = within_limits(judge(facts), facts, LagLimits(10, 60))
    assert (verdict.level, said in " ".join(verdict.reasons)) == (level, True)
    assert within_limits(judge(facts), facts, LagLimits(None, None)) == judge(facts)


def test_a_warning_that_comes_after_the_failure_is_no_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """It was taken without a word, as if it could be heard."""
    assert run(["status", "-b", A, "--warn-lag", "1m", "--crit-lag", "10s"]) == 2
    assert "--warn-lag 60 s would never tell: --crit-lag 10 s comes first" in capsys.readouterr().err


def test_one_that_left_counts_and_nothing_gets_better() -> None:
    facts = master(connection(), ha={"connections": [connection()], "refused": [], "departed": [GONE]})
    verdict = within_limits(judge(facts), facts, LagLimits(10, 60))
    assert verdict.level == "failed"
    assert "10.0.0.3:5000 (a/2), which left, lags behind by 120.0 s" in verdict.reasons[-1]
    facts["ha"]["departed"] = [GONE | {"last_s_ago": 1.0, "lag_s": 30.0}]
    verdict = within_limits(judge(facts), facts, LagLimits(10, 60))
    assert verdict.level == "degraded", "what it lacked when it left counts as well"
    broken = master(connection(lag_s=11), write_refusal="disk full")
    assert within_limits(judge(broken), broken, LagLimits(10, 60)).level == "failed"


def test_members_of_a_group_count_at_its_leader() -> None:
    views = [
        {"id": "n1", "connected": True, "stuck_s": 12, "since_s": 500},
        {"id": "n2", "connected": False, "since_s": 70},
    ]
    facts = {"role": "LEADER", "dledger": {"members": views}}
    verdict = within_limits(judge(master(connection())), facts, LagLimits(10, 60))
    assert [reason.split()[0] for reason in verdict.reasons] == ["n1", "n2"]


def test_exit_codes_are_those_of_monitoring_plugins(
    fake_brokers: FakeBrokers, capsys: pytest.CaptureFixture[str]
) -> None:
    def exit_code(lag_s: float, *arguments: str) -> int:
        facts = runtime(ha={"connections": [connection(lag_s=lag_s)], "refused": []})
        fake_brokers.answers = {A: {RequestCode.GET_BROKER_RUNTIME_INFO: facts}}
        return run(["status", "-b", A, *arguments])

    limits = ("--warn-lag", "10s", "--crit-lag", "1m")
    assert [exit_code(lag_s, *limits) for lag_s in (1, 11, 61)] == [0, 1, 2]
    assert exit_code(61) == 0
    assert exit_code(11, "--warn-lag", "10s") == 1
    assert run(["status", "-b", "10.0.0.9:1", *limits]) == 3
    assert run(["status", "-b", A, "--warn-lag", "ten"]) == 2
