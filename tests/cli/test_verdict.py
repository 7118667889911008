import json
from typing import Any, Final

import pytest

from rmqha.cli.lag_limits import LagLimits, within_limits
from rmqha.cli.pages import Page
from rmqha.cli.status_text import render_status
from rmqha.cli.verdict import judge, read_status
from rmqha.codec.codes import STATUS_KEY
from rmqha.errors import NOT_READ, NOT_WRITABLE, DivergedLogError
from rmqha.replication.slave_session import CorruptStreamError
from tests.cli.facts import connection, master, member, slave, view


@pytest.mark.parametrize(
    ("facts", "level", "in_sync", "reason"),
    [
        (master(connection()), "ok", True, ""),
        (master(), "degraded", False, "0 of the 1 slaves that a send needs are in sync"),
        (master(connection("catch-up")), "degraded", False, "lags behind by 10 bytes"),
        (master(role="ASYNC_MASTER"), "ok", False, ""),
        (master(connection(), role="ASYNC_MASTER"), "ok", True, ""),
        (master(connection(), connection("catch-up")), "degraded", False, "lags behind"),
        (
            master(connection(), write_refusal="fdatasync failed"),
            "failed",
            False,
            "sends are refused: fdatasync failed",
        ),
        (master(connection(), lost_queues="T/0 lost its files"), "degraded", True, "T/0 lost its files"),
        (master(connection(), write_refusal="EIO", lost_queues="T/0 lost"), "failed", False, "T/0 lost"),
        (master(connection(), stopped_queues="T/0 shows nothing"), "degraded", True, "T/0 shows nothing"),
        (master(connection(), index_trouble="no index"), "degraded", True, "no index"),
        (master(connection(), not_saved="disk is full"), "degraded", False, "disk is full"),
        (slave("transfer", not_saved="disk is full"), "degraded", False, "disk is full"),
        (slave("transfer", damaged_records="a record is damaged"), "degraded", False, "a record is damaged"),
        (master(connection(), doubt="a peer holds more"), "degraded", False, "a peer holds more"),
        (master(connection(), not_registered=["name server a:1 is away"]), "degraded", True, "a:1 is away"),
        (slave("transfer"), "ok", True, ""),
        (slave("connecting"), "degraded", False, "not connected"),
        (slave("diverged"), "failed", False, "its log differs"),
        (slave("ahead"), "failed", False, "holds more than its master"),
        (slave("transfer", write_refusal="disk", needs_restart=True), "failed", False, "it cannot write: disk"),
        (slave("disk-full", write_refusal="the disk is too full"), "degraded", False, "passed: the disk is too full"),
    ],
)
def test_the_verdict_follows_from_the_facts(facts: dict[str, Any], level: str, in_sync: bool, reason: str) -> None:
    verdict = judge(facts)
    assert (verdict.level, verdict.in_sync) == (level, in_sync)
    assert reason in " | ".join(verdict.reasons)
    assert bool(verdict.reasons) == (level != "ok")


@pytest.mark.parametrize("facts", [slave("transfer"), master()])
def test_segments_deleted_before_their_time_are_a_trouble_for_an_hour(facts: dict[str, Any]) -> None:
    before = judge(facts)
    recent = judge(facts | {"deleted_early": {"segments": 3, "last_s_ago": 3599.0}})
    assert (recent.level, recent.in_sync) == ("degraded", before.in_sync)
    assert "3 segments of its log were deleted before expiry" in recent.reasons[-1]
    one = judge(facts | {"deleted_early": {"segments": 1, "last_s_ago": 1.0}})
    assert "1 segment of its log was deleted before expiry" in one.reasons[-1]
    assert "'Messages deleted before their time'" in recent.reasons[-1]
    old = facts | {"deleted_early": {"segments": 3, "last_s_ago": 3601.0}}
    assert judge(old) == before
    assert "  deleted  3 unexpired segments, the last 3601 s ago" in render_status(old, judge(old)).splitlines()


@pytest.mark.parametrize("facts", [master(), member()])
def test_half_messages_that_were_discarded_are_a_trouble_for_an_hour(facts: dict[str, Any]) -> None:
    before = judge(facts)
    recent = judge(facts | {"discarded_halves": {"count": 3000, "last_s_ago": 3599.0}})
    assert (recent.level, recent.in_sync) == ("degraded" if before.level == "ok" else before.level, before.in_sync)
    assert recent.reasons[-1].startswith("3,000 half messages were discarded undecided")
    assert str(Page.DISCARDED) in recent.reasons[-1]
    one = judge(facts | {"discarded_halves": {"count": 1, "last_s_ago": 1.0}})
    assert one.reasons[-1].startswith("1 half message was discarded undecided")
    old = facts | {"discarded_halves": {"count": 3, "last_s_ago": 3601.0}}
    assert judge(old) == before
    (line,) = [line for line in render_status(old, judge(old)).splitlines() if line.startswith("  halves   3 were")]
    assert line.endswith(f"the last 3601 s ago: {Page.DISCARDED}")


@pytest.mark.parametrize("facts", [slave("transfer"), master(), member()])
def test_a_store_that_failed_for_good_is_to_be_restarted(facts: dict[str, Any]) -> None:
    told = " | ".join(judge(facts | {"write_refusal": "fdatasync failed", "needs_restart": True}).reasons)
    assert f"fdatasync failed. Repair the disk, then restart this broker; see {Page.WRITE_FAILED}" in told
    passing = " | ".join(judge(facts | {"write_refusal": "the disk is full", "needs_restart": False}).reasons)
    assert f"the disk is full; see {Page.SLAVE_FULL if facts['role'] == 'SLAVE' else Page.NOT_SEND_OK}" in passing
    assert "restart this broker" not in passing, "it goes on by itself"


def test_sends_that_are_not_answered_send_ok_are_a_reason_for_ten_seconds() -> None:
    unsafe = {"for_s": 125.0, "last_s_ago": 9.6, "answers": {"FLUSH_SLAVE_TIMEOUT": 3, "SLAVE_NOT_AVAILABLE": 1_000}}
    verdict = judge(master(connection(), not_send_ok=unsafe))
    told = (
        "some sends are not answered SEND_OK for 2 min, the last 10 s ago: FLUSH_SLAVE_TIMEOUT 3, "
        "SLAVE_NOT_AVAILABLE 1,000"
    )
    assert (verdict.level, verdict.in_sync, verdict.reasons) == ("degraded", True, (f"{told}; see {Page.NOT_SEND_OK}",))
    assert judge(master(connection(), not_send_ok=unsafe | {"last_s_ago": 10.1})).level == "ok"
    alone = unsafe | {"answers": {"SLAVE_NOT_AVAILABLE": 7}}
    assert judge(master(connection(), not_send_ok=alone)).level == "ok", "a slave is there again"
    assert "SLAVE_NOT_AVAILABLE 7" in judge(master(not_send_ok=alone)).reasons[-1]
    late = unsafe | {"answers": {"OS_PAGECACHE_BUSY": 1}}
    assert judge(member() | {"not_send_ok": late}).level == "degraded"


def test_clients_that_were_turned_away_make_it_degraded() -> None:
    verdict = judge(master(connection(), crowded="1 connection was turned away"))
    assert (verdict.level, verdict.reasons) == ("degraded", ("1 connection was turned away",))


def stopped_at(error: CorruptStreamError) -> dict[str, Any]:
    """A slave that has met it, and waits."""
    facts = slave("waiting")
    return facts | {"ha_client": facts["ha_client"] | {"last_error": str(error)}}


@pytest.mark.parametrize(
    ("facts", "page"),
    [
        (master(), Page.NOT_SEND_OK),
        (master(write_refusal="disk is full"), Page.NOT_SEND_OK),
        (master(group_clashes=["b is no slave of a"]), Page.MIXED_UP),
        (master(connection(), doubt="this log began empty"), Page.AHEAD),
        (master(connection(), write_refusal="b:1 of haPeers holds messages beyond"), Page.PEER_HOLDS_MORE),
        (master(connection(), write_refusal="b:1 holds messages beyond this log's end, 7: x"), Page.PEER_HOLDS_MORE),
        (master(refused=("slave-ahead", "it holds more")), Page.AHEAD),
        (master(refused=("slave-below-min", "it must be rebuilt")), Page.BELOW_MIN),
        (master(refused=("stranger", "not a slave")), Page.WRONG_PORT),
        (master(refused=("not-allowed", "c is in none of the networks of haAllow")), Page.SLAVE_WAITS),
        (master(refused=("untrusted", "the certificate of c is for d")), Page.CERTIFICATES),
        (master(connection(), peers_unheard=["b:1 of haPeers does not show what it holds"]), Page.PEER_UNHEARD),
        (master(connection(), certificates_kept="TLS: /a.key cannot be used"), Page.CERTIFICATES),
        (master(connection(), accounts_kept="plain_acl.yml:7: no YAML"), Page.ACCOUNTS),
        (slave("transfer", credentials_kept="/a.yml: Permission denied"), Page.ACCOUNTS),
        (slave("transfer", circle="b follows this one"), Page.MIXED_UP),
        (slave("transfer", begins_later={"bytes": 7, "expires_in_s": 60.0}), Page.DELETED_EARLY),
        (slave("ahead"), Page.AHEAD),
        (slave("below-min"), Page.BELOW_MIN),
        (slave("diverged"), Page.DIVERGED),
        (master(connection(), damaged_records="a record is damaged"), Page.DAMAGED),
        (master(connection(), damaged_halves="a half message is damaged"), Page.DAMAGED_HALF),
        (master(connection(), damaged_marks="a mark could not be read"), Page.DAMAGED_MARK),
        (master(connection(), no_inodes="no inode is free on the file system of /a"), Page.NO_INODES),
        (master(connection(), not_registered=["name server a:1 is away"]), Page.NOT_REGISTERED),
        (master(connection(), disk_unknown="how full the disk is cannot be read: gone"), Page.WRITE_FAILED),
        (master(connection(), undeliverable="1 delayed message was left out"), Page.UNDELIVERABLE),
        (master(connection(), write_refusal="corrupt log at physical offset 5: x", needs_restart=True), Page.DAMAGED),
        (master(connection(), slave_troubles=["a/1 takes nothing"]), Page.SLAVE_FULL),
        (master(connection(), lacking_slaves=["a/1 lacks the first 7 bytes of this log"]), Page.DELETED_EARLY),
        (master(connection(), slave_troubles=[f"a/1 says why: {NOT_WRITABLE}: pwrite"]), Page.WRITE_FAILED),
        (master(connection(), slave_troubles=[f"a/1 says why: {DivergedLogError(8, 'x')}"]), Page.DIVERGED),
        (slave("disk-full"), Page.SLAVE_FULL),
        (slave("disk-full", write_refusal="the disk is too full"), Page.SLAVE_FULL),
        (slave("failed"), Page.WRITE_FAILED),
        (slave("misconfigured"), Page.MIXED_UP),
        (slave("waiting"), Page.SLAVE_WAITS),
        (stopped_at(CorruptStreamError(7, "BODYCRC")), Page.DAMAGED),
        (stopped_at(CorruptStreamError(7, f"an inner batch, {NOT_READ}")), Page.ROCKETMQ_5),
        (slave("transfer", not_learned=["no topics"]), Page.SLAVE_WAITS),
        (slave("transfer", not_learned=["no topics: AclException: no such account"]), Page.ACCOUNTS),
        (member(leader=None), Page.NO_LEADER),
    ],
)
def test_a_reason_names_the_page_that_says_what_to_do(facts: dict[str, Any], page: Page) -> None:
    if isinstance(facts.get("refused"), tuple):
        reason, message = facts.pop("refused")
        facts["ha"]["refused"] = [{"address": "c", "reason": reason, "message": message, "last_s_ago": 1.0, "count": 2}]
    assert judge(facts).reasons[-1].endswith(f"; see {page}")


def test_a_slave_whose_store_failed_has_one_reason() -> None:
    """It had three: the second named a key of the JSON, the third was an answer of its master's start, minutes ago."""
    refusal = f"{NOT_WRITABLE}: pwrite failed on /s/commitlog/0: Read-only file system (errno 30)"
    facts = slave("failed", write_refusal=refusal, needs_restart=True, not_learned=["the broker is starting"])
    verdict = judge(facts)
    (reason,) = verdict.reasons
    assert (verdict.level, reason.startswith(f"it cannot write: {refusal}")) == ("failed", True)
    assert reason.endswith(Page.WRITE_FAILED)
    (other,) = judge(slave("failed")).reasons
    assert other.startswith("failed: its own store failed")
    (apart,) = judge(slave("diverged", not_learned=["its master has yet to be asked"])).reasons
    assert apart.startswith("diverged: ")


def test_a_slave_that_stands_still_is_told_from_one_that_is_slow() -> None:
    halted = {"rate_bytes_s": 0.0, "lag_s": 9.0}
    assert "for 9 s, and takes nothing" in judge(master(connection("catch-up", **halted))).reasons[-1]
    assert "takes nothing" not in judge(master(connection("catch-up", lag_s=9.0))).reasons[-1]
    assert "takes nothing" not in judge(master(connection("catch-up", rate_bytes_s=0.0, lag_s=4.0))).reasons[-1]


def test_an_idle_peer_that_is_silent_is_told_of_before_it_is_given_up() -> None:
    """A process that was stopped showed as ok for twenty seconds."""
    facts = master(connection(name="a/1", heard_s_ago=12.3))
    assert judge(facts).level == "ok", "the broker does not say how often peers are to be heard"
    facts["ha"]["heartbeat_s"] = 5.0
    verdict = judge(facts)
    assert (verdict.level, verdict.in_sync) == ("degraded", True)
    assert "10.0.0.2:5000 (a/1) was last heard 12 s ago, though it is to be heard every 5 s" in verdict.reasons[0]
    assert verdict.reasons[0].endswith(Page.SILENT)
    assert "heard 12.3 s ago" in render_status(facts, verdict)
    facts["ha"]["connections"][0]["heard_s_ago"] = 9.9
    assert judge(facts).level == "ok"
    follower = slave("transfer")
    follower["ha"]["heartbeat_s"], follower["ha_client"]["heard_s_ago"] = 5.0, 11.0
    verdict = judge(follower)
    assert (verdict.level, verdict.in_sync) == ("degraded", True)
    assert "its master was last heard 11 s ago" in verdict.reasons[0]
    follower["ha_client"]["heard_s_ago"] = None
    assert judge(follower).level == "ok"


def test_who_has_said_nothing_on_the_ha_port_is_no_slave_that_lags() -> None:
    """A port check was one "whose process is stopped", and a stranger who kept one open kept all backups waiting."""
    stranger = connection("first-report-awaited", slave_ack_offset=-1, lag_s=40.0, rate_bytes_s=0.0, name="")
    verdict = judge(master(connection(), stranger))
    assert (verdict.level, verdict.in_sync, verdict.reasons) == ("ok", True, ())
    assert (
        "1 of 1 connected, 1 needed for SEND_OK (1 more on the HA port: they have said nothing yet)" in verdict.summary
    )
    assert within_limits(verdict, master(connection(), stranger), LagLimits(warn_s=None, crit_s=30.0)) == verdict
    assert not judge(master(connection(), stranger | {"name": "a/2"})).in_sync, "one that has said who it is counts"
    assert not judge(master(stranger)).in_sync


def test_who_has_reported_that_it_holds_nothing_is_a_slave() -> None:
    """One of RocketMQ's, of a log that nobody has sent to yet, does not say who it is."""
    empty = connection(slave_ack_offset=0, next_transfer_from_where=0, name="")
    verdict = judge(master(empty))
    assert "1 of 1 connected, 1 needed for SEND_OK" in verdict.summary
    assert "on the HA port" not in verdict.summary
    assert verdict.in_sync


def test_a_slave_that_has_yet_to_show_what_it_has_is_not_in_sync() -> None:
    """After a restore its consumers saw a hundredth of the log, and the page ended with exit code 0."""
    facts = slave("transfer") | {"confirm_offset": 2 << 20, "dispatched_offset": (1 << 20) - 1}
    assert (judge(facts).level, judge(facts).in_sync) == ("ok", False)
    assert judge(facts | {"dispatched_offset": 1 << 20}).in_sync


def test_hidden_messages_are_shown_and_are_no_trouble() -> None:
    """An operator who deleted a topic wants them to be."""
    facts = slave("transfer", hidden_messages={"messages": 1005, "queues": {"t/0": 1000, "t/1": 5}})
    verdict = judge(facts)
    assert verdict.level == "ok"
    (line,) = [line for line in render_status(facts, verdict).splitlines() if line.startswith("  hidden")]
    assert "1,005 messages" in line
    assert "(t/0: 1,000, t/1: 5)" in line
    assert "'Messages that no consumer sees'" in line


@pytest.mark.parametrize(("state", "is_shown"), [("waiting", True), ("transfer", False), ("disk-full", False)])
def test_the_last_error_of_a_slave_that_is_connected_is_one_of_before(state: str, is_shown: bool) -> None:
    facts = slave(state)
    facts["ha_client"]["last_error"] = "Connection refused"
    assert ("last error: Connection refused" in render_status(facts, judge(facts))) is is_shown


def test_for_how_long_a_slave_has_waited_is_shown() -> None:
    facts = slave("waiting")
    facts["ha_client"]["apart_s"] = 190.0
    assert "10.0.0.1:10912  waiting for 3 min" in render_status(facts, judge(facts))


def test_a_slave_that_holds_what_it_has_not_flushed_is_not_in_sync() -> None:
    facts = slave("transfer")
    facts["ha_client"]["durable_offset"] = 4
    assert not judge(facts).in_sync


def test_a_slave_that_has_yet_to_hear_all_of_a_new_topic_is_not_in_sync_and_well() -> None:
    verdict = judge(slave("transfer") | {"topics_awaited": True})
    assert (verdict.level, verdict.in_sync) == ("ok", False)


def test_a_slave_that_has_not_had_its_masters_tables_is_not_in_sync_and_well() -> None:
    """Who waits for it before it takes the master away would find groups that begin anew."""
    verdict = judge(slave("transfer") | {"tables_not_taken": "this slave has not had all of its master's topics"})
    assert (verdict.level, verdict.in_sync) == ("ok", False)
    assert judge(slave("transfer") | {"tables_not_taken": None, "topics_awaited": False}).in_sync


def test_connections_that_may_be_one_slaves_are_one_slave_in_sync() -> None:
    """As behind a tunnel: it was ok, and no send was answered SEND_OK."""
    facts = master(connection(), connection(), in_sync_replicas=3)
    facts["ha"]["live_slaves"] = 1
    verdict = judge(facts)
    assert (verdict.level, verdict.in_sync) == ("degraded", False)
    assert verdict.reasons[0] == f"1 of the 2 slaves that a send needs are in sync; see {Page.NOT_SEND_OK}"
    assert verdict.reasons[1].startswith("2 connections count as 1: they share an address or a brokerId")
    facts["in_sync_replicas"] = 2
    assert judge(facts).in_sync


def test_refused_addresses_are_told() -> None:
    facts = master(connection())
    facts["ha"]["refused"] = [{"address": "10.9.9.9", "message": "slave ahead by 7 bytes", "last_s_ago": 5.0}]
    assert judge(facts).reasons == ("10.9.9.9 is turned away: slave ahead by 7 bytes",)
    facts["ha"]["refused"][0]["last_s_ago"] = 61.0
    assert judge(facts).level == "ok"


def test_a_stranger_that_came_once_mistook_a_port_and_is_no_concern() -> None:
    """A `status` with the HA port's number made a sound pair degraded for a minute, and a monitor told somebody."""
    facts = master(connection())
    stranger = {"address": "c", "reason": "stranger", "message": "not a slave", "last_s_ago": 5.0, "count": 1}
    facts["ha"]["refused"] = [stranger]
    assert judge(facts).level == "ok"
    stranger["count"] = 2
    assert judge(facts).level == "degraded"
    facts["ha"]["refused"] = [stranger | {"reason": "slave-ahead", "count": 1}]
    assert judge(facts).level == "degraded", "who is a slave is one at once"


def test_our_brokers_facts_come_from_their_own_entry() -> None:
    assert read_status({STATUS_KEY: json.dumps(master()), "commitLogMaxOffset": "7"}) == master()


def test_a_rocketmq_brokers_table_is_read_as_far_as_it_goes() -> None:
    table = {
        "brokerVersionDesc": "V4_9_8", "commitLogMinOffset": "0", "commitLogMaxOffset": "26030",
        "commitLogDiskRatio": "0.39", "remainHowManyDataToFlush": "0 B", "dispatchBehindBytes": "0",
    }  # fmt: skip
    facts = read_status(table)
    assert (facts["min_offset"], facts["max_offset"], facts["disk_used_percent"]) == (0, 26030, 39.0)
    assert judge(facts).level == "ok"
    assert "RocketMQ V4_9_8" in judge(facts).summary


@pytest.mark.parametrize("table", [{}, {"commitLogMaxOffset": "x", "commitLogDiskRatio": "NaN%"}])
def test_a_table_with_less_or_odd_values_is_still_read(table: dict[str, str]) -> None:
    assert read_status(table)["max_offset"] is None


def test_a_peer_that_holds_other_bytes_is_a_reason() -> None:
    peer = {"peer": "b:10912", "state": "unfit", "end": 5, "reason": "b:10912 of haPeers holds other bytes"}
    verdict = judge(master(connection(), catch_up=[peer]))
    assert (verdict.level, verdict.reasons) == (
        "degraded",
        (f"b:10912 of haPeers holds other bytes; see {Page.DIVERGED}",),
    )
    (apart,) = judge(
        master(connection(), catch_up=[peer | {"reason": "b:10912 of haPeers: it has brokerId=0"}])
    ).reasons
    assert apart == f"b:10912 of haPeers: it has brokerId=0; see {Page.MIXED_UP}"
    (refused,) = judge(master(connection(), write_refusal="b:10912 of haPeers holds other bytes")).reasons
    assert refused == f"sends are refused: b:10912 of haPeers holds other bytes; see {Page.DIVERGED}"


@pytest.mark.parametrize(
    ("done_bytes", "total_bytes", "said"),
    [(0, 0, "recovering"), (5, 0, "recovering, 5 bytes"), (0, 2000, "recovering, 0 of 2,000 bytes")],
)
def test_a_start_tells_bytes_where_they_are_counted(done_bytes: int, total_bytes: int, said: str) -> None:
    starting = {"what": "x", "done_bytes": done_bytes, "total_bytes": total_bytes, "for_s": 3.0}
    assert judge(master(starting=starting)).summary == f"SYNC_MASTER a (id 0), {said}"


def test_how_full_the_disk_was_comes_with_when() -> None:
    """It may be ten seconds ago, or longer with another cleanResourceInterval."""
    facts = master(disk_used_percent=42, disk_looked_s_ago=8.4)
    assert "  disk     42 % used, 8 s ago" in render_status(facts, judge(facts))
    facts = master(disk_used_percent=None, disk_unknown="how full the disk is cannot be read: gone")
    assert "  disk     not known how full\n" in render_status(facts, judge(facts)) + "\n"
    assert read_status({"commitLogDiskRatio": "-1.0"})["disk_used_percent"] is None
    facts = master(disk_used_percent=42)
    assert "  disk     42 % used\n" in render_status(facts, judge(facts)) + "\n"


def test_names_that_brokers_give_themselves_cannot_steer_the_terminal() -> None:
    name = "a\x1b[2J\nok: all is well/1"
    facts = master(connection(name=name), group_clashes=[f"10.0.0.3:10911: it has brokerName={name}"])
    text = render_status(facts, judge(facts))
    assert "\x1b" not in text
    assert [line for line in text.splitlines() if line.startswith("ok")] == []
    assert "a\\x1b[2J\\nok" in text


def test_who_left_is_named_with_when_and_why_where_it_is_missed() -> None:
    gone = {"name": "a/1", "peer": "10.0.0.2:5000", "slave_ack_offset": 90, "reason": "no report for 20 s"}
    ha = {"connections": [], "refused": [], "departed": [gone | {"last_s_ago": 12.3}]}
    facts = master(ha=ha)
    verdict = judge(facts)
    assert "10.0.0.2:5000 (a/1) left 12 s ago: no report for 20 s" in verdict.reasons
    assert "  departed 10.0.0.2:5000 (a/1)  12 s ago  ack 90  no report for 20 s" in render_status(facts, verdict)
    assert judge(master(ha=ha, role="ASYNC_MASTER")).level == "ok"


@pytest.mark.parametrize(
    ("facts", "name"),
    [
        (member(), "(itself)"),
        (member("FOLLOWER", leader="n1", master="h:10911", is_master=False), "h:10911"),
        (member("CANDIDATE", leader=None, is_master=False), "(none)"),
    ],
)
def test_a_member_names_the_master(facts: dict[str, Any], name: str) -> None:
    assert f"  master {name}\n  other" in render_status(facts, judge(facts))


def gone(name: str) -> dict[str, Any]:
    return view(name, connected=False, since_s=200, reason="Connection refused")


FOLLOWS: Final[dict[str, Any]] = {"role": "FOLLOWER", "leader": "n1", "master": "h:10911", "is_master": False}
FULL: Final[dict[str, Any]] = {"lack_of_room": "the disk is too full", "write_error": "the disk is too full"}
SERVES: Final = "it serves what it holds, and goes on by itself when this has passed: "


@pytest.mark.parametrize(
    ("facts", "level", "reason"),
    [
        (member(), "ok", ""),
        (member(**FOLLOWS), "ok", ""),
        (
            member(**FOLLOWS) | {"not_learned": ["where queues end is unknown"]},
            "degraded",
            "where queues end is unknown",
        ),
        (member(members=[view("n1"), gone("n2")]), "degraded", "n2 cannot be reached for 3 min: Connection refused"),
        (member(members=[gone("n1"), gone("n2")]), "failed", "a majority is missing: 2 of 3 members are away"),
        (member(members=[gone("n1"), gone("n2")]), "failed", "n1 cannot be reached for 3 min"),
        (
            member(members=[view("n1", heard_s=9), view("n2")]),
            "degraded",
            "n1 is connected, but has not answered for 9 s",
        ),
        (member(members=[view("n1", heard_s=9), gone("n2")]), "failed", "a majority is missing: 2 of 3"),
        (member(members=[view("n1", lacks=9), view("n2")]), "ok", ""),
        (member(members=[view("n1", lacks=5000), view("n2")]), "degraded", "n1 lacks 5,000 committed entries"),
        (member(members=[view("n1", lacks=9, stuck_s=4), view("n2")]), "ok", ""),
        (member(members=[view("n1", lacks=9, stuck_s=5), view("n2")]), "degraded", "n1 lacks 9 committed entries, and"),
        (member(former_members=["n0", "n1"]), "degraded", "it has not noted the present members yet, but still has n0"),
        (member(member_lists=["n2 runs with n0"], former_members=["n0"]), "degraded", "n2 runs with n0"),
        (member(uncommitted_for_s=2), "ok", ""),
        (member(uncommitted_for_s=12), "failed", "waits for a majority to store it, and nothing was committed for 12"),
        (member("CANDIDATE", leader=None, is_master=False), "failed", "nobody leads the group for 2 min"),
        (
            member("CANDIDATE", leader=None, is_master=False, member_lists=["it has n0 at a:1, and n1 has n0 at b:1"]),
            "failed",
            "it knows no leader for 2 min, though others may: it takes no messages; see docs/dledger.md, 'A member",
        ),
        (
            member("CANDIDATE", leader=None, is_master=False, members=[gone("n1"), gone("n2")]),
            "failed",
            "n2 cannot be reached for 3 min",
        ),
        (
            member("CANDIDATE", leader=None, is_master=False, members=[view("n1", heard_s=9), view("n2", heard_s=9)]),
            "failed",
            "a majority is missing: 2 of 3 members are away",
        ),
        (member(is_master=False), "degraded", "it leads, but is not master yet"),
        (member(**FOLLOWS | {"master": None}), "degraded", "topics are not taken over"),
        (member(**FOLLOWS | {"master": None}), "degraded", "dLegerPeers here may name another member's address for n1"),
        (member(**FOLLOWS, lacks=1001), "degraded", "it lacks 1,001 committed entries of its leader's"),
        (member(**FOLLOWS, members=[view("n1", heard_s=900), view("n2", heard_s=900)]), "ok", ""),
        (member(diverged="of the test"), "failed", "it follows nobody any more: of the test"),
        (member() | {"write_refusal": "of the test"}, "failed", "it cannot write: of the test"),
        (member(write_error="term and vote cannot be saved"), "failed", "it cannot write: term and vote"),
        (member(**FULL) | {"write_refusal": "the disk is too full"}, "failed", "it cannot write: the disk is too full"),
        (member(**FOLLOWS, **FULL) | {"write_refusal": "the disk is too full"}, "degraded", SERVES + "the disk is"),
        (member(**FOLLOWS, **FULL), "degraded", SERVES + "the disk is too full; see docs/dledger.md, 'A full disk'"),
        (member(**FOLLOWS) | {"write_refusal": "no queue file"}, "degraded", SERVES + "no queue file"),
        (
            member(**FOLLOWS, **FULL) | {"write_refusal": "fdatasync failed", "needs_restart": True},
            "failed",
            "it cannot write: fdatasync failed",
        ),
        (
            member(**FOLLOWS, **FULL | {"write_error": "its files have another size"}),
            "failed",
            "it cannot write: its files have another size",
        ),
    ],
)
def test_a_member_of_a_group_is_judged_by_its_group(facts: dict[str, Any], level: str, reason: str) -> None:
    verdict = judge(facts)
    assert (verdict.level, verdict.in_sync) == (level, level == "ok")
    assert reason in "; ".join(verdict.reasons)
    assert "member n0 of group g" in verdict.summary
    assert "begin 0  end 9  committed 9  flushed 9  master" in render_status(facts, verdict)


def test_one_that_cannot_save_its_term_does_not_say_that_the_others_lead_nobody() -> None:
    """It asks nobody, and took their silence for theirs: the two others led, and took messages."""
    silent = [view("n1", heard_s=9), view("n2", heard_s=9)]
    facts = member("CANDIDATE", leader=None, is_master=False, members=silent, write_error="its store is gone")
    reasons = "; ".join(judge(facts).reasons)
    assert "it cannot write: its store is gone" in reasons
    assert "it knows no leader for 2 min, though others may" in reasons
    assert "nobody leads" not in reasons
    assert "a majority is missing" not in reasons


def test_a_leader_shows_how_it_sees_the_others() -> None:
    facts = member(members=[view("n1", lacks=5), gone("n2")])
    verdict = judge(facts)
    assert verdict.summary.endswith("leader n0 for 2 min, term 3")
    assert render_status(facts, verdict).splitlines()[-2:] == [
        "  other    n1  h:1  connected for 7 s  lacks 5",
        "  other    n2  h:1  cannot be reached for 3 min: Connection refused  lacks 0",
    ]


def test_a_member_that_starts_has_no_figures_yet() -> None:
    facts = member("CANDIDATE", leader=None, is_master=False)
    for key in ("members", "lacks", "end_index", "committed_index", "term", "leader_for_s", "uncommitted_for_s"):
        del facts["dledger"][key]
    verdict = judge(facts)
    assert (verdict.level, verdict.in_sync) == ("failed", False)
    assert render_status(facts, verdict)


@pytest.mark.parametrize(
    "facts",
    [
        member(members=[view("n1"), view("n2", lacks=10)]),
        member(begin_index=5, members=[view("n1"), view("n2", lacks=5)]),
        member("FOLLOWER", begin_index=-1, end_index=-1, committed_index=-1, lacks=10, master="h:1"),
    ],
)
def test_who_has_nothing_of_a_groups_few_entries_is_not_in_sync(facts: dict[str, Any]) -> None:
    """A member that was emptied may lack as few as one that is in sync."""
    assert not judge(facts).in_sync
    facts["dledger"] |= {"lacks": 0, "members": [view("n1"), view("n2", lacks=4)]}
    assert judge(facts).in_sync
    assert judge(member(end_index=2000, committed_index=2000, members=[view("n1", lacks=1000), view("n2")])).in_sync
