"""The cluster as it is drawn: brokers, who follows whom, and the verdict on all. Pure.

A node is a broker that is watched, or one that another tells of ("seen by": a slave of RocketMQ's, one that is gone).
"""

from collections.abc import Iterable
from typing import Any, Final

from rmqha.codec.host import host_of
from rmqha.dashboard.collector import FOLLOWING, Collector, WatchedBroker

Row = dict[str, Any]

OK: Final = "ok"
DEGRADED: Final = "degraded"
FAILED: Final = "failed"
UNKNOWN: Final = "unknown"
"""Not asked yet."""
_WORSE: Final = (FAILED, DEGRADED, UNKNOWN, OK)
_GOOD_STATES: Final = ("in-sync", "transfer")
_BAD_STATES: Final = ("ahead", "below-min", "diverged", "failed", "misconfigured", "gone")
_SILENT: Final = "no answer"
_LACKS_MAX: Final = 1000
"""As ``rmqha status`` has it (rmqha/cli/dledger_verdict.py)."""


def cluster_view(collector: Collector) -> Row:
    """All that the first page shows but the charts."""
    now_ms, groups = collector.now_ms(), collector.groups()
    brokers = [broker_row(one, now_ms=now_ms, group=groups[at]) for at, one in collector.watched.items()]
    brokers.sort(key=lambda row: (row["group"], row["role"] in FOLLOWING, row.get("id") or 0, row["address"]))
    troubles = [{"address": address, "why": why} for address, why in collector.troubles.items()]
    level = worst([*(row["level"] for row in brokers), *([DEGRADED] if troubles else [])])
    return {
        "nowMs": now_ms,
        "intervalSeconds": collector.interval_s,
        "level": level,
        "summary": _summary(brokers),
        "brokers": brokers,
        "groups": _groups(brokers),
        "troubles": troubles,
    }


def worst(levels: Iterable[str]) -> str:
    """That of all which an operator looks at first."""
    return min(levels, key=_WORSE.index, default=UNKNOWN)


def _summary(brokers: list[Row]) -> str:
    if not brokers:
        return "no broker is known"
    counts = {level: sum(row["level"] == level for row in brokers) for level in _WORSE}
    told = ", ".join(f"{count} {level}" for level, count in counts.items() if count)
    return f"{len(brokers)} {'broker' if len(brokers) == 1 else 'brokers'}: {told}"


def broker_row(watched: WatchedBroker, *, now_ms: int, group: str) -> Row:
    """What the page has of one broker: what it said last, with ``trouble`` if it does not answer now."""
    row: Row = {"address": watched.broker.address, "name": watched.name, "group": group, "trouble": watched.trouble}
    row["answeredSecondsAgo"] = None if watched.answered_ms is None else max(now_ms - watched.answered_ms, 0) // 1000
    if watched.view is None:
        level = FAILED if watched.trouble else UNKNOWN
        told = "does not answer" if watched.trouble else "not asked yet"
        reasons = [watched.trouble] if watched.trouble else []
        return row | {"level": level, "summary": f"{watched.name}: {told}", "reasons": reasons, "role": ""}
    told_by_itself = watched.view | row
    if watched.trouble:
        summary = f"{_title(watched.view)}: does not answer"
        return told_by_itself | {"level": FAILED, "summary": summary, "reasons": [watched.trouble], "inSync": False}
    return told_by_itself


def _title(view: Row) -> str:
    return f"{view['role']} {view['name']} (id {view['id']})" if view["role"] else str(view["name"])


def _groups(brokers: list[Row]) -> list[Row]:
    """Brokers that belong together, as nodes and edges."""
    by_name: dict[str, list[Row]] = {}
    for row in brokers:
        by_name.setdefault(row["group"], []).append(row)
    return [{"name": name, **_drawn(rows)} for name, rows in sorted(by_name.items())]


def _drawn(rows: list[Row]) -> Row:
    nodes = {row["address"]: _node(row) for row in rows}
    edges: list[Row] = []
    for row in rows:
        if row.get("member"):
            edges += _member_edges(row, rows, nodes)
        elif row["role"] != "SLAVE":
            edges += _replica_edges(row, rows, nodes)
    drawn = {edge["to"] for edge in edges}
    edges += [_following(row, rows, nodes) for row in rows if row.get("follows") and row["address"] not in drawn]
    return {"nodes": list(nodes.values()), "edges": edges}


def _node(row: Row) -> Row:
    """A broker as it says it is; what it said last is the past once it does not answer."""
    member = row.get("member") or {}
    label = member.get("id") or (f"id {row['id']}" if row.get("id") is not None else "")
    return {
        "key": row["address"],
        "address": row["address"],
        "label": label,
        "role": f"was {row['role']}" if row["trouble"] and row["role"] else row["role"],
        "level": row["level"],
        "first": row["role"] not in FOLLOWING and not (member and row["trouble"]),
        "watched": True,
        "state": _SILENT if row["trouble"] else "recovering" if row.get("recovering") else "",
        "end": (row.get("log") or {}).get("max"),
    }


def _seen(key: str, label: str, role: str, *, level: str, state: str) -> Row:
    """A node that only others tell of."""
    return {
        "key": key, "address": "", "label": label, "role": role, "level": level, "first": role == "MASTER",
        "watched": False, "state": state, "end": None,
    }  # fmt: skip


def _replica_edges(master: Row, rows: list[Row], nodes: dict[str, Row]) -> list[Row]:
    """From a master to each slave that it knows."""
    edges, mine = dict[str, Row](), {f"{row['name']}/{row['id']}": row for row in rows if row["role"] == "SLAVE"}
    replicas = master.get("replicas", ())
    named = {replica["name"] for replica in replicas}
    others = [row for name, row in mine.items() if name not in named]
    for replica in replicas:
        name = replica["name"]
        watched = mine.get(name) or _nameless(replica, replicas, others)
        key = watched["address"] if watched else f"seen {master['address']} {name or replica['peer']}"
        level = edge_level(replica["state"])
        if replica["gone"] and (key in edges or (watched and not name)):
            continue  # it has come back since, or says itself how it is
        if key not in nodes:
            seen_as = (UNKNOWN, "") if master["trouble"] else (level, replica["state"])
            nodes[key] = _seen(key, name or replica["peer"], "SLAVE", level=seen_as[0], state=seen_as[1])
        silent = master["trouble"] or (level != FAILED and (watched or {}).get("trouble"))
        edges[key] = {
            "from": master["address"],
            "to": key,
            "state": _SILENT if silent else replica["state"],
            "level": FAILED if silent else level,
            "lagBytes": None if master["trouble"] else replica["lagBytes"],
            "lagSeconds": None if master["trouble"] else replica["lagSeconds"],
            "why": silent or replica["reason"],
        }
    return list(edges.values())


def _nameless(replica: Row, replicas: list[Row], others: list[Row]) -> Row | None:
    """The slave that this must be, if it has not told its name, or never did: the only other one on its host."""
    if replica["name"]:
        return None
    host = host_of(replica["peer"])
    present = [one for one in replicas if not (one["name"] or one["gone"]) and host_of(one["peer"]) == host]
    there = [row for row in others if host_of(row["address"]) == host]
    return there[0] if len(there) == 1 and len(present) == (0 if replica["gone"] else 1) else None


def _following(slave: Row, rows: list[Row], nodes: dict[str, Row]) -> Row:
    """From a master that does not tell of this slave."""
    master = next((row["address"] for row in rows if row["role"] not in ("SLAVE", "")), None)
    follows = slave["follows"]
    if master is None:
        master = f"seen master of {slave['name']}"
        told = follows["master"] or "(none known)"
        nodes.setdefault(master, _seen(master, told, "MASTER", level=UNKNOWN, state="not watched"))
    state = _SILENT if slave["trouble"] else follows["state"]
    level = FAILED if slave["trouble"] else edge_level(state)
    return {
        "from": master, "to": slave["address"], "state": state, "level": level, "lagBytes": None, "lagSeconds": None,
        "why": follows["error"],
    }  # fmt: skip


def edge_level(state: str) -> str:
    """How a replica is that its master, or it itself, says to be in this state."""
    return OK if state in _GOOD_STATES else FAILED if state in _BAD_STATES else DEGRADED


def _member_edges(member: Row, rows: list[Row], nodes: dict[str, Row]) -> list[Row]:
    """From a leader to each other member."""
    if member["role"] != "LEADER" or member["trouble"]:
        return []
    mine = {row["member"]["id"]: row for row in rows if row.get("member")}
    edges = []
    for other in member["member"]["others"]:
        lacks = other["lacks"] or 0
        silent = mine.get(other["id"], {}).get("trouble")
        state = "away" if not other["connected"] else f"lacks {lacks:,} entries" if lacks > _LACKS_MAX else "in-sync"
        state = _SILENT if silent and state == "in-sync" else state
        level = FAILED if silent or state == "away" else OK if state == "in-sync" else DEGRADED
        key = mine[other["id"]]["address"] if other["id"] in mine else f"seen {other['id']}"
        if key not in nodes:
            nodes[key] = _seen(key, other["id"], "FOLLOWER", level=level, state=state)
        edges.append(
            {
                "from": member["address"],
                "to": key,
                "state": state,
                "level": level,
                "lagBytes": None,
                "lagSeconds": other["stuckSeconds"] if other["connected"] else other["sinceSeconds"],
                "why": other["reason"] or silent,
            }
        )
    return edges
