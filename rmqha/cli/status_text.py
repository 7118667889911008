"""A broker's facts as lines for eyes. Pure."""

from typing import Any, Final

from rmqha.cli.dledger_verdict import member_lines
from rmqha.cli.pages import Page, see
from rmqha.cli.span import span
from rmqha.cli.verdict import Verdict, named, not_send_ok
from rmqha.logs import escaped

_OFFSETS: Final = ("min", "max", "flushed", "confirm", "dispatched")
_CLIENT_OFFSETS: Final = ("received", "verified", "durable", "reported")
_CONNECTED: Final = ("transfer", "disk-full")
"""In these states a slave's last error is one of before."""


def render_status(facts: dict[str, Any], verdict: Verdict) -> str:
    """Return the verdict, its reasons, and the facts, one line each."""
    lines = [f"{verdict.level}: {verdict.summary}"]
    lines += [f"  because  {reason}" for reason in verdict.reasons]
    if offsets := _offsets(facts, _OFFSETS):
        lines.append("  log      " + "  ".join(offsets))
    if facts.get("disk_used_percent") is not None:
        ago = f", {facts['disk_looked_s_ago']:.0f} s ago" if "disk_looked_s_ago" in facts else ""
        lines.append(f"  disk     {facts['disk_used_percent']} % used{ago}")
    elif facts.get("disk_unknown"):
        lines.append("  disk     not known how full")
    lines += [f"  hint     {see(told, Page.HA_PEERS)}" for told in facts.get("unnamed_slaves", ())]
    if facts.get("hidden_messages"):
        lines.append(f"  hidden   {_hidden(facts['hidden_messages'])}")
    if unsafe := facts.get("not_send_ok"):
        lines.append(f"  unsafe   some sends were not answered SEND_OK{not_send_ok(unsafe)}")
    if early := facts.get("deleted_early"):
        lines.append(f"  deleted  {early['segments']:,} unexpired segments, the last {early['last_s_ago']:.0f} s ago")
    if halves := facts.get("discarded_halves"):
        told = f"{halves['count']:,} were discarded undecided, the last {halves['last_s_ago']:.0f} s ago"
        lines.append(f"  halves   {told}: {Page.DISCARDED}")
    if jumped_s := facts.get("clock_jumped_s"):
        lines.append(f"  clock    {see(f'it jumped {jumped_s:,} s ahead since the start', Page.CLOCK)}")
    lines += [f"  replica  {_replica(connection)}" for connection in (facts.get("ha") or {}).get("connections", ())]
    lines += [f"  departed {_departed(gone)}" for gone in (facts.get("ha") or {}).get("departed", ())]
    if facts.get("dledger"):
        lines += [f"  {line}" for line in member_lines(facts)]
    if facts.get("ha_client"):
        lines.append(f"  master   {_master(facts['ha_client'])}")
    return "\n".join(map(escaped, lines))  # other brokers' names are in it


def _offsets(facts: dict[str, Any], names: tuple[str, ...]) -> list[str]:
    shown = ((name, facts.get(f"{name}_offset")) for name in names)
    return [f"{name} {offset:,}" for name, offset in shown if offset is not None]


def _hidden(hidden: dict[str, Any]) -> str:
    named = ", ".join(f"{queue}: {messages:,}" for queue, messages in hidden["queues"].items())
    more = "" if sum(hidden["queues"].values()) == hidden["messages"] else ", and others"
    of = f"of queues that have begun anew since ({named}{more})"
    return f"{hidden['messages']:,} messages in the log, {of}: {Page.HIDDEN}"


def _replica(connection: dict[str, Any]) -> str:
    parts = [
        named(connection),
        connection["state"],
        f"ack {connection['slave_ack_offset']:,}",
        f"lag {human_bytes(connection['lag_bytes'])}, {connection['lag_s']:.1f} s",
        f"{human_bytes(connection['rate_bytes_s'])}/s",
    ]
    parts += _heard(connection)
    if connection["eta_s"] is not None and connection["lag_bytes"] > 0:
        parts.append(f"in sync in {connection['eta_s']:.0f} s")
    return "  ".join(parts)


def _departed(gone: dict[str, Any]) -> str:
    return f"{named(gone)}  {gone['last_s_ago']:.0f} s ago  ack {gone['slave_ack_offset']:,}  {gone['reason']}"


def _heard(peer: dict[str, Any]) -> list[str]:
    ago = peer.get("heard_s_ago")
    return [] if ago is None else [f"heard {ago:.1f} s ago"]


def _master(client: dict[str, Any]) -> str:
    apart_s = client.get("apart_s")
    state = client["state"] if apart_s is None else f"{client['state']} for {span(apart_s)}"
    parts = [client["master"] or "(none)", state, *_offsets(client, _CLIENT_OFFSETS), *_heard(client)]
    if client["last_error"] and client["state"] not in _CONNECTED:
        parts.append(f"last error: {client['last_error']}")
    return "  ".join(parts)


def human_bytes(size: float) -> str:
    """Return ``512 B``, ``1.5 KiB``, ``3.0 GiB``."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(amount) < 1024:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
