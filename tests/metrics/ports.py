"""Peers of an observability port on a simulated network."""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import trio

from rmqha.transport import Network, Stream
from tests.sim.sim_net import SimNet

PORT = 9100
HOST = "10.0.0.1"
_networks: WeakKeyDictionary[SimNet, dict[str, Network]] = WeakKeyDictionary()
"""Of each host one process, so that it lives on."""


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


async def connect(net: SimNet, *, host: str = "10.9.9.9", to: str = HOST) -> Stream:
    networks = _networks.setdefault(net, {})
    if host not in networks:
        networks[host] = net.host(host).mount()
    return await networks[host].connect(to, PORT, timeout_s=5)


async def receive_all(stream: Stream) -> bytes:
    buffer, received = memoryview(bytearray(65536)), bytearray()
    while count := await stream.receive_into(buffer):
        received += buffer[:count]
    return bytes(received)


def parsed(received: bytes) -> Reply:
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return Reply(int(first.split()[1]), headers, body)


async def exchange(net: SimNet, request: bytes, *, host: str = "10.9.9.9", to: str = HOST) -> Reply:
    stream = await connect(net, host=host, to=to)
    await stream.send_all(request)
    with trio.fail_after(60):
        reply = parsed(await receive_all(stream))
    stream.close()
    return reply


async def get(net: SimNet, path: str, *, host: str = "10.9.9.9", to: str = HOST) -> Reply:
    return await exchange(net, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode(), host=host, to=to)
