"""DepartedReplicas: which slaves were connected and no longer are, since when, and why. For the operator."""

from dataclasses import dataclass
from typing import Final

from rmqha.ha.runtime_info import DepartedInfo
from rmqha.replication.slave_identity import SlaveIdentity

_REPLICAS_MAX: Final = 64


@dataclass(frozen=True, slots=True)
class _Departed:
    peer: str
    name: str
    slave_ack_offset: int
    reason: str
    at: float
    behind_since: float


class DepartedReplicas:
    """One entry for each slave: by its name, or by its host if it gave none. Bounded: the oldest entry goes first."""

    def __init__(self) -> None:
        self._by_slave: dict[str, _Departed] = {}

    def note(
        self, who: SlaveIdentity, *, peer: str, slave_ack_offset: int, reason: str, now: float, lag_s: float = 0.0
    ) -> None:
        """This slave's connection, from ``peer``, has ended, and it has no other; it was ``lag_s`` behind."""
        key = who.name or who.host
        self._by_slave.pop(key, None)
        self._by_slave[key] = _Departed(peer, who.name, slave_ack_offset, reason, now, now - lag_s)
        if len(self._by_slave) > _REPLICAS_MAX:
            del self._by_slave[next(iter(self._by_slave))]

    def forget(self, who: SlaveIdentity) -> float | None:
        """This slave follows again. Returns since when it has been behind; None if it was not missed."""
        found = [self._by_slave.pop(key, None) for key in (who.name, who.host)]
        return min((gone.behind_since for gone in found if gone is not None), default=None)

    def info(self, *, now: float) -> tuple[DepartedInfo, ...]:
        """All of them, the latest last."""
        return tuple(
            DepartedInfo(
                name=gone.name,
                peer=gone.peer,
                slave_ack_offset=gone.slave_ack_offset,
                reason=gone.reason,
                last_s_ago=now - gone.at,
                lag_s=now - gone.behind_since,
            )
            for gone in self._by_slave.values()
        )
