"""A preferred leader that takes connections and answers nothing, as a process does that stands still."""

import pytest
import trio
from trio.testing import MockClock

from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.dledger_rpc_service import Question
from rmqha.dledger.leadership_transfer import TransferOptions
from tests.dledger.defaults import default
from tests.dledger.servers import ServerGroup


async def test_one_that_stands_still_keeps_nobody_from_appending(
    nursery: trio.Nursery, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each attempt to hand over to it refuses appends until that has failed."""
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
