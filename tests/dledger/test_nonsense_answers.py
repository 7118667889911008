"""Members whose answers are none: what waits for one goes on, and nobody else is hurt."""

import pytest
import trio
from trio.testing import MockClock

from rmqha.codec.dledger_wire import HANDLED, Base, LeadershipTransferResponse, MetadataResponse
from rmqha.codec.remoting import RemotingCommand
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.dledger_rpc_service import Question
from rmqha.dledger.vote import HeartBeatResponse, VoteResponse
from tests.dledger.servers import ServerGroup

Code = DLedgerResponseCode


def talk_nonsense(monkeypatch: pytest.MonkeyPatch, group: ServerGroup, name: str, *kinds: type) -> None:
    """Have a member answer the others so where it would answer with one of these ``kinds``."""
    answer, others = Question.answer, set(group.addresses.values())

    def answer_nonsense(question: Question, message: object, base: Base) -> None:
        is_asked = question.base.remote_id == name and question.connection.peer.rpartition(":")[0] in others
        if is_asked and isinstance(message, kinds):
            question.connection.send_reply(question.command, RemotingCommand(HANDLED, body=b'{"code":"nonsense"}'))
        else:
            answer(question, message, base)

    monkeypatch.setattr(Question, "answer", answer_nonsense)


@pytest.fixture
async def group(nursery: trio.Nursery, autojump_clock: MockClock) -> ServerGroup:
    made = ServerGroup(nursery)
    await made.start()
    await made.append(b"before")
    await made.wait_same()
    return made


async def test_who_is_to_take_over(
    group: ServerGroup, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """Appends were refused for ever: leadership was being handed over."""
    leader = await group.wait_leader()
    other = next(name for name in group.members if name != leader)
    state = group.members[leader].running.member_state
    group.members[other].disk.faults.crowded = True
    await trio.sleep(2)
    talk_nonsense(monkeypatch, group, other, LeadershipTransferResponse)
    answer = await group.client.transfer_leadership(leader, other, term=state.curr_term)
    assert answer.code == Code.NETWORK_ERROR
    assert (await group.client.append(b"after")).code == Code.SUCCESS


async def test_who_is_asked_whether_it_has_room(
    group: ServerGroup, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """The leader waited for its answer for ever, and asked nobody else."""
    leader = await group.wait_leader()
    other = next(name for name in group.members if name != leader)
    with monkeypatch.context() as patch:
        talk_nonsense(patch, group, other, MetadataResponse)
        group.members[leader].disk.faults.crowded = True
        await trio.sleep(5)
        assert group.leaders == [leader], "of one that has room there is no majority"
    await group.wait(lambda: group.leaders not in ([leader], []), limit_s=5)


async def test_who_is_asked_for_votes_and_hears_heartbeats(
    group: ServerGroup, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    leader = await group.wait_leader()
    other = next(name for name in group.members if name != leader)
    talk_nonsense(monkeypatch, group, other, VoteResponse, HeartBeatResponse)
    group.members[leader].kill()
    await trio.sleep(10)
    await group.members[leader].start()
    await group.append(b"after")
