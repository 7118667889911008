"""Groups of members over the wire: three DLedgerServers in one event loop, and what befalls them."""

import errno
from collections import Counter
from dataclasses import replace

import pytest
import trio
from trio.testing import MockClock

from rmqha.codec.codes import ResponseCode
from rmqha.codec.dledger_entry import DLedgerEntry
from rmqha.codec.dledger_properties import TermVote
from rmqha.codec.dledger_wire import (
    HANDLED,
    AppendEntryResponse,
    Base,
    DLedgerRequestCode,
    GetEntriesRequest,
    GetEntriesResponse,
    LeadershipTransferRequest,
    LeadershipTransferResponse,
    decode,
    encode,
)
from rmqha.codec.remoting import RemotingCommand
from rmqha.dledger.clean_space_service import CleanSpaceService
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.elector_options import ElectorOptions
from rmqha.dledger.leadership_transfer import TransferOptions
from rmqha.dledger.push_entry import PushEntryRequest, PushType
from rmqha.dledger.push_wire import decode_push_answer, encode_push
from rmqha.dledger.term_file import TermFile
from rmqha.dledger.vote import VoteRequest
from rmqha.errors import StoreWriteError
from rmqha.remoting.client import open_remoting_client
from rmqha.remoting.response_table import Outcome
from tests.dledger.defaults import default
from tests.dledger.servers import PORT, ServerGroup

Code = DLedgerResponseCode
LEAK_S = default(ElectorOptions).leak_s


@pytest.fixture
async def group(nursery: trio.Nursery, autojump_clock: MockClock) -> ServerGroup:
    made = ServerGroup(nursery)
    await made.start()
    return made


async def test_a_group_takes_entries_and_gives_them_back(group: ServerGroup, autojump_clock: MockClock) -> None:
    """Seed checklist: two phases, election and replication; setPos: the answer says where (spec: dledger §2.6)."""
    answers = await group.append(*(b"body %d" % number for number in range(100)))
    leader = await group.wait_leader()
    assert [answer.index for answer in answers] == list(range(100))
    assert {answer.leader_id for answer in answers} == {leader}
    assert answers[1].pos == answers[0].pos + 48 + len(b"body 0")
    log = await group.wait_same()
    assert [entry.body for entry in log] == [b"body %d" % number for number in range(100)]
    got = await group.client.get(42)
    assert (got.code, got.entries) == (Code.SUCCESS, (log[42],))
    assert [(await group.client.get(index)).code for index in (100, -1)] == [Code.INDEX_OUT_OF_RANGE] * 2


async def test_reads_wait_for_no_heartbeat_that_is_due_anyway(group: ServerGroup, autojump_clock: MockClock) -> None:
    """Each has one sent for it; the next regular one comes after up to two seconds."""
    await group.append(b"one")
    begun_at = trio.current_time()
    for _ in range(10):
        assert (await group.client.get(0)).code == Code.SUCCESS
    assert trio.current_time() - begun_at < 1


@pytest.mark.parametrize("size", [1, 2, 5])
async def test_groups_of_other_sizes(nursery: trio.Nursery, autojump_clock: MockClock, size: int) -> None:
    """Seed checklist: single node answer (spec: dledger §2.6)."""
    group = ServerGroup(nursery, size=size)
    await group.start()
    await group.append(b"one", b"two")
    await group.wait_same()


async def test_dledger_s_meaning_of_stored(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    group = ServerGroup(nursery, acks_flushed=False)
    await group.start()
    await group.append(*[b"x"] * 50)
    await group.wait_same()


async def test_a_leader_s_death_is_noticed_by_its_connection(group: ServerGroup, autojump_clock: MockClock) -> None:
    """Nobody waits out the leak: the port refuses."""
    await group.append(b"before")
    group.members[await group.wait_leader()].kill()
    begun_at = trio.current_time()
    await group.append(b"after")
    assert trio.current_time() - begun_at < LEAK_S / 2
    await group.wait_same()


async def test_a_leader_that_vanishes_is_replaced_after_the_leak(group: ServerGroup, autojump_clock: MockClock) -> None:
    await group.append(b"before")
    group.members[await group.wait_leader()].cut_power()
    begun_at = trio.current_time()
    await group.append(b"after")
    assert LEAK_S * 0.6 < trio.current_time() - begun_at < LEAK_S + 8
    await group.wait_same()


async def test_a_follower_that_was_away_gets_what_it_missed(group: ServerGroup, autojump_clock: MockClock) -> None:
    leader = await group.wait_leader()
    follower = next(member for name, member in group.members.items() if name != leader)
    await group.append(*[b"one"] * 10)
    follower.kill()
    await group.append(*[b"two"] * 30)
    await follower.start()
    assert len(await group.wait_same()) == 40


async def test_who_is_cut_off_neither_answers_nor_disturbs(group: ServerGroup, autojump_clock: MockClock) -> None:
    """A leader that nobody hears acknowledges nothing, and does not say that an entry is missing; what it took goes."""
    await group.append(b"one")
    old = await group.wait_leader()
    address = group.addresses[old]
    others = [other for name, other in group.addresses.items() if name != old]
    for other in others:
        group.net.cut(address, other)
        group.net.cut(other, address)
    assert (await group.client.append(b"lost")).code in {Code.WAIT_QUORUM_ACK_TIMEOUT, Code.TIMEOUT}
    assert (await group.client.get(9)).code not in {Code.SUCCESS, Code.INDEX_OUT_OF_RANGE}
    await group.wait(lambda: group.leaders not in ([old], []))
    group.client.leader_id = None
    await group.append(b"two")
    term = group.members[group.leaders[-1]].running.member_state.curr_term
    group.net.heal()
    log = await group.wait_same()
    assert [entry.body for entry in log] == [b"one", b"two"]
    assert group.members[old].running.member_state.curr_term == term, "its return cost no election"


async def test_a_client_that_takes_no_answers_is_told_to_come_again(
    group: ServerGroup, autojump_clock: MockClock
) -> None:
    """A thousand questions for a large entry do not make a thousand large answers at once."""
    body = bytes(3000)
    await group.append(body)
    leader = await group.wait_leader()
    network = group.net.host("10.0.1.9").mount()
    request = encode(GetEntriesRequest(0), Base("g", leader))
    address = f"{group.addresses[leader]}:{PORT}"
    async with open_remoting_client(network, address) as client:
        outcomes = list[Outcome]()
        for _ in range(1000):
            command = RemotingCommand(DLedgerRequestCode.GET, body=request)
            client.invoke_nowait(command, deadline=trio.current_time() + 30, on_outcome=outcomes.append)
        await group.wait(lambda: len(outcomes) == 1000)
    answers = [outcome.body for outcome in outcomes if isinstance(outcome, RemotingCommand)]
    codes = Counter(decode(GetEntriesResponse, answer)[1].code for answer in answers)
    assert codes.keys() == {Code.SUCCESS, Code.NOT_LEADER}


async def test_what_is_no_message_costs_nobody_else_anything(group: ServerGroup, autojump_clock: MockClock) -> None:
    leader = await group.wait_leader()
    network = group.net.host("10.0.1.9").mount()
    async with open_remoting_client(network, f"{group.addresses[leader]}:{PORT}") as client:
        for code in DLedgerRequestCode:
            for body in (b"", b"{", b"[]", b'{"term":9e99}', b'{"term":9223372036854775807}', b'{"entry":{"body":5}}'):
                answer = await client.invoke(RemotingCommand(code, body=body), timeout_s=5)
                assert answer.code != HANDLED or decode(AppendEntryResponse, answer.body)[1].code == Code.UNKNOWN_MEMBER
    await group.append(b"one")
    assert group.leaders == [leader]


async def test_a_push_that_is_refused_is_answered_at_once(group: ServerGroup, autojump_clock: MockClock) -> None:
    """And not with what comes of others: who pushes waits for it."""
    leader = await group.wait_leader()
    asked, other = [name for name in group.members if name != leader]
    term = group.members[leader].running.member_state.curr_term
    entry = DLedgerEntry(b"one", 0, term, 0, size=51)
    body = encode_push(PushEntryRequest(PushType.APPEND, term, other, -1, (entry,)), group="g", remote_id=asked)
    network = group.net.host("10.0.1.9").mount()
    async with open_remoting_client(network, f"{group.addresses[asked]}:{PORT}") as client:
        for _ in range(5):
            answer = await client.invoke(RemotingCommand(DLedgerRequestCode.PUSH, body=body), timeout_s=0.1)
            assert decode_push_answer(answer.body).code == Code.INCONSISTENT_STATE


async def test_a_term_that_was_made_up_leaves_room_for_elections(group: ServerGroup, autojump_clock: MockClock) -> None:
    """Who reaches the port can name any: the group elects a leader in it, and in those after it."""
    leader = await group.wait_leader()
    candidate, asked = [name for name in group.members if name != leader]
    network = group.net.host("10.0.1.9").mount()
    answers = []
    async with open_remoting_client(network, f"{group.addresses[asked]}:{PORT}") as client:
        for term in ((1 << 62) + (1 << 33), 1 << 62):
            body = encode(VoteRequest(candidate, term, 0, 0), Base("g", asked))
            answers.append((await client.invoke(RemotingCommand(DLedgerRequestCode.VOTE, body=body), timeout_s=5)).code)
    assert answers == [ResponseCode.SYSTEM_ERROR, HANDLED]
    await group.wait(lambda: {one.running.member_state.curr_term >> 62 for one in group.members.values()} == {1})
    await group.append(b"one")
    group.members[await group.wait_leader()].kill()
    await group.append(b"two")


async def test_everything_stops_and_starts_again(group: ServerGroup, autojump_clock: MockClock) -> None:
    """What was committed is committed again once all are there, without a word from a client."""
    await group.append(*[b"kept"] * 20)
    for member in group.members.values():
        member.cut_power()
    for member in group.members.values():
        await member.start()
    await group.wait_leader()
    assert (await group.get(19)).code == Code.SUCCESS
    await group.wait_same()


async def test_a_leader_that_stops_leads_no_more(group: ServerGroup, autojump_clock: MockClock) -> None:
    """Who still holds it, as a broker does, must not take it for one that does."""
    member = group.members[await group.wait_leader()]
    server = member.running
    server.stop()
    await group.wait(lambda: member.server is None)
    assert (server.member_state.is_leader, server.pusher.checker) == (False, None)


async def test_what_a_leader_inherited_is_committed_for_who_reads_it(
    group: ServerGroup, autojump_clock: MockClock
) -> None:
    """With a member away counting must not commit it (spec: dledger §7.4); an entry of the leader's own does."""
    await group.append(*[b"kept"] * 5)
    leader = await group.wait_leader()
    away = next(member for name, member in group.members.items() if name != leader)
    away.kill()
    await group.append(b"six")
    group.members[leader].kill()  # before it told how far the log is committed
    await group.members[leader].start()
    got = await group.get(5)
    assert [entry.body for entry in got.entries] == [b"six"]
    await away.start()
    log = await group.wait_same()
    assert [entry.body for entry in log[:6]] == [b"kept"] * 5 + [b"six"]


@pytest.mark.timeout(20)
async def test_a_read_that_waits_for_an_entry_that_cannot_be_appended_waits_quietly(
    group: ServerGroup, autojump_clock: MockClock
) -> None:
    """On a disk that is too full, or while leadership is handed over."""
    await group.append(b"one")
    old = await group.wait_leader()
    away = next(member for name, member in group.members.items() if name != old)
    away.kill()
    await group.append(b"two")
    group.members[old].kill()
    await group.members[old].start()
    leader = await group.wait_leader()
    group.members[leader].running.member_state.transferee = away.name
    group.client.leader_id = leader
    codes = list[int]()

    async def get() -> None:
        codes.append((await group.client.get(1)).code)

    group.nursery.start_soon(get)
    await trio.sleep(1)  # never over while somebody tries again without end
    assert not codes
    group.members[leader].running.member_state.transferee = None
    await group.wait(lambda: bool(codes))
    assert (await group.get(1)).code == Code.SUCCESS


async def test_a_leader_whose_disk_fails_steps_down_and_stays_down(
    group: ServerGroup, autojump_clock: MockClock
) -> None:
    """§7.3 row 18: DLedger's goes on beating, and the group has no usable leader."""
    await group.append(b"one")
    old = await group.wait_leader()
    server = group.members[old].running
    server.store.fail(StoreWriteError(OSError(errno.EIO, "Input/output error"), operation="fdatasync", path="/x"))
    begun_at = trio.current_time()
    await group.append(b"two")
    assert trio.current_time() - begun_at < LEAK_S + 8
    assert group.leaders != [old]
    assert "Input/output error" in (server.status().write_error or "")
    for name in list(group.leaders):
        group.members[name].kill()
    await trio.sleep(60)
    assert old not in group.leaders


async def test_a_preferred_leader_whose_disk_is_full_holds_nobody_up(
    nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it lacks it never gets, and no append could come meanwhile by which it lacked too much to be preferred."""

    async def run(_service: CleanSpaceService) -> None:
        """The disk stays as the test says."""

    monkeypatch.setattr(CleanSpaceService, "run", run)
    group = ServerGroup(nursery)
    group.transfer = replace(group.transfer, preferred_leader_ids=("n2",))
    await group.start("n0", "n1")
    await group.append(*[b"before"] * 5)
    leader, term = await group.wait_leader(), group.members["n0"].running.member_state.curr_term
    await group.start("n2")
    group.members["n2"].running.store.room.set_disk_full(True)
    await trio.sleep(10)
    begun_at = trio.current_time()
    await group.append(*[b"after"] * 200)
    assert trio.current_time() - begun_at < 5
    await trio.sleep(60)
    assert (group.leaders, group.members["n0"].running.member_state.curr_term) == ([leader], term)
    group.members["n2"].running.store.room.set_disk_full(False)
    await group.wait(lambda: group.leaders == ["n2"], limit_s=90)


async def test_a_term_that_cannot_be_saved_is_heard_by_nobody(group: ServerGroup, autojump_clock: MockClock) -> None:
    """Spec: dledger §1.15."""
    await group.append(b"one")
    leader = await group.wait_leader()
    other = next(member for name, member in group.members.items() if name != leader)
    other.disk.faults.full = True
    group.members[leader].kill()
    await trio.sleep(30)
    assert group.leaders == []
    assert "No space left" in (other.running.status().write_error or "")
    other.disk.faults.full = False
    await group.append(b"two")
    assert other.running.status().write_error is None


async def test_a_term_that_a_broken_disk_cannot_save_is_never_heard(
    group: ServerGroup, autojump_clock: MockClock
) -> None:
    await group.append(b"one")
    leader = await group.wait_leader()
    other = next(member for name, member in group.members.items() if name != leader)
    other.disk.faults.read_only = True
    group.members[leader].kill()
    await trio.sleep(30)
    other.disk.faults.read_only = False
    await trio.sleep(30)
    assert group.leaders == []
    assert other.running.status().write_error is not None


async def test_who_has_not_saved_its_vote_yet_is_not_counted_on(
    group: ServerGroup, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A member that was emptied acknowledged entries before: killed then, it could vote for another in that term."""
    leader = await group.wait_leader()
    await group.append(b"0")
    anew, other = [name for name in group.members if name != leader]
    save, may_save = TermFile.save_in_thread, trio.Event()

    async def save_late(file: TermFile, state: TermVote) -> None:
        if state.vote_leader == leader:
            await may_save.wait()
        await save(file, state)

    monkeypatch.setattr(TermFile, "save_in_thread", save_late)
    for name in (anew, other):
        group.members[name].kill()
    group.members[anew].disk.files.clear()
    await group.start(anew)
    await group.wait(lambda: group.members[anew].running.store.flushed_index == 0)
    await trio.sleep(1)
    checker = group.members[leader].running.pusher.checker
    assert checker is not None
    assert checker.water_mark(anew) == -1
    may_save.set()
    await group.wait(lambda: checker.water_mark(anew) == 0)


async def test_appends_that_wait_have_an_end(group: ServerGroup, autojump_clock: MockClock) -> None:
    """Seed checklist: majority before success; maxWaitAckTimeMs (spec: dledger §2.7)."""
    leader = await group.wait_leader()
    await group.append(b"one")
    for name, member in group.members.items():
        if name != leader:
            member.kill()
    answer = await group.client.append(b"alone")
    assert (answer.code, answer.index, answer.pos) == (Code.WAIT_QUORUM_ACK_TIMEOUT, 1, -1)
    codes = list[int]()

    async def append() -> None:
        codes.append((await group.client.append(b"later")).code)

    group.nursery.start_soon(append)
    await trio.sleep(1)
    group.members[leader].running.member_state.change_to_candidate()
    group.members[leader].running.on_role(is_durable=True)
    await group.wait(lambda: bool(codes))
    assert codes == [Code.TERM_CHANGED]


async def test_what_members_tell_of_each_other(group: ServerGroup, autojump_clock: MockClock) -> None:
    """Who is away, since when and why; who lacks what; and since when nobody stores what the leader has."""
    await group.append(*[b"one"] * 5)
    await group.wait_same()
    leader = await group.wait_leader()
    server = group.members[leader].running
    hung, killed = [name for name in group.members if name != leader]
    await trio.sleep(10)
    assert server.status().uncommitted_for_s is None
    assert server.status().deleted_early_s is None
    server.store.room.early.note(now=trio.current_time() - 5)
    assert server.status().deleted_early_s == 5
    assert 9 <= (server.status().leader_for_s or 0) <= 12
    assert [(view.id, view.connected, view.lacks) for view in server.view_members()] == [
        (hung, True, 0), (killed, True, 0),
    ]  # fmt: skip
    group.members[killed].kill()
    await group.append(b"two", b"three")
    await trio.sleep(20)
    gone = next(view for view in server.view_members() if view.id == killed)
    assert (gone.connected, gone.since_s, gone.lacks) == (False, 20, 2)
    assert f"{group.addresses[killed]}:{PORT}" in gone.reason
    for sender, receiver in ((leader, hung), (hung, leader)):
        group.net.cut(group.addresses[sender], group.addresses[receiver])
    assert (await group.client.append(b"four")).code == Code.WAIT_QUORUM_ACK_TIMEOUT
    await trio.sleep(1)
    assert server.status().uncommitted_for_s == 3
    assert next(view for view in server.view_members() if view.id == hung).heard_s >= 3
    group.net.heal()
    await group.members[killed].start()
    await group.append(b"five")
    await group.wait_same()
    assert group.members[await group.wait_leader()].running.status().uncommitted_for_s is None


async def test_a_follower_knows_how_far_it_is_behind(group: ServerGroup, autojump_clock: MockClock) -> None:
    await group.append(b"one")
    leader = await group.wait_leader()
    full = next(member for name, member in group.members.items() if name != leader)
    full.disk.faults.crowded = True
    await trio.sleep(1)
    await group.append(*[b"more"] * 30)
    await trio.sleep(10)
    views = {view.id: view for view in group.members[leader].running.view_members()}
    assert (views[full.name].lacks, 8 <= views[full.name].stuck_s <= 11) == (30, True)
    assert {view.stuck_s for name, view in views.items() if name != full.name} == {0}
    handler, store = full.running.pusher.handler, full.running.store
    assert (handler.leader_committed_index, store.ledger_end_index) == (30, 0)


async def test_who_lacked_nothing_all_the_time_is_stuck_since_it_lacks_something(
    group: ServerGroup, autojump_clock: MockClock
) -> None:
    """Else the first entry after a quiet minute has every member look stuck for a minute."""
    await group.append(b"one")
    leader = await group.wait_leader()
    full = next(member for name, member in group.members.items() if name != leader)
    await trio.sleep(60)
    full.disk.faults.crowded = True
    await trio.sleep(1)
    await group.append(b"two")
    await trio.sleep(5)
    [view] = [view for view in group.members[leader].running.view_members() if view.id == full.name]
    assert (view.lacks, 4 <= view.stuck_s <= 7) == (1, True)


async def test_a_stop_is_in_order(group: ServerGroup, autojump_clock: MockClock) -> None:
    await group.append(*[b"one"] * 3)
    await group.wait_same()
    for member in group.members.values():
        server = member.running
        server.stop()
        await group.wait(lambda member=member: member.server is None)  # type: ignore[misc]
        files = {path.rpartition("/")[2]: inode.cache for path, inode in member.disk.files.items()}
        assert files["checkpoint"] == b"committedIndex=2\nendIndex=2\n"


class TestTransfer:
    """Spec: dledger §4.6, §4.7."""

    async def test_a_member_takes_over(self, group: ServerGroup, autojump_clock: MockClock) -> None:
        await group.append(*[b"one"] * 5)
        old = await group.wait_leader()
        new = next(name for name in group.members if name != old)
        term = group.members[old].running.member_state.curr_term
        answer = await group.client.transfer_leadership(old, new, term=term)
        assert answer.code == Code.SUCCESS
        await group.wait(lambda: group.leaders == [new])
        assert group.members[new].running.member_state.curr_term == term + 1
        await group.append(b"two")
        await group.wait_same()

    async def test_what_cannot_be(self, group: ServerGroup, autojump_clock: MockClock) -> None:
        await group.append(b"one")
        leader = await group.wait_leader()
        other = next(name for name in group.members if name != leader)
        term = group.members[leader].running.member_state.curr_term
        ask = group.client.transfer_leadership
        assert (await ask(leader, "n7", term=term)).code == Code.UNKNOWN_MEMBER
        assert (await ask(leader, other, term=term + 1)).code == Code.INCONSISTENT_TERM
        assert (await ask(leader, leader, term=term)).code == Code.SUCCESS
        assert (await ask(other, other, term=term)).code in {Code.NOT_LEADER, Code.INCONSISTENT_LEADER}
        group.members[leader].running.store.member_state.transferee = other
        assert (await group.client.append(b"two")).code == Code.LEADER_TRANSFERRING
        assert (await ask(leader, other, term=term)).code == Code.LEADER_TRANSFERRING

    async def test_one_that_lacks_too_much(self, nursery: trio.Nursery, autojump_clock: MockClock) -> None:
        group = ServerGroup(nursery)
        group.transfer = default(TransferOptions, max_leadership_transfer_wait_index=5)
        await group.start()
        await group.append(b"one")
        leader = await group.wait_leader()
        late = next(name for name in group.members if name != leader)
        await group.wait_same()
        group.members[late].kill()
        await group.append(*[b"more"] * 5)
        term = group.members[leader].running.member_state.curr_term
        answer = await group.client.transfer_leadership(leader, late, term=term)
        assert answer.code == Code.FALL_BEHIND_TOO_MUCH

    async def test_what_a_transferee_answers(self, group: ServerGroup, autojump_clock: MockClock) -> None:
        await group.append(*[b"one"] * 3)
        leader = await group.wait_leader()
        asked, other = [name for name in group.members if name != leader]
        term = group.members[leader].running.member_state.curr_term
        network = group.net.host("10.0.1.9").mount()
        requests = [
            (LeadershipTransferRequest(term, other, asked, 2), Code.INCONSISTENT_LEADER),
            (LeadershipTransferRequest(term, leader, other, 2), Code.UNEXPECTED_ARGUMENT),
            (LeadershipTransferRequest(term + 1, leader, asked, 2), Code.INCONSISTENT_TERM),
            (LeadershipTransferRequest(term, leader, asked, 99), Code.TAKE_LEADERSHIP_FAILED),
            (LeadershipTransferRequest(term, leader, asked, 2), Code.SUCCESS),
        ]
        async with open_remoting_client(network, f"{group.addresses[asked]}:{PORT}") as client:
            for request, code in requests:
                body = encode(request, Base("g", asked))
                command = RemotingCommand(DLedgerRequestCode.LEADERSHIP_TRANSFER, body=body)
                answer = await client.invoke(command, timeout_s=5)
                assert decode(LeadershipTransferResponse, answer.body)[1].code == code
        assert group.leaders == [asked]

    async def test_one_that_does_not_answer_keeps_nobody_from_appending(
        self, group: ServerGroup, autojump_clock: MockClock
    ) -> None:
        """DLedger's flag may stay set for ever."""
        await group.append(b"one")
        leader = await group.wait_leader()
        other = next(name for name in group.members if name != leader)
        await group.wait_same()
        group.net.cut(group.addresses[leader], group.addresses[other])
        term = group.members[leader].running.member_state.curr_term
        answer = await group.client.transfer_leadership(leader, other, term=term)
        assert answer.code == Code.NETWORK_ERROR
        assert (await group.client.append(b"two")).code == Code.SUCCESS

    async def test_one_that_is_down_keeps_nobody_from_appending(
        self, group: ServerGroup, autojump_clock: MockClock
    ) -> None:
        """It may lack nothing that this leader knows of, so it is asked: there is nothing to ask it by."""
        await group.append(b"one")
        leader = await group.wait_leader()
        other = next(name for name in group.members if name != leader)
        await group.wait_same()
        group.members[other].kill()
        running = group.members[leader].running
        await group.wait(lambda: other not in running.rpc.connected)
        answer = await group.client.transfer_leadership(leader, other, term=running.member_state.curr_term)
        assert answer.code == Code.NETWORK_ERROR
        assert (await group.client.append(b"two")).code == Code.SUCCESS

    async def test_a_preferred_leader_leads_once_it_is_there(
        self, nursery: trio.Nursery, autojump_clock: MockClock
    ) -> None:
        group = ServerGroup(nursery)
        group.transfer = default(TransferOptions, preferred_leader_ids=("n2",))
        await group.start("n0", "n1")
        await group.append(*[b"one"] * 5)
        await group.members["n2"].start()
        await group.wait(lambda: group.leaders == ["n2"])
        await group.append(b"two")
        await group.wait_same()


async def test_members_of_ipv6_are_told_with_brackets(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """A client that knows one member connects to the others by the addresses that it was told."""
    group = ServerGroup(nursery, network="fd00::")
    await group.start()
    await group.append(b"one")
    told = await group.client.metadata("n0")
    assert told.peers == {name: f"[{address}]:{PORT}" for name, address in group.addresses.items()}
