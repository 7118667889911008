"""A name server as a process of its own."""

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import trio

from rmqha.cli.ask import known_brokers
from rmqha.codec import java_json
from rmqha.codec.host import join_address
from tests.e2e.processes import Broker, Child, free_ports, give_back


class RmqhaNameServer:
    """Ours, by its command line; :meth:`close` it."""

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None, *, host: str = "127.0.0.1") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        self._settings = settings or {}
        self._ports = free_ports()
        self.address = join_address(host, self._ports.listen)
        self.child: Child | None = None
        self.prefix: Sequence[str] = ()

    async def start(self) -> None:
        """Until it serves."""
        listen = ("--listen", self.address, "--set", f"kvConfigPath={self._directory}/kvConfig.json")
        more = [word for name, said in self._settings.items() for word in ("--set", f"{name}={said}")]
        argv = [sys.executable, "-m", "rmqha", "namesrv", *listen, *more]
        self.child = Child([*self.prefix, *argv], log=self._directory / "namesrv.log")
        await self.child.wait_output("namesrv.started")

    async def knows(self, *brokers: Broker) -> None:
        """Return when these are registered here: a broker serves clients a moment before."""
        ask = partial(known_brokers, self.address, timeout_s=30)
        with trio.fail_after(120):
            while True:
                groups = (await trio.to_thread.run_sync(ask)).values()
                known = {address for group in groups for address in group.broker_addrs.values()}
                if {broker.address for broker in brokers} <= known:
                    return
                await trio.sleep(0.1)

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
