"""A name server on a simulated machine, and those who ask it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio

from rmqha.codec import java_json
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import encode_header
from rmqha.codec.namesrv_headers import RegisterBrokerRequestHeader
from rmqha.codec.remoting import RemotingCommand
from rmqha.config.load_namesrv import load_namesrv
from rmqha.namesrv.namesrv_controller import NamesrvController
from rmqha.remoting.client import RemotingClient, open_remoting_client
from tests.sim.sim_clock import WallClock
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_net import SimNet

PORT = 9876


@dataclass
class NameServerMachine:
    """One host with one disk, on which a name server can be started again and again."""

    net: SimNet
    address: str = "10.7.7.7"
    settings: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.disk = SimDisk(now_ms=WallClock())

    @property
    def where(self) -> str:
        """As brokers and clients name it."""
        return f"{self.address}:{PORT}"

    def controller(self) -> NamesrvController:
        """A name server that is not started yet."""
        keys = {"bindAddress": self.address, "allowInsecure": "true", "kvConfigPath": "/namesrv/kvConfig.json"}
        network = self.net.host(self.address).mount()
        return NamesrvController(load_namesrv(None, keys | self.settings), disk=self.disk.mount(), network=network)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[NamesrvController]:
        """A running name server; stopped in order at the end of the block."""
        controller = self.controller()
        async with trio.open_nursery() as nursery:
            await nursery.start(controller.run)
            yield controller
            controller.stop()

    @asynccontextmanager
    async def client(self, address: str = "") -> AsyncIterator[RemotingClient]:
        """Somebody on another machine, connected to this one."""
        network = self.net.host(address or f"10.9.9.{len(self.net.hosts)}").mount()
        async with open_remoting_client(network, self.where) as client:
            yield client


async def ask(
    client: RemotingClient,
    code: RequestCode,
    *,
    body: bytes = b"",
    version: int = 409,
    is_refused: bool = False,
    **fields: str,
) -> RemotingCommand:
    """The answer, which is SUCCESS unless it is refused."""
    answer = await client.invoke(RemotingCommand(code, ext_fields=fields, body=body, version=version), timeout_s=60)
    assert is_refused == (answer.code != ResponseCode.SUCCESS), (answer.code, answer.remark)
    return answer


async def register(
    client: RemotingClient,
    *topics: str,
    name: str = "a",
    broker_id: int = 0,
    address: str = "10.0.0.1:911",
    counter: int = 1,
    **entry: Any,
) -> RemotingCommand:
    """Register a broker, as RocketMQ's do."""
    ha_address = address.replace(":", ":1")
    fields: dict[str, Any] = {**encode_header(RegisterBrokerRequestHeader(name, address, "c", ha_address, broker_id))}
    table = {topic: {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "topicSysFlag": 0} | entry for topic in topics}
    wrapper = {"dataVersion": {"counter": counter, "timestamp": 1}, "topicConfigTable": table}
    body = java_json.dumps({"filterServerList": [], "topicConfigSerializeWrapper": wrapper}).encode()
    return await ask(client, RequestCode.REGISTER_BROKER, body=body, **fields)
