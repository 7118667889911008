"""Producers that prepare, end and are asked at random, over restarts, kills and changes of master."""

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

import pytest
import trio

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.transaction import half_send
from rmqha.broker.transaction.half_message import (
    CHECK_IMMUNITY_TIME,
    CHECK_MAX_TIME_TOPIC,
    PREPARED_QUEUE_OFFSET,
    half_properties,
)
from rmqha.codec.record.message import decode_message
from tests.broker.machines import Machine
from tests.broker.producers import COMMIT, ROLLBACK, Half, Producer, as_rocketmq_stores, producer_of
from tests.broker.test_pair import SLAVE
from tests.sim.sim_clock import VirtualClock
from tests.sim.sim_net import SimNet

TIMES = {"transactionCheckInterval": "4000", "transactionTimeOut": "3000"}
SEEDS = range(8)


@dataclass
class Deal:
    """What a producer knows of one transaction, and wants."""

    wants: int
    halves: list[Half]
    answered: list[int] = field(default_factory=list)
    """How it was ended, as often as that was answered SUCCESS."""
    is_unsure: bool = False
    """An end was not answered, or by an error: it may count all the same."""


class Walk:
    """A master, maybe with a slave that takes its place now and then, and one producer at a time."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        net = SimNet()
        self.machines = [Machine(net, f"10.0.0.{number}", TIMES) for number in (1, 2)]
        self.has_slave = self.random.random() < 0.6
        self.deals = dict[bytes, Deal]()
        self.discarded = set[bytes]()
        """Whose producer was asked as often as it may be, and said nothing: a walk may take longer than that."""

    async def run(self) -> Counter[bytes]:
        """How often each message is seen in the end."""
        for _ in range(self.random.randint(2, 5)):
            await self._live()
            if self.has_slave and self.random.random() < 0.6:
                self.machines.reverse()
        async with self.machines[0].broker() as broker, producer_of(self.machines[0]) as producer:
            await producer.join()
            for _ in range(30):
                await trio.sleep(2)
                await self._answer(producer, share=1.0)
            self.discarded.update(await _bodies(broker, CHECK_MAX_TIME_TOPIC))
            return Counter(await _bodies(broker, "t"))

    async def _live(self) -> None:
        """Of one master, until it is stopped or killed."""
        master, slave = self.machines
        role = "SYNC_MASTER" if self.has_slave else "ASYNC_MASTER"
        follows = {"haMasterAddress": f"{master.address}:10912", "masterAddress": f"{master.address}:10911"}
        with suppress(trio.Cancelled), trio.CancelScope() as life:
            async with trio.open_nursery() as nursery:
                if self.has_slave:
                    nursery.start_soon(_run, slave, SLAVE | follows)
                async with master.broker(brokerRole=role), producer_of(master) as producer:
                    await producer.join()
                    await trio.sleep(3)
                    for _ in range(self.random.randint(3, 14)):
                        await self._step(producer)
                        await self._answer(producer, share=0.5)
                    await trio.sleep(self.random.choice((1, 8, 20)))
                    if self.random.random() < 0.4:
                        life.cancel()
                        await trio.sleep_forever()
                await trio.sleep(1)
                nursery.cancel_scope.cancel()

    async def _step(self, producer: Producer) -> None:
        match self.random.random():
            case chance if chance < 0.4:
                body = b"m%d" % len(self.deals)
                wants = self.random.choice((COMMIT, COMMIT, ROLLBACK))
                self.deals[body] = Deal(wants, [await producer.prepare(body, properties=self._properties())])
            case chance if chance < 0.75 and self.deals:
                deal = self.random.choice([*self.deals.values()])
                await self._end(producer, deal, self.random.choice(deal.halves))
            case _:
                await trio.sleep(self.random.choice((0.01, 1, 5, 12)))

    def _properties(self) -> str:
        properties = list[str]()
        if self.random.random() < 0.25:
            properties.append(f"{CHECK_IMMUNITY_TIME}\x01{self.random.choice((5, 30, 100))}")
        if self.random.random() < 0.25 and self.deals:
            other = self.random.choice([*self.deals.values()])
            properties.append(f"{PREPARED_QUEUE_OFFSET}\x01{self.random.choice(other.halves).queue_offset}")
        return "\x02".join(properties)

    async def _end(self, producer: Producer, deal: Deal, half: Half) -> None:
        answer = await producer.end(half, deal.wants, waits=self.random.random() < 0.85)
        if answer is None or answer.code:
            deal.is_unsure = True
        else:
            deal.answered.append(deal.wants)

    async def _answer(self, producer: Producer, *, share: float) -> None:
        """What was asked since; of all questions this share is answered."""
        questions, producer.asked = producer.asked, []
        for question in questions:
            producer.asked = [question]
            half, message = await producer.wait_asked(1)
            deal = self.deals[message.body]
            deal.halves.append(half)
            if self.random.random() < share:
                await self._end(producer, deal, half)
        producer.asked = []


async def _run(machine: Machine, settings: dict[str, str]) -> None:
    async with machine.broker(**settings):
        await trio.sleep_forever()


async def _bodies(broker: BrokerController, topic: str) -> list[bytes]:
    """Of all that consumers see in the topic's first queue."""
    bodies, offset = list[bytes](), 0
    while result := broker.store.get_message(topic, 0, offset):
        if not result.views:
            break
        bodies += [decode_message(view).body for view in result.views]
        offset = result.next_begin_offset
    return bodies


@pytest.mark.parametrize("stores", [half_properties, as_rocketmq_stores])
@pytest.mark.parametrize("seed", SEEDS)
async def test_each_transaction_ends_once_and_as_its_producer_said(
    seed: int, stores: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock
) -> None:
    """What is committed is seen once, what is rolled back never, and of nothing its producer is not asked.

    Who does not answer in time is asked no more.

    In half of the runs half messages have what a client claims of their earlier places, as RocketMQ's brokers store it.
    """
    monkeypatch.setattr(half_send, "half_properties", stores)
    walk = Walk(seed)
    seen = await walk.run()
    for body, deal in walk.deals.items():
        if body in walk.discarded and not deal.answered:
            assert len(deal.halves) > 1, (body, deal)
            assert seen[body] <= (deal.wants == COMMIT and deal.is_unsure), (body, deal)
            continue
        assert seen[body] == (deal.wants == COMMIT), (body, deal)
        assert deal.answered or deal.is_unsure, (body, deal)
