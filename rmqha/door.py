"""Door: which peers may hold the places of a port, and which give way when all are taken.

Both ports have one. Addresses can be listed; and at a limit the oldest connection that has proven nothing gives way to
the next that comes, so strangers that only sit there keep nobody out. If all have proven something, clients of the host
with the most connections make room for one that has fewer: a few hosts cannot hold all places. Slaves, whose
acknowledgements are waited for, make room for nobody.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Final, Generic, NamedTuple, TypeVar

from rmqha.codec.host import Networks, host_of

Guest = TypeVar("Guest", bound=Hashable)


class Closed(NamedTuple):
    """Why a peer does not come in: its address is not listed, or there are too many."""

    is_listed: bool
    reason: str


class Door(Generic[Guest]):
    """The connections of one port.

    Invariant: at most ``places_max`` guests, at most ``places_per_host_max`` of one host.

    Attributes:
        guests: in order of arrival, each with its host.
    """

    def __init__(
        self,
        *,
        allow: tuple[str, ...],
        allow_key: str,
        places_max: int,
        places_per_host_max: int,
        has_proven: Callable[[Guest], bool],
        show_out: Callable[[Guest], None],
        hosts_share: bool,
        knows: Callable[[str], bool] = lambda _host: False,
    ) -> None:
        """Nobody is there yet.

        Args:
            allow: networks whose peers may connect; empty: all.
            allow_key: the configuration key that lists them.
            places_max: connections at one time.
            places_per_host_max: of one host.
            has_proven: whether this guest has shown that it is what the port is for.
            show_out: ends a guest's connection; the place is free already.
            hosts_share: whether guests that have proven themselves give way to a host with fewer.
            knows: whether some of this host have proven themselves: who comes from there gives way last of the others.
        """
        self.guests: Final[dict[Guest, str]] = {}
        self._allow: Final = Networks(allow)
        self._allow_key: Final = allow_key
        self._places_max: Final = places_max
        self._places_per_host_max: Final = places_per_host_max
        self._has_proven: Final = has_proven
        self._show_out: Final = show_out
        self._hosts_share: Final = hosts_share
        self._knows: Final = knows
        self._by_host: Final[dict[str, dict[Guest, None]]] = {}

    def why_closed(self, peer: str) -> Closed | None:
        """Why ``peer`` may not come in; None if it may, and there is room, which was made if need be."""
        host = host_of(peer)
        if host not in self._allow:
            return Closed(is_listed=False, reason=f"{host} is in none of the networks of {self._allow_key}")
        neighbours = self._by_host.get(host, {})
        if len(neighbours) >= self._places_per_host_max and not self._make_room(neighbours):
            return Closed(
                is_listed=True, reason=f"{self._places_per_host_max} connections from {host} are open, the limit"
            )
        if len(self.guests) >= self._places_max and not (
            self._make_room(self.guests) or self._make_room_for(len(neighbours))
        ):
            return Closed(is_listed=True, reason=f"{self._places_max} connections are open, the limit")
        return None

    def admit(self, guest: Guest, peer: str) -> None:
        """Give ``guest`` the place that there is."""
        host = host_of(peer)
        self.guests[guest] = host
        self._by_host.setdefault(host, {})[guest] = None

    def leave(self, guest: Guest) -> bool:
        """The guest's place is free. False if it was already."""
        host = self.guests.pop(guest, None)
        if host is None:
            return False
        del self._by_host[host][guest]
        if not self._by_host[host]:
            del self._by_host[host]
        return True

    def _make_room(self, guests: Iterable[Guest]) -> bool:
        """End the oldest of these connections that has proven nothing, strangers first; False if all have."""
        has_proven, known = self._has_proven, list[Guest]()
        for guest in guests:
            if has_proven(guest):
                continue
            if not self._knows(self.guests[guest]):
                self._let_out(guest)
                return True
            known = known or [guest]
        for guest in known:
            self._let_out(guest)
        return bool(known)

    def _make_room_for(self, neighbours: int) -> bool:
        """End the oldest connection of the host with the most, if it still has as many as the one that comes."""
        crowded = max(self._by_host.values(), key=len)
        if not self._hosts_share or len(crowded) < neighbours + 2:
            return False
        self._let_out(next(iter(crowded)))
        return True

    def _let_out(self, guest: Guest) -> None:
        self.leave(guest)
        self._show_out(guest)
