"""Fake brokers on one in-memory network, clients of them, and what tests do with these."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio
import trio.testing

from rmqha.client import (
    Consumer,
    ConsumerOptions,
    Message,
    Producer,
    ProducerOptions,
    Start,
    open_consumer,
    open_producer,
)
from tests.client.fake_broker import FakeBroker
from tests.fakes import MemoryNetwork


class Cluster:
    """Brokers on one network, and clients of them."""

    def __init__(self, nursery: trio.Nursery, brokers: tuple[FakeBroker, ...]) -> None:
        self.network = MemoryNetwork()
        self.nursery = nursery
        self.brokers = brokers
        self.addresses = ";".join(broker.address for broker in brokers)

    async def start(self, *brokers: FakeBroker) -> None:
        for broker in brokers:
            self.nursery.start_soon(broker.run, self.network)
        await trio.testing.wait_all_tasks_blocked()

    def consumer(
        self, topic: str = "T", *, tags: str = "*", group: str | None = None, start: Start | None = None, **options: Any
    ) -> Any:
        settings = ConsumerOptions(**options)
        return open_consumer(
            self.addresses, topic, tags=tags, group=group, start=start, network=self.network, options=settings
        )

    def producer(self, **options: Any) -> Any:
        return open_producer(self.addresses, network=self.network, options=ProducerOptions(**options))


@asynccontextmanager
async def cluster_of(*brokers: FakeBroker) -> AsyncIterator[Cluster]:
    with trio.fail_after(1000):
        async with trio.open_nursery() as nursery:
            cluster = Cluster(nursery, brokers)
            await cluster.start(*brokers)
            yield cluster
            nursery.cancel_scope.cancel()


async def send(producer: Producer, count: int, *, first: int = 0, **more: Any) -> None:
    for n in range(first, first + count):
        await producer.send(Message("T", b"%d" % n, **more))


async def read(consumer: Consumer, count: int) -> list[bytes]:
    bodies: list[bytes] = []
    while len(bodies) < count:
        messages = await consumer.poll(timeout_s=60)
        assert messages
        bodies += [message.body for message in messages]
    return bodies


def numbers(count: int) -> list[bytes]:
    return sorted(b"%d" % n for n in range(count))
