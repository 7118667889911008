"""rmqha status: whatever a broker says of itself, the command tells it in words."""

import json
import time
from typing import Any

import pytest
from click.testing import CliRunner

from rmqha.cli import ask
from rmqha.cli.main import run as run_rmqha
from rmqha.cli.status import status
from rmqha.codec.codes import STATUS_KEY, RequestCode
from tests.cli.facts import connection, master, slave
from tests.cli.fake_brokers import FakeBrokers, answer, runtime

Output = pytest.CaptureFixture[str]
RUNTIME = RequestCode.GET_BROKER_RUNTIME_INFO


def run(monkeypatch: pytest.MonkeyPatch, told: str, *options: str) -> Any:
    monkeypatch.setattr(ask, "runtime_table", lambda _address, *, timeout_s: {STATUS_KEY: told})
    return CliRunner().invoke(status, ["--broker", "10.0.0.1:10911", *options], standalone_mode=False)


@pytest.mark.parametrize(
    "told",
    [
        "", "{", "[" * 100_000, "[]", "7", '"role"', "null", "{}", '{"role": 1}', "\0", '{"role": "SLAVE"}',
        json.dumps(master() | {"ha": 7}),
        json.dumps(master(connection(lag_s=None))),
        json.dumps(master(connection(lag_s=10**400))),
        json.dumps(master() | {"in_sync_replicas": "many"}),
        json.dumps(slave("transfer") | {"ha_client": {"state": []}}),
        json.dumps(master() | {"dledger": "a"}),
        json.dumps({"role": "x", "broker_name": "b", "broker_id": 0, "starting": [1]}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("output", ["text", "json"])
def test_a_status_that_is_none_is_said_to_be_none(told: str, output: str, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(monkeypatch, told, "--format", output)
    assert "10.0.0.1:10911 says of itself is no status" in str(done.exception)
    assert len(done.exception.why) < 400


def test_a_broker_that_does_not_answer_has_its_line_of_json(fake_brokers: FakeBrokers, capsys: Output) -> None:
    """It had none, as if nobody had asked for it."""
    a, dead, odd = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"
    fake_brokers.answers = {a: {RUNTIME: runtime()}, odd: {RUNTIME: answer({"table": {STATUS_KEY: "[]"}})}}
    asked = [option for address in (a, dead, odd) for option in ("-b", address)]
    assert run_rmqha(["status", *asked, "--format", "json"]) == 3
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["address"] for one in told] == [a, dead, odd]
    assert [one["verdict"] for one in told[1:]] == ["unreachable", "unknown"]
    assert (told[1]["reasons"], told[1]["inSync"]) == (["Connection refused"], False)
    assert run_rmqha(["status", "-b", dead, "--format", "json"]) == 3
    assert json.loads(capsys.readouterr().out) == {key: told[1][key] for key in told[1] if key != "address"}


def test_a_status_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    done = run(monkeypatch, json.dumps(master(connection())))
    assert (done.exception, done.output.partition(":")[0]) == (None, "ok")


UNSAFE = {"for_s": 68.0, "last_s_ago": 0.2, "answers": {"FLUSH_SLAVE_TIMEOUT": 20}}
EARLY = {"segments": 9, "last_s_ago": 60.0}


@pytest.mark.parametrize("facts", [{"not_send_ok": UNSAFE}, {"deleted_early": EARLY}], ids=["sends", "segments"])
def test_who_waits_for_replicas_in_sync_is_told_the_rest_in_words(
    facts: dict[str, Any], fake_brokers: FakeBrokers, capsys: Output
) -> None:
    """A rolling restart beside traffic ended at a reason that had nothing to do with being in sync."""
    broker = "10.0.0.1:10911"
    told = json.dumps(master(connection()) | facts)
    fake_brokers.answers = {broker: {RUNTIME: answer({"table": {STATUS_KEY: told}})}}
    assert run_rmqha(["status", "-b", broker, "--wait", "in-sync"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("degraded: ")
    assert "  because  " in told
    assert run_rmqha(["status", "-b", broker]) == 1, "who does not wait asks how the broker is"
    capsys.readouterr()


def test_a_damaged_record_is_not_waited_for(fake_brokers: FakeBrokers, capsys: Output) -> None:
    """The whole minute was, and "not in sync in time" said of a broker that was."""
    broker = "10.0.0.1:10911"
    told = json.dumps(master(connection(), damaged_records="the record at 4096 is not what was stored"))
    fake_brokers.answers = {broker: {RUNTIME: answer({"table": {STATUS_KEY: told}})}}
    began_at = time.monotonic()
    assert run_rmqha(["status", "-b", broker, "--wait", "in-sync"]) == 1
    assert time.monotonic() - began_at < 30
    err = capsys.readouterr().err
    assert "its log is not whole, which no waiting mends" in err
    assert "the record at 4096" in err
    assert "'A damaged record'" in err


def test_who_waits_with_a_limit_waits_until_no_replica_is_beyond_it(fake_brokers: FakeBrokers, capsys: Output) -> None:
    broker = "10.0.0.1:10911"
    fake_brokers.answers = {broker: {RUNTIME: answer({"table": {STATUS_KEY: json.dumps(master(connection()))}})}}
    waits = ["status", "-b", broker, "--wait", "in-sync", "--timeout", "0.01", "--warn-lag"]
    assert run_rmqha([*waits, "400ms"]) == 1
    assert "not in sync within 0.01 s" in capsys.readouterr().err
    assert run_rmqha([*waits, "600ms"]) == 0
    capsys.readouterr()
