"""DisplacedBrokers: who had to give way to another broker of the same name and id, and comes back.

A broker that moved, or a new master, takes a place once. Two that are there at once take it from each other with every
registration, and clients find now the one, now the other.
"""

from dataclasses import dataclass
from typing import Final

_REMEMBERED_S: Final = 150.0
"""Brokers register every 60 s at the slowest: twice, and some."""
_WARNS_EVERY_S: Final = 60.0
_KEPT_MAX: Final = 64
"""As many brokers as a name may have."""


@dataclass(slots=True)
class _Displaced:
    """The last one that lost a place, and on which connection it had registered."""

    address: str
    peer: str
    until: float
    """It is remembered."""
    has_come_back: bool
    """One of these two had lost the place before, and was there again."""


class DisplacedBrokers:
    """Of one brokerName; the last one for each id, and of ids the last ones."""

    def __init__(self) -> None:
        self._displaced: Final = dict[int, _Displaced]()
        self._may_warn_at = 0.0

    def __len__(self) -> int:
        return len(self._displaced)

    def displaces(self, broker_id: int, *, address: str, peer: str, former: tuple[str, str], now: float) -> bool:
        """A broker takes the place of ``former``, its address and peer, which is still connected.

        Returns whether both are there at once: this one had lost it to the former one, on the same connection, and that
        one likewise before.
        """
        lost = self._displaced.pop(broker_id, None)
        comes_back = lost is not None and (lost.address, lost.peer) == (address, peer) and now <= lost.until
        self._displaced[broker_id] = _Displaced(*former, until=now + _REMEMBERED_S, has_come_back=comes_back)
        if len(self._displaced) > _KEPT_MAX:
            del self._displaced[next(iter(self._displaced))]
        return comes_back and lost is not None and lost.has_come_back

    def has_another_id(self, broker_id: int, address: str) -> None:
        """A broker is there by this id: what it was by another counts no more, as of a leader that is none."""
        for other, lost in list(self._displaced.items()):
            if lost.address == address and other != broker_id:
                del self._displaced[other]

    def may_warn(self, *, now: float) -> bool:
        """Whether the log is to hear of it, once a minute; it counts as told then."""
        if now < self._may_warn_at:
            return False
        self._may_warn_at = now + _WARNS_EVERY_S
        return True
