"""Peers that mean harm, or nothing at all: thousands of connections to a broker's ports, made again when dropped."""

import resource
import socket
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from math import inf

import pytest
import trio

_SOURCES = [f"127.0.{third}.{fourth}" for third in (1, 2) for fourth in range(1, 200)]
_BEGUN_FRAME = (16 * 1024 * 1024 - 4).to_bytes(4) + bytes([0, 0, 0, 200]) + b"{"

ON_CLIENT_PORT = {
    "silent": b"",
    "noise": bytes(range(256)) * 4,
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "tls": b"\x16\x03\x01\x02\x00\x01\x00",
    "half a prefix": b"\0\0\0",
    "begun frame": _BEGUN_FRAME + bytes(20_000),
    "dripping": _BEGUN_FRAME,
}
ON_HA_PORT = {
    "silent": b"",
    "forged report": (2**63 - 1).to_bytes(8),
    "negative report": (-1).to_bytes(8, signed=True),
    "report beyond the end": (1 << 40).to_bytes(8),
    "half a report": b"\0\0\0",
    "reads nothing": bytes(8),
    "falling report": bytes(8) + (-5).to_bytes(8, signed=True),
    "noise": bytes(range(256)) * 4,
    "dripping": b"\0",
}


@contextmanager
def many_descriptors(count: int) -> Iterator[None]:
    """Let this process, and those it starts, have so many files and sockets open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < count:
        try:
            resource.setrlimit(
                resource.RLIMIT_NOFILE, (count, hard if hard == resource.RLIM_INFINITY else max(hard, count))
            )
        except (ValueError, PermissionError):
            pytest.skip(f"{count} descriptors are needed, and `ulimit -Hn` is {hard}")
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@dataclass
class Strangers:
    """``count`` connections at any time, half of them to each port; each is made again some time after it ended."""

    client_port: int
    ha_port: int
    count: int
    connected: int = 0
    made: int = 0
    ended: Counter[str] = field(default_factory=Counter)

    async def run(self) -> None:
        """Until cancelled."""
        kinds = cycle([
            *((self.client_port, name, data) for name, data in ON_CLIENT_PORT.items()),
            *((self.ha_port, name, data) for name, data in ON_HA_PORT.items()),
        ])  # fmt: skip
        sources = cycle(_SOURCES)
        async with trio.open_nursery() as nursery:
            for number, (port, name, data), source in zip(range(self.count), kinds, sources, strict=False):
                nursery.start_soon(self._one, port, name, data, source)
                if number % 100 == 99:
                    await trio.sleep(0.05)  # faster than that, it is the kernel that refuses

    async def _one(self, port: int, name: str, data: bytes, source: str) -> None:
        while True:
            sock = trio.socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            with sock:
                try:
                    await sock.bind((source, 0))
                    await sock.connect(("127.0.0.1", port))
                    self.connected += 1
                    self.made += 1
                    try:
                        await self._misbehave(sock, name, data)
                    finally:
                        self.connected -= 1
                except OSError:
                    pass
            self.ended[name] += 1
            await trio.sleep(5)

    async def _misbehave(self, sock: trio.socket.SocketType, name: str, data: bytes) -> None:
        if data:
            await sock.send(data)
        if name == "reads nothing":
            await trio.sleep_forever()
        while True:
            with trio.move_on_after(1 if name == "dripping" else inf) as pause:
                if not await sock.recv(65_536):
                    return
            if pause.cancelled_caught:
                await sock.send(b"\0")
