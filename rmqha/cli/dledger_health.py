"""How a DLedger group is, judged by what its members tell, and in lines for eyes. Pure.

The facts of one member, with the keys of ``rmqha dledger status --format json``; what is not known is None:

    id, address    as they are named with --peers, or by another member
    alive          it answers
    error          why it does not, or what is wrong with its answer
    peers          whom it has as members
    addresses      where it has each of them
    role           LEADER, FOLLOWER or CANDIDATE
    leaderId       who it says leads
    term           its present one
    beginIndex, endIndex, committedIndex, flushedIndex
                   of its log; -1: none. A member of Java's does not tell
    transferee     to whom it hands leadership over
    writeError     why it cannot write
    version
    leaderForS     so many seconds ago who leads, as far as it knows, was last another
    uncommittedForS
                   so many seconds a leader's entries have waited for a majority, and none was committed
    deletedEarlyS  so many seconds ago its log was last deleted before it had expired, for lack of room
    formerMembers  the members that it has noted, if these are not the present ones; none: it has noted nobody
    notToLead      why it must not lead: its leader has committed by a list whose majorities need not meet its own
    rivals         of which members it knows two processes, in words
    damage         what of its broker's messages is not what was stored
"""

from collections import Counter
from typing import Any

from rmqha.cli.dledger_verdict import LAG_MAX, why_uncommitted, why_unnoted
from rmqha.cli.pages import Page, see
from rmqha.cli.recent_troubles import DELETED_RECENTLY_S
from rmqha.cli.span import span
from rmqha.cli.verdict import Verdict
from rmqha.dledger.member_lists import differences
from rmqha.logs import escaped

Facts = dict[str, Any]


def leader_of(members: list[Facts]) -> Facts | None:
    """Of those who say that they lead, whom most name."""
    named = Counter(member["leaderId"] for member in members)
    leaders = [member for member in members if member["role"] == "LEADER"]
    return max(leaders, key=lambda member: named[member["id"]], default=None)


def judge_group(group: str, members: list[Facts]) -> Verdict:
    """``failed``: it takes no appends; ``degraded``: something is wrong with a member."""
    answering = f"{sum(member['alive'] for member in members)} of {len(members)} members answer"
    leader = leader_of(members)
    troubles = [trouble for member in members for trouble in _troubles(member, leader)] + _other_lists(members, leader)
    early = [trouble for member in members for trouble in _deleted_early(member)]
    if leader is None:
        waits = [member["leaderForS"] for member in members if member["leaderId"] is None]
        summary = f"group {group}: nobody leads{_for(max(filter(None, waits), default=None))}, {answering}"
        return Verdict("failed", summary, (*troubles, *early), in_sync=False)
    failures = _failures(leader, members)
    level = "failed" if failures or leader["writeError"] is not None else "degraded" if troubles or early else "ok"
    term = "" if leader["term"] is None else f" in term {leader['term']}"
    summary = f"group {group}: {leader['id']} leads{term}{_for(leader['leaderForS'])}, {answering}"
    return Verdict(level, summary, (*failures, *troubles, *early), in_sync=not failures and not troubles)


def _for(seconds: float | None) -> str:
    return "" if seconds is None else f" for {span(seconds)}"


def _failures(leader: Facts, members: list[Facts]) -> list[str]:
    """Why the group takes no appends, but that its leader cannot write."""
    followers = [member for member in members if member["leaderId"] == leader["id"]]
    able = sum(member["writeError"] is None for member in followers)
    told = f"of {len(members)} members, fewer than a majority,"
    if len(followers) <= len(members) // 2:
        return [f"{len(followers)} {told} take it for the leader"]
    if able <= len(members) // 2:
        return [f"{able} {told} can store an entry"]
    return why_uncommitted(leader["uncommittedForS"])


def _troubles(member: Facts, leader: Facts | None) -> list[str]:
    member_id = member["id"]
    if not member["alive"]:
        return [f"{member_id} does not answer: {member['error']}"]
    troubles = []
    if member["error"]:
        troubles.append(f"{member_id}: {member['error']}")
    if member["writeError"] is not None:
        troubles.append(f"{member_id} cannot write: {member['writeError']}")
    troubles += [f"{member_id}: {told}" for told in member.get("rivals") or ()]
    if member.get("damage"):
        troubles.append(see(f"{member_id}: {member['damage']}", Page.MEMBER_DAMAGED))
    if member.get("notToLead"):
        troubles.append(f"{member_id} must not lead: {member['notToLead']}")
    else:
        troubles += [f"{member_id} {why}" for why in why_unnoted(member.get("formerMembers"))]
    if leader is None or member is leader:
        return troubles
    if member["role"] == "LEADER":
        troubles.append(f"{member_id} also says that it leads")
    elif member["role"] == "CANDIDATE":
        troubles.append(f"{member_id} knows no leader{_why_outside(member, leader)}")
    if leader["committedIndex"] is not None and member["endIndex"] is not None:
        lag = leader["committedIndex"] - member["endIndex"]
        if lag > LAG_MAX:
            troubles.append(f"{member_id} lags behind by {lag} entries")
        elif member["endIndex"] == -1 < leader["committedIndex"]:
            troubles.append(f"{member_id} has none of what {leader['id']} has committed: it is new, or was emptied")
    return troubles


def _deleted_early(member: Facts) -> list[str]:
    """What no member need lack for that."""
    deleted_s = member.get("deletedEarlyS")
    if deleted_s is None or deleted_s > DELETED_RECENTLY_S:
        return []
    told = f"{member['id']} deleted entries before they had expired, the last {deleted_s} s ago, for lack of room"
    return [see(f"{told}. Make room", Page.DELETED_EARLY)]


def _why_outside(member: Facts, leader: Facts) -> str:
    """A leader of rmqha's steps down for a higher term; one of Java's goes on in its own."""
    if member["term"] is None or leader["term"] is None or member["term"] <= leader["term"]:
        return ""
    return see(
        f": it is in term {member['term']}, and {leader['id']} leads in term {leader['term']}. If that stays so, have "
        "another member lead (rmqha dledger transfer)",
        Page.NO_LEADER,
    )


def _other_lists(members: list[Facts], leader: Facts | None) -> list[str]:
    """Whose list of members is another than the leader's, or than most, by ids or addresses: majorities go by it."""
    tellers = [member for member in members if member.get("addresses")]
    lists = Counter(tuple(sorted(member["addresses"].items())) for member in tellers)
    if len(lists) <= 1:
        return []
    if leader in tellers:
        whose, expected = f"the leader {leader['id']}", leader["addresses"]
    else:
        whose, expected = "most", dict(lists.most_common(1)[0][0])
    told = "correct its list (dLegerPeers, --peers), and start it again"
    return [
        see(f"{member['id']} {its}, and {whose} {own}: {told}", Page.OTHER_LIST)
        for member in tellers
        if not member.get("notToLead")
        for its, own in differences(member["addresses"], expected)
    ]


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
