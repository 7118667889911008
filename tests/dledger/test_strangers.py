"""A member whose peers do not know it: its operator is told why it has no leader."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import structlog
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.server_options import ServerOptions
from tests.dledger.servers import ServerGroup


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
