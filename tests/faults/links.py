"""A network namespace, and a link to it whose every packet this process carries: held up, or lost, as a test says.

The link is two TUN devices, one on each side; both ends are the kernel's own TCP. So one direction can go silent
without the other noticing, and a delay needs no queueing discipline, which small kernels lack.
"""

import heapq
import os
import selectors
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fcntl import ioctl
from itertools import count
from pathlib import Path
from typing import Final

from tests.e2e.processes import RmqhaBroker

_TUNSETIFF: Final = 0x400454CA
_IFF_TUN_NO_PI: Final = 0x1001
_PACKET_BYTES_MAX: Final = 65_536
_numbers = count(os.getpid() * 4 % 60_000, 4)


def why_no_links() -> str | None:
    """Why this machine cannot make network namespaces, or None if it can."""
    if os.geteuid() != 0:
        return "a network namespace needs root"
    missing = [tool for tool in ("ip", "nsenter") if shutil.which(tool) is None]
    if missing:
        return f"missing commands: {', '.join(missing)} (iproute2, util-linux)"
    return None if Path("/dev/net/tun").exists() else "no /dev/net/tun"


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {arguments}: {done.stderr}"


@dataclass
class Direction:
    """What happens to packets on their way."""

    delay_s: float = 0
    is_cut: bool = False
    lose_every: int = 0
    """One of so many packets is lost; 0: none."""
    dead_ports: set[int] = field(default_factory=set)
    """Packets from or to these are lost."""
    carried: int = 0
    lost: int = 0

    def takes(self, packet: bytes) -> bool:
        """Whether the next packet gets through."""
        self.carried += 1
        is_unlucky = self.lose_every and self.carried % self.lose_every == 0
        if self.is_cut or is_unlucky or not self.dead_ports.isdisjoint(_ports_of(packet)):
            self.lost += 1
            return False
        return True


def _ports_of(packet: bytes) -> tuple[int, ...]:
    """Source and destination port of a TCP packet over IPv4."""
    at = (packet[0] & 0xF) * 4
    return struct.unpack_from(">HH", packet, at) if packet[0] >> 4 == 4 else ()


@dataclass
class Link:
    """A namespace with one address, this side's address, and the two directions between."""

    namespace: str
    here: str
    there: str
    out: Direction = field(default_factory=Direction)
    """From here into the namespace."""
    back: Direction = field(default_factory=Direction)

    def cut(self, *, out: bool = True, back: bool = True) -> None:
        """Carry nothing any more, in one direction or both."""
        self.out.is_cut, self.back.is_cut = out, back

    def forget_connection(self, port: int) -> None:
        """The machine with this port lost its power: nobody will ever hear from the connection, nor of its end."""
        self.out.dead_ports.add(port)
        self.back.dead_ports.add(port)

    def heal(self) -> None:
        """Carry everything again."""
        self.cut(out=False, back=False)


class _Carrier:
    """Carries packets between the two devices, each direction in order, until closed."""

    def __init__(self, link: Link, here: int, there: int) -> None:
        self._ways = {here: (there, link.out), there: (here, link.back)}
        self._underway: list[tuple[float, int, int, bytes]] = []
        self._order = count()
        self._closing, self._close = os.pipe()
        self._thread = threading.Thread(target=self._run, name="link")
        self._thread.start()

    def close(self) -> None:
        """Stop carrying; the descriptors are the caller's."""
        os.write(self._close, b"x")
        self._thread.join()
        os.close(self._close)
        os.close(self._closing)

    def _run(self) -> None:
        with selectors.DefaultSelector() as selector:
            for descriptor in (*self._ways, self._closing):
                selector.register(descriptor, selectors.EVENT_READ)
            while True:
                wait_s = max(0, self._underway[0][0] - time.monotonic()) if self._underway else None
                for key, _ in selector.select(wait_s):
                    if key.fd == self._closing:
                        return
                    self._take(key.fd)
                self._deliver()

    def _take(self, source: int) -> None:
        target, way = self._ways[source]
        packet = os.read(source, _PACKET_BYTES_MAX)
        if way.takes(packet):
            heapq.heappush(self._underway, (time.monotonic() + way.delay_s, next(self._order), target, packet))

    def _deliver(self) -> None:
        while self._underway and self._underway[0][0] <= time.monotonic():
            _, _, target, packet = heapq.heappop(self._underway)
            os.write(target, packet)


def _tun(name: str) -> int:
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    ioctl(descriptor, _TUNSETIFF, struct.pack("16sH", name.encode(), _IFF_TUN_NO_PI))
    return descriptor


@contextmanager
def linked_namespace() -> Iterator[Link]:
    """A namespace and the link to it; nothing of either is left behind. Reap what runs inside first."""
    number = next(_numbers)
    base = f"198.18.{number // 256}."  # reserved for tests of networks (RFC 2544)
    link = Link(f"rmqha{number}", f"{base}{number % 256 + 1}", f"{base}{number % 256 + 2}")
    here, there = f"rq{number}h", f"rq{number}t"
    with ExitStack() as stack:
        _ip("netns", "add", link.namespace)
        stack.callback(_ip, "netns", "delete", link.namespace)
        ends = []
        for name in (here, there):
            ends.append(_tun(name))
            stack.callback(os.close, ends[-1])  # the device ends with its descriptor
        _ip("link", "set", there, "netns", link.namespace)
        inside = ("-n", link.namespace)
        for at, name, own, other in (((), here, link.here, link.there), (inside, there, link.there, link.here)):
            _ip(*at, "address", "add", own, "peer", other, "dev", name)
            _ip(*at, "link", "set", name, "up")
        _ip(*inside, "link", "set", "lo", "up")
        stack.callback(_Carrier(link, *ends).close)
        yield link


class RemoteBroker(RmqhaBroker):
    """A broker inside a namespace: clients of this side do not reach it, its peer does over the link."""

    def move_to(self, link: Link) -> None:
        """Run there; only before the first start."""
        self.conf |= {"haBindAddress": link.there, "allowInsecure": "true"}
        # Not `ip netns exec`: its copy of the mounts would keep images of other tests mounted.
        self.prefix = ["nsenter", f"--net=/run/netns/{link.namespace}"]

    async def wait_ready(self) -> None:
        await self.running.wait_output("broker.started")
