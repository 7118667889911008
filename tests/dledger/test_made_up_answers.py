"""What a member believes of answers that others make up: terms, and how much they say of themselves."""

from types import SimpleNamespace
from typing import Any

import pytest

from rmqha.codec.dledger_wire import Base, MemberStatus, MetadataResponse, decode_metadata, encode
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.dledger_rpc_service import DLedgerRpcService
from rmqha.dledger.member_state import MemberState
from rmqha.dledger.peer_connection import OnAnswer
from rmqha.dledger.vote import (
    HeartBeatRequest,
    HeartBeatResponse,
    Outgoing,
    Send,
    VoteRequest,
    VoteResponse,
    VoteResult,
)
from rmqha.errors import RemoteProtocolError

TERM_MAX = 1 << 62


def expired(term: int) -> list[tuple[Send, object]]:
    return [
        (VoteRequest("n0", 5, -1, -1), VoteResponse(VoteResult.REJECT_EXPIRED_VOTE_TERM, term)),
        (HeartBeatRequest("n0", 5), HeartBeatResponse(DLedgerResponseCode.EXPIRED_TERM, term)),
    ]


@pytest.mark.parametrize(
    ("own", "term", "is_believed"),
    [(5, TERM_MAX, True), (5, TERM_MAX + 1, False), (TERM_MAX, TERM_MAX + 9, True), (5, (1 << 63) - 1, False)],
)
def test_a_term_that_leaves_no_room_for_elections_is_not_taken_over(own: int, term: int, *, is_believed: bool) -> None:
    """One member that had taken it over would have had all others do so, and none of them leads ever again."""
    handler: Any = SimpleNamespace(member_state=MemberState("n0", curr_term=own))
    rpc, told, waiting = DLedgerRpcService(group="g", self_id="n0", handler=handler), list[object](), list[OnAnswer]()
    connection: Any = SimpleNamespace(ask=lambda _code, _body, on_answer: waiting.append(on_answer))
    rpc.connections["n1"] = connection
    for request, answer in expired(term):
        rpc.ask(Outgoing("n1", 1, request), told.append)
        body = encode(answer, Base("g"))
        if is_believed:
            waiting[-1](body)
            assert told.pop() == answer
        else:
            with pytest.raises(RemoteProtocolError, match="no group has come to a term of"):
                waiting[-1](body)
    assert told == []


def test_a_member_that_says_more_of_itself_than_any_is_not_listened_to() -> None:
    """It goes into lines of the log, and to who asks for the status."""
    for length in (300, 1 << 20):
        status = MemberStatus(role="FOLLOWER", write_error="x" * length)
        body = encode(MetadataResponse(200, None, {}, status), Base("g"))
        if length == 300:
            assert decode_metadata(body).rmqha_status == status
        else:
            with pytest.raises(RemoteProtocolError, match="more than any member's"):
                decode_metadata(body)
