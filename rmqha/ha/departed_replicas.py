"""DepartedReplicas: which slaves were connected and no longer are, since when, and why. For the operator."""

from dataclasses import dataclass
from typing import Final

from rmqha.codec.host import host_of
from rmqha.ha.runtime_info import DepartedInfo
from rmqha.replication.in_sync import is_loopback

_REPLICAS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class _Departed:
    peer: str
    name: str
    slave_ack_offset: int
    reason: str
    at: float


class DepartedReplicas:
    """One entry for each slave, by its name; by its address if it gave none. Bounded: the oldest entry goes first.

    On loopback, where several slaves of a trial share the address, one entry for each connection without a name; the
    next one to connect without a name takes the place of the last that left.
    """

    def __init__(self) -> None:
        self._by_slave: dict[str, _Departed] = {}

    def note(self, peer: str, *, name: str, slave_ack_offset: int, reason: str, now: float) -> None:
        """This slave's connection has ended, and it has no other."""
        key = name or _key(peer)
        self._by_slave.pop(key, None)
        self._by_slave[key] = _Departed(peer, name, slave_ack_offset, reason, now)
        if len(self._by_slave) > _REPLICAS_MAX:
            del self._by_slave[next(iter(self._by_slave))]

    def forget(self, name: str) -> None:
        """The slave of this name follows again."""
        self._by_slave.pop(name, None)

    def forget_unnamed(self, peer: str) -> None:
        """A slave follows from this address. One that had a name will tell it again."""
        here = [key for key, gone in self._by_slave.items() if not gone.name and host_of(gone.peer) == host_of(peer)]
        if here:
            del self._by_slave[here[-1]]

    def info(self, *, now: float) -> tuple[DepartedInfo, ...]:
        """All of them, the latest last."""
        return tuple(
            DepartedInfo(
                name=gone.name,
                peer=gone.peer,
                slave_ack_offset=gone.slave_ack_offset,
                reason=gone.reason,
                last_s_ago=now - gone.at,
            )
            for gone in self._by_slave.values()
        )


def _key(peer: str) -> str:
    address = host_of(peer)
    return peer if is_loopback(address) else address
