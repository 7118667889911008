"""`rmqha doctor` of a slave that is about to start: whether another one follows with its brokerId."""

from typing import Any

import pytest

from rmqha.cli.doctor_ids import check_broker_id
from rmqha.codec.codes import RequestCode
from rmqha.config import load_config
from tests.cli.facts import connection
from tests.cli.fake_brokers import FakeBrokers, answer, runtime

KEYS = {"brokerName": "a", "brokerRole": "SLAVE", "brokerId": "1"}
HERE = {"haMasterAddress": "10.0.0.1:10912"}


def told(brokers: FakeBrokers, follower: dict[str, Any], **keys: str) -> list[tuple[str, str, str]]:
    ha = {"connections": [connection(**follower)], "refused": [], "port": 10912, "heartbeat_s": 5.0}
    brokers.answers = {"10.0.0.1:10911": {RequestCode.GET_BROKER_RUNTIME_INFO: runtime(ha=ha)}}
    found = check_broker_id(load_config(None, KEYS | keys), timeout_s=1)
    return [(finding.level, finding.area, finding.what) for finding in found]


@pytest.mark.parametrize(
    ("keys", "area"),
    [(HERE, "haMasterAddress"), ({"masterAddress": "10.0.0.1:10911", "namesrvAddr": "10.0.0.9:9876"}, "masterAddress")],
)
def test_a_second_slave_with_one_id_is_told_before_it_starts(
    keys: dict[str, str], area: str, fake_brokers: FakeBrokers
) -> None:
    """Only once both followed did either's status say so."""
    ((level, where, what),) = told(fake_brokers, {"name": "a/1", "heard_s_ago": 2.0}, **keys)
    assert (level, where) == ("fail", area)
    assert "10.0.0.2:5000 (a/1) follows it with brokerId=1 as well" in what


@pytest.mark.parametrize(
    ("follower", "keys"),
    [
        ({"name": "a/2"}, HERE),
        ({"name": ""}, HERE),
        ({"name": "a/1", "heard_s_ago": 12.0}, HERE),
        ({"name": "a/1"}, {"namesrvAddr": "10.0.0.9:9876"}),
        ({"name": "a/1"}, {"haMasterAddress": "10.0.0.7:10912"}),
        ({"name": "a/1"}, HERE | {"brokerRole": "SYNC_MASTER", "brokerId": "0"}),
        ({"name": 7, "heard_s_ago": "x"}, HERE),
    ],
)
def test_nothing_is_said_of_others_or_of_one_that_is_gone(
    follower: dict[str, Any], keys: dict[str, str], fake_brokers: FakeBrokers
) -> None:
    assert told(fake_brokers, follower, **keys) == []


def test_what_cannot_be_read_is_no_fault_of_this_slave(fake_brokers: FakeBrokers) -> None:
    fake_brokers.answers = {"10.0.0.1:10911": {RequestCode.GET_BROKER_RUNTIME_INFO: answer({"table": []})}}
    assert list(check_broker_id(load_config(None, KEYS | HERE), timeout_s=1)) == []
