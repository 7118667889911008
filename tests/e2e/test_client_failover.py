"""rmqha's own client against a real pair: what was answered SEND_OK is read, also when the master is gone."""

import trio

from rmqha.client import Consumer, Message, SendResult, SendStatus, open_consumer, open_producer
from rmqha.errors import RemotingError
from tests.e2e.conftest import Pair
from tests.e2e.load import wait_in_sync

COUNT = 2_000


async def _read(consumer: Consumer, bodies: set[bytes], *, goal: int) -> None:
    """Poll until ``goal`` bodies are there; a broker that goes away in between is asked again."""
    with trio.fail_after(120):
        while len(bodies) < goal:
            try:
                bodies |= {message.body for message in await consumer.poll(timeout_s=5)}
            except RemotingError:
                await trio.sleep(0.2)


async def test_a_consumer_goes_on_with_the_slave_when_the_master_dies(pair: Pair) -> None:
    """Half is read from the master, which then dies; the rest comes from the slave, and nothing is missing."""
    pair.master.conf["slaveTimeout"] = 20_000
    await pair.start()
    await wait_in_sync(pair.master.ports.listen)
    bodies = [b"%d" % number for number in range(COUNT)]
    async with open_producer(pair.master.address) as producer:
        outcomes = [outcome async for outcome in producer.send_many(Message("orders", body) for body in bodies)]
    assert len(outcomes) == COUNT
    assert {outcome.status for outcome in outcomes if isinstance(outcome, SendResult)} == {SendStatus.SEND_OK}
    read: set[bytes] = set()
    async with open_consumer(f"{pair.master.address};{pair.slave.address}", "orders") as consumer:
        await _read(consumer, read, goal=COUNT // 2)
        await pair.master.kill()
        await _read(consumer, read, goal=COUNT)
    assert read == set(bodies)
