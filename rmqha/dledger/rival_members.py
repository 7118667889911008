"""Two processes with one id: majorities that count the one need not meet those that count the other.

So it is where a member is started on a new machine, and the old one comes back: each is found at its address by those
whose list has that. Members of rmqha tell one another which process they find as each id; Java's do not.
"""

from collections import defaultdict, deque
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from rmqha.codec.dledger_wire import MemberStatus
from rmqha.codec.host import is_same_address

_SEEN_MAX: Final = 64
"""The last processes of a member that are remembered: others may tell of one that has ended."""
_PROCESS_SIZE_MAX: Final = 64
"""Characters; a time in milliseconds has 13."""
_LASTING: Final = 20
"""So many answers, a second apart, are no stale ones: who asks all again every ten finds a machine that is gone."""
_SEE: Final = "see docs/dledger.md, 'A member with another list'"


class Rival(NamedTuple):
    """Another process with a member's id: who counts it, and where, which may be another machine by the same name."""

    teller: str
    address: str


class _Told(NamedTuple):
    addresses: Mapping[str, str]
    unknown: Mapping[str, str]
    """The processes it counts that this member had not found as those members."""
    times: Mapping[str, int]
    """How often it has told of such a one, since it last told of one that this member had found."""


class RivalMembers:
    """What the others have told, until they tell anew: who is away may have acknowledged with the other process.

    So may one that counts nobody at present, as it was started again, or the other process was.
    """

    def __init__(self, self_id: str, process: str, addresses: Mapping[str, str]) -> None:
        """Nobody has told yet; ``process`` is this one, ``addresses`` is its list."""
        self._self_id: Final = self_id
        self._addresses: Final = addresses
        self._told: Final[dict[str, _Told]] = {}
        self._seen: Final = defaultdict[str, deque[str]](lambda: deque(maxlen=_SEEN_MAX))
        """The processes that this member has found as each id, itself too; the one that it found last is the last."""
        self._seen[self_id].append(process)

    def note(self, peer: str, addresses: Mapping[str, str], status: MemberStatus | None) -> None:
        """``peer``, of which this is the status, has that list; None: it tells no status."""
        status, seen = status or MemberStatus(), self._seen
        if status.process is not None and _is_kept(status.process):
            self._find(peer, status.process)
        before = self._told.get(peer, _Told({}, {}, {}))
        addresses = addresses or before.addresses
        kept = {member: process for member, process in before.unknown.items() if _is_at(member, before, addresses)}
        counted = {member: process for member, process in (status.counted or {}).items() if _is_kept(process)}
        unknown = {
            member: process
            for member, process in (kept | counted).items()
            if member in self._addresses and process not in seen[member]
        }
        times = {member: before.times.get(member, 0) + (member in counted) for member in unknown}
        self._told[peer] = _Told(addresses, unknown, times)

    def _find(self, peer: str, process: str) -> None:
        """One that was found before, and another since, is the last again: its address led elsewhere meanwhile."""
        seen = self._seen[peer]
        if not seen or seen[-1] != process:
            if process in seen:
                seen.remove(process)
            seen.append(process)

    def counts_unknown(self, peer: str) -> bool:
        """Whether ``peer`` has last told of a process that this member had not found: it may be behind, or this one."""
        return peer in self._told and bool(self._told[peer].unknown)

    def process_of(self, member: str) -> str | None:
        """The last process that this member has found as ``member``; None: who is there does not say."""
        return self._seen[member][-1] if self._seen[member] else None

    def of(self, member: str) -> Rival | None:
        """Who counts, as ``member``, another process than any that this one has found where it looks for it."""
        seen = self._seen[member]
        for teller, told in sorted(self._told.items()):
            place = told.addresses.get(member)
            if place is None or not seen or told.unknown.get(member, seen[-1]) in seen:
                continue
            if not is_same_address(place, self._addresses[member]) or told.times[member] >= _LASTING:
                return Rival(teller, place)
        return None

    def troubles(self, counted: Collection[str]) -> list[str]:
        """Which votes do not count here, and why; ``counted`` are the others that this member finds at present."""
        found = [(member, self.of(member)) for member in sorted(self._addresses)]
        found_here = {self._self_id, *counted}
        return [
            self._trouble(member, rival, counted)
            for member, rival in found
            if rival and (member in found_here or not is_same_address(rival.address, self._addresses[member]))
        ]

    def _trouble(self, member: str, rival: Rival, counted: Collection[str]) -> str:
        here, there, teller = self._addresses[member], rival.address, rival.teller
        what = "it is not elected" if member == self._self_id else f"no vote of {member} counts here"
        if is_same_address(here, there):
            return (
                f"two processes are {member}, at {here}, which leads {teller} to the other one: {what} until one of "
                f"them is stopped for good, and {here} leads all to the one that is left; {_SEE}"
            )
        if member != self._self_id and member not in counted:
            return (
                f"it does not find {member} at {here}, where its list has it, and {teller} has it at {there}: {what} "
                f"until this member, if {member} has moved, or else {teller} is started again with the right list; "
                f"{_SEE}"
            )
        return (
            f"two processes are {member}, at {here} as it has it, and at {there} as {teller} has it: {what} until one "
            f"of them is stopped for good, and {teller} (if that is gone for good, this member) started again with the "
            f"same list; {_SEE}"
        )


def _is_at(member: str, before: _Told, addresses: Mapping[str, str]) -> bool:
    """Whether the list still has ``member`` where it was found."""
    return member in before.addresses and addresses.get(member) == before.addresses[member]


def _is_kept(process: str) -> bool:
    return len(process) <= _PROCESS_SIZE_MAX
