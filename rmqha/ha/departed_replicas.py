"""DepartedReplicas: which slaves were connected and are not any more, since when, and why. For the operator."""

from dataclasses import dataclass
from typing import Final

from rmqha.ha.runtime_info import DepartedInfo
from rmqha.replication.in_sync import address_of, is_loopback

_REPLICAS_MAX: Final = 64
_NAMES_MAX: Final = 8
_NAME_SIZE_MAX: Final = 255


@dataclass(frozen=True, slots=True)
class _Departed:
    peer: str
    slave_ack_offset: int
    reason: str
    at: float


class DepartedReplicas:
    """One entry for each address, bounded: who left the longest time ago is forgotten first.

    On loopback, where several slaves of a trial share the address, one entry for each connection; who comes there
    takes the place of who left last.
    """

    def __init__(self) -> None:
        self._by_slave: dict[str, _Departed] = {}
        self._names: dict[str, dict[str, None]] = {}

    def note(self, peer: str, *, slave_ack_offset: int, reason: str, now: float) -> None:
        """This slave's connection has ended, and it has no other."""
        key = _key(peer)
        self._by_slave.pop(key, None)
        self._by_slave[key] = _Departed(peer, slave_ack_offset, reason, now)
        if len(self._by_slave) > _REPLICAS_MAX:
            del self._by_slave[next(iter(self._by_slave))]

    def forget(self, peer: str) -> None:
        """A slave follows from here now."""
        here = [key for key in self._by_slave if address_of(self._by_slave[key].peer) == address_of(peer)]
        if here:
            del self._by_slave[here[-1]]

    def learn_name(self, peer: str, name: str) -> None:
        """Whoever speaks from this host calls itself so."""
        address = address_of(peer)
        names = self._names.pop(address, {})
        self._names[address] = names | {name[:_NAME_SIZE_MAX]: None} if len(names) < _NAMES_MAX else names
        if len(self._names) > _REPLICAS_MAX:
            del self._names[next(iter(self._names))]

    def name_of(self, peer: str) -> str:
        """The names that brokers on this peer's host gave themselves; empty if none did."""
        return " or ".join(self._names.get(address_of(peer), ()))

    def info(self, *, now: float) -> tuple[DepartedInfo, ...]:
        """All of them, the latest last."""
        return tuple(
            DepartedInfo(
                name=self.name_of(gone.peer),
                peer=gone.peer,
                slave_ack_offset=gone.slave_ack_offset,
                reason=gone.reason,
                last_s_ago=now - gone.at,
            )
            for gone in self._by_slave.values()
        )


def _key(peer: str) -> str:
    address = address_of(peer)
    return peer if is_loopback(address) else address
