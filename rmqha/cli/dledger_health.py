"""How a DLedger group is, judged by what its members tell, and in lines for eyes. Pure.

The facts of one member, with the keys of ``rmqha dledger status --format json``; what is not known is None:

    id, address    as they are named with --peers, or by another member
    alive          it answers
    error          why it does not, or what is wrong with its answer
    role           LEADER, FOLLOWER or CANDIDATE
    leaderId       who it says leads
    term           its present one
    beginIndex, endIndex, committedIndex, flushedIndex
                   of its log; -1: none. A member of Java's does not tell
    transferee     to whom it hands leadership over
    writeError     why it cannot write
    version
"""

from collections import Counter
from typing import Any, Final

from rmqha.cli.verdict import Verdict
from rmqha.logs import escaped

Facts = dict[str, Any]
_LAG_MAX: Final = 1000
"""Entries that a member may lack; DLedger hands leadership over to one that lacks fewer."""


def leader_of(members: list[Facts]) -> Facts | None:
    """Of those who say that they lead, whom most name."""
    named = Counter(member["leaderId"] for member in members)
    leaders = [member for member in members if member["role"] == "LEADER"]
    return max(leaders, key=lambda member: named[member["id"]], default=None)


def judge_group(group: str, members: list[Facts]) -> Verdict:
    """``failed``: it takes no appends; ``degraded``: something is wrong with a member."""
    alive = sum(member["alive"] for member in members)
    answering = f"{alive} of {len(members)} members answer"
    leader = leader_of(members)
    reasons = [reason for member in members for reason in _troubles(member, leader)]
    if leader is None:
        return Verdict("failed", f"group {group}: nobody leads, {answering}", tuple(reasons), in_sync=False)
    followed_by = sum(member["leaderId"] == leader["id"] for member in members)
    level = "degraded" if reasons else "ok"
    if followed_by <= len(members) // 2:
        reasons.insert(0, f"{followed_by} of {len(members)} members, fewer than a majority, take it for the leader")
        level = "failed"
    if leader["writeError"] is not None:
        level = "failed"
    term = "" if leader["term"] is None else f" in term {leader['term']}"
    summary = f"group {group}: {leader['id']} leads{term}, {answering}"
    return Verdict(level, summary, tuple(reasons), in_sync=level == "ok")


def _troubles(member: Facts, leader: Facts | None) -> list[str]:
    member_id = member["id"]
    if not member["alive"]:
        return [f"{member_id} does not answer: {member['error']}"]
    troubles = []
    if member["error"]:
        troubles.append(f"{member_id}: {member['error']}")
    if member["writeError"] is not None:
        troubles.append(f"{member_id} cannot write: {member['writeError']}")
    if leader is None or member is leader:
        return troubles
    if member["role"] == "LEADER":
        troubles.append(f"{member_id} also says that it leads")
    elif member["role"] == "CANDIDATE":
        troubles.append(f"{member_id} knows no leader")
    if leader["committedIndex"] is not None and member["endIndex"] is not None:
        lag = leader["committedIndex"] - member["endIndex"]
        troubles += [f"{member_id} lags behind by {lag} entries"] if lag > _LAG_MAX else []
    return troubles


def render_group(members: list[Facts], verdict: Verdict) -> str:
    """The verdict, its reasons, and the members, one line each."""
    lines = [f"{verdict.level}: {verdict.summary}"]
    lines += [f"  because  {escaped(reason)}" for reason in verdict.reasons]
    id_width = max(len(member["id"]) for member in members)
    address_width = max(len(member["address"]) for member in members)
    for member in members:
        told = "  ".join(_told(member)) if member["alive"] else "does not answer"
        lines.append(f"  {escaped(member['id']):{id_width}}  {escaped(member['address']):{address_width}}  {told}")
    return "\n".join(lines)


def _told(member: Facts) -> list[str]:
    told = [f"{member['role'] or 'unknown role':9}"]
    if member["term"] is not None:
        told.append(f"term {member['term']}")
    if member["endIndex"] is not None:
        is_empty = member["endIndex"] == -1
        told.append("no entries" if is_empty else f"entries {member['beginIndex']}..{member['endIndex']}")
        told += [
            f"{name} {member[key]}" for name, key in (("committed", "committedIndex"), ("flushed", "flushedIndex"))
        ]
    if member["transferee"] is not None:
        told.append(f"hands over to {escaped(member['transferee'])}")
    return told
