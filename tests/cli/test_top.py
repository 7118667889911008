"""`rmqha top`."""

import json
import time
from dataclasses import replace
from typing import Any

import pytest

from rmqha.cli.main import run
from rmqha.cli.named_brokers import NamedBroker
from rmqha.cli.top_samples import COLUMNS, Sample, read_sample, take_samples
from rmqha.codec.codes import STATUS_KEY, RequestCode
from tests.cli.facts import connection, master, member, slave, view
from tests.cli.fake_brokers import FakeBrokers, answer
from tests.cli.test_groups import offsets

Output = pytest.CaptureFixture[str]
A, B = "10.0.0.1:10911", "10.0.0.2:10911"


def table(**facts: Any) -> dict[str, str]:
    return {
        STATUS_KEY: json.dumps(master(connection(lag_s=0.5), connection(lag_s=2.5, lag_bytes=2048)) | facts),
        "putTps": "12.5 3.0 1.0",
        "getTransferedTps": "4.0 1.0 1.0",
        "putLatency99": "1.75",
    }


@pytest.fixture
def broker(fake_brokers: FakeBrokers, monkeypatch: pytest.MonkeyPatch) -> FakeBrokers:
    monkeypatch.setattr("rmqha.cli.top.time.sleep", lambda _: None)
    stats = {"consumeStatsList": [{"billing": [offsets("orders", 3, 4)]}, {"audit": [offsets("orders", 1)]}]}
    fake_brokers.answers = {
        A: {
            RequestCode.GET_BROKER_RUNTIME_INFO: answer({"table": table(broker_name="a\x1b")}),
            RequestCode.GET_BROKER_CONSUME_STATS: answer(stats),
        }
    }
    return fake_brokers


def test_rates_are_the_brokers_own_and_bytes_those_since_the_last_sample() -> None:
    named = NamedBroker(A, "a")
    before = Sample(broker=named, at_s=10.0, max_offset=100)
    sample = read_sample(named, table(max_offset=500), {"g": 3}, before=before, now_s=12.0)
    assert (sample.put_tps, sample.get_tps, sample.put_p99_ms, sample.bytes_per_s) == (12.5, 4.0, 1.75, 200.0)
    assert (sample.replica_lag_s, sample.replica_lag_bytes, sample.consumer_lag) == (2.5, 2048, 3)
    restarted = read_sample(named, table(max_offset=50), None, before=before, now_s=12.0)
    assert (restarted.bytes_per_s, restarted.consumer_lag) == (0.0, None)
    rocketmq = read_sample(named, {"putTps": "", "commitLogMaxOffset": "7"}, None, before=None, now_s=1.0)
    assert (rocketmq.put_tps, rocketmq.max_offset, rocketmq.replica_lag_s, rocketmq.bytes_per_s) == (
        None,
        7,
        None,
        None,
    )
    assert len(rocketmq.cells()) == len(sample.cells()) == len(COLUMNS)


def test_the_p99_is_what_the_broker_says_of_the_last_seconds_and_rocketmqs_of_its_last_minute() -> None:
    named = NamedBroker(A, "a")
    told = [read_sample(named, table(put_p99_ms=one), None, before=None, now_s=0).put_p99_ms for one in (7.25, None)]
    assert told == [7.25, None]
    assert read_sample(named, {"putLatency99": "1.75"}, None, before=None, now_s=0).put_p99_ms == 1.75


def test_a_broker_that_refuses_sends_says_so_in_a_remark_and_in_json() -> None:
    """Its rates fell to nothing, and nothing said why."""
    named = NamedBroker(A, "a")
    well = read_sample(named, table(), None, before=None, now_s=0)
    assert (well.verdict, well.remarks) == ("ok", [])
    sample = read_sample(named, table(write_refusal="the disk is full"), None, before=None, now_s=0)
    (remark,) = sample.remarks
    assert remark.startswith("failed: sends are refused: the disk is full; see docs/")
    told = sample.as_json()
    assert (told["verdict"], told["reasons"]) == ("failed", [remark.removeprefix("failed: ")])


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (slave("waiting"), "degraded: waiting: not connected to its master yet; see docs/operations.md"),
        (slave("transfer", not_learned=["topics were not taken over: x", "y"]), "degraded: topics were not taken over"),
        (master(connection(), group_clashes=["two slaves have brokerId 1"]), "degraded: two slaves have brokerId 1"),
        (
            master(connection(), group_clashes=["clash " * 100]),
            ("degraded: " + "clash " * 100)[:157] + "...",
        ),
    ],
)
def test_a_degraded_broker_says_its_first_reason_on_its_line(facts: dict[str, Any], said: str) -> None:
    """`rmqha status` told it, and nothing here did."""
    sample = read_sample(NamedBroker(A, "a"), {STATUS_KEY: json.dumps(facts)}, None, before=None, now_s=0)
    (remark,) = sample.remarks
    assert remark.startswith(said)
    assert len(remark) <= 160


def test_a_slave_that_is_gone_is_missed_with_when_it_was_seen() -> None:
    """Nothing was shown of it but a lag of nobody."""
    named = NamedBroker(A, "a")
    left = {
        "peer": "10.0.0.3:5",
        "name": "a/2",
        "slave_ack_offset": 40,
        "reason": "x",
        "last_s_ago": 90.0,
        "lag_s": 95.0,
    }
    ha = {"connections": [connection(lag_bytes=0)], "refused": [], "departed": [left], "live_slaves": 1}
    sample = read_sample(named, table(ha=ha, in_sync_replicas=2, max_offset=100), None, before=None, now_s=5.0)
    assert (sample.in_sync, sample.is_under_replicated) == ((1, 2), True)
    assert (sample.replica_lag_s, sample.replica_lag_bytes) == (95.0, 60)
    assert sample.remarks == ["slave 10.0.0.3:5 (a/2) is gone, last seen 90 s ago, 60 B behind"]
    assert "yes, 1/2" in sample.cells()
    told = sample.as_json()
    assert (told["underReplicated"], told["slavesGone"]) == (
        True, [{"name": "10.0.0.3:5 (a/2)", "lastSeenSecondsAgo": 90.0, "lagBytes": 60}],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (master(connection(), in_sync_replicas=3), (1, 2)),
        (master(connection("catch-up"), role="ASYNC_MASTER"), (0, 1)),
        (master(role="ASYNC_MASTER"), None),
        (master(connection(), connection("first-report-awaited", slave_ack_offset=-1), role="ASYNC_MASTER"), (1, 1)),
        (slave("transfer"), None),
        (member(), (2, 2)),
        (member(members=[view("n1", lacks=5000), view("n2", connected=False)]), (0, 2)),
        (member("FOLLOWER"), None),
    ],
)
def test_replicas_that_a_send_needs_or_that_there_were(facts: dict[str, Any], expected: tuple[int, int] | None) -> None:
    sample = read_sample(NamedBroker(A, "a"), {STATUS_KEY: json.dumps(facts)}, None, before=None, now_s=0)
    assert sample.in_sync == expected
    assert sample.as_json()["replicasWanted"] == (expected and expected[1])


def test_without_a_terminal_each_refresh_is_a_line(broker: FakeBrokers, capsys: Output) -> None:
    assert run(["top", "-b", A, "--count", "3"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    assert lines[0].split()[:3] == ["TIME", "BROKER", "ROLE"]
    assert lines[2].split()[1:] == [
        "a\\x1b",
        "SYNC_MASTER",
        "12",
        "4.0",
        "0",
        "B",
        "1.8",
        "no,",
        "2/2",
        "2.5",
        "s",
        "2.0",
        "KiB",
        "8",
    ]


def test_on_a_terminal_the_screen_is_cleared_and_groups_are_shown(
    broker: FakeBrokers, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert run(["top", "-b", A, "--count", "2"]) == 0
    out = capsys.readouterr().out
    assert out.count("\033[H\033[2J") == 2
    assert "\033[H\033[2Ja\x1b" not in out
    assert [line.split() for line in out.splitlines()[-2:]] == [["billing", "7"], ["audit", "1"]]


def test_a_broker_that_goes_away_is_a_line_too(broker: FakeBrokers, capsys: Output) -> None:
    broker.answers[B] = dict(broker.answers[A])
    run(["top", "-b", B, "--count", "1", "--format", "json"])
    assert json.loads(capsys.readouterr().out)["groups"] == {"billing": 7, "audit": 1}
    del broker.answers[B][RequestCode.GET_BROKER_CONSUME_STATS]
    assert run(["top", "-b", A, "-b", B, "--count", "1", "--format", "json"]) == 1, "it answers, and refuses"
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["putTps"], "code 3" in second["trouble"]) == (12.5, True)
    assert run(["top", "-b", B, "--count", "1"]) == 1
    assert capsys.readouterr().out.splitlines()[1].split()[1:3] == ["a\\x1b", "refuses"]
    assert run(["top", "-b", B, "--count", "1", "--no-groups"]) == 0
    assert run(["top", "-b", "10.0.0.9:1", "--count", "1"]) == 3
    assert capsys.readouterr().out.splitlines()[-1].split()[2:4] == ["no", "answer"]
    assert run(["top", "-b", "10.0.0.9:1", "-b", B, "--count", "1"]) == 3


def test_a_broker_that_answers_no_more_is_shown_with_its_last_answer(broker: FakeBrokers) -> None:
    named = NamedBroker(A, "a")
    samples = take_samples([named], {}, with_groups=False, timeout_s=1)
    broker.answers.clear()
    before = {A: replace(samples[A], answered_at_s=time.monotonic() - 40)}
    for _ in range(2):
        before = take_samples([named], before, with_groups=False, timeout_s=1)
    assert before[A].remarks[0].endswith("Connection refused; last answer 40 s ago")
    assert round(before[A].as_json()["lastAnswerSecondsAgo"]) == 40
    assert take_samples([named], {}, with_groups=False, timeout_s=1)[A].as_json()["lastAnswerSecondsAgo"] is None
