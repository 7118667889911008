"""DisplacedBrokers: who had to give way to another broker of the same name and id, and comes back.

A broker that moved, or a new master, takes a place once. Several that are there at once take it from one another with
every registration, and clients find now the one, now the other.
"""

from dataclasses import dataclass
from typing import Any, Final

_REMEMBERED_S: Final = 150.0
"""Brokers register every 60 s at the slowest: twice, and some."""
_WARNS_EVERY_S: Final = 60.0
_IDS_MAX: Final = 64
"""As many brokers as a name may have."""
_BROKERS_MAX: Final = 8
"""So many that take turns at one place are told of."""


@dataclass(slots=True)
class _Displaced:
    """One that lost a place, and on which connection it had registered."""

    peer: str
    until: float
    """It is remembered."""
    lost_to_one_come_back: bool
    """Who took the place had lost it before, and was there again."""


class DisplacedBrokers:
    """Of one brokerName; the last ones for each id, by their addresses, and of ids the last ones."""

    def __init__(self) -> None:
        self._displaced: Final = dict[int, dict[str, _Displaced]]()
        self._may_warn_at = 0.0

    def __len__(self) -> int:
        return len(self._displaced)

    def displaces(self, broker_id: int, *, address: str, peer: str, former: tuple[str, str], now: float) -> bool:
        """A broker takes the place of ``former``, its address and peer, which is still connected.

        Returns whether several are there at once: this one had lost it, on the same connection, to another one that had
        lost it likewise before. A new connection of an address is another process.
        """
        displaced = self._displaced.pop(broker_id, {})
        lost, (former_address, former_peer) = displaced.pop(address, None), former
        comes_back = lost is not None and lost.peer == peer and now <= lost.until
        displaced.pop(former_address, None)
        displaced[former_address] = _Displaced(former_peer, now + _REMEMBERED_S, lost_to_one_come_back=comes_back)
        _forget_first(displaced, _BROKERS_MAX)
        self._displaced[broker_id] = displaced
        _forget_first(self._displaced, _IDS_MAX)
        return comes_back and lost is not None and lost.lost_to_one_come_back

    def has_another_id(self, broker_id: int, address: str) -> None:
        """A broker is there by this id: what it was by another counts no more, as of a leader that is none."""
        for other, displaced in self._displaced.items():
            if other != broker_id:
                displaced.pop(address, None)

    def may_warn(self, *, now: float) -> bool:
        """Whether the log is to hear of it, once a minute; it counts as told then."""
        if now < self._may_warn_at:
            return False
        self._may_warn_at = now + _WARNS_EVERY_S
        return True


def _forget_first(remembered: dict[Any, Any], kept_max: int) -> None:
    if len(remembered) > kept_max:
        del remembered[next(iter(remembered))]
