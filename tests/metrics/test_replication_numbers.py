"""What a scrape tells of slaves, of a slave, and of a member of a group, number by number."""

from types import SimpleNamespace
from typing import Any, Final

import pytest

pytest.importorskip("h11", reason="h11 is in the extra [web]")
pytest.importorskip("prometheus_client", reason="prometheus-client is in the extra [web]")

from rmqha.ha.runtime_info import ClientState
from rmqha.metrics.replication_families import replication
from tests.metrics.test_numbers import told

HERE: Final = [
    {
        "name": "a/1",
        "peer": "10.0.0.2:5000",
        "slave_ack_offset": 900,
        "lag_bytes": 11,
        "lag_s": 0.25,
        "state": "in-sync",
    },
    {"name": "", "peer": "10.0.0.3:5000", "slave_ack_offset": 0, "lag_bytes": 1000, "lag_s": 7.5, "state": "transfer"},
    {"name": "a/9", "peer": "10.0.0.9:5000", "slave_ack_offset": -1, "lag_bytes": 9, "lag_s": 9.0, "state": "in-sync"},
]
"""The last one has not reported yet."""
GONE: Final = [
    {"name": "a/4", "peer": "10.0.0.4:5000", "slave_ack_offset": 600, "lag_s": 77.0, "last_s_ago": 70.0, "reason": "x"},
    {"name": "a/5", "peer": "10.0.0.5:5000", "slave_ack_offset": 1200, "lag_s": 0.0, "last_s_ago": 5.0, "reason": "x"},
]
CLIENT: Final = {
    "state": "transfer", "received_offset": 61, "verified_offset": 62, "durable_offset": 63, "reported_offset": 64,
    "connections": 65, "corrupt_streams": 66, "master": "h:1", "last_error": "",
}  # fmt: skip


def a_broker(facts: dict[str, Any]) -> Any:
    return SimpleNamespace(
        config=SimpleNamespace(in_sync_replicas=3),
        store=SimpleNamespace(max_offset=1000),
        replication=SimpleNamespace(facts=lambda: facts, promise=object()),
    )


def test_of_each_slave_that_is_connected_or_was_all_is_told() -> None:
    ha = {"live_slaves": 2, "connections": HERE, "departed": GONE}
    assert told(replication(a_broker({"ha": ha, "ha_client": None}))) == {
        "rmqha_slaves_needed": 2, "rmqha_slaves_live": 2,
        "rmqha_slave_connected a/1": 1, "rmqha_slave_connected 10.0.0.3": 1,
        "rmqha_slave_connected a/4": 0, "rmqha_slave_connected a/5": 0,
        "rmqha_slave_in_sync a/1": 1, "rmqha_slave_in_sync 10.0.0.3": 0,
        "rmqha_slave_in_sync a/4": 0, "rmqha_slave_in_sync a/5": 0,
        "rmqha_slave_lag_bytes a/1": 11, "rmqha_slave_lag_bytes 10.0.0.3": 1000,
        "rmqha_slave_lag_bytes a/4": 400, "rmqha_slave_lag_bytes a/5": 0,
        "rmqha_slave_lag_seconds a/1": 0.25, "rmqha_slave_lag_seconds 10.0.0.3": 7.5,
        "rmqha_slave_lag_seconds a/4": 77, "rmqha_slave_lag_seconds a/5": 0,
    }  # fmt: skip


@pytest.mark.parametrize("state", [one.value for one in ClientState])
def test_of_a_slave_each_point_and_its_state(state: str) -> None:
    ha = {"live_slaves": 0, "connections": [], "departed": []}
    found = told(replication(a_broker({"ha": ha, "ha_client": CLIENT | {"state": state}})))
    own = {name: number for name, number in found.items() if "follower" in name}
    assert own == {
        "rmqha_follower_offset_bytes received": 61, "rmqha_follower_offset_bytes verified": 62,
        "rmqha_follower_offset_bytes durable": 63, "rmqha_follower_offset_bytes reported": 64,
        "rmqha_follower_connections_total": 65, "rmqha_follower_corrupt_streams_total": 66,
        **{f"rmqha_follower_state {one.value}": float(one.value == state) for one in ClientState},
    }  # fmt: skip


@pytest.mark.parametrize(("leader", "waits", "is_master"), [("n1", None, False), ("n0", 41, True), (None, None, False)])
def test_of_a_member_all_its_indexes_and_how_it_sees_the_others(
    leader: str | None, waits: int | None, is_master: bool
) -> None:
    others = [{"id": "n1", "connected": True, "lacks": 21}, {"id": "n2", "connected": False, "lacks": None}]
    member = {
        "group": "g", "id": "n0", "leader": leader, "term": 31, "diverged": "at 7" if waits else None,
        "role": "FOLLOWER", "begin_index": 32, "end_index": 33,
        "committed_index": 34, "flushed_index": 35, "uncommitted_for_s": waits, "lacks": 36, "members": others,
    }  # fmt: skip
    found = told(replication(a_broker({"dledger": member, "is_master": is_master})))
    roles = {name: found.pop(name) for name in [*found] if name.startswith("rmqha_dledger_role ")}
    assert [name.split()[1] for name, number in roles.items() if number] == ["FOLLOWER"]
    assert found == {
        "rmqha_dledger_info g n0": 1, "rmqha_dledger_master": is_master, "rmqha_dledger_has_leader": leader is not None,
        "rmqha_dledger_diverged": waits is not None,
        "rmqha_dledger_term": 31, "rmqha_dledger_index begin": 32, "rmqha_dledger_index end": 33,
        "rmqha_dledger_index committed": 34, "rmqha_dledger_index flushed": 35,
        "rmqha_dledger_uncommitted_seconds": waits or 0, "rmqha_dledger_lacks_entries": 36,
        "rmqha_dledger_member_connected n1": 1, "rmqha_dledger_member_connected n2": 0,
        "rmqha_dledger_member_lacks_entries n1": 21,
    }  # fmt: skip
    only_named = {name: member[name] for name in ("group", "id", "leader")}
    before = told(replication(a_broker({"dledger": only_named, "is_master": False})))
    assert before.keys() == {"rmqha_dledger_info g n0", "rmqha_dledger_master", "rmqha_dledger_has_leader"}
