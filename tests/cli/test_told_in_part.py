"""What there may be many of is told in part: which of them, and how many are left out."""

from pathlib import Path
from typing import Any, Final

import pytest

from rmqha.cli.doctor_running import check_configuration
from rmqha.cli.log_dump import _TopicsSeen
from rmqha.cli.main import run
from rmqha.cli.status_text import render_status
from rmqha.cli.verdict import judge
from rmqha.codec.codes import RequestCode
from rmqha.config import load_config
from rmqha.config.reference import shown_config
from tests.cli.facts import master
from tests.cli.fake_brokers import FakeBrokers, answer
from tests.cli.test_doctor_running import told_by

ADDRESS: Final = "127.0.0.1:10911"


def gone(number: int, *, of: int) -> dict[str, Any]:
    """As a master tells them: the one that left last is the last."""
    left_s_ago = 10.0 * (of - number)
    return {
        "name": "", "peer": f"10.0.1.{number}:5000", "slave_ack_offset": 90, "reason": f"why {number}",
        "last_s_ago": left_s_ago,
    }  # fmt: skip


@pytest.mark.parametrize("count", [0, 1, 3, 4, 7])
def test_of_slaves_that_left_those_that_did_so_last_are_reasons(count: int) -> None:
    """What happened just now is why sends are refused now, not what happened last week. The status lists them all."""
    departed = [gone(number, of=count) for number in range(count)]
    facts = master(ha={"connections": [], "refused": [], "departed": departed})
    verdict = judge(facts)
    left = [f"{one['peer']} left {one['last_s_ago']:.0f} s ago: {one['reason']}" for one in departed]
    assert [reason for reason in verdict.reasons if " left " in reason] == left[-3:]
    lines = [line.split() for line in render_status(facts, verdict).splitlines()]
    assert [line[1] for line in lines if line[0] == "departed"] == [one["peer"] for one in departed]


@pytest.mark.parametrize(("count", "more"), [(1, ""), (12, ""), (13, ", and 1 more"), (40, ", and 28 more")])
def test_of_a_name_servers_brokers_the_first_are_named(
    count: int, more: str, fake_brokers: FakeBrokers, capsys: pytest.CaptureFixture[str]
) -> None:
    names = [f"b{number:02}" for number in range(count)]
    known = {
        name: {"brokerName": name, "cluster": "c", "brokerAddrs": {"0": f"10.0.0.{number}:10911"}}
        for number, name in enumerate(names)
    }
    table = answer({"brokerAddrTable": dict(reversed(known.items())), "clusterAddrTable": {"c": names}})
    fake_brokers.answers = {ADDRESS: {RequestCode.GET_BROKER_CLUSTER_INFO: table}}
    assert run(["status", "-b", ADDRESS]) == 1
    shown = ", ".join(f"10.0.0.{number}:10911 ({name}, master)" for number, name in enumerate(names[:12]))
    assert f"name a broker with --broker, one of {shown}{more}\n" in capsys.readouterr().err


@pytest.mark.parametrize(("count", "more"), [(12, ""), (13, "; and 1 more")])
def test_of_keys_that_a_restart_would_change_the_first_are_named(
    count: int, more: str, tmp_path: Path, fake_brokers: FakeBrokers
) -> None:
    keys = [
        "fileReservedTime", "flushIntervalCommitLog", "flushCommitLogLeastPages", "slaveTimeout", "syncFlushTimeout",
        "haSendHeartbeatInterval", "haHousekeepingInterval", "maxMessageSize", "diskMaxUsedSpaceRatio",
        "flushConsumerOffsetInterval", "maxConnections", "transactionTimeOut", "shortPollingTimeMills",
    ]  # fmt: skip
    path = tmp_path / "broker.conf"
    path.write_text("brokerName=a\n")
    running = load_config(path)
    fake_brokers.answers = {ADDRESS: {RequestCode.GET_BROKER_CONFIG: told_by(running)}}
    now = {key.name: int(value) + 1 for key, value, _ in shown_config(running) if key.name in keys[:count]}
    path.write_text("brokerName=a\n" + "".join(f"{key}={value}\n" for key, value in now.items()))
    (finding,) = check_configuration(load_config(path), files_max=None, timeout_s=1)
    assert len(now) == count
    assert [key for key in now if f"{key} is " in finding.what] == [*now][:12]
    assert finding.what.endswith(more or str([*now.values()][-1]))


@pytest.mark.parametrize(("count", "more"), [(1, ""), (20, ""), (21, " and 1 more"), (2030, " and 2,010 more")])
def test_of_a_logs_topics_the_first_are_named(count: int, more: str) -> None:
    seen, names = _TopicsSeen(), [f"t{number:04}" for number in range(count)]
    seen._names = dict.fromkeys(reversed(names))
    assert seen.describe() == f"the topics in it are {', '.join(names[:20])}{more}"
