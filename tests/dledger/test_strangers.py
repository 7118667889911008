"""A member whose peers do not know it: its operator is told why it has no leader."""

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest
import structlog
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.codec.dledger_wire import Base, encode
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.dledger_rpc_service import DLedgerProtocolHandler, DLedgerRpcService
from rmqha.dledger.member_state import MemberState
from rmqha.dledger.peer_connection import PeerConnection
from rmqha.dledger.server_options import ServerOptions
from rmqha.dledger.vote import HeartBeatRequest, HeartBeatResponse, Outgoing
from tests.dledger.servers import ServerGroup


class AnsweringPeer:
    """A connection to a peer that answers each request at once."""

    def __init__(self, answers: list[bytes]) -> None:
        self._answers = iter(answers)

    def ask(self, _code: int, _body: bytes, on_answer: Callable[[bytes | None], None]) -> None:
        on_answer(next(self._answers))


def with_three_peers(options: ServerOptions, name: str) -> ServerOptions:
    """The fourth was added to its own peers only."""
    return replace(options, peers={peer: options.peers[peer] for peer in {"n0", "n1", "n2", name}})


def in_another_group(options: ServerOptions, name: str) -> ServerOptions:
    return replace(options, group="other" if name == "n3" else options.group)


@pytest.mark.parametrize(
    ("change", "code"),
    [(with_three_peers, DLedgerResponseCode.SUCCESS), (in_another_group, DLedgerResponseCode.UNKNOWN_GROUP)],
)
async def test_who_is_unknown_to_the_others_says_so_once(
    nursery: trio.Nursery,
    autojump_clock: MockClock,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[ServerOptions, str], ServerOptions],
    code: int,
) -> None:
    make = ServerGroup.options_of
    monkeypatch.setattr(ServerGroup, "options_of", lambda group, name: change(make(group, name), name))
    group = ServerGroup(nursery, size=4)
    structlog.configure(wrapper_class=structlog.BoundLogger)
    with capture_logs() as logs:
        await group.start()
        await group.wait_leader()
        await trio.sleep(60)
        told = [line for line in logs if line["event"] == "dledger_peer.unknown_there"]
    assert {line["peer"] for line in told if line["code"] == code} >= {"n0", "n1", "n2"}
    assert len(told) <= 6
    assert group.members["n3"].running.leader_id is None


async def test_a_peer_that_knows_us_and_then_does_not_cannot_fill_the_log(autojump_clock: MockClock) -> None:
    """It is said once, and again when it has answered well meanwhile."""
    codes = [DLedgerResponseCode.UNKNOWN_MEMBER, DLedgerResponseCode.SUCCESS] * 500
    connection = AnsweringPeer([encode(HeartBeatResponse(code), Base(code=code)) for code in codes])
    handler = cast("DLedgerProtocolHandler", SimpleNamespace(member_state=MemberState("n0")))
    service = DLedgerRpcService(group="g", self_id="n0", handler=handler)
    service.connections["n1"] = cast("PeerConnection", connection)
    structlog.configure(wrapper_class=structlog.BoundLogger)
    with capture_logs() as logs:
        for _ in codes:
            service.ask(Outgoing("n1", 1, HeartBeatRequest("n0", 1)), lambda _answer: None)
    assert len(logs) == 20
