"""MessageClientIDSetter: the producer's own message ids, UNIQ_KEY.

    at  size  field
     0     4  IP of the producer
     4     2  process id, low 16 bits
     6     4  a number of this process
    10     4  milliseconds since the month began (UTC), int32
    14     2  counter

Written as 32 upper-case hexadecimal characters. Unique while one process makes fewer than 65,536 in a millisecond.

Source: spec: commitlog §2.6; rocketmq-all-4.9.8 MessageClientIDSetter.java.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from ipaddress import IPv4Address
from typing import Final

_MS: Final = 1000


class MessageClientIDSetter:
    """Makes ids. Hot path: one per message sent."""

    def __init__(self, *, ip: str, pid: int, process_hash: int, now_ms: Callable[[], int]) -> None:
        prefix = IPv4Address(ip).packed + (pid & 0xFFFF).to_bytes(2) + (process_hash & 0xFFFFFFFF).to_bytes(4)
        self._prefix = prefix.hex().upper()
        self._now_ms = now_ms
        self._counter = 0
        self._month_begins_ms = self._month_ends_ms = 0

    def create_uniq_id(self) -> tuple[str, int]:
        """A new id, and the time in it (milliseconds since 1970), of use as the message's birth."""
        now_ms = self._now_ms()
        if not self._month_begins_ms <= now_ms < self._month_ends_ms:
            self._set_month(now_ms)
        self._counter = counter = self._counter + 1 & 0xFFFF
        return f"{self._prefix}{now_ms - self._month_begins_ms:08X}{counter:04X}", now_ms

    def _set_month(self, now_ms: int) -> None:
        begins = datetime.fromtimestamp(now_ms // _MS, UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        ends = begins.replace(year=begins.year + begins.month // 12, month=begins.month % 12 + 1)
        self._month_begins_ms = int(begins.timestamp()) * _MS
        self._month_ends_ms = int(ends.timestamp()) * _MS
