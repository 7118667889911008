"""Derives the verdict of a broker on a DLedger group from its status document. Pure.

In the status document it has, in place of ``ha`` and ``ha_client``:

    role             LEADER, FOLLOWER or CANDIDATE
    broker_id        as clients know it: 0 while it is master
    is_master        whether it takes messages: a leader does once all that it inherited is committed and dispatched
    dledger          what `rmqha dledger status` shows of a member, and: group id leader peers connected master diverged
"""

from typing import Any


def judge_member(facts: dict[str, Any], name: str) -> tuple[str, str, list[str], bool]:
    """Return level, summary, reasons, and whether it is in sync."""
    member = facts["dledger"]
    others = len(member["peers"]) - 1
    missing = sorted(set(member["peers"]) - {member["id"], *member["connected"]})
    lacks_majority = len(missing) > others // 2
    failures = [f"it cannot write: {facts['write_refusal']}"] if facts.get("write_refusal") else []
    failures += [f"it follows nobody any more: {member['diverged']}"] if member.get("diverged") else []
    failures += ["nobody leads the group: it takes no messages"] if member["leader"] is None else []
    if facts["role"] == "LEADER" and lacks_majority:
        failures.append(f"a majority is missing: {', '.join(missing)} cannot be reached")
    reasons = list(failures)
    if facts["role"] == "LEADER" and not facts["is_master"]:
        reasons.append("it leads, but is not master yet: what it inherited is not all committed and dispatched")
    if missing and not lacks_majority:
        reasons.append(f"{', '.join(missing)} cannot be reached")
    if facts["role"] == "FOLLOWER" and not member["master"]:
        leader = f"the address of its leader's broker ({member['leader']})"
        reasons.append(f"{leader} is unknown: topics are not taken over. Of RocketMQ's brokers namesrvAddr tells it")
    level = "failed" if failures else "degraded" if reasons else "ok"
    known_to = f"leader {member['leader'] or '(none)'}, term {member['term']}"
    summary = f"{name}, member {member['id']} of group {member['group']}, {known_to}"
    is_level = member["committed_index"] == member["end_index"] == member["flushed_index"]
    return level, summary, reasons, not reasons and is_level


def member_line(facts: dict[str, Any]) -> str:
    """Return a member's figures in one line."""
    member = facts["dledger"]
    indexes = ("begin", "end", "committed", "flushed")
    shown = [f"{name} {member[f'{name}_index']:,}" for name in indexes]
    connected = ", ".join(member["connected"]) or "nobody"
    master = "(itself)" if facts["is_master"] else member["master"] or "(none)"
    return "  ".join([*shown, f"connected to {connected}", f"master {master}"])
