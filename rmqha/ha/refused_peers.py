"""RefusedPeers: the peers that were turned away and why, remembered for the operator and to keep the log quiet."""

from collections import Counter
from dataclasses import dataclass
from typing import Final

from rmqha.ha.runtime_info import RefusedInfo
from rmqha.log_limit import LogLimit
from rmqha.replication.master_session import Refusal, RefusedSlaveError

_ADDRESSES_MAX: Final = 256
_PAUSE_S: Final = 1.0
_ROW_S: Final = 600.0
"""Refusals of one address that are farther apart than this are counted anew."""


@dataclass(slots=True)
class _Refused:
    error: RefusedSlaveError
    count: int
    last_at: float
    is_back: bool = False


class RefusedPeers:
    """Bounded: the address that was refused the longest time ago is forgotten first.

    What was said against an address no longer holds when a slave from there is served again; it is remembered only so
    that the same, said again, is not news.
    """

    def __init__(self, limit: LogLimit | None = None) -> None:
        self._limit = limit or LogLimit()
        self._by_address: dict[str, _Refused] = {}
        self.counts: Final = Counter[Refusal]()
        """How often, since the start, by reason."""

    def note(self, address: str, error: RefusedSlaveError, *, now: float) -> bool:
        """Remember a refusal; True if it says something new about this address and belongs in the log."""
        self.counts[error.refusal] += 1
        known = self._by_address.pop(address, None)
        is_new = known is None or known.error.refusal is not error.refusal
        in_row = 0 if known is None or now - known.last_at > _ROW_S else known.count
        self._by_address[address] = _Refused(error, in_row + 1, now)
        if len(self._by_address) > _ADDRESSES_MAX:
            del self._by_address[next(iter(self._by_address))]
        return is_new and self._limit.take(now=now)

    def forget(self, address: str) -> None:
        """A slave at this address was served until it left."""
        self._by_address.pop(address, None)

    def on_back(self, address: str) -> None:
        """A slave at this address is served."""
        if address in self._by_address:
            self._by_address[address].is_back = True

    def serve_at(self, address: str) -> float:
        """When to look at a new connection from here: a moment later if its log did not fit ours just now.

        A slave of RocketMQ reconnects without any pause, so somebody has to make one (spec: ha §10, §15 row 15).
        """
        known = self._by_address.get(address)
        if known is None or known.error.refusal not in {Refusal.AHEAD, Refusal.BELOW_MIN, Refusal.UNFIT}:
            return 0.0
        return known.last_at + _PAUSE_S

    def info(self, *, now: float) -> tuple[RefusedInfo, ...]:
        """The addresses that are turned away, the latest last."""
        return tuple(
            RefusedInfo(
                address=address,
                reason=refused.error.refusal.value,
                message=str(refused.error),
                count=refused.count,
                offset=refused.error.offset,
                last_s_ago=now - refused.last_at,
            )
            for address, refused in self._by_address.items()
            if not refused.is_back
        )
