"""DLedgerRpcService: what it keeps of a request that waits for its answer."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rmqha.codec.dledger_entry import DLedgerEntry
from rmqha.codec.dledger_usual import encode_append
from rmqha.codec.dledger_wire import AppendEntryRequest, Base, DLedgerRequestCode, GetEntriesRequest, encode
from rmqha.codec.remoting import RemotingCommand
from rmqha.dledger.dledger_rpc_service import DLedgerRpcService, Question
from rmqha.dledger.member_state import MemberState
from rmqha.dledger.push_entry import PushEntryRequest, PushType
from rmqha.dledger.push_wire import encode_push

BASE = Base("g", "n0")
ENTRY = DLedgerEntry(bytes(1000), 0, 1, 0, size=1048)
PUSH = PushEntryRequest(PushType.APPEND, 1, "n1", -1, (ENTRY,))
REQUESTS = {
    DLedgerRequestCode.APPEND: encode_append(AppendEntryRequest(bytes(1000)), BASE),
    DLedgerRequestCode.GET: encode(GetEntriesRequest(7), BASE),
    DLedgerRequestCode.PUSH: encode_push(PUSH, group="g", remote_id="n0"),
}


class Waiting:
    """A handler that answers nothing yet."""

    def __init__(self) -> None:
        self.leader_id, self.member_state = None, MemberState("n0")
        self.questions = list[Question]()

    def __getattr__(self, name: str) -> Callable[[object, Question], None]:
        assert name.startswith("handle_"), name
        return lambda _request, question: self.questions.append(question)


@pytest.mark.parametrize("code", REQUESTS)
def test_of_a_request_that_waits_the_body_is_not_kept(code: DLedgerRequestCode) -> None:
    """Thousands of appends may wait for a majority, whose entries are in the log; how large each was is counted on."""
    handler, processors = Waiting(), dict[int, Callable[[Any, RemotingCommand], None]]()
    dispatcher: Any = SimpleNamespace(register=processors.__setitem__)
    DLedgerRpcService(group="g", self_id="n0", handler=handler).register(dispatcher)
    command = RemotingCommand(code, body=REQUESTS[code], size=len(REQUESTS[code]))
    processors[code](object(), command)
    (question,) = handler.questions
    assert (bytes(question.command.body), question.command.size) == (b"", len(REQUESTS[code]))
