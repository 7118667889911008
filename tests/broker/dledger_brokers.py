"""Brokers on one DLedger group, each on its own simulated machine, in one event loop."""

import random
from collections.abc import Callable

import trio

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.dledger.dledger_broker import make_dledger_broker
from rmqha.broker.dledger.dledger_replication import DLedgerReplication
from rmqha.client.consumer import open_consumer
from rmqha.client.message import Message
from rmqha.client.producer import Producer, ProducerOptions, open_producer
from rmqha.config import load_config
from rmqha.errors import RmqhaError, errors_in
from tests.sim.journal import NodeDied
from tests.sim.sim_clock import WallClock
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_net import SimNet
from tests.store.helpers import bodies

TOPIC = "t"
COMMON = {
    "enableDLegerCommitLog": "true",
    "dLegerGroup": "g",
    "storePathRootDir": "/store",
    "mappedFileSizeCommitLog": "65536",
    "mappedFileSizeForEntryIndex": "9600",
    "mappedFileSizeConsumeQueue": "2000",
    "maxHashSlotNum": "100",
    "maxIndexNum": "400",
    "listenPort": "10911",
    "allowInsecure": "true",
    "heartBeatTimeIntervalMs": "200",
}


class Node:
    """One machine, and the broker on it, if one runs."""

    def __init__(self, name: str, group: "BrokerGroup") -> None:
        self.name = name
        self.group = group
        self.disk = SimDisk(random.Random(name), latency_s=(0.0005, 0.002), now_ms=WallClock())
        self.host = group.net.host(group.addresses[name])
        self.broker: BrokerController | None = None
        self._scope = trio.CancelScope()

    @property
    def running(self) -> BrokerController:
        assert self.broker is not None, f"{self.name} is down"
        return self.broker

    @property
    def replication(self) -> DLedgerReplication:
        assert isinstance(self.running.replication, DLedgerReplication)
        return self.running.replication

    @property
    def place(self) -> tuple[SimNet, str]:
        """Where clients find its broker."""
        return self.group.net, self.group.addresses[self.name]

    @property
    def is_master(self) -> bool:
        return self.broker is not None and self.broker.role.is_master

    def controller(self, **settings: str) -> BrokerController:
        """Not started yet."""
        keys = COMMON | {
            "dLegerSelfId": self.name,
            "dLegerPeers": ";".join(f"{name}-{address}:20911" for name, address in self.group.addresses.items()),
            "brokerIP1": self.group.addresses[self.name],
        }
        return make_dledger_broker(
            load_config(None, keys | self.group.settings | settings),
            disk=self.disk.mount(),
            network=self.host.mount(),
            now_ms=WallClock(),
            chance=random.Random(self.name).random,
        )

    async def start(self) -> None:
        await self.group.nursery.start(self._run)

    async def _run(self, *, task_status: trio.TaskStatus[None]) -> None:
        broker = self.broker = self.controller()
        self._scope = trio.CancelScope()
        try:
            with self._scope:
                await broker.run(task_status=task_status)
        except (NodeDied, BaseExceptionGroup) as raised:
            errors_in(raised, NodeDied)
        if self.broker is broker:
            self.broker = None

    async def stop(self) -> None:
        """As SIGTERM."""
        self.running.stop()
        await self.group.wait(lambda: self.broker is None)

    def kill(self) -> None:
        """As ``kill -9``."""
        self.disk.kill()
        self.host.kill()
        self._scope.cancel()
        self.broker = None

    def cut_power(self) -> None:
        self.disk.power_cut()
        self.host.power_cut()
        self._scope.cancel()
        self.broker = None


class BrokerGroup:
    """Nodes ``n0``, ``n1``..., and their clients."""

    def __init__(self, nursery: trio.Nursery, *, size: int = 3, **settings: str) -> None:
        self.nursery = nursery
        self.settings = settings
        self.net = SimNet(random.Random(1))
        self.addresses = {f"n{number}": f"10.0.0.{number + 1}" for number in range(size)}
        self.nodes = {name: Node(name, self) for name in self.addresses}
        self.sent: list[bytes] = []
        """What was answered SEND_OK."""

    async def start(self, *names: str) -> None:
        """These nodes, or all."""
        for name in names or self.nodes:
            await self.nodes[name].start()

    @property
    def masters(self) -> list[str]:
        return [name for name, node in self.nodes.items() if node.is_master]

    async def wait_master(self) -> Node:
        await self.wait(lambda: len(self.masters) == 1)
        return self.nodes[self.masters[0]]

    async def wait(self, condition: Callable[[], bool], *, limit_s: float = 60) -> None:
        with trio.fail_after(limit_s):
            while not condition():  # noqa: ASYNC110 - what it asks tells nobody
                await trio.sleep(0.005)

    @property
    def clients_addresses(self) -> str:
        return ";".join(f"{address}:10911" for address in self.addresses.values())

    async def send(self, *bodies: bytes) -> None:
        """Each until it is answered SEND_OK."""
        network = self.net.host(f"10.9.9.{len(self.net.hosts)}").mount()
        options = ProducerOptions(timeout_s=2, connect_timeout_s=1)
        async with open_producer(self.clients_addresses, options=options, network=network) as producer:
            for body in bodies:
                with trio.fail_after(60):
                    while not await self._is_sent(producer, body):
                        pass

    async def _is_sent(self, producer: Producer, body: bytes) -> bool:
        try:
            result = await producer.send(Message(TOPIC, body), retries=1000)
        except RmqhaError:
            return False
        assert result.status.name == "SEND_OK", "nothing else is told of what is stored"
        self.sent.append(body)
        return True

    async def consume(self, *, count: int) -> list[bytes]:
        """So many messages from the beginning on, by a consumer that asks any broker that is there."""
        network = self.net.host(f"10.9.9.{len(self.net.hosts)}").mount()
        found = list[bytes]()
        with trio.fail_after(60):
            async with open_consumer(self.clients_addresses, TOPIC, start="first", network=network) as consumer:
                while len(found) < count:
                    found += [message.body for message in await consumer.poll(timeout_s=1)]
        return found

    async def wait_same(self) -> list[bytes]:
        """All that run hold and show the same, and all that was acknowledged; returns the bodies by queue, in order."""
        running = [node for node in self.nodes.values() if node.broker]

        def is_same() -> bool:
            ends = {(node.running.store.max_offset, node.running.store.reput_from_offset) for node in running}
            return len(ends) == 1 and len({*ends.copy().pop()}) == 1

        await self.wait(is_same)
        shown = [shown_by(node.running) for node in running]
        assert all(one == shown[0] for one in shown)
        assert not set(self.sent) - set(shown[0]), "acknowledged, and lost"
        return shown[0]


def shown_by(broker: BrokerController) -> list[bytes]:
    """What consumers of a broker can read of the topic, queue by queue."""
    found = list[bytes]()
    for topic, queue_id in sorted(queue for queue in broker.store.queues.next_offsets() if queue[0] == TOPIC):
        found += bodies(broker.store, topic, queue_id)
    return found
