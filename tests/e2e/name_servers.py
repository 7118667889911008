"""A name server as a process of its own."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rmqha.codec import java_json
from tests.e2e.processes import Child, free_ports, give_back


class RmqhaNameServer:
    """Ours, by its command line; :meth:`close` it."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._settings = settings or {}
        self._ports = free_ports()
        self.address = f"127.0.0.1:{self._ports.listen}"
        self.child: Child | None = None
        self.prefix: Sequence[str] = ()

    async def start(self) -> None:
        """Until it serves."""
        listen = ("--listen", self.address, "--set", f"kvConfigPath={self._directory}/kvConfig.json")
        more = [word for name, said in self._settings.items() for word in ("--set", f"{name}={said}")]
        argv = [sys.executable, "-m", "rmqha", "namesrv", *listen, *more]
        self.child = Child([*self.prefix, *argv], log=self._directory / "namesrv.log")
        await self.child.wait_output("namesrv.started")

    async def restart(self) -> None:
        """SIGTERM, and again."""
        assert self.child is not None
        assert await self.child.stop() == 0
        await self.start()

    def kept(self) -> Any:
        """What it has on its disk."""
        return java_json.loads((self._directory / "kvConfig.json").read_bytes())

    def close(self) -> None:
        """Leave nothing behind."""
        if self.child is not None:
            self.child.reap()
        give_back(self._ports)
