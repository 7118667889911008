"""With which list of members each other member runs: by another one it counts other majorities, or other processes."""

from collections.abc import Callable, Collection, Mapping
from typing import Final

from rmqha.codec.dledger_wire import MetadataResponse
from rmqha.codec.host import is_same_address
from rmqha.dledger.peer_connection import PeerConnection

AskMetadata = Callable[[str, Callable[[MetadataResponse | None], None]], None]
"""Asks a member how it is; None: it does not answer."""
Members = tuple[str, ...]
"""Ids, sorted."""
_MEMBERS_MAX: Final = 100
_ID_SIZE_MAX: Final = 255
_ADDRESS_SIZE_MAX: Final = 255 + len("[]:65535")
"""No group has more, or longer names: they are noted, and named in status and log."""


def majorities_meet(one: Collection[str], other: Collection[str]) -> bool:
    """Whether each majority of the one must have a member in common with each of the other."""
    return len(one) // 2 + len(other) // 2 + 2 > len({*one, *other})


def members_of(response: MetadataResponse) -> Members | None:
    """With whom the member runs that answered; None: it does not say, or tells what is no group's list."""
    peers = _peers_of(response)
    return None if peers is None else tuple(sorted(peers))


def _peers_of(response: MetadataResponse) -> dict[str, str] | None:
    peers = (response.peers if response.code == MetadataResponse().code else None) or {}
    is_list = (
        0 < len(peers) <= _MEMBERS_MAX
        and max(map(len, peers)) <= _ID_SIZE_MAX
        and max(map(len, peers.values())) <= _ADDRESS_SIZE_MAX
    )
    return peers if is_list else None


def differences(one: Mapping[str, str], other: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return what two lists, of addresses by id, say otherwise: a verb with who the members are, or where some are."""
    found = []
    if one.keys() != other.keys():
        found.append((f"runs with {', '.join(sorted(one))}", f"runs with {', '.join(sorted(other))}"))
    both = sorted({*one} & {*other})
    if moved := [peer for peer in both if not is_same_address(one[peer], other[peer])]:
        found.append((_places(moved, one), _places(moved, other)))
    return found


def _places(members: list[str], addresses: Mapping[str, str]) -> str:
    return "has " + " and ".join(f"{peer} at {addresses[peer]}" for peer in members)


class MemberLists:
    """Each other member is asked whenever it is connected: a process has one list for its life."""

    def __init__(self, own: Mapping[str, str], connections: Mapping[str, PeerConnection], ask: AskMetadata) -> None:
        """Nobody has told yet.

        Args:
            own: this member's, with the address of each.
            connections: to each other member, by its id.
            ask: asks one.
        """
        self._own: Final = own
        self._members: Final[Members] = tuple(sorted(own))
        self._connections: Final = connections
        self._ask: Final = ask
        self._told: Final[dict[str, tuple[float, dict[str, str] | None]]] = {}
        """When the connection began by which it was told, and what was."""

    def ask(self, peer: str) -> None:
        """Ask ``peer``, if it is connected and has not told yet."""
        connection = self._connections[peer]
        if not connection.is_connected or self._has_told(peer):
            return
        since = connection.since

        def on_answer(response: MetadataResponse | None) -> None:
            if response is not None:
                self._told[peer] = since, _peers_of(response)

        self._ask(peer, on_answer)

    def ask_all(self) -> None:
        """Ask those who have not told yet."""
        for peer in self._connections:
            self.ask(peer)

    def _has_told(self, peer: str) -> bool:
        return peer in self._told and self._told[peer][0] == self._connections[peer].since

    def _peers_at(self, peer: str) -> dict[str, str] | None:
        return self._told[peer][1] if peer in self._connections and self._has_told(peer) else None

    def of(self, peer: str) -> Members | None:
        """With whom ``peer`` runs, as it told by the present connection; None: that is not known."""
        peers = self._peers_at(peer)
        return None if peers is None else tuple(sorted(peers))

    def differences(self) -> list[tuple[str, str, str]]:
        """Who has told another list than this member's, what it says (see :func:`differences`), and what this one."""
        told = [(peer, self._peers_at(peer)) for peer in sorted(self._connections)]
        return [(peer, *texts) for peer, peers in told if peers for texts in differences(peers, self._own)]

    def may_vote_for_this(self, peer: str) -> bool:
        """Whether the vote of ``peer`` may count for this member; who has not told yet is asked.

        What was acknowledged by majorities of its list need not be where this member's vote: those whom it lacks.
        """
        if not self._has_told(peer):
            self.ask(peer)
            return False
        members = self.of(peer)
        return members is None or majorities_meet(members, self._members) or {*members} <= {*self._members}
