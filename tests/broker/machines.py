"""Whole brokers on simulated machines: real code behind a simulated disk and network, in virtual time."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import trio

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.classic.classic_broker import make_classic_broker
from rmqha.broker.classic.classic_replication import ClassicReplication
from rmqha.broker.tables.retry_topics import RetryTopics
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupManager
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.codec.codes import RequestCode
from rmqha.codec.headers import PullMessageRequestHeader, PullSysFlag, encode_header
from rmqha.codec.remoting import RemotingCommand, SerializeType, decode_frames
from rmqha.config import load_config
from rmqha.ha.ha_client import HAClient
from rmqha.remoting.client import RemotingClient, open_remoting_client
from rmqha.replication.role import Role
from tests.sim.sim_clock import WallClock
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_net import SimNet

TIMEOUT_S = 60.0
UNSET = "<unset>"
COMMON = {
    "storePathRootDir": "/store",
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
    "listenPort": "10911",
    "allowInsecure": "true",
    "brokerName": "broker-a",
}


@dataclass
class Machine:
    """One host with one disk, on which a broker can be started again and again."""

    net: SimNet
    address: str
    settings: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.disk = SimDisk(now_ms=WallClock())

    def controller(self, **settings: str) -> BrokerController:
        """A broker that is not started yet."""
        keys = COMMON | {"brokerIP1": self.address} | self.settings | settings
        config = load_config(None, {key: value for key, value in keys.items() if value != UNSET})
        return make_classic_broker(
            config,
            disk=self.disk.mount(),
            network=self.net.host(self.address).mount(),
            now_ms=WallClock(),
            chance=lambda: 0.5,
        )

    @asynccontextmanager
    async def broker(self, **settings: str) -> AsyncIterator[BrokerController]:
        """A running broker; stopped cleanly at the end of the block, unless it was cancelled."""
        controller = self.controller(**settings)
        async with trio.open_nursery() as nursery:
            await nursery.start(controller.run)
            yield controller
            controller.stop()

    @asynccontextmanager
    async def client(self, port: int = 10911) -> AsyncIterator[RemotingClient]:
        """A client on another machine, connected to this one."""
        network = self.net.host(f"10.9.9.{len(self.net.hosts)}").mount()
        async with open_remoting_client(network, f"{self.address}:{port}") as client:
            yield client


def replication_of(broker: BrokerController) -> ClassicReplication:
    """How a classic broker's log comes to other nodes and from them."""
    assert isinstance(broker.replication, ClassicReplication)
    return broker.replication


def ha_client_of(slave: BrokerController) -> HAClient:
    """What follows the master."""
    ha_client = replication_of(slave).ha_client
    assert ha_client is not None
    return ha_client


async def status_of(machine: Machine) -> dict[str, Any]:
    """What `rmqha status` is told."""
    async with machine.client() as client:
        info = await ask(client, RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
    told: dict[str, Any] = json.loads(json.loads(info.body)["table"]["rmqhaStatus"])
    return told


class Sender:
    """A connection to a SendMessageProcessor; remembers the answers by their opaque."""

    peer = "10.9.9.9:9"

    def __init__(self) -> None:
        self.answers: dict[int, RemotingCommand] = {}

    def send_responses(self, frames: list[bytes], _size: int) -> None:
        self.answers |= {answer.opaque: answer for answer in decode_frames(b"".join(frames))[0]}

    def respond(self, request: RemotingCommand, code: int, *, remark: str | None = None) -> None:
        self.answers[request.opaque] = RemotingCommand(code, request.opaque, remark=remark)

    def fenced(self) -> AbstractContextManager[None]:
        return nullcontext()

    def work(self, steps: Iterator[bool]) -> None:
        for _ in steps:
            pass


def retry_topics(topics: TopicConfigManager) -> RetryTopics:
    """Of groups that are made as they come."""
    return RetryTopics(topics, SubscriptionGroupManager(Role(), auto_create=True, now_ms=lambda: 1))


def send_request(
    body: bytes, *, topic: str = "t", queue_id: int = 0, properties: str = "", batch: bool = False, **fields: Any
) -> RemotingCommand:
    """A 310 (or a batch) with the fields a Java producer sends; ``fields`` override them by their V2 letters."""
    ext = {
        "a": "group",
        "b": topic,
        "c": "TBW102",
        "d": "4",
        "e": str(queue_id),
        "f": "0",
        "g": "1700000000000",
        "h": "0",
        "i": properties,
        "j": "0",
        "k": "false",
        "m": str(batch).lower(),
    }
    code = RequestCode.SEND_BATCH_MESSAGE if batch else RequestCode.SEND_MESSAGE_V2
    return RemotingCommand(code, ext_fields=ext | fields, body=body, serialize=SerializeType.ROCKETMQ)


def pull_request(
    offset: int, *, topic: str = "t", queue_id: int = 0, suspend_ms: int = 0, subscription: str = "*", max_num: int = 32
) -> RemotingCommand:
    """A pull as a pull consumer sends it, held for ``suspend_ms`` if nothing is there."""
    header = PullMessageRequestHeader(
        "consumers",
        topic,
        queue_id,
        offset,
        max_num,
        PullSysFlag.SUBSCRIPTION | (PullSysFlag.SUSPEND if suspend_ms else 0),
        0,
        suspend_ms,
        subscription,
    )
    return RemotingCommand(RequestCode.PULL_MESSAGE, ext_fields=encode_header(header))


async def ask(client: RemotingClient, request: RemotingCommand) -> RemotingCommand:
    """The answer to ``request``."""
    return await client.invoke(request, timeout_s=TIMEOUT_S)
