"""What the page shows of one broker: its verdict, in the words of ``rmqha status``, and its figures. Pure.

:func:`broker_view` returns an object of plain, bounded values; offsets and sizes are bytes, times seconds, None is
"not told":

    name cluster id role version address upSeconds
    level summary reasons inSync text     the verdict, and all that ``rmqha status`` prints
    log                                   min max flushed confirm dispatched
    diskPercent
    recovering                            what done total seconds; None: it serves
    replicas                              of a master: name peer state gone lagBytes lagSeconds ack bytesPerSecond
                                          reason
    follows                               of a slave: master state error received durable
    member                                of a DLedger group: id group leader term isMaster others
"""

from typing import Any, Final

from rmqha.cli.lag_limits import gone_lag_s
from rmqha.cli.status_text import render_status
from rmqha.cli.verdict import judge
from rmqha.dashboard.bounded import items, last_items, number, table, text, texts

Facts = dict[str, Any]
REPLICAS_MAX: Final = 32
_REASONS_MAX: Final = 20
_STATUS_SIZE_MAX: Final = 8_000
_OFFSETS: Final = ("min", "max", "flushed", "confirm", "dispatched")


def broker_view(facts: Facts) -> dict[str, Any]:
    """Of the facts of :func:`~rmqha.cli.verdict.read_status`.

    Raises:
        ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError: they are none.
    """
    verdict = judge(facts)
    starting = facts.get("starting")
    return {
        "name": text(facts.get("broker_name")),
        "cluster": text(facts.get("broker_cluster_name")),
        "id": number(facts.get("broker_id")),
        "role": text(facts.get("role")),
        "version": text(facts.get("version")),
        "address": text(facts.get("address")),
        "upSeconds": number(facts.get("up_s")),
        "level": verdict.level,
        "summary": text(verdict.summary),
        "reasons": texts(verdict.reasons, _REASONS_MAX),
        "inSync": verdict.in_sync,
        "text": text("" if starting else render_status(facts, verdict), _STATUS_SIZE_MAX),
        "log": {name: number(facts.get(f"{name}_offset")) for name in _OFFSETS},
        "diskPercent": number(facts.get("disk_used_percent")),
        "recovering": _recovering(starting) if starting else None,
        "replicas": [*_connected(facts), *_departed(facts)],
        "follows": _follows(table(facts.get("ha_client"))) if facts.get("ha_client") else None,
        "member": _member(facts) if facts.get("dledger") else None,
    }


def _recovering(starting: Facts) -> dict[str, Any]:
    return {
        "what": text(starting["what"]),
        "done": number(starting["done_bytes"]),
        "total": number(starting["total_bytes"]),
        "seconds": number(starting["for_s"]),
    }


def _connected(facts: Facts) -> list[dict[str, Any]]:
    return [
        {
            "name": text(one.get("name")),
            "peer": text(one["peer"]),
            "state": text(one["state"]),
            "gone": False,
            "lagBytes": number(one["lag_bytes"]),
            "lagSeconds": number(one["lag_s"]),
            "ack": number(one["slave_ack_offset"]),
            "bytesPerSecond": number(one["rate_bytes_s"]),
            "reason": "",
        }
        for one in items(table(facts.get("ha")).get("connections"), REPLICAS_MAX)
        if (number(one["slave_ack_offset"]) or 0) >= 0 or one.get("name")  # else a stranger, that has said nothing
    ]


def _departed(facts: Facts) -> list[dict[str, Any]]:
    end = number(facts.get("max_offset")) or 0
    return [
        {
            "name": text(one.get("name")),
            "peer": text(one["peer"]),
            "state": "gone",
            "gone": True,
            "lagBytes": max(end - max(number(one["slave_ack_offset"]) or 0, 0), 0),
            "lagSeconds": number(gone_lag_s(one)),
            "ack": number(one["slave_ack_offset"]),
            "bytesPerSecond": None,
            "reason": text(one["reason"]),
        }
        for one in last_items(table(facts.get("ha")).get("departed"), REPLICAS_MAX)
    ]


def _follows(client: Facts) -> dict[str, Any]:
    return {
        "master": text(client.get("master")),
        "state": text(client.get("state")),
        "error": text(client.get("last_error")),
        "received": number(client.get("received_offset")),
        "durable": number(client.get("durable_offset")),
    }


def _member(facts: Facts) -> dict[str, Any]:
    member = facts["dledger"]
    others = [
        {
            "id": text(view["id"]),
            "connected": view["connected"] is True,
            "lacks": number(view["lacks"]),
            "stuckSeconds": number(view["stuck_s"]),
            "sinceSeconds": number(view["since_s"]),
            "reason": text(view["reason"]),
        }
        for view in items(member.get("members"), REPLICAS_MAX)
    ]
    return {
        "id": text(member["id"]),
        "group": text(member["group"]),
        "leader": text(member["leader"]),
        "term": number(member.get("term")),
        "isMaster": facts.get("is_master") is True,
        "others": others,
    }
