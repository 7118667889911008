"""A preferred leader that does not take over: it is asked again, soon or later, and nobody is held up."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.dledger_rpc_service import Question
from rmqha.dledger.leadership_transfer import LeadershipTransfer, TransferOptions
from rmqha.dledger.quorum_ack_checker import QuorumAckChecker
from tests.dledger.defaults import default
from tests.dledger.members import leader
from tests.dledger.servers import ServerGroup
from tests.sim.sim_disk import SimDisk

PEERS = frozenset({"n0", "n1", "n2"})


async def test_one_that_stands_still_keeps_nobody_from_appending(
    nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes connections and answers nothing. Each attempt to hand over to it refuses appends until it has failed."""
    group = ServerGroup(nursery)
    group.transfer = default(TransferOptions, preferred_leader_ids=("n2",))
    await group.start("n0", "n1")
    await group.append(b"before")
    await trio.sleep(10)
    answer, answer_push = Question.answer, Question.answer_push

    def answer_unless_still(question: Question, *told: object) -> None:
        if question.base.remote_id != "n2":
            answer(question, *told)  # type: ignore[arg-type]

    def answer_push_unless_still(question: Question, *told: object) -> None:
        if question.base.remote_id != "n2":
            answer_push(question, *told)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(Question, "answer", answer_unless_still)
        patch.setattr(Question, "answer_push", answer_push_unless_still)
        await group.members["n2"].start()
        for _ in range(400):
            assert (await group.client.append(b"meanwhile")).code == DLedgerResponseCode.SUCCESS
            await trio.sleep(0.1)
    await group.wait(lambda: group.leaders == ["n2"])
    await group.append(b"after")


@pytest.mark.parametrize(
    ("code", "again_after_s"),
    [
        (DLedgerResponseCode.INCONSISTENT_LEADER, 1.0),
        (DLedgerResponseCode.INCONSISTENT_TERM, 1.0),
        (DLedgerResponseCode.TAKE_LEADERSHIP_FAILED, 30.0),
        (DLedgerResponseCode.NETWORK_ERROR, 30.0),
    ],
)
def test_one_that_has_not_heard_of_this_leader_yet_is_soon_asked_again(
    code: DLedgerResponseCode, again_after_s: float
) -> None:
    """As a rule it has not: a leader asks it when its own first heartbeat is still under way."""
    store, answers = leader(SimDisk(latency_s=(0, 0)).mount()), list[Callable[[int], None]]()
    pusher: Any = SimpleNamespace(checker=QuorumAckChecker(PEERS, inherited_index=-1, max_pending_requests_num=10))
    transfer = LeadershipTransfer(
        store,
        pusher,
        PEERS,
        options=default(TransferOptions, preferred_leader_ids=("n2",)),
        ask=lambda _peer, _request, answer: answers.append(answer),
        elect=lambda _on_begun: None,
        answering=lambda: PEERS,
        may_take_over=lambda: True,
    )
    transfer.step(now=0.0)
    answers.pop()(code)
    transfer.step(now=0.0)
    transfer.step(now=again_after_s - 0.01)
    assert not answers
    transfer.step(now=again_after_s)
    assert len(answers) == 1
