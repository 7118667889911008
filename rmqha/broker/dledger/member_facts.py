"""What the status document of a broker says of its member of a group (rmqha/cli/dledger_verdict.py)."""

from dataclasses import asdict
from typing import Any

from rmqha.dledger.dledger_server import DLedgerServer


def member_facts(server: DLedgerServer) -> dict[str, Any]:
    """Of a member that runs."""
    lacks = server.pusher.handler.leader_committed_index - server.store.ledger_end_index
    return asdict(server.status()) | {
        "connected": sorted(server.rpc.connected),
        "members": [asdict(view) for view in server.view_members()],
        "member_lists": server.membership.troubles(),
        "lack_of_room": server.store.room.refusal,
        "lacks": max(0, lacks) if server.member_state.is_follower else 0,
    }
