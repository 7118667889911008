"""`rmqha top`."""

import json
from typing import Any

import pytest

from rmqha.cli.main import run
from rmqha.cli.named_brokers import NamedBroker
from rmqha.cli.top_samples import Sample, read_sample
from rmqha.codec.codes import STATUS_KEY, RequestCode
from tests.cli.facts import connection, master
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
    assert len(rocketmq.cells()) == len(sample.cells()) == 9


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
    assert run(["top", "-b", A, "-b", B, "--count", "1", "--format", "json"]) == 3
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["putTps"], "code 3" in second["trouble"]) == (12.5, True)
    assert run(["top", "-b", B, "--count", "1"]) == 3
    assert capsys.readouterr().out.splitlines()[1].split()[1:4] == ["a\\x1b", "no", "answer"]
    assert run(["top", "-b", B, "--count", "1", "--no-groups"]) == 0
    assert run(["top", "-b", "10.0.0.9:1", "--count", "1"]) == 3
