"""`rmqha doctor` of a broker that runs: its process's limits, and whether a restart would change its configuration."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from rmqha.broker.main import share_descriptors
from rmqha.cli.doctor_host import check_limits
from rmqha.cli.doctor_peers import check_own
from rmqha.cli.doctor_running import check_configuration, files_limit
from rmqha.cli.finding import Finding
from rmqha.cli.main import run
from rmqha.cli.pages import Page
from rmqha.cli.store_place import is_in_use, lock_holder
from rmqha.codec.codes import STATUS_KEY, RequestCode, ResponseCode
from rmqha.codec.java_json import dumps
from rmqha.codec.remoting import RemotingCommand
from rmqha.config import BrokerConfig, load_config
from rmqha.config.java_properties import format_property
from rmqha.config.reference import shown_config
from rmqha.errors import DivergedLogError
from tests.cli.facts import connection, master
from tests.cli.fake_brokers import Answer, FakeBrokers, answer, runtime

ADDRESS, ASKED = "127.0.0.1:10911", RequestCode.GET_BROKER_CONFIG
HOLDER = """
import fcntl, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 321))
f = open(sys.argv[1], "w+b")
fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)
print("held", flush=True)
sys.stdin.read()
"""


def told_by(config: BrokerConfig) -> RemotingCommand:
    """What a broker that was started with it answers."""
    shown = shown_config(config)
    body = "".join(f"{format_property(key.name, value)}\n" for key, value, _ in shown).encode()
    origins = {key.name: origin for key, _, origin in shown if origin != "default"}
    return answer(body=body, origins=dumps(origins))


def conf(path: Path, **keys: str) -> Path:
    path.write_text("".join(f"{key}={value}\n" for key, value in ({"brokerName": "a"} | keys).items()))
    return path


def compared(config: BrokerConfig, *, files_max: int | None = None) -> Finding:
    (finding,) = check_configuration(config, files_max=files_max, timeout_s=1)
    return finding


def test_what_a_restart_would_change_is_told_key_by_key(tmp_path: Path, fake_brokers: FakeBrokers) -> None:
    """A file was changed and the broker not restarted: the next start, months later, began otherwise."""
    path = conf(tmp_path / "broker.conf", slaveTimeout="3000", haPeers="10.0.0.2:10912")
    running = load_config(path, {"fileReservedTime": "24"})
    fake_brokers.answers = {ADDRESS: {ASKED: told_by(running)}}
    same = compared(load_config(path))
    assert (same.level, same.what) == ("ok", "the broker that runs goes by it: a restart would change nothing")
    conf(path, slaveTimeout="5000", fileReservedTime="48", haSendHeartbeatInterval="2000")
    changed = compared(load_config(path))
    assert changed.level == "warn"
    (_, told) = changed.what.split("would change it: ")
    assert sorted(told.split("; ")) == [
        "haPeers is 10.0.0.2:10912, and would be (empty)",
        "haSendHeartbeatInterval is 5000, and would be 2000",
        "slaveTimeout is 3000, and would be 5000",
    ], "its command line says fileReservedTime again"


def test_a_broker_of_rocketmqs_says_not_where_its_keys_come_from(tmp_path: Path, fake_brokers: FakeBrokers) -> None:
    """An exception's name stood there."""
    config = load_config(conf(tmp_path / "broker.conf"))
    fake_brokers.answers = {ADDRESS: {ASKED: answer(body=b"slaveTimeout=3000\n")}}
    found = compared(config)
    assert (found.level, found.what) == ("ok", "the broker that runs does not say what it goes by: it is RocketMQ's")


def test_what_nobody_set_may_be_the_machine_s(
    tmp_path: Path, fake_brokers: FakeBrokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "broker.conf"
    path.touch()
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr("rmqha.config.derive.gethostname", lambda: "another")
        fake_brokers.answers = {ADDRESS: {ASKED: told_by(load_config(path))}}
    assert compared(load_config(path)).level == "ok"


def test_connections_that_the_process_s_limit_takes_are_no_change(tmp_path: Path, fake_brokers: FakeBrokers) -> None:
    config = load_config(conf(tmp_path / "broker.conf", maxConnections="9000"))
    lowered, _ = share_descriptors(config, 2048)
    assert lowered.max_connections < 9000
    fake_brokers.answers = {ADDRESS: {ASKED: told_by(lowered)}}
    assert compared(config, files_max=2048).level == "ok"
    assert "maxConnections is" in compared(config, files_max=1 << 20).what, "a restart with that limit takes all"


DIVERGED = f"10.0.0.2:10911 (a/1) takes nothing, and says why: {DivergedLogError(8, 'other bytes')}"


@pytest.mark.parametrize(
    ("keys", "told", "levels"),
    [
        ({"haPeers": "10.0.0.2:10912"}, DIVERGED, ["warn", "fail"]),
        ({"haPeers": "other:10912;10.0.0.2:10912"}, DIVERGED, ["warn", "fail"]),
        ({"haPeers": "slave.example:10912"}, DIVERGED, ["warn", "warn"]),  # it may be that one
        ({"haPeers": "10.0.0.2:10912", "haCatchUpAtStart": "off"}, DIVERGED, ["warn"]),
        ({"haPeers": "10.0.0.2:10912"}, "10.0.0.2:10911 (a/1) takes nothing, and says why: no room", ["warn"]),
        ({}, DIVERGED, ["warn"]),
    ],
)
def test_of_a_master_that_runs_it_is_told_that_its_next_start_fails(
    keys: dict[str, str], told: str, levels: list[str], fake_brokers: FakeBrokers
) -> None:
    """It was told when the master had been stopped, and could not be started."""
    facts = json.dumps(master(connection(), slave_troubles=[told]))
    fake_brokers.answers = {ADDRESS: {RequestCode.GET_BROKER_RUNTIME_INFO: answer({"table": {STATUS_KEY: facts}})}}
    found = [*check_own(load_config(None, keys), timeout_s=1)]
    assert [one.level for one in found] == levels
    if len(levels) == 2:
        assert "the next start of this master fails" in found[1].what
        assert str(Page.DIVERGED) in found[1].next


@pytest.mark.parametrize("files_max", [64, 1024, 8192])
def test_where_the_limit_is_low_nothing_but_findings_is_printed(
    files_max: int, fake_brokers: FakeBrokers, capsys: pytest.CaptureFixture[str]
) -> None:
    """A line for a broker's log stood before the JSON of `doctor --format json`."""
    config = load_config(None, {})
    fake_brokers.answers = {ADDRESS: {ASKED: told_by(config)}}
    assert compared(config, files_max=files_max)
    assert [found.area for found in check_limits(config, files_max=files_max)] == ["files", "maps"]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    "told",
    [
        answer(code=ResponseCode.NO_PERMISSION, remark="not you"),
        answer(body=b"slaveTimeout=1", origins="[["),
        answer(body=b"slaveTimeout=1", origins="7"),
    ],
)
def test_a_broker_that_does_not_say_is_not_compared(told: RemotingCommand, fake_brokers: FakeBrokers) -> None:
    fake_brokers.answers = {ADDRESS: {ASKED: told}}
    found = compared(load_config(None, {}))
    assert (found.level, "is not compared: " in found.what) == ("ok", True)


def test_the_limit_is_that_of_the_process_that_holds_the_store(tmp_path: Path) -> None:
    """A shell's was told, and called few, of a unit with LimitNOFILE=; or many, of one without."""
    assert (lock_holder(str(tmp_path)), is_in_use(str(tmp_path))) == (None, False)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        assert (lock_holder(str(tmp_path)), files_limit(holder.pid)) == (holder.pid, 321)
        holder.communicate()
    assert lock_holder(str(tmp_path)) is None
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert files_limit(os.getpid()) == (hard if hard != resource.RLIM_INFINITY else 1 << 30)
    assert files_limit(1 << 30) is None


def test_a_broker_runs_though_its_process_has_no_number_here(
    tmp_path: Path, fake_brokers: FakeBrokers, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The kernel tells process 0 of a lock that is held in another container: that is somebody, and not nobody."""
    monkeypatch.setattr("rmqha.cli.store_place.lock_holder", lambda _path: 0)
    path = conf(tmp_path / "broker.conf", storePathRootDir=str(tmp_path / "s"))
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "tablesNotTaken").touch()  # what that means is the status's to tell
    running: dict[RequestCode, Answer] = {ASKED: told_by(load_config(path))}
    running[RequestCode.GET_BROKER_RUNTIME_INFO] = runtime(write_refusal="disk full")
    fake_brokers.answers = {ADDRESS: running}
    assert run(["doctor", "-c", str(path), "--format", "json"]) == 1
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    (status,) = [one for one in found if one["area"] == "status"]
    assert (status["level"], "disk full" in status["what"]) == ("fail", True)
    ports = [one["what"] for one in found if one["area"] == "ports"]
    assert len(ports) == 3
    assert all(port.endswith(": taken by the broker, which runs") for port in ports)
    assert not [one for one in found if one["area"] in {"log", "tables"}]
