"""ServiceManager: what systemd is told of a server of ``Type=notify``: that it serves, stops, and is not stuck.

Source: sd_notify(3), sd_watchdog_enabled(3).
"""

import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import trio

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"
_WATCHDOG: Final = "WATCHDOG=1"
_US: Final = 1e6


class ServiceManager:
    """Who started this process, if that wants to know; nobody is told anything else, and a failure costs nothing."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        """``environment`` is that of the process."""
        self._address: Final = environment.get("NOTIFY_SOCKET", "")
        self._beat_every_s: Final = _watchdog_s(environment) / 2

    def tell(self, state: str) -> None:
        """Send a state, :data:`READY` or :data:`STOPPING`."""
        if not self._address.startswith(("/", "@")):
            return
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as notify:
            notify.sendto(state.encode(), os.fsencode(address))

    async def beat(self) -> None:
        """Say again and again that the event loop turns, as often as ``WatchdogSec`` asks for; until cancelled."""
        while self._beat_every_s:
            self.tell(_WATCHDOG)
            await trio.sleep(self._beat_every_s)


def _watchdog_s(environment: Mapping[str, str]) -> float:
    """How long this process may be silent; 0: nobody listens."""
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0
    try:
        return max(0, int(environment.get("WATCHDOG_USEC", "0"))) / _US
    except ValueError:
        return 0
