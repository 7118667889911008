"""What a whole broker keeps for clients that read nothing, read slowly, or leave: bounded, and nothing at the end."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from itertools import count
from random import Random
from typing import Any

import pytest
import trio

from rmqha.broker import options
from rmqha.broker.broker_controller import BrokerController
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.remoting import FLAG_ONEWAY, RemotingCommand, SerializeType
from rmqha.remoting.limits import RemotingLimits
from rmqha.transport import Network, Stream
from tests.broker.machines import Machine, ask, pull_request, send_request
from tests.sim.sim_clock import VirtualClock
from tests.sim.sim_net import SimNet

OWED_MAX = 1 << 20
LIMITS: dict[str, Any] = {
    "owed_bytes_max": OWED_MAX,
    "outgoing_bytes_max": 1 << 19,
    "connection_outgoing_bytes_max": 1 << 17,
}
CODES = [code for code in RequestCode if code is not RequestCode.DELETE_TOPIC_IN_BROKER]
TABLES = (RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_CONSUMER_OFFSET)
CLIENTS = 12


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    really = options.remoting_limits

    def small(*arguments: Any) -> RemotingLimits:
        return replace(really(*arguments), **LIMITS)

    monkeypatch.setattr(options, "remoting_limits", small)


def any_request(random: Random, opaques: Any) -> bytes:
    """Any request, most of them for much."""
    kind, topic = random.random(), random.choice("tuv")
    if kind < 0.3:
        request = send_request(bytes(random.randrange(3000)), topic=topic)
    elif kind < 0.6:
        request = pull_request(random.randrange(3), topic=topic, suspend_ms=random.choice([0, 20_000]))
    elif kind < 0.8:
        request = RemotingCommand(random.choice(TABLES))
    else:
        fields = dict(send_request(b"").ext_fields) | dict(pull_request(0).ext_fields) | {"offset": "0"}
        body = random.choice([b"", b"{}", bytes(9000)])
        request = RemotingCommand(random.choice(CODES), ext_fields=fields, body=body, serialize=SerializeType.ROCKETMQ)
    request.opaque = next(opaques)
    if random.random() < 0.1:
        request.flag = FLAG_ONEWAY
    return request.encode()


async def behave(machine: Machine, network: Network, random: Random, opaques: Any) -> None:
    """Ask for a while, read as one likes, leave; again and again."""
    while True:
        stream = await network.connect(machine.address, 10911, timeout_s=5)
        reads = random.choice([0, 0, 1, 20])
        with trio.move_on_after(random.uniform(1, 40)):
            try:
                await _ask_for_a_while(stream, random, opaques, reads=reads)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                await trio.sleep(0.1)
        stream.close()


async def _ask_for_a_while(stream: Stream, random: Random, opaques: Any, *, reads: int) -> None:
    buffer = memoryview(bytearray(4096))
    while True:
        data = b"".join(any_request(random, opaques) for _ in range(random.choice([1, 10, 50])))
        if random.random() < 0.1:
            data = data[: random.randrange(len(data))]
        await stream.send_all(data)
        for _ in range(reads):
            with trio.move_on_after(0.05):
                await stream.receive_into(buffer)
        await trio.sleep(random.choice([0.01, 0.5]))


def check(broker: BrokerController) -> None:
    assert broker.server is not None
    capacity, connections = broker.server.capacity, broker.server.connections
    assert capacity.owed.size == sum(connection.owed_bytes for connection in connections)
    assert capacity.owed.size <= OWED_MAX
    held = sum(connection.in_flight.size for connection in connections)
    assert held <= capacity.used_bytes <= held + len(connections) * (1 << 19)
    for connection in connections:
        assert (connection.in_flight.requests == 0) == (connection.in_flight.size == 0)


@asynccontextmanager
async def attacked(machine: Machine, random: Random) -> AsyncIterator[None]:
    async with trio.open_nursery() as attack:
        opaques, networks = count(1), [machine.net.host(f"10.8.0.{number}").mount() for number in range(3)]
        for number in range(CLIENTS):
            attack.start_soon(behave, machine, networks[number % 3], random, opaques)
        yield
        attack.cancel_scope.cancel()


@pytest.mark.parametrize("seed", range(3))
async def test_whatever_is_asked_of_a_broker_and_not_taken_is_bounded_and_gone_at_the_end(
    seed: int, virtual_clock: VirtualClock
) -> None:
    machine = Machine(SimNet(capacity=20_000), "10.0.0.1")
    async with machine.broker() as broker, machine.client() as honest:
        for topic in "tuv":
            await ask(honest, send_request(bytes(1000), topic=topic))
        for number in range(2000):
            broker.offsets.commit_offset(f"group-{number}", "t", 0, offset=number)
        async with attacked(machine, Random(seed)):
            for _ in range(100):
                await trio.sleep(0.3)
                check(broker)
                assert (await ask(honest, send_request(b"x"))).code == ResponseCode.SUCCESS
        await trio.sleep(61)
        assert broker.server is not None
        assert (broker.server.capacity.used_bytes, broker.server.capacity.owed.size, broker.holds.held) == (0, 0, 0)
