"""Derives the verdict of a broker on a DLedger group from its status document. Pure.

In the status document it has, in place of ``ha`` and ``ha_client``:

    role             LEADER, FOLLOWER or CANDIDATE
    broker_id        as clients know it: 0 while it is master
    is_master        whether it takes messages: a leader does once all that it inherited is committed and dispatched
    tables           whose topics, groups and offsets this broker has: term was_master for_ms leader_id (TablesOrigin)
    dledger          what `rmqha dledger status` shows of a member, and
        group id leader peers connected master diverged
        members          how it sees each other member: id connected since_s heard_s reason lacks stuck_s (MemberView)
        member_lists     what is wrong with the lists of members that it, or as a leader knows another, runs with
        lack_of_room     why it stores no more at present; empty if it does
        lacks            committed entries of its leader's that a follower lacks, as far as it knows
        silent_after_s   who leads, or asks for votes, hears of the others more often
"""

from collections.abc import Sequence
from typing import Any, Final

from rmqha.cli.pages import Page, refusal_of, see, waits_for
from rmqha.cli.span import span

Facts = dict[str, Any]
LAG_MAX: Final = 1000
"""Entries that a member may lack; DLedger hands leadership over to one that lacks fewer."""

_STUCK_MIN_S: Final = 5
_UNCOMMITTED_MIN_S: Final = 3
"""By then those who wait are told that no majority has it, if nothing else is configured."""


def judge_member(facts: Facts, name: str) -> tuple[str, str, list[str], bool]:
    """Return level, summary, reasons, and whether it is in sync."""
    failures, troubles = _failures(facts), _troubles(facts)
    level = "failed" if failures else "degraded" if troubles else "ok"
    member = facts["dledger"]
    since = _since(member) if member["leader"] else ""
    known_to = f"leader {member['leader'] or '(none)'}{since}, term {member.get('term', '?')}"
    summary = f"{name}, member {member['id']} of group {member['group']}, {known_to}"
    reasons = failures + troubles
    uncommitted = member.get("end_index", 0) - member.get("committed_index", 0)
    return level, summary, reasons, not reasons and uncommitted <= LAG_MAX and not _somebody_has_none(member)


def _somebody_has_none(member: Facts) -> bool:
    """Whether it, or as a leader knows another, has none of what is committed, however little that is."""
    committed = member.get("committed_index", -1) - max(member.get("begin_index", 0), 0) + 1
    others = any((view["lacks"] or 0) >= committed > 0 for view in member.get("members", ()))
    return others or (member.get("end_index") == -1 and member.get("lacks", 0) > 0)


def _since(member: Facts) -> str:
    return "" if member.get("leader_for_s") is None else f" for {span(member['leader_for_s'])}"


def _failures(facts: Facts) -> list[str]:
    """Why it does not do what it is there for."""
    member, away = facts["dledger"], len(_away(facts))
    members = len(member["peers"])
    passing = _passing(facts)
    refusal = member.get("write_error") if passing or not facts.get("write_refusal") else refusal_of(facts)
    failures = [f"it cannot write: {refusal}"] if refusal and refusal not in passing else []
    if member.get("diverged"):
        failures = [f"it follows nobody any more: {member['diverged']}"]
    is_mute = facts["role"] == "CANDIDATE" and bool(failures)  # one whose term cannot be saved asks nobody
    if member["leader"] is None:
        told = f"nobody leads the group{_since(member)}: it takes no messages"
        if member.get("member_lists") or is_mute:
            told = f"it knows no leader{_since(member)}, though others may: it takes no messages"
        failures.append(see(told, Page.OTHER_LIST if member.get("member_lists") else Page.NO_LEADER))
    if facts["role"] != "FOLLOWER" and not is_mute and members - away <= members // 2:
        failures.append(see(f"a majority is missing: {away} of {members} members are away", Page.NO_LEADER))
    return failures + why_uncommitted(member.get("uncommitted_for_s"))


def _passing(facts: Facts) -> list[str]:
    """What keeps a follower from storing more until it has passed: its leader has the entries."""
    if facts["role"] != "FOLLOWER" or facts.get("needs_restart"):
        return []
    return [lack for lack in (facts.get("write_refusal"), facts["dledger"].get("lack_of_room")) if lack]


def why_uncommitted(seconds: int | None) -> list[str]:
    """Return what is wrong if a leader's entries have waited for a majority for so long."""
    if seconds is None or seconds < _UNCOMMITTED_MIN_S:
        return []
    return [f"what was sent waits for a majority to store it, and nothing was committed for {span(seconds)}"]


def why_unnoted(former: Sequence[str] | None) -> list[str]:
    """Return what is wrong with a member that has other members noted: of these its next start goes out."""
    if former is None:
        return []
    if not former:
        return ["has not noted yet who the members are: its next start would go out from any"]
    return [f"has not noted the present members yet, but still has {', '.join(former)}"]


def _troubles(facts: Facts) -> list[str]:
    """What else is wrong."""
    member = facts["dledger"]
    troubles = [see(f"{peer} {why}", Page.MEMBER_AWAY) for peer, why in _away(facts).items()]
    troubles += [waits_for(lack, Page.MEMBER_FULL) for lack in _passing(facts)[:1]]
    if facts["role"] == "LEADER" and not facts["is_master"]:
        troubles.append("it leads, but is not master yet: what it inherited is not all committed and dispatched")
    for view in member.get("members", ()):
        if _is_behind(view):
            stuck = f", and has taken none for {span(view['stuck_s'])}" if view["stuck_s"] else ""
            troubles.append(f"{view['id']} lacks {view['lacks']:,} committed entries{stuck}: see its own status")
    if facts["role"] == "FOLLOWER" and not member["master"] and not facts.get("not_learned"):
        address = f"the address of its leader's broker ({member['leader']})"
        why = f"If it is rmqha's, dLegerPeers here may name another member's address for {member['leader']}"
        told = f"{address} is unknown: topics are not taken over. {why}; of RocketMQ's brokers namesrvAddr tells it"
        troubles.append(told)
    troubles += facts.get("not_learned", ())
    lists = member.get("member_lists", ())
    troubles += lists or [f"it {why}" for why in why_unnoted(member.get("former_members"))]
    if member.get("lacks", 0) > LAG_MAX:
        troubles.append(f"it lacks {member['lacks']:,} committed entries of its leader's")
    return troubles


def members_in_sync(facts: Facts) -> tuple[int, int]:
    """Of the other members, as a leader sees them, how many have what is committed, and how many there are."""
    away = _away(facts)
    views = facts["dledger"].get("members", ())
    good = [view for view in views if view["id"] not in away and not _is_behind(view)]
    return len(good), len(facts["dledger"]["peers"]) - 1


def _is_behind(view: Facts) -> bool:
    return (view["lacks"] or 0) > LAG_MAX or view["stuck_s"] >= _STUCK_MIN_S


def _away(facts: Facts) -> dict[str, str]:
    """Who does not answer, by id, and since when and why."""
    away: dict[str, str] = {}
    for view in facts["dledger"].get("members", ()):
        if not view["connected"]:
            away[view["id"]] = f"cannot be reached for {span(view['since_s'])}: {view['reason']}"
        elif view["reason"]:
            away[view["id"]] = f"does not answer at {facts['dledger']['peers'][view['id']]}: {view['reason']}"
        elif facts["role"] != "FOLLOWER" and view["heard_s"] > facts["dledger"]["silent_after_s"]:
            away[view["id"]] = f"is connected, but has not answered for {span(view['heard_s'])}"
    return away


def member_lines(facts: Facts) -> list[str]:
    """Return a member's figures, and how it sees the others, one line each."""
    member = facts["dledger"]
    indexes = ("begin", "end", "committed", "flushed")
    shown = [f"{name} {member[f'{name}_index']:,}" for name in indexes if f"{name}_index" in member]
    master = "(itself)" if facts["is_master"] else member["master"] or "(none)"
    away = _away(facts)
    others = [
        "  ".join([f"other    {view['id']}", member["peers"][view["id"]], *_seen(view, away.get(view["id"]))])
        for view in member.get("members", ())
    ]
    return [f"member   {'  '.join([*shown, f'master {master}'])}", *others]


def _seen(view: Facts, away: str | None) -> list[str]:
    lacks = [] if view["lacks"] is None else [f"lacks {view['lacks']:,}"]
    return [away or f"connected for {span(view['since_s'])}", *lacks]
