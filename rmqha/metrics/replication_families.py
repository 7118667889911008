"""How the log comes to other nodes, and from them: of the classic broker's slaves, or of a DLedger group's members."""

from collections.abc import Iterator
from typing import Any, Final

from prometheus_client.metrics_core import Metric

from rmqha.broker.broker_controller import BrokerController
from rmqha.codec.host import host_of
from rmqha.dledger.member_state import Role
from rmqha.ha.runtime_info import ClientState
from rmqha.metrics.families import counter, gauge, gauges, one_of
from rmqha.metrics.readiness import slaves_needed

Facts = dict[str, Any]
_FOLLOWER_POINTS: Final = ("received", "verified", "durable", "reported")


def replication(broker: BrokerController) -> Iterator[Metric]:
    """Of either kind."""
    facts = broker.replication.facts()
    if "dledger" in facts:
        yield from _group(facts["dledger"], is_master=facts["is_master"])
        return
    yield from _slaves(broker, facts["ha"])
    if facts["ha_client"] is not None:
        yield from _follower(facts["ha_client"])


def _slaves(broker: BrokerController, ha: Facts) -> Iterator[Metric]:
    """Each slave by its name, or by its host if it gave none; also those that have left, until they are forgotten."""
    yield gauge("rmqha_slaves_needed", "Slaves that a send needs for SEND_OK.", slaves_needed(broker))
    yield gauge("rmqha_slaves_live", "Slaves connected that have reported.", ha["live_slaves"])
    end = broker.store.max_offset
    gone = {_name(one): one for one in ha["departed"]}
    here = {_name(one): one for one in ha["connections"] if one["slave_ack_offset"] >= 0}
    connected = dict.fromkeys(gone, 0.0) | dict.fromkeys(here, 1.0)
    yield _by_slave("rmqha_slave_connected", "1 if it is connected, 0 if it was.", connected)
    in_sync = {name: float(name in here and here[name]["state"] == "in-sync") for name in connected}
    yield _by_slave("rmqha_slave_in_sync", "1 if it holds all but the last moment's.", in_sync)
    bytes_behind = {name: float(max(0, end - (here | gone)[name]["slave_ack_offset"])) for name in gone} | {
        name: float(one["lag_bytes"]) for name, one in here.items()
    }
    yield _by_slave("rmqha_slave_lag_bytes", "What it has not acknowledged of the log.", bytes_behind)
    seconds = {name: one["lag_s"] for name, one in (gone | here).items()}
    yield _by_slave("rmqha_slave_lag_seconds", "For so long there was something it has not acknowledged.", seconds)


def _name(replica: Facts) -> str:
    return str(replica["name"] or host_of(replica["peer"]))


def _by_slave(name: str, meaning: str, values: dict[str, float]) -> Metric:
    return gauges(name, meaning, ["slave"], {(slave,): value for slave, value in values.items()})


def _follower(client: Facts) -> Iterator[Metric]:
    """Of a slave, what it has from its master."""
    states = [state.value for state in ClientState]
    yield one_of("rmqha_follower_state", "How it stands to its master.", "state", states, present=client["state"])
    yield gauges(
        "rmqha_follower_offset_bytes",
        "How far the master's log has come here.",
        ["point"],
        {(point,): client[f"{point}_offset"] for point in _FOLLOWER_POINTS},
    )
    yield counter("rmqha_follower_connections", "Connections made to masters.", client["connections"])
    yield counter("rmqha_follower_corrupt_streams", "Those that brought no records.", client["corrupt_streams"])


def _group(member: Facts, *, is_master: bool) -> Iterator[Metric]:
    """Of a member of a DLedger group; before it has begun, it tells only who it is."""
    who = {"group": member["group"], "id": member["id"]}
    yield gauges("rmqha_dledger_info", "Which member this is.", list(who), {tuple(who.values()): 1.0})
    yield gauge("rmqha_dledger_master", "1 if this member leads, and its broker takes messages.", float(is_master))
    yield gauge("rmqha_dledger_has_leader", "1 if this member knows who leads.", float(member["leader"] is not None))
    if "term" not in member:
        return
    yield gauge("rmqha_dledger_diverged", "1 if it follows nobody: its log differs.", float(bool(member["diverged"])))
    roles = [role.value for role in Role]
    yield one_of("rmqha_dledger_role", "What this member is.", "role", roles, present=member["role"])
    yield gauge("rmqha_dledger_term", "Of its group.", member["term"])
    points: dict[tuple[str, ...], float] = {
        (point,): float(member[f"{point}_index"]) for point in ("begin", "end", "committed", "flushed")
    }
    yield gauges("rmqha_dledger_index", "Indexes of entries.", ["point"], points)
    waits = member["uncommitted_for_s"] or 0
    yield gauge("rmqha_dledger_uncommitted_seconds", "For so long entries wait for a majority.", waits)
    yield gauge("rmqha_dledger_lacks_entries", "Committed entries that a follower lacks.", member["lacks"])
    members: list[Facts] = member["members"]
    yield gauges(
        "rmqha_dledger_member_connected",
        "1 if another member is connected.",
        ["member"],
        {(one["id"],): float(one["connected"]) for one in members},
    )
    yield gauges(
        "rmqha_dledger_member_lacks_entries",
        "Committed entries that a member is not known to have; told by the leader.",
        ["member"],
        {(one["id"],): one["lacks"] for one in members if one["lacks"] is not None},
    )
