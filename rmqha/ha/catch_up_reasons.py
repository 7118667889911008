"""What an operator is told of peers whose logs and this one do not fit together by themselves."""

from collections.abc import Sequence
from typing import Final

SLAVE_AHEAD: Final = (
    "this log began empty, no peer of haPeers has shown what it holds, and a slave reports more than this log has: "
    "stop this broker, have haPeers name that slave's HA port, and start it"
)
LEFT_OUT: Final = (
    "it was known to hold more, and haPeers does not name it any more: what it holds beyond this log is given up. If "
    "it only has another name or address there, stop this broker before it takes sends, and name it as before once"
)
BEGINS_EARLIER: Final = (
    "this log began empty, and like another peer's, before this one had said where its own begins: what lies before "
    "that may be there alone. If it has not expired, and consumers may lack it: once all slaves are in sync, stop this "
    "broker, move its store away, and start it while all peers run"
)


def why_unheard(peers: Sequence[str]) -> str:
    """What an operator has to know if nobody knows what these peers hold, and this log began empty."""
    return (
        f"this log began empty, and what {', '.join(peers)} of haPeers may hold is unknown: if this store "
        "was lost, sends take the places of messages there. Stop this broker and start them first; of a new group, "
        "start them"
    )
