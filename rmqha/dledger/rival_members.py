"""Two processes with one id: majorities that count the one need not meet those that count the other.

So it is where a member is started on a new machine, and the old one comes back: each is found at its address by those
whose list has that. Members of rmqha tell one another which process they find as each id; Java's do not.
"""

from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Final, NamedTuple

from rmqha.codec.dledger_wire import MemberStatus
from rmqha.codec.host import is_same_address

_SEEN_MAX: Final = 64
"""The last processes of a member that are remembered: others may tell of one that has ended."""
_PROCESS_SIZE_MAX: Final = 64
"""Characters; a time in milliseconds has 13."""


class Rival(NamedTuple):
    """Another process with a member's id: who counts it, and where."""

    teller: str
    address: str


class _Told(NamedTuple):
    addresses: Mapping[str, str]
    counted: Mapping[str, str]


class RivalMembers:
    """What the others have told, until they tell anew: who is away may have acknowledged with the other process."""

    def __init__(self, self_id: str, process: str, addresses: Mapping[str, str]) -> None:
        """Nobody has told yet; ``process`` is this one, ``addresses`` is its list."""
        self._self_id: Final = self_id
        self._addresses: Final = addresses
        self._told: Final[dict[str, _Told]] = {}
        self._seen: Final = defaultdict[str, deque[str]](lambda: deque(maxlen=_SEEN_MAX))
        """The processes that this member has found as each id, itself too."""
        self._seen[self_id].append(process)

    def note(self, peer: str, addresses: Mapping[str, str], status: MemberStatus | None) -> None:
        """``peer``, of which this is the status, has that list; None: it tells no status."""
        status = status or MemberStatus()
        counted = (status.counted or {}).items()
        mine = {member: process for member, process in counted if member in self._addresses and _is_kept(process)}
        self._told[peer] = _Told(addresses, mine)
        if status.process is not None and status.process not in self._seen[peer] and _is_kept(status.process):
            self._seen[peer].append(status.process)

    def process_of(self, member: str) -> str | None:
        """The last process that this member has found as ``member``; None: who is there does not say."""
        return self._seen[member][-1] if self._seen[member] else None

    def of(self, member: str) -> Rival | None:
        """Who counts, as ``member``, another process than any that this one has found where it looks for it."""
        seen = self._seen[member]
        for teller, (addresses, counted) in sorted(self._told.items()):
            place = addresses.get(member)
            if place is None or is_same_address(place, self._addresses[member]):
                continue
            if seen and counted.get(member, seen[-1]) not in seen:
                return Rival(teller, place)
        return None

    def troubles(self) -> list[str]:
        """Which votes do not count here, and why."""
        found = [(member, self.of(member)) for member in sorted(self._addresses)]
        return [self._trouble(member, rival) for member, rival in found if rival is not None]

    def _trouble(self, member: str, rival: Rival) -> str:
        what = "it is not elected" if member == self._self_id else f"no vote of {member} counts here"
        return (
            f"two processes are {member}, at {self._addresses[member]} as it has it, and at {rival.address} as "
            f"{rival.teller} has it: {what} until one of them is stopped for good, and {rival.teller} (if that is gone "
            "for good, this member) started again with the same list; see docs/dledger.md, 'A member with another list'"
        )


def _is_kept(process: str) -> bool:
    return len(process) <= _PROCESS_SIZE_MAX
