"""MemberView: how one member sees another."""

from collections.abc import Mapping
from dataclasses import dataclass

import trio

from rmqha.dledger.laggards import Laggards
from rmqha.dledger.peer_connection import PeerConnection
from rmqha.dledger.quorum_ack_checker import QuorumAckChecker


@dataclass(frozen=True, slots=True)
class MemberView:
    """Of another member; times in whole seconds.

    Attributes:
        since_s: so long ago it was connected, or was not any more.
        heard_s: so long ago it last sent anything; only who is asked does, and only the leader asks all the time.
        reason: why it is not connected, or what is wrong with who answers; empty if nothing is.
        lacks: committed entries that it is not known to have; None: this member does not lead.
        stuck_s: for so long it has lacked some, and taken none.
    """

    id: str
    connected: bool
    since_s: int
    heard_s: int
    reason: str
    lacks: int | None
    stuck_s: int


def view_members(
    connections: Mapping[str, PeerConnection],
    checker: QuorumAckChecker | None,
    laggards: Laggards,
    *,
    committed_index: int,
) -> list[MemberView]:
    """All other members, as one sees them that has committed so far; ``checker`` is a leader's."""
    now = trio.current_time()
    return [
        MemberView(
            id=peer,
            connected=connection.is_connected,
            since_s=int(now - connection.since),
            heard_s=int(now - connection.heard_at),
            reason=connection.reason,
            lacks=None if checker is None else max(0, committed_index - checker.water_mark(peer)),
            stuck_s=int(max(0.0, now - laggards.since(peer))),
        )
        for peer, connection in sorted(connections.items())
    ]
