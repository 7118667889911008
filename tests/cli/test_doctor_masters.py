"""`rmqha doctor`: a slave whose two addresses lead to two masters."""

import json
from typing import Any

import pytest

from rmqha.cli.doctor_masters import check_masters
from rmqha.cli.finding import Finding
from rmqha.codec.codes import STATUS_KEY, RequestCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.config import load_config
from tests.cli.facts import master, slave
from tests.cli.fake_brokers import FakeBrokers, answer

RUNTIME, CONFIG = RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.GET_BROKER_CONFIG
KEYS = {
    "brokerName": "a",
    "brokerRole": "SLAVE",
    "brokerId": "1",
    "haMasterAddress": "10.0.0.1:10912",
    "masterAddress": "10.0.0.9:10911",
}
ROCKETMQ = b"brokerId=0\nbrokerRole=SYNC_MASTER\nbrokerIP1=10.0.0.1\nlistenPort=10911\nhaListenPort=10912\n"
HA = {"connections": [], "refused": [], "port": 10912}


def told(facts: dict[str, Any], *, boot: str = "1") -> dict[RequestCode, Any]:
    return {RUNTIME: answer({"table": {STATUS_KEY: json.dumps(facts), "bootTimestamp": boot}})}


def ours(address: str, **facts: Any) -> dict[str, Any]:
    return master(address=address, **facts) | {"ha": HA}


def found(brokers: FakeBrokers, there: Any, source: Any, **keys: str) -> list[Finding]:
    brokers.answers = {"10.0.0.9:10911": there, "10.0.0.1:10911": source}
    return list(check_masters(load_config(None, KEYS | keys), timeout_s=1))


def test_two_masters_are_a_warning(fake_brokers: FakeBrokers) -> None:
    (finding,) = found(fake_brokers, told(ours("10.0.0.9:10911")), told(ours("10.0.0.1:10911")))
    assert (finding.level, finding.area) == ("warn", "masterAddress")
    assert "10.0.0.9:10911, another master than the one whose log is copied" in finding.what
    assert finding.next.startswith("Set masterAddress to the listenPort of the master whose log is copied")


def test_a_master_of_rocketmqs_is_another_one(fake_brokers: FakeBrokers) -> None:
    rocketmq = {RUNTIME: answer({"table": {"bootTimestamp": "5"}}), CONFIG: RemotingCommand(0, body=ROCKETMQ)}
    (finding,) = found(fake_brokers, told(ours("10.0.0.9:10911")), rocketmq)
    assert "it calls itself 10.0.0.1:10911" in finding.what
    silent: dict[RequestCode, Any] = rocketmq | {CONFIG: RemotingCommand(1, remark="no permission")}
    assert found(fake_brokers, {}, told(ours("10.0.0.1:10911"))) == []
    assert found(fake_brokers, told(ours("10.0.0.9:10911")), {}) == []
    assert found(fake_brokers, told(ours("10.0.0.9:10911")), silent) == []


@pytest.mark.parametrize(
    ("source", "count"),
    [
        (ours("10.0.0.9:10911"), 0),
        (slave("transfer", ha=HA, address="10.0.0.1:10911", log_master="10.0.0.9:10911"), 0),
        (slave("transfer", ha=HA, address="10.0.0.1:10911"), 0),
        (slave("transfer", ha=HA, address="10.0.0.1:10911", log_master="10.0.0.7:10911"), 1),
        (ours("10.0.0.1:10911") | {"ha": HA | {"port": 20912}}, 0),
        ({"starting": {}, "role": "SYNC_MASTER", "ha": None}, 0),
    ],
    ids=["one by two names", "chain", "chain unknown", "other chain", "another's HA port", "starting"],
)
def test_what_is_no_other_master(source: dict[str, Any], count: int, fake_brokers: FakeBrokers) -> None:
    assert len(found(fake_brokers, told(ours("10.0.0.9:10911")), told(source))) == count


def test_nobody_is_asked_where_one_address_follows_from_the_other(fake_brokers: FakeBrokers) -> None:
    assert found(fake_brokers, {}, {}, masterAddress="10.0.0.1:10911") == []
    assert fake_brokers.asked == []


@pytest.mark.parametrize(
    "keys",
    [
        {"masterAddress": ""},
        {"haMasterAddress": "", "namesrvAddr": "10.0.0.5:9876"},
        {"brokerRole": "SYNC_MASTER", "brokerId": "0"},
    ],
)
def test_nobody_is_asked_where_there_are_no_two_addresses(keys: dict[str, str], fake_brokers: FakeBrokers) -> None:
    assert found(fake_brokers, {}, {}, **keys) == []
    assert fake_brokers.asked == []
