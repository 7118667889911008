"""With which list of members each other member runs: by another one it counts other majorities, or other processes."""

from collections.abc import Callable, Collection, Mapping
from typing import Final

from rmqha.codec.dledger_wire import MetadataResponse
from rmqha.codec.host import is_same_address
from rmqha.dledger.peer_connection import PeerConnection
from rmqha.dledger.rival_members import RivalMembers

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
    if moved := moved_members(one, other):
        found.append((_places(moved, one), _places(moved, other)))
    return found


def moved_members(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """Return the members of both lists that are not at one address."""
    return [peer for peer in sorted({*one} & {*other}) if not is_same_address(one[peer], other[peer])]


def _places(members: list[str], addresses: Mapping[str, str]) -> str:
    return "has " + " and ".join(f"{peer} at {addresses[peer]}" for peer in members)


class MemberLists:
    """Each other member is asked whenever it is connected: a process has one list for its life."""

    def __init__(
        self,
        self_id: str,
        own: Mapping[str, str],
        connections: Mapping[str, PeerConnection],
        ask: AskMetadata,
        *,
        process: str,
        on_told: Callable[[], None] = lambda: None,
    ) -> None:
        """Nobody has told yet.

        Args:
            self_id: this member.
            own: its list, with the address of each.
            connections: to each other member, by its id.
            ask: asks one.
            process: this one, another for each.
            on_told: called when one has told, after which this member may lead, or may no longer.
        """
        self._self_id: Final = self_id
        self.rivals: Final = RivalMembers(self_id, process, own)
        self._own: Final = own
        self._members: Final[Members] = tuple(sorted(own))
        self._connections: Final = connections
        self._ask: Final = ask
        self._on_told: Final = on_told
        self._told: Final[dict[str, tuple[float, dict[str, str] | None]]] = {}
        """When the connection began by which it was told, and what was."""

    def ask(self, peer: str, *, again: bool = False) -> None:
        """Ask ``peer``, if it is connected and has not told yet; ``again``, or if it finds others than this member."""
        connection = self._connections[peer]
        again = again or not self._has_told(peer) or self._has_moved(peer) or self.rivals.counts_unknown(peer)
        if not (connection.is_connected and again):
            return
        since = connection.since

        def on_answer(response: MetadataResponse | None) -> None:
            if response is not None:
                self._told[peer] = since, _peers_of(response)
                self.rivals.note(peer, _peers_of(response) or {}, response.rmqha_status)
                self._on_told()

        self._ask(peer, on_answer)

    def ask_all(self, *, again: bool = False) -> None:
        """Ask those who have not told yet; ``again``, all: a machine that is gone says nothing of its end."""
        for peer in self._connections:
            self.ask(peer, again=again)

    def _has_told(self, peer: str) -> bool:
        return peer in self._told and self._told[peer][0] == self._connections[peer].since

    def _has_moved(self, peer: str) -> bool:
        return bool(moved_members(self._peers_at(peer) or {}, self._own))

    def counted(self) -> dict[str, str]:
        """The processes that are found as the other members now, as far as they tell."""
        found = {peer: self.rivals.process_of(peer) for peer in self._connections if self._has_told(peer)}
        return {peer: process for peer, process in found.items() if process is not None}

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
        Nor need what another process with its id, or this one's, has confirmed.
        """
        if not self._has_told(peer):
            self.ask(peer)
            return False
        if self.rivals.of(peer) or self.rivals.of(self._self_id):
            return False
        members = self.of(peer)
        return members is None or majorities_meet(members, self._members) or {*members} <= {*self._members}
