"""From what a broker says of itself to a verdict an operator can act on. Pure: no network, no clock.

A broker of ours answers GET_BROKER_RUNTIME_INFO with RocketMQ's table and, in it, one more entry ``rmqhaStatus``:
a JSON object with the facts below. Times are seconds, offsets and sizes bytes; None means "does not apply".

    version broker_name broker_cluster_name broker_id role address flush_disk_type in_sync_replicas up_s
    min_offset max_offset flushed_offset confirm_offset dispatched_offset
    dispatch_behind_s  for how long at least something has waited for dispatch that consumers may see
    write_refusal    why sends are refused (write error, disk full, too few replicas), or None; a slave's own role is
                     no reason here
    not_send_ok      of the last while of sends that were stored and answered otherwise: for_s, last_s_ago, and answers,
                     how many by their status; or None
    needs_restart    whether a write, a flush or the dispatch failed for good: nothing heals that in this process
    lost_queues      which consume queues lack files, or have damaged ones, and are built again, in a sentence, or None
    stopped_queues   which consume queues end before a record that does not fit, and what to do, in a sentence, or None
    damaged_records  which records of the log are not what was stored, as far as pulls met them, in a sentence, or None
    dropped          which whole records the start cut from the log, in a sentence, or None
    damaged_halves   how many half messages cannot be committed, as they are damaged, in a sentence, or None
    discarded_halves  half messages that nobody ended, and nobody is asked about any more: count, last_s_ago; or None
    damaged_marks    how many marks of ended transactions could not be read, in a sentence, or None
    undeliverable    how many delayed messages were left out, as they can never be delivered, in a sentence, or None
    hidden_messages  messages in the log whose queues have begun anew since: how many, and of ten queues; or None
    deleted_early    segments of the log deleted before they had expired: segments, last_s_ago; or None
    topics_refused   topics for which there was no room: count, last_s_ago, reason; or None
    index_trouble    why messages that come now are not found by key, in a sentence, or None
    not_saved        why topics, groups and offsets that have changed are not on the disk, in a sentence, or None
    lost_tables      which of these files were no tables at the start, nor their backups, in sentences, or None
    no_inodes        where no file can be made, as no inode is free, in a sentence, or None
    disk_unknown     why disk_used_percent is None, in a sentence, or None
    disk_used_percent disk_looked_s_ago
    store            storePathRootDir and storePathCommitLog, absolute
    mapped_file_size_commit_log
    group_clashes    what does not belong together among this broker, its master and its slaves, a sentence each
    slave_troubles   which slaves take nothing at present, and why, as they say themselves, a sentence each
    lacking_slaves   which slaves lack what this log begins with, as they say themselves, a sentence each
    shared_ids       of each brokerId that several of its slaves have: where these listen
    put_p99_ms       of the puts of the last ten seconds, from their append to their answer; None: there were none
    requests_broken  requests that met a bug in the broker: each is in its log as request.broken, with its traceback
    catch_up         of each of a master's haPeers: peer, state, end, reason (see PeerState)
    certificate      that ends first: path, expires_in_s; early_certificate: not valid yet: path, begins_in_s; or None
    crowded          why clients were turned away in the last ten minutes, in a sentence, or None
    accounts_kept    why what plain_acl.yml holds now does not count, or None; credentials_kept: of aclCredentialsPath
    certificates_kept  why this process goes by its certificates of before a SIGHUP that was to renew them; or None
    doubt            what messages that are sent now may do harm to, in a sentence, or None
    peers_unheard    which of its haPeers have not shown what they hold, though as many slaves follow, a sentence each
    unnamed_slaves   which slaves follow a master that its haPeers leaves out, a sentence each: a hint, no reason
    ha               asdict(HAServiceInfo): port, heartbeat_s, connections, connections_broken, refused, departed,
                     push2_slave_max_offset, live_slaves, below_needed_s, replicated_offset, proven_offset, refusals
    ha_client        asdict(HAClientInfo) on a slave, else None
    circle           that the broker which a slave follows follows the slave, in a sentence, or None
    log_master       on a slave: where the master takes clients from which its log comes, as that one says; or None
    not_learned      what a slave has not from its master beside the log, and why, a sentence each
    begins_later     that a slave's log begins later than its master's, and what it lacks is not expired: bytes,
                     expires_in_s; or None
    tables_not_taken  that a slave has not had its master's tables since its store lacks them, in a sentence, or None
    topics_awaited   whether a slave's log has told of a topic that no table of its master had yet, for a second or two
    not_registered   name servers that do not know this broker, a sentence each; of a DLedger member, too
    place_taken      name servers where another broker registers in this one's place, a sentence each; likewise

A member of a DLedger group has ``dledger`` in place of what is a pair's: see rmqha/cli/dledger_verdict.py.

While a broker starts, there are only the names, the role, and

    starting         what is being done, done_bytes and total_bytes of it (0: nobody knows), for_s

A RocketMQ broker answers without that entry; then less can be said.
"""

import json
from dataclasses import dataclass, replace
from math import inf
from typing import Any, Final

from rmqha.cli.dledger_verdict import judge_member
from rmqha.cli.later_begin import begins_later
from rmqha.cli.pages import OTHER_BYTES, Page, ended_at_no_record, page_of_trouble, refusal_of, see, waits_for
from rmqha.cli.recent_troubles import deleted_early, discarded, seen_late, topics_refused
from rmqha.cli.span import span
from rmqha.cli.turned_away import turned_away
from rmqha.codec.codes import STATUS_KEY
from rmqha.replication.log_master import ANOTHER_MASTER
from rmqha.replication.slave_session import NO_RECORD

IN_SYNC: Final = "in-sync"
_DEPARTED_TOLD_MAX: Final = 3
_ONE_SLAVE: Final = "they share an address or a brokerId, and may be one slave's"
_UNFIT_PEER: Final = "unfit"
_TROUBLES: Final = ("lost_queues", "stopped_queues", "index_trouble", "not_saved", "crowded")
_NOT_WHOLE: Final = ("damaged_records", "not_saved")
_TROUBLE_PAGES: Final = {
    "damaged_records": Page.DAMAGED,
    "dropped": Page.DROPPED,
    "damaged_halves": Page.DAMAGED_HALF,
    "damaged_marks": Page.DAMAGED_MARK,
    "undeliverable": Page.UNDELIVERABLE,
    "lost_tables": Page.LOST_TABLES,
    "no_inodes": Page.NO_INODES,
    "disk_unknown": Page.WRITE_FAILED,
}
_KEPT: Final = "at SIGHUP no certificate was read again, and those of before go on to be used"
_ACCOUNTS: Final = ("accounts_kept", "credentials_kept")
_ACCOUNTS_KEPT: Final = "the file was not read again, what it was before counts, and no start would succeed: {}"
_NOT_SEND_OK_RECENTLY_S: Final = 10.0
_NO_SLAVES: Final = "SLAVE_NOT_AVAILABLE"
_EXPIRES_SOON_S: Final = 3 * 24 * 3600
_SLAVE_GOOD: Final = ("transfer",)
_SLAVE_FAILED: Final = ("ahead", "below-min", "diverged", "failed", "misconfigured")
_WITHOUT_ROOM: Final = "disk-full"
_FAILED: Final = "failed"
_SLAVE_ADVICE: Final = {
    "ahead": "it holds more than its master, and may differ from it before that, too; nothing is cut",
    "below-min": "the master no longer has what comes next here; this slave must be rebuilt from an empty store",
    "diverged": "its log differs from the master's; replication has stopped. Find out which one is right",
    _WITHOUT_ROOM: "it has no room for more of its master's log, and goes on when there is some",
    _FAILED: "its own store failed, as its log says. Repair the disk, then restart this broker",
    "no-master": "no master's address is known; set haMasterAddress, or start a master of this brokerName with the "
    "same namesrvAddr",
}
_SLAVE_PAGES: Final = {
    "ahead": Page.AHEAD,
    "below-min": Page.BELOW_MIN,
    "diverged": Page.DIVERGED,
    _WITHOUT_ROOM: Page.SLAVE_FULL,
    _FAILED: Page.WRITE_FAILED,
    "misconfigured": Page.MIXED_UP,
}
"""All other states are of one that waits for its master."""
_REFUSED_ACCOUNT: Final = "AclException"
_NEEDS_ACCOUNT: Final = (
    "Correct the account in the file of aclCredentialsPath (it is read again; without that key set it)"
)
_HALTS_AFTER_S: Final = 5.0
_UNDISPATCHED_MAX: Final = 1 << 20
_LATE_AFTER_HEARTBEATS: Final = 2


@dataclass(frozen=True)
class Verdict:
    """``level`` is ok, degraded or failed; ``in_sync`` is what ``--wait in-sync`` waits for."""

    level: str
    summary: str
    reasons: tuple[str, ...]
    in_sync: bool


def read_status(table: dict[str, str]) -> dict[str, Any]:
    """Return the facts of one broker, ours or RocketMQ's, from its runtime table. Raises TypeError, ValueError."""
    if STATUS_KEY in table:
        facts = json.loads(table[STATUS_KEY])
        if not isinstance(facts, dict):
            raise TypeError("its status is no JSON object")
        return facts
    return {
        "version": f"RocketMQ {table.get('brokerVersionDesc', 'of unknown version')}",
        "min_offset": _number(table.get("commitLogMinOffset")),
        "max_offset": _number(table.get("commitLogMaxOffset")),
        "disk_used_percent": _percent(table.get("commitLogDiskRatio")),
        "unflushed": table.get("remainHowManyDataToFlush"),
        "unsent_dispatch": _number(table.get("dispatchBehindBytes")),
    }


def judge(facts: dict[str, Any]) -> Verdict:
    """Decide how the broker is."""
    if "role" not in facts:
        return Verdict("ok", f"{facts['version']}: answers; it tells nothing about its replicas", (), in_sync=False)
    name = f"{facts['role']} {facts['broker_name']} (id {facts['broker_id']})"
    if facts.get("starting"):
        return _judge_starting(facts["starting"], name)
    verdict = _judge_by_kind(facts, name)
    sentences = filter(None, [facts.get(name) for name in _TROUBLES])
    troubles = [
        *_bugs_met(facts),
        *sentences,
        *deleted_early(facts),
        *discarded(facts),
        *_not_send_ok(facts),
        *topics_refused(facts),
        *seen_late(facts),
        *_expired(facts),
        *_early(facts),
    ]
    troubles += [see(facts[name], page) for name, page in _TROUBLE_PAGES.items() if facts.get(name)]
    troubles += [see(f"{_KEPT}: {kept}", Page.CERTIFICATES) for kept in filter(None, [facts.get("certificates_kept")])]
    troubles += [see(_ACCOUNTS_KEPT.format(facts[name]), Page.ACCOUNTS) for name in _ACCOUNTS if facts.get(name)]
    troubles += [see(told, Page.NOT_REGISTERED) for told in facts.get("not_registered", ())]
    troubles += [see(taken, Page.MIXED_UP) for taken in facts.get("place_taken", ())]
    if troubles:
        level = "degraded" if verdict.level == "ok" else verdict.level
        in_sync = verdict.in_sync and not any(facts.get(name) for name in _NOT_WHOLE)
        return replace(verdict, level=level, reasons=(*verdict.reasons, *troubles), in_sync=in_sync)
    return verdict


def _judge_by_kind(facts: dict[str, Any], name: str) -> Verdict:
    if "dledger" in facts:
        level, summary, reasons, in_sync = judge_member(facts, name)
        return Verdict(level, summary, tuple(reasons), in_sync=in_sync)
    return _judge_slave(facts, name) if facts.get("ha_client") else _judge_master(facts, name)


def _bugs_met(facts: dict[str, Any]) -> list[str]:
    met = (
        (facts.get("requests_broken"), "requests", "request.broken"),
        (facts.get("ha", {}).get("connections_broken"), "slaves' connections", "ha_connection.broken"),
    )
    told = "{} {} met a bug in this broker: see {} in its log, and please report it"
    return [told.format(count, what, event) for count, what, event in met if count]


def _not_send_ok(facts: dict[str, Any]) -> list[str]:
    """What became of the last seconds' sends. That there were too few slaves is over once there are enough."""
    unsafe = facts.get("not_send_ok")
    if not unsafe or unsafe["last_s_ago"] > _NOT_SEND_OK_RECENTLY_S:
        return []
    if "ha" in facts and unsafe["answers"].keys() == {_NO_SLAVES}:
        slaves, needed = slaves_in_sync(facts)
        if slaves >= needed:
            return []
    return [see(f"some sends are not answered SEND_OK{not_send_ok(unsafe)}", Page.NOT_SEND_OK)]


def not_send_ok(unsafe: dict[str, Any]) -> str:
    """For how long, until when, and how many of each."""
    counted = ", ".join(f"{status} {count:,}" for status, count in unsafe["answers"].items())
    return f" for {span(unsafe['for_s'])}, the last {unsafe['last_s_ago']:.0f} s ago: {counted}"


def _early(facts: dict[str, Any]) -> list[str]:
    told = "the certificate {} is valid in {} only: nobody trusts it"
    early = filter(None, [facts.get("early_certificate")])
    return [see(told.format(one["path"], span(one["begins_in_s"])), Page.CERTIFICATES) for one in early]


def _expired(facts: dict[str, Any]) -> list[str]:
    certificate = facts.get("certificate")
    if not certificate or certificate["expires_in_s"] > _EXPIRES_SOON_S:
        return []
    days = abs(certificate["expires_in_s"]) / 86_400
    told = f"ends in {days:.1f} days" if certificate["expires_in_s"] > 0 else f"ended {days:.1f} days ago"
    return [see(f"the certificate {certificate['path']} {told}: renew it, then send SIGHUP", Page.CERTIFICATES)]


def _judge_starting(starting: dict[str, Any], name: str) -> Verdict:
    done_bytes, total_bytes = starting["done_bytes"], starting["total_bytes"]
    of = f" of {total_bytes:,}" if total_bytes else ""
    counted = f", {done_bytes:,}{of} bytes" if done_bytes or total_bytes else ""
    summary = f"{name}, recovering{counted}"
    reason = f"it serves nobody yet: {starting['what']}, {starting['for_s']:.0f} s after its start"
    return Verdict("degraded", summary, (reason,), in_sync=False)


def slaves_in_sync(facts: dict[str, Any]) -> tuple[int, int]:
    """How many distinct slaves are, and how many a send needs."""
    needed = facts["in_sync_replicas"] - 1 if facts["role"] == "SYNC_MASTER" else 0
    current = _connections_in_sync(facts)
    return min(current, facts["ha"].get("live_slaves", current)), needed


def _since(facts: dict[str, Any]) -> str:
    below_s = facts["ha"].get("below_needed_s")
    return "" if below_s is None else f": for {span(below_s)} fewer have been connected"


def slaves_of(facts: dict[str, Any]) -> list[dict[str, Any]]:
    """What is connected to a master's HA port, but for strangers: what has neither reported nor said who it is."""
    connections = (facts.get("ha") or {}).get("connections", ())
    return [one for one in connections if one["slave_ack_offset"] >= 0 or one.get("name")]


def _connections_in_sync(facts: dict[str, Any]) -> int:
    return sum(1 for connection in slaves_of(facts) if connection["state"] == IN_SYNC)


def _judge_master(facts: dict[str, Any], name: str) -> Verdict:
    (slaves, needed), current = slaves_in_sync(facts), _connections_in_sync(facts)
    connections = slaves_of(facts)
    reasons, is_one_log = [], True
    if facts.get("write_refusal"):
        reasons.append(f"sends are refused: {refusal_of(facts)}")
    else:
        unfit = [told["reason"] for told in facts.get("catch_up", ()) if told["state"] == _UNFIT_PEER]
        reasons += [see(why, Page.DIVERGED if OTHER_BYTES in why else Page.MIXED_UP) for why in unfit]
        reasons += [see(doubt, Page.AHEAD) for doubt in filter(None, [facts.get("doubt")])]
        is_one_log = not reasons
        reasons += [see(told, Page.PEER_UNHEARD) for told in facts.get("peers_unheard", ())]
    if slaves < needed:
        reasons.append(
            see(f"{slaves} of the {needed} slaves that a send needs are in sync{_since(facts)}", Page.NOT_SEND_OK)
        )
        if slaves < current:
            reasons.append(see(f"{current} connections count as {slaves}: {_ONE_SLAVE}", Page.TUNNEL))
        reasons += [f"{named(gone)} left {gone['last_s_ago']:.0f} s ago: {gone['reason']}" for gone in _latest(facts)]
    reasons += [_lagging(connection) for connection in connections if connection["state"] != IN_SYNC]
    reasons += [
        _silent(facts, one, named(one)) for one in connections if one["state"] == IN_SYNC and _is_late(facts, one)
    ]
    reasons += [see(told, page_of_trouble(told)) for told in facts.get("slave_troubles", ())]
    reasons += [see(told, Page.DELETED_EARLY) for told in facts.get("lacking_slaves", ())]
    reasons += _clashes(facts)
    reasons += turned_away(facts["ha"]["refused"])
    level = "failed" if facts.get("write_refusal") else "degraded" if reasons else "ok"
    summary = f"{name}, slaves in sync: {slaves} of {len(connections)} connected, {needed} needed for SEND_OK"
    if strangers := len(facts["ha"]["connections"]) - len(connections):
        summary += f" ({strangers} more on the HA port: they have said nothing yet)"
    in_sync = not facts.get("write_refusal") and slaves >= max(needed, 1) and current == len(connections)
    is_whole = is_one_log and not facts.get("lacking_slaves")
    return Verdict(level, summary, tuple(reasons), in_sync=in_sync and is_whole)


def _lagging(connection: dict[str, Any]) -> str:
    behind = f"{named(connection)} lags behind by {connection['lag_bytes']} bytes"
    if connection["rate_bytes_s"] or connection["lag_s"] < _HALTS_AFTER_S:
        return behind
    return f"{behind} for {connection['lag_s']:.0f} s, and takes nothing: is its process stopped, or its disk stuck?"


def _clashes(facts: dict[str, Any]) -> list[str]:
    return [see(clash, Page.MIXED_UP) for clash in facts.get("group_clashes", ())]


def _is_late(facts: dict[str, Any], peer: dict[str, Any]) -> bool:
    """Whether nothing has come from this peer for longer than between its heartbeats."""
    return bool((peer.get("heard_s_ago") or 0.0) > _LATE_AFTER_HEARTBEATS * facts["ha"].get("heartbeat_s", inf))


def _silent(facts: dict[str, Any], peer: dict[str, Any], who: str) -> str:
    due = f"though it is to be heard every {facts['ha']['heartbeat_s']:g} s (haSendHeartbeatInterval)"
    told = f"{who} was last heard {peer['heard_s_ago']:.0f} s ago, {due}: is its process stopped, or the network away?"
    return see(told, Page.SILENT)


def _latest(facts: dict[str, Any]) -> list[dict[str, Any]]:
    """The slaves that left last."""
    departed: list[dict[str, Any]] = facts["ha"].get("departed", [])
    return departed[-_DEPARTED_TOLD_MAX:]


def named(replica: dict[str, Any]) -> str:
    """A replica's address, with the name it gave itself if it did."""
    return f"{replica['peer']} ({replica['name']})" if replica.get("name") else str(replica["peer"])


def page_of(state: str) -> Page:
    """What to read about a slave in this state."""
    return _SLAVE_PAGES.get(state, Page.SLAVE_WAITS)


def _judge_slave(facts: dict[str, Any], name: str) -> Verdict:
    client = facts["ha_client"]
    state = client["state"]
    reasons, waits_for_room = [], bool(facts.get("write_refusal") and not facts.get("needs_restart"))
    if waits_for_room:
        reasons.append(waits_for(facts["write_refusal"], Page.SLAVE_FULL))
    elif facts.get("write_refusal"):
        reasons.append(f"it cannot write: {refusal_of(facts)}")
    is_told = facts.get("write_refusal") and state == (_WITHOUT_ROOM if waits_for_room else _FAILED)
    if state not in _SLAVE_GOOD and not is_told:
        told = _SLAVE_ADVICE.get(state) or client["last_error"] or "not connected to its master yet"
        is_no_record, told_of = told.startswith(NO_RECORD), f"{state}: {told}"
        reasons.append(ended_at_no_record(told_of) if is_no_record else see(told_of, page_of(state)))
    reasons += [see(told, Page.MIXED_UP) for told in filter(None, [facts.get("circle")])]
    failed = facts.get("circle") or facts.get("needs_restart") or state in _SLAVE_FAILED
    behind = client["received_offset"] - client["durable_offset"]
    if state not in _SLAVE_FAILED:  # its master is not asked any more
        reasons += [_not_learned(told) for told in facts.get("not_learned", ())]
    lacks_tables = facts.get("topics_awaited") or facts.get("tables_not_taken")
    reasons += [see(told, Page.DELETED_EARLY) for told in filter(None, [begins_later(facts)])]
    is_shown = facts["confirm_offset"] - facts["dispatched_offset"] <= _UNDISPATCHED_MAX
    in_sync = is_shown and not (reasons or failed or behind or lacks_tables)
    reasons += [_silent(facts, client, "its master")] if state in _SLAVE_GOOD and _is_late(facts, client) else []
    reasons += _clashes(facts)
    level = "failed" if failed else "degraded" if reasons else "ok"
    return Verdict(level, f"{name}, {state} from {client['master']}", tuple(reasons), in_sync=in_sync)


def _not_learned(told: str) -> str:
    if _REFUSED_ACCOUNT not in told:
        return see(told, Page.MIXED_UP if ANOTHER_MASTER in told else Page.SLAVE_WAITS)
    return see(f"{told}. {_NEEDS_ACCOUNT}", Page.ACCOUNTS)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.lstrip("-").isdigit() else None


def _percent(text: str | None) -> float | None:
    try:
        return round(float(text) * 100, 1) if text and float(text) >= 0 else None  # -1: it cannot tell
    except ValueError:
        return None
