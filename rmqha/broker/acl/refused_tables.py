"""RefusedTables: slaves whose questions for tables are refused to them; RocketMQ's brokers sign nothing.

Such a slave follows the log, and has no topics, groups and offsets: it says so in its own log alone.
"""

from collections.abc import Collection
from typing import Final

import trio

from rmqha.codec.codes import RequestCode

_TABLES: Final = frozenset(
    {
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.GET_ALL_CONSUMER_OFFSET,
        RequestCode.GET_ALL_DELAY_OFFSET,
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    }
)
_TOLD_FOR_S: Final = 60.0
"""A slave asks every 10 s."""
_HOSTS_MAX: Final = 64


class RefusedTables:
    """By host, when questions for tables were last refused, and why."""

    def __init__(self) -> None:
        self._refused: Final[dict[str, tuple[float, str]]] = {}

    def note(self, host: str, code: int, reason: str) -> None:
        """A request from there was refused; let in if there is no ``reason``."""
        if code not in _TABLES:
            return
        self._refused.pop(host, None)
        if reason:
            self._refused[host] = trio.current_time(), reason
        if len(self._refused) > _HOSTS_MAX:
            del self._refused[next(iter(self._refused))]

    def told(self, slave_hosts: Collection[str]) -> list[str]:
        """Those of the last minute, from where slaves follow, a sentence each."""
        now = trio.current_time()
        return [
            f"the slave at {host} is refused topics, groups and offsets ({reason}): as a master it would have none. "
            "List its address in globalWhiteRemoteAddresses (RocketMQ's brokers sign nothing), or let it sign"
            for host, (at, reason) in self._refused.items()
            if host in slave_hosts and now < at + _TOLD_FOR_S
        ]
