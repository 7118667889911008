"""What brokers say of themselves, in small."""

from typing import Any


def connection(state: str = "in-sync", **more: Any) -> dict[str, Any]:
    """One slave as its master sees it."""
    facts = {
        "peer": "10.0.0.2:5000", "state": state, "connected_s": 3.0, "slave_ack_offset": 90, "lag_bytes": 10,
        "next_transfer_from_where": 100, "lag_s": 0.5, "rate_bytes_s": 20.0, "eta_s": 0.5,
    }  # fmt: skip
    return facts | more


def master(*connections: dict[str, Any], role: str = "SYNC_MASTER", **more: Any) -> dict[str, Any]:
    """The document of a master."""
    facts: dict[str, Any] = {
        "version": "rmqha 0.1.0", "role": role, "broker_name": "a", "broker_id": 0, "in_sync_replicas": 2,
        "min_offset": 0, "max_offset": 100, "flushed_offset": 100, "confirm_offset": 90, "dispatched_offset": 90,
        "write_refusal": None, "ha_client": None, "ha": {"connections": list(connections), "refused": []},
    }  # fmt: skip
    return facts | more


def slave(state: str, **more: Any) -> dict[str, Any]:
    """The document of a slave."""
    client = {"state": state, "master": "10.0.0.1:10912", "last_error": "", "received_offset": 5, "durable_offset": 5}
    return master(role="SLAVE", broker_id=1) | {"ha_client": client} | more


def view(name: str, **more: Any) -> dict[str, Any]:
    """How a member sees another."""
    return {"id": name, "connected": True, "since_s": 7, "heard_s": 1, "reason": "", "lacks": 0, "stuck_s": 0} | more


def member(role: str = "LEADER", *, is_master: bool = True, **more: Any) -> dict[str, Any]:
    """The document of a broker on a DLedger group."""
    facts = master(role=role, is_master=is_master)
    del facts["ha"], facts["ha_client"]
    dledger = {
        "id": "n0", "group": "g", "leader": "n0", "term": 3, "begin_index": 0, "end_index": 9, "committed_index": 9,
        "flushed_index": 9, "peers": dict.fromkeys(("n0", "n1", "n2"), "h:1"), "connected": ["n1", "n2"],
        "master": None, "diverged": None, "leader_for_s": 150, "uncommitted_for_s": None, "silent_after_s": 6.0,
        "members": [view("n1"), view("n2")], "lacks": 0, "write_error": None,
    }  # fmt: skip
    if role != "LEADER":
        dledger["members"] = [view("n1", lacks=None), view("n2", lacks=None)]
    return facts | {"dledger": dledger | more}
