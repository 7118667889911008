import pytest
import trio
import trio.testing
from trio.testing import MockClock

from rmqha.dledger.dledger_client import DLedgerClient
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.errors import MQBrokerError, RemotingConnectError
from tests.dledger.fake_group import IDS, PEERS, Group, client_of


@pytest.fixture
def group() -> Group:
    return Group()


async def test_who_leads_is_asked_once(group: Group, autojump_clock: MockClock) -> None:
    async with client_of(group) as client:
        answers = [await client.append(body) for body in (b"a", b"b", b"c")]
        assert [(answer.code, answer.index, answer.pos) for answer in answers] == [
            (200, 0, 0),
            (200, 1, 49),
            (200, 2, 98),
        ]
        assert (await client.get(1)).entries == (group.log[1],)
        assert len(group.asked_for("METADATA")) <= len(IDS)
        assert group.asked_for("APPEND") == ["n0"] * 3


async def test_one_member_names_the_others(group: Group, autojump_clock: MockClock) -> None:
    group.leader_id = "n2"
    async with client_of(group, "n1") as client:
        assert (await client.append(b"a")).leader_id == "n2"
        assert client.peers == PEERS


async def test_after_404_the_leader_is_looked_for_and_asked_once(group: Group, autojump_clock: MockClock) -> None:
    async with client_of(group) as client:
        await client.append(b"a")
        group.leader_id = "n1"
        assert (await client.append(b"b")).leader_id == "n1"
        group.members["n1"].codes = [404, 404]
        assert (await client.append(b"c")).code == 404
        assert group.asked_for("APPEND") == ["n0", "n0", "n1", "n1", "n1"]


async def test_another_code_goes_to_the_caller(group: Group, autojump_clock: MockClock) -> None:
    async with client_of(group) as client:
        group.members["n0"].codes = [503]
        assert (await client.append(b"a")).code == 503
        assert group.log == []


async def test_nobody_leads(group: Group, autojump_clock: MockClock) -> None:
    group.leader_id = None
    async with client_of(group) as client:
        started = trio.current_time()
        answer = await client.append(b"a")
        assert (answer.code, answer.index) == (301, -1)
        assert trio.current_time() - started == pytest.approx(1.5, abs=0.2)
        assert (await client.get(0)).code == 301


async def test_who_has_answered_is_not_called_unreachable(group: Group, autojump_clock: MockClock) -> None:
    group.leader_id = None
    async with client_of(group) as client, trio.open_nursery() as nursery:

        @nursery.start_soon
        async def fall_silent() -> None:
            await trio.sleep(1)
            for member in group.members.values():
                member.is_silent = True

        assert (await client.append(b"a")).code == 301


async def test_a_leader_that_appears_meanwhile_is_asked(group: Group, autojump_clock: MockClock) -> None:
    group.leader_id = None
    async with client_of(group) as client, trio.open_nursery() as nursery:

        async def elect() -> None:
            await trio.sleep(1.0)
            group.leader_id = "n1"

        nursery.start_soon(elect)
        assert (await client.append(b"a")).leader_id == "n1"


async def test_followers_may_not_know_yet_that_their_leader_is_dead(group: Group, autojump_clock: MockClock) -> None:
    async with client_of(group, running_ids=("n1", "n2")) as client:
        assert (await client.append(b"a")).code == 301
        group.leader_id = "n1"
        group.members["n2"].says = "n0"
        assert (await client.append(b"a")).leader_id == "n1"


async def test_of_two_that_say_they_lead_the_one_with_followers(group: Group, autojump_clock: MockClock) -> None:
    group.leader_id = "n1"
    async with client_of(group) as client:
        group.members["n0"].says = "n0"
        assert await client.find_leader() == "n1"


async def test_a_leader_that_died_was_never_asked_and_the_next_one_is(group: Group, autojump_clock: MockClock) -> None:
    async with client_of(group) as client:
        await client.append(b"a")
        await group.members["n0"].server.close(grace_s=0)
        await trio.testing.wait_all_tasks_blocked()
        group.leader_id = "n2"
        assert (await client.append(b"b")).leader_id == "n2"
        assert len(group.log) == 2


async def test_without_an_answer_the_outcome_is_unknown(group: Group, autojump_clock: MockClock) -> None:
    async with client_of(group) as client:
        await client.append(b"a")
        group.members["n0"].is_silent = True
        assert (await client.append(b"b")).code == 300
        assert client.leader_id is None
        assert group.asked_for("APPEND") == ["n0", "n0"], "what may be appended is not sent again"


async def test_a_connection_that_ends_leaves_the_outcome_unknown(group: Group, autojump_clock: MockClock) -> None:
    async with client_of(group) as client:
        await client.append(b"a")
        group.members["n0"].is_silent = True
        async with trio.open_nursery() as nursery:

            async def die() -> None:
                await trio.sleep(0.5)
                group.leader_id = "n2"
                await group.members["n0"].server.close(grace_s=0)

            nursery.start_soon(die)
            assert (await client.append(b"b")).code == 302
        assert group.asked_for("APPEND") == ["n0", "n0"], "what may be appended is not sent to the next leader"


async def test_nobody_is_there(group: Group, autojump_clock: MockClock) -> None:
    async with client_of(group, running_ids=("n0",)) as client:
        await group.members["n0"].server.close(grace_s=0)
        with pytest.raises(RemotingConnectError, match="group g: "):
            await client.append(b"a")


async def test_what_no_leader_can_read_is_told_in_its_words(group: Group, autojump_clock: MockClock) -> None:
    async with client_of(group) as client:
        group.members["n0"].remark = "BufferOverflowException"
        with pytest.raises(MQBrokerError, match="BufferOverflowException"):
            await client.append(b"a")


async def test_what_no_entry_can_hold_is_not_sent(group: Group, autojump_clock: MockClock) -> None:
    """Beyond 12 MB no frame holds it, either: the command ended there, and left out the lines behind it."""
    async with client_of(group) as client:
        group.members["n0"].remark = "BufferOverflowException"
        assert (await client.append(bytes(20_000_000))).code == DLedgerResponseCode.UNEXPECTED_ARGUMENT


async def test_the_term_of_a_member_that_does_not_tell_it(group: Group, autojump_clock: MockClock) -> None:
    async with client_of(group) as client:
        assert await client.term_of("n1") == 3


async def test_no_answer_adds_members_without_end(
    group: Group, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(PEERS, "n0", PEERS["n0"])
    async with client_of(group, "n0") as client:
        for number in range(1000):
            monkeypatch.setitem(PEERS, f"x{number}", "10.0.0.1:1")
        await client.metadata("n0")
        assert len(client.peers) == 64


async def test_many_who_wait_for_a_leader_search_once(group: Group, autojump_clock: MockClock) -> None:
    group.leader_id = None
    async with client_of(group) as client:
        answers: list[int] = []

        async def append() -> None:
            answers.append((await client.append(b"a")).code)

        started = trio.current_time()
        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(append)
        assert answers == [301] * 100
        assert trio.current_time() - started == pytest.approx(1.5, abs=0.2)
        assert len(group.asked_for("METADATA")) < 60


async def test_who_waits_for_a_search_that_was_cancelled_searches_again(
    group: Group, autojump_clock: MockClock
) -> None:
    group.leader_id = None
    async with client_of(group) as client, trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            nursery.start_soon(lambda: _cancel_soon(scope, group))
            nursery.start_soon(lambda: _appends(client))
            await client.find_leader()
        assert scope.cancelled_caught


async def _cancel_soon(scope: trio.CancelScope, group: Group) -> None:
    await trio.sleep(0.5)
    scope.cancel()
    group.leader_id = "n1"


async def _appends(client: DLedgerClient) -> None:
    await trio.sleep(0.2)
    assert (await client.append(b"a")).leader_id == "n1"
