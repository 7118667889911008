"""`rmqha dledger append|get|status|leadershipTransfer`, against a fake group and as commands."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from trio.testing import MockClock

from rmqha.cli.dledger_append import append_all
from rmqha.cli.dledger_get import get_entries
from rmqha.cli.dledger_health import judge_group, leader_of, render_group
from rmqha.cli.dledger_lines import append_line, entry_line
from rmqha.cli.dledger_status import ask_members
from rmqha.cli.dledger_transfer import hand_over
from rmqha.cli.errors import CliError
from rmqha.cli.main import run
from rmqha.cli.sources import all_of
from rmqha.codec.dledger_entry import DLedgerEntry
from rmqha.codec.dledger_wire import AppendEntryResponse
from tests.dledger.fake_group import IDS, PEERS, Group, client_of

Output = pytest.CaptureFixture[str]
Facts = dict[str, Any]


@pytest.fixture
def group() -> Group:
    return Group()


async def appended(group: Group, *bodies: bytes) -> list[dict[str, Any]]:
    answers: list[AppendEntryResponse] = []
    async with client_of(group) as client:
        await append_all(client, all_of(bodies), answers.append)
    return [append_line(answer) for answer in answers]


async def test_append_tells_where_each_went(group: Group, autojump_clock: MockClock) -> None:
    first, second = await appended(group, b"a", b"b")
    assert list(first) == ["code", "index", "term", "pos", "leaderId"]
    assert first == {"code": 200, "index": 0, "term": 3, "pos": 0, "leaderId": "n0"}
    assert (second["index"], second["pos"]) == (1, 49)


async def test_append_goes_on_after_an_answer_that_says_no(group: Group, autojump_clock: MockClock) -> None:
    group.leader_id = None
    lines = await appended(group, b"a", b"b")
    assert [line["code"] for line in lines] == [301, 301]
    assert all(type(line["code"]) is int for line in lines)


def test_a_body_is_text_or_else_base64() -> None:
    text = entry_line(DLedgerEntry("Grüße".encode(), 1, 2, 3, size=55))
    assert list(text) == [
        "index", "term", "pos", "size", "magic", "channel", "chainCrc", "bodyCrc", "bodyLength", "bodySha256", "body",
    ]  # fmt: skip
    assert (text["body"], text["bodyLength"]) == ("Grüße", 7)
    assert entry_line(DLedgerEntry(b"\xff"))["body"] == "/w=="
    assert entry_line(DLedgerEntry(b"\xff"))["bodyIsBase64"] is True


async def test_get_prints_what_there_is_and_fails_at_what_is_not(group: Group, autojump_clock: MockClock) -> None:
    await appended(group, b"a", b"b", b"c")
    entries: list[DLedgerEntry] = []
    async with client_of(group) as client:
        await get_entries(client, range(1, 3), entries.append)
        assert [entry.body for entry in entries] == [b"b", b"c"]
        with pytest.raises(CliError, match="entry 3 of the group g cannot be read") as error:
            await get_entries(client, range(2, 5), entries.append)
    assert error.value.why == "INDEX_OUT_OF_RANGE (410)"
    assert [entry.body for entry in entries[2:]] == [b"c"]


async def handed_over(group: Group, to: str, *, leader: str | None = None, term: int | None = None) -> tuple[int, bool]:
    async with client_of(group) as client:
        return await hand_over(client, to, leader_id=leader, term=term)


@pytest.mark.parametrize("tells_status", [True, False])
async def test_leader_and_term_are_found_out(group: Group, tells_status: bool, autojump_clock: MockClock) -> None:
    group.tells_status = tells_status
    assert await handed_over(group, "n1") == (200, True)
    assert (group.leader_id, group.term) == ("n1", 4)


async def test_who_leads_already_is_not_asked(group: Group, autojump_clock: MockClock) -> None:
    assert await handed_over(group, "n0") == (200, True)
    assert group.asked_for("LEADERSHIP_TRANSFER") == []


async def test_what_is_named_is_not_found_out(group: Group, autojump_clock: MockClock) -> None:
    assert await handed_over(group, "n1", leader="n2", term=3) == (404, False)
    assert await handed_over(group, "n1", leader="n0", term=2) == (407, False)
    assert group.asked_for("METADATA") == []


async def test_only_a_transferee_that_leads_is_a_success(group: Group, autojump_clock: MockClock) -> None:
    group.on_transfer = lambda _: 200
    assert await handed_over(group, "n1") == (200, False)


async def test_a_leader_that_does_not_answer_may_have_handed_over(group: Group, autojump_clock: MockClock) -> None:
    async with client_of(group) as client:
        group.members["n0"].is_silent = True
        group.members["n1"].says = "n1"
        assert await hand_over(client, "n1", leader_id="n0", term=3) == (300, True)


def test_who_does_not_lead_afterwards_and_what_the_leader_said(capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqha.cli.dledger_transfer.ask_group", lambda *_: (418, False))
    assert run(["dledger", "transfer", "-p", "n0-127.0.0.1:1", "-t", "n0"]) == 1
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"code": 418}
    assert "n0 does not lead" in printed.err
    assert "TAKE_LEADERSHIP_FAILED (418)" in printed.err
    assert "see rmqha dledger status" in printed.err


async def test_nobody_leads_so_nobody_hands_over(group: Group, autojump_clock: MockClock) -> None:
    group.leader_id = None
    async with client_of(group) as client:
        with pytest.raises(CliError, match="nobody leads the group g"):
            await hand_over(client, "n1", leader_id=None, term=None)


async def facts_of(group: Group, running: Iterable[str] = IDS, *, given: Iterable[str] = IDS) -> list[Facts]:
    async with client_of(group, *given, running_ids=tuple(running)) as client:
        return await ask_members(client)


async def test_status_of_members_that_tell_of_themselves(group: Group, autojump_clock: MockClock) -> None:
    await appended(group, b"a", b"b")
    members = await facts_of(group)
    assert [member["role"] for member in members] == ["LEADER", "FOLLOWER", "FOLLOWER"]
    assert members[1] == {
        "id": "n1", "address": PEERS["n1"], "alive": True, "error": None, "peers": [*IDS], "addresses": PEERS,
        "role": "FOLLOWER",
        "leaderId": "n0", "term": 3, "beginIndex": 0, "endIndex": 1, "committedIndex": 1, "flushedIndex": 1,
        "transferee": None, "writeError": None, "version": "1", "leaderForS": None, "uncommittedForS": None,
        "deletedEarlyS": None, "formerMembers": None, "notToLead": None, "rivals": None, "damage": None,
    }  # fmt: skip
    verdict = judge_group("g", members)
    assert (verdict.level, verdict.summary) == ("ok", "group g: n0 leads in term 3, 3 of 3 members answer")
    assert render_group(members, verdict).splitlines()[2] == (
        "  n1  10.0.0.1:20912  FOLLOWER   term 3  entries 0..1  committed 1  flushed 1"
    )


async def test_status_of_members_of_java(group: Group, autojump_clock: MockClock) -> None:
    group.tells_status = False
    members = await facts_of(group, given=["n1"])
    assert [(member["id"], member["role"], member["term"]) for member in members] == [
        ("n1", "FOLLOWER", 3), ("n0", "LEADER", 3), ("n2", "FOLLOWER", 3),
    ]  # fmt: skip
    assert {member["endIndex"] for member in members} == {None}
    assert "  n0  10.0.0.1:20911  LEADER     term 3" in render_group(members, judge_group("g", members))


async def test_a_member_that_does_not_answer(group: Group, autojump_clock: MockClock) -> None:
    members = await facts_of(group, ["n0", "n1"])
    verdict = judge_group("g", members)
    assert (verdict.level, members[2]["alive"]) == ("degraded", False)
    assert verdict.reasons[0].startswith("n2 does not answer: 10.0.0.1:20913: ")
    assert render_group(members, verdict).endswith("n2  10.0.0.1:20913  does not answer")


async def test_without_a_majority_that_knows_it_a_leader_is_none(group: Group, autojump_clock: MockClock) -> None:
    verdict = judge_group("g", await facts_of(group, ["n0"]))
    assert verdict.level == "failed"
    assert verdict.reasons[0] == "1 of 3 members, fewer than a majority, take it for the leader"


async def test_nobody_leads(group: Group, autojump_clock: MockClock) -> None:
    group.leader_id = None
    verdict = judge_group("g", await facts_of(group))
    assert (verdict.level, verdict.summary) == ("failed", "group g: nobody leads, 3 of 3 members answer")


async def test_the_wrong_group(group: Group, autojump_clock: MockClock) -> None:
    async with client_of(group) as client:
        client.peers["n9"] = PEERS["n1"]
        members = await ask_members(client)
    assert members[3]["alive"] is True
    assert members[3]["role"] is None
    assert "n9: it answers UNKNOWN_MEMBER (401)" in judge_group("g", members).reasons[0]


async def changed(group: Group, member: int, **facts: Any) -> list[Facts]:
    members = await facts_of(group)
    members[member] |= facts
    return members


async def test_a_leader_that_cannot_write_takes_no_appends(group: Group, autojump_clock: MockClock) -> None:
    assert judge_group("g", await changed(group, 0, writeError="EIO")).level == "failed"
    verdict = judge_group("g", await changed(group, 1, writeError="EIO"))
    assert (verdict.level, verdict.reasons) == ("degraded", ("n1 cannot write: EIO",))


async def test_a_majority_that_cannot_write_takes_no_appends(group: Group, autojump_clock: MockClock) -> None:
    """Its leader could: what is sent to it waits in vain."""
    members = await changed(group, 1, writeError="the disk is too full")
    members[2] |= {"writeError": "the disk is too full"}
    verdict = judge_group("g", members)
    assert (verdict.level, verdict.reasons[0]) == (
        "failed",
        "1 of 3 members, fewer than a majority, can store an entry",
    )


@pytest.mark.parametrize(
    "facts", [{"role": "CANDIDATE"}, {"alive": False, "error": "refused", "role": None}], ids=["no leader", "away"]
)
async def test_who_does_not_follow_stores_nothing_whatever_room_it_has(
    group: Group, autojump_clock: MockClock, facts: Facts
) -> None:
    members = await changed(group, 1, writeError="the disk is too full")
    members[2] |= {"leaderId": None} | facts
    verdict = judge_group("g", members)
    assert (verdict.level, verdict.reasons[0]) == (
        "failed",
        "1 of 3 members, fewer than a majority, can store an entry",
    )


@pytest.mark.parametrize(("term", "is_told"), [(4, True), (3, False), (None, False)])
async def test_who_is_in_a_higher_term_than_the_leader_is_told(
    group: Group, autojump_clock: MockClock, term: int | None, is_told: bool
) -> None:
    """A leader of Java's takes that over from nobody."""
    verdict = judge_group("g", await changed(group, 2, role="CANDIDATE", leaderId=None, term=term))
    assert verdict.level == "degraded"
    assert verdict.reasons[0].startswith("n2 knows no leader")
    assert ("it is in term 4, and n0 leads in term 3" in verdict.reasons[0]) == is_told
    assert verdict.reasons[0].endswith("'Nobody leads'") == is_told


@pytest.mark.parametrize(("seconds", "level"), [(None, "ok"), (3600, "degraded"), (3601, "ok")])
async def test_a_member_that_deleted_what_had_not_expired(
    group: Group, autojump_clock: MockClock, seconds: int | None, level: str
) -> None:
    verdict = judge_group("g", await changed(group, 1, deletedEarlyS=seconds))
    told = "".join(verdict.reasons)
    assert (verdict.level, "n1 deleted entries before they had expired" in told) == (level, level == "degraded")
    assert told.endswith("'Messages deleted before their time'") == (level == "degraded")
    assert verdict.in_sync, "``--wait in-sync`` would wait for an hour for what no member lacks"


async def test_a_member_whose_messages_are_damaged(group: Group, autojump_clock: MockClock) -> None:
    """The group was called well, and its next member was rebuilt from that one."""
    verdict = judge_group("g", await changed(group, 1, damage="a record is damaged in its log"))
    assert (verdict.level, verdict.in_sync) == ("degraded", False)
    assert verdict.reasons == ("n1: a record is damaged in its log; see docs/dledger.md, 'Damage'",)


async def test_a_list_of_members_that_is_not_noted_yet(group: Group, autojump_clock: MockClock) -> None:
    """The next change of it would be refused: ``--wait in-sync`` waits for that."""
    verdict = judge_group("g", await changed(group, 1, formerMembers=("n0", "n1")))
    assert (verdict.level, verdict.in_sync) == ("degraded", False)
    assert verdict.reasons == ("n1 has not noted the present members yet, but still has n0, n1",)


FIVE = {**PEERS, "n3": "10.0.0.1:20914", "n4": "10.0.0.1:20915"}
NEXT = "correct its list (dLegerPeers, --peers), and start it again; see docs/dledger.md, 'A member with another list'"


async def test_a_member_without_entries_is_not_in_sync_with_a_leader_that_has_some(
    group: Group, autojump_clock: MockClock
) -> None:
    """One that was emptied was called in sync in its first moment, and the next one was emptied on that word."""
    nothing = {"endIndex": -1, "committedIndex": -1, "formerMembers": None}
    members = await changed(group, 0, committedIndex=7)
    members[1] |= {"endIndex": 7}
    members[2] |= nothing
    verdict = judge_group("g", members)
    assert (verdict.level, verdict.in_sync) == ("degraded", False)
    assert verdict.reasons == ("n2 has none of what n0 has committed: it is new, or was emptied",)
    members[0] |= nothing
    members[1] |= nothing
    assert judge_group("g", members).in_sync, "of a new group no member has any"


async def test_a_member_that_runs_with_another_list(group: Group, autojump_clock: MockClock) -> None:
    """It had voted and acknowledged by majorities of its own, and all was in sync."""
    members = await facts_of(group)
    members[0] |= {"addresses": FIVE}
    members[1] |= {"addresses": FIVE}
    verdict = judge_group("g", members)
    assert (verdict.level, verdict.in_sync) == ("degraded", False)
    assert verdict.reasons == (f"n2 runs with n0, n1, n2, and the leader n0 runs with {', '.join(FIVE)}: {NEXT}",)
    group.leader_id = None
    members = await facts_of(group)
    members[1] |= {"addresses": FIVE}
    members[2] |= {"addresses": None}
    members[0] |= {"addresses": {**PEERS, "n3": FIVE["n3"]}}
    assert len(judge_group("g", members).reasons) == 1, "who tells nobody is no other"


async def test_one_id_at_two_addresses(group: Group, autojump_clock: MockClock) -> None:
    """Two processes were n2, each counted by another member: the group was called in sync, and lost entries."""
    members = await changed(group, 1, addresses=PEERS | {"n2": "10.0.0.9:20913"})
    verdict = judge_group("g", members)
    assert (verdict.level, verdict.in_sync) == ("degraded", False)
    told = f"n1 has n2 at 10.0.0.9:20913, and the leader n0 has n2 at {PEERS['n2']}: {NEXT}"
    assert verdict.reasons == (told,)


async def test_two_processes_that_are_one_member(group: Group, autojump_clock: MockClock) -> None:
    """Where nobody leads for that, it is why."""
    verdict = judge_group("g", await changed(group, 1, rivals=("two processes are n2",)))
    assert (verdict.level, verdict.reasons) == ("degraded", ("n1: two processes are n2",))


async def test_a_member_that_must_not_lead_says_so_itself(group: Group, autojump_clock: MockClock) -> None:
    members = await changed(group, 2, notToLead="of the test", formerMembers=("n0",))
    members[0] |= {"addresses": FIVE}
    members[1] |= {"addresses": FIVE}
    verdict = judge_group("g", members)
    assert (verdict.level, verdict.reasons) == ("degraded", ("n2 must not lead: of the test",))


@pytest.mark.parametrize(("seconds", "level"), [(2, "ok"), (3, "failed")])
async def test_a_leader_whose_entries_nobody_takes(
    group: Group, autojump_clock: MockClock, seconds: int, level: str
) -> None:
    verdict = judge_group("g", await changed(group, 0, uncommittedForS=seconds))
    assert (verdict.level, "nothing was committed for 3 s" in "".join(verdict.reasons)) == (level, level == "failed")


async def test_since_when_somebody_leads_or_nobody(group: Group, autojump_clock: MockClock) -> None:
    verdict = judge_group("g", await changed(group, 0, leaderForS=7300))
    assert verdict.summary == "group g: n0 leads in term 3 for 2 h, 3 of 3 members answer"
    group.leader_id = None
    members = await changed(group, 0, leaderForS=5)
    members[1] |= {"leaderForS": 40}
    members[2] |= {"leaderForS": 900, "leaderId": "n1"}  # it has not noticed yet that n1 does not lead any more
    assert judge_group("g", members).summary == "group g: nobody leads for 40 s, 3 of 3 members answer"


async def test_two_that_say_they_lead_and_one_that_lags(group: Group, autojump_clock: MockClock) -> None:
    members = await changed(group, 1, role="LEADER", leaderId="n1")
    assert leader_of(members) == members[0]
    assert judge_group("g", members).reasons == ("n1 also says that it leads",)
    members = await changed(group, 0, committedIndex=2000)
    assert judge_group("g", members).reasons == tuple(f"{n} lags behind by 2001 entries" for n in ("n1", "n2"))


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["append", "-p", "n0-localhost"], "'n0-localhost' is not ID-HOST:PORT"),
        (["append", "-d", "-", "-c", "2"], "of stdin each line is appended once"),
        (["append", "--count", "0"], "0 is not in the range x>=1"),
        (["get", "--index", "-1"], "-1 is not in the range x>=0"),
        (["status", "--format", "xml"], "'xml' is not one of"),
        (["server", "-g", "a/b"], "'a/b' holds '/'"),
        (["server", "-g", ".."], "would lead out of the store's directory"),
        (["server", "-i", "..", "-p", "..-localhost:1"], "would lead out of the store's directory"),
        (["server", "-i", "x/y"], "--peers has no member 'x/y'"),
        (["server", "--set", "storeType=MEMORY"], "a member's log is always in files"),
        (["leadershipTransfer"], "Missing option '-t' / '--transfereeId'"),
        (["transfr"], "Did you mean 'transfer'?"),
    ],
)
def test_wrong_usage(arguments: list[str], told: str, capsys: Output) -> None:
    assert run(["dledger", *arguments]) == 2
    assert told in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    "arguments",
    [["append"], ["get"], ["status"], ["status", "--wait", "in-sync", "--timeout", "0.01"], ["transfer", "-t", "n0"]],
)
def test_nobody_reachable(arguments: list[str], capsys: Output) -> None:
    assert run(["dledger", *arguments, "-p", "n0-127.0.0.1:1"]) == 3
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "no member of the group default can be reached" in printed.err


@pytest.mark.parametrize("command", ["append", "get", "status", "leadershipTransfer", "transfer"])
def test_help_names_the_options_of_the_contract(command: str, capsys: Output) -> None:
    options = {
        "append": ("-d, --data", "-c, --count"),
        "get": ("-i, --index", "-c, --count"),
        "status": ("--format [text|json]",),
    }
    assert run(["dledger", command, "--help"]) == 0
    told = capsys.readouterr().out
    common = ("-g, --group", "-p, --peers")
    for option in common + options.get(command, ("-t, --transfereeId", "-l, --leader", "--term")):
        assert option in told


def asking(group: Group, *, codes: Iterable[int] = ()) -> Any:
    """In place of ask_group: only the network is in memory; its leader answers appends with these codes."""

    def asked(_group: str, peers: dict[str, str], question: Any) -> Any:
        import trio  # noqa: PLC0415

        async def ask() -> Any:
            async with client_of(group, *peers) as client:
                group.members["n0"].codes += codes
                return await question(client)

        return trio.run(ask)

    return asked


@pytest.mark.parametrize(("codes", "code"), [((200, 200), 0), ((200, 502), 1), ((502, 200), 1)])
def test_one_that_is_not_appended_shows_in_the_exit_code(
    group: Group, monkeypatch: pytest.MonkeyPatch, codes: tuple[int, ...], code: int
) -> None:
    """Whatever became of the others: a script goes by nothing else."""
    monkeypatch.setattr("rmqha.cli.dledger_append.ask_group", asking(group, codes=codes))
    assert run(["dledger", "append", "-c", "2", "-p", f"n0-{PEERS['n0']}"]) == code


def test_answers_are_json_lines(group: Group, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command as it is typed."""
    for module in ("append", "get", "status", "transfer"):
        monkeypatch.setattr(f"rmqha.cli.dledger_{module}.ask_group", asking(group))
    peers = ";".join(f"{member_id}-{address}" for member_id, address in PEERS.items())
    assert run(["dledger", "append", "-p", peers, "-d", "Hello", "-c", "2"]) == 0
    assert run(["dledger", "get", "-p", peers, "-c", "2"]) == 0
    assert run(["dledger", "transfer", "-p", peers, "-t", "n2"]) == 0
    assert run(["dledger", "status", "-p", peers, "--format", "json"]) == 0
    printed = capsys.readouterr().out.splitlines()
    lines = [json.loads(line) for line in printed if line.startswith("{")]  # the fake group logs between them
    assert [line["index"] for line in lines[:4]] == [0, 1, 0, 1]
    assert lines[4] == {"code": 200}
    assert {key: lines[5][key] for key in ("verdict", "group", "leader", "leaderId", "term")} == {
        "verdict": "ok", "group": "default", "leader": "n2", "leaderId": "n2", "term": 4,
    }  # fmt: skip
    assert run(["dledger", "status", "-p", peers, "--wait", "in-sync"]) == 0
    assert run(["dledger", "get", "-p", peers, "-i", "2"]) == 1
    group.leader_id = None
    assert run(["dledger", "append", "-p", peers]) == 1
    assert run(["dledger", "status", "-p", peers]) == 1
    assert "failed: group default: nobody leads" in capsys.readouterr().out
    assert run(["dledger", "status", "-p", peers, "--wait", "in-sync", "--timeout", "0.01"]) == 1
    assert "the group default is not in sync within 0.01 s" in capsys.readouterr().err
