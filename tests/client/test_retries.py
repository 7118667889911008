"""Sends that are tried again: how long they wait, when they give up, and what they then say."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from rmqha.client import (
    Message,
    MQBrokerError,
    NoRouteError,
    Producer,
    RemoteProtocolError,
    RemotingConnectError,
    RemotingSendRequestError,
    RmqhaError,
    SendResult,
    UnreadableAnswerError,
    open_consumer,
    open_producer,
)
from rmqha.client.results import may_be_stored
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.usual.sends import Request
from rmqha.remoting.connection import Connection
from tests.client.fake_broker import FakeBroker
from tests.fakes import MemoryNetwork, MemoryStream

MESSAGE = Message("T", b"x")


ONE_BROKER = b'{"brokerAddrTable":{"a":{"brokerAddrs":{"0":"h:1"},"brokerName":"a","cluster":"c"}}}'


@asynccontextmanager
async def producing(network: MemoryNetwork, addresses: str) -> AsyncIterator[tuple[Producer, trio.Nursery]]:
    with trio.fail_after(1000):
        async with trio.open_nursery() as nursery:
            async with open_producer(addresses, network=network, chance=lambda: 0.5) as producer:
                yield producer, nursery
            nursery.cancel_scope.cancel()


@pytest.mark.parametrize("back_at", [0.05, 2, 5, 5.9])
async def test_retries_bridge_a_restart_within_the_time_limit(back_at: float, autojump_clock: MockClock) -> None:
    network, broker = MemoryNetwork(), FakeBroker()
    async with producing(network, broker.address) as (producer, nursery):

        async def restart() -> None:
            await trio.sleep(back_at)
            await broker.run(network)

        nursery.start_soon(restart)
        assert (await producer.send(MESSAGE, retries=16, timeout_s=6)).is_ok
        assert back_at <= trio.current_time() < 6


async def test_a_port_that_refuses_is_tried_until_the_time_is_over(autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    async with producing(network, "10.0.0.1:1") as (producer, _):
        with pytest.raises(RemotingConnectError):
            await producer.send(MESSAGE, retries=16, timeout_s=6)
        assert 5.5 < trio.current_time() <= 6
        begun_at = trio.current_time()
        with pytest.raises(RemotingConnectError):
            await producer.send(MESSAGE, retries=1000, timeout_s=6)
        assert 5.5 < trio.current_time() - begun_at <= 6


async def test_the_first_retry_comes_at_once_and_the_others_ever_later(autojump_clock: MockClock) -> None:
    network, broker = MemoryNetwork(), FakeBroker()
    broker.topics["T"] = 1
    broker.answers = [14] * 8
    async with producing(network, broker.address) as (producer, nursery):
        nursery.start_soon(broker.run, network)
        await trio.testing.wait_all_tasks_blocked()
        for retries, total_s in ((0, 0), (1, 0), (4, 0.1 + 0.2 + 0.4)):
            begun_at = trio.current_time()
            broker.answers = [14] * (retries + 1)
            with pytest.raises(MQBrokerError):
                await producer.send(MESSAGE, retries=retries, timeout_s=60)
            assert not broker.answers
            assert trio.current_time() - begun_at == pytest.approx(0.9 * total_s)  # chance 0.5 shortens by a tenth


async def test_a_master_that_restarts_is_waited_for_while_its_slave_answers(autojump_clock: MockClock) -> None:
    """The slave knows the topic and no master, or not even the topic: neither says that there will be none."""
    network, master, slave = MemoryNetwork(), FakeBroker(), FakeBroker(port=10921, slave=True)
    async with producing(network, f"{master.address};{slave.address}") as (producer, nursery):
        nursery.start_soon(slave.run, network)
        await trio.testing.wait_all_tasks_blocked()
        for knows_topic in (False, True):
            if knows_topic:
                slave.topics["T"] = 4
            with pytest.raises(NoRouteError) as caught:
                await producer.send(MESSAGE)
            assert caught.value.retryable
        slave.auto_create = False
        del slave.topics["T"]
        with pytest.raises(NoRouteError, match=r"10911.*10921 does not know topic") as caught:
            await producer.send(MESSAGE)
        assert caught.value.retryable

        async def restart() -> None:
            await trio.sleep(3)
            await master.run(network)

        nursery.start_soon(restart)
        assert (await producer.send(MESSAGE, retries=16, timeout_s=6)).is_ok


async def test_a_topic_that_every_broker_denies_is_not_waited_for(autojump_clock: MockClock) -> None:
    network, broker = MemoryNetwork(), FakeBroker()
    broker.auto_create = False
    async with producing(network, broker.address) as (producer, nursery):
        nursery.start_soon(broker.run, network)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(NoRouteError) as caught:
            await producer.send(MESSAGE, retries=16, timeout_s=6)
        assert not caught.value.retryable
        assert trio.current_time() == 0


async def test_what_an_earlier_try_left_unknown_is_not_called_not_sent(autojump_clock: MockClock) -> None:
    """The first try reached the broker, which died; the later ones were refused. It may be stored."""
    network, broker = MemoryNetwork(), FakeBroker()
    async with producing(network, broker.address) as (producer, nursery):
        nursery.start_soon(broker.run, network)
        await trio.testing.wait_all_tasks_blocked()
        await producer.send(MESSAGE)
        broker.silent = True
        nursery.start_soon(broker.die)
        with pytest.raises(RemotingSendRequestError) as caught:
            await producer.send(MESSAGE, retries=3)
        assert isinstance(caught.value.__cause__, RemotingConnectError)


@pytest.mark.parametrize("then", ["refused", "refused for good", "gone"])
async def test_what_a_leader_could_not_confirm_is_not_called_not_stored(then: str, autojump_clock: MockClock) -> None:
    """It answered SYSTEM_ERROR, as no majority had the message in time, and led no more at the next try.

    Or the next one has other limits, and takes no such message at all.
    """
    network, broker = MemoryNetwork(), FakeBroker()
    broker.topics["T"] = 1
    async with producing(network, broker.address) as (producer, nursery):
        nursery.start_soon(broker.run, network)
        await trio.testing.wait_all_tasks_blocked()
        broker.answers = [ResponseCode.SYSTEM_ERROR, ResponseCode.SERVICE_NOT_AVAILABLE]
        if then == "refused for good":
            broker.answers[1] = ResponseCode.MESSAGE_ILLEGAL
        if then == "gone":
            broker.answers = [ResponseCode.SYSTEM_ERROR] * 2

            async def die() -> None:
                await trio.sleep(0.05)
                await broker.die()

            nursery.start_soon(die)
        with pytest.raises(MQBrokerError) as caught:
            await producer.send(MESSAGE, retries=2 if then == "gone" else 1)
        assert caught.value.code == ResponseCode.SYSTEM_ERROR
        assert isinstance(caught.value.__cause__, RemotingConnectError if then == "gone" else MQBrokerError)


@pytest.mark.parametrize("how", ["send", "pipeline"])
async def test_one_who_is_master_no_more_is_not_sent_to_until_the_route_grows_old(
    how: str, autojump_clock: MockClock
) -> None:
    """Its connection stays: that it refuses is all that tells."""
    network, former, master = MemoryNetwork(), FakeBroker(), FakeBroker(port=10921, slave=True)
    former.topics["T"] = master.topics["T"] = 4
    async with producing(network, f"{former.address};{master.address}") as (producer, nursery):
        for broker in (former, master):
            nursery.start_soon(broker.run, network)
        await trio.testing.wait_all_tasks_blocked()
        await producer.send(MESSAGE)
        former.addrs, master.addrs = {1: former.address}, {0: master.address}
        former.answers = [ResponseCode.SERVICE_NOT_AVAILABLE] * 10
        await trio.sleep(1)
        if how == "send":
            assert (await producer.send(MESSAGE, retries=1)).is_ok
        else:
            async with producer.pipeline() as pipeline:
                outcomes = [*await pipeline.send(MESSAGE), *await pipeline.finish()]
                outcomes += [*await pipeline.send(MESSAGE), *await pipeline.finish()]
            assert [isinstance(outcome, SendResult) for outcome in outcomes] == [False, True]
        assert len(master.sent) == 1


async def test_a_broker_that_refuses_many_sends_is_not_asked_for_its_route_by_each(autojump_clock: MockClock) -> None:
    network, broker = MemoryNetwork(), FakeBroker()
    broker.topics["T"] = 1
    asked = list[float]()

    def route(connection: Connection, request: RemotingCommand) -> RemotingCommand:
        asked.append(trio.current_time())
        return broker.route(connection, request)

    broker.register(RequestCode.GET_ROUTEINFO_BY_TOPIC, route)
    async with producing(network, broker.address) as (producer, nursery):
        nursery.start_soon(broker.run, network)
        await trio.testing.wait_all_tasks_blocked()
        broker.answers = [ResponseCode.SERVICE_NOT_AVAILABLE] * 100
        for _ in range(100):
            with pytest.raises(MQBrokerError):
                await producer.send(MESSAGE, retries=0)
            await trio.sleep(0.02)
        assert len(asked) <= 4


@pytest.mark.parametrize(
    ("brokers", "is_retried"), [(b'{"brokerAddrTable":{}}', True), (ONE_BROKER, False), (None, False)]
)
async def test_while_no_broker_is_registered_a_topic_may_yet_be_known(
    brokers: bytes | None, is_retried: bool, autojump_clock: MockClock
) -> None:
    """As while the only one is restarted: a job that sends ended at once, though it was told to try for a minute."""
    network, broker, name_server = MemoryNetwork(), FakeBroker(), FakeBroker(port=9876)
    broker.topics["T"] = 1
    name_server.addrs, name_server.auto_create = {0: broker.address}, False
    if brokers is not None:
        answer = RemotingCommand(ResponseCode.SUCCESS, body=brokers)
        name_server.register(RequestCode.GET_BROKER_CLUSTER_INFO, lambda *_: answer)
    async with producing(network, name_server.address) as (producer, nursery):
        for one in (broker, name_server):
            nursery.start_soon(one.run, network)
        await trio.testing.wait_all_tasks_blocked()

        async def register() -> None:
            await trio.sleep(3)
            name_server.topics["T"] = 1

        nursery.start_soon(register)
        if is_retried:
            assert (await producer.send(MESSAGE, retries=16)).is_ok
        else:
            with pytest.raises(NoRouteError, match="no broker known there makes topics") as caught:
                await producer.send(MESSAGE, retries=16)
            assert not caught.value.retryable
            assert trio.current_time() < 1


class MuteBroker(FakeBroker):
    """It takes connections and answers nothing, or no route that can be read."""

    answer: RemotingCommand | None = None

    def __init__(self) -> None:
        super().__init__()
        self.register(RequestCode.GET_ROUTEINFO_BY_TOPIC, lambda *_: self.answer)


@pytest.mark.parametrize("retries", [0, 16])
async def test_who_never_got_a_route_has_sent_nothing(retries: int, autojump_clock: MockClock) -> None:
    """It was told as a send without an answer: the message may be stored."""
    network, broker = MemoryNetwork(), MuteBroker()
    async with producing(network, broker.address) as (producer, nursery):
        nursery.start_soon(broker.run, network)
        await trio.testing.wait_all_tasks_blocked()
        for timeout_s in (2, 6):
            with pytest.raises(RemotingConnectError):
                await producer.send(MESSAGE, retries=retries, timeout_s=timeout_s)
        assert [type(one) async for one in producer.send_many([MESSAGE])] == [RemotingConnectError]


async def test_a_pipeline_s_message_without_a_route_waits_no_longer_than_it_may(autojump_clock: MockClock) -> None:
    network, broker = MemoryNetwork(), MuteBroker()
    async with producing(network, broker.address) as (producer, nursery):
        nursery.start_soon(broker.run, network)
        await trio.testing.wait_all_tasks_blocked()
        outcomes = [type(one) async for one in producer.send_many([MESSAGE] * 3, timeout_s=1)]
        assert outcomes == [RemotingConnectError] * 3
        assert trio.current_time() == pytest.approx(3)


async def test_who_gives_no_route_that_can_be_read_is_named(autojump_clock: MockClock) -> None:
    network, broker = MemoryNetwork(), MuteBroker()
    broker.answer = RemotingCommand(ResponseCode.SUCCESS, body=b"{")
    async with producing(network, broker.address) as (producer, nursery):
        nursery.start_soon(broker.run, network)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(UnreadableAnswerError, match=f"^{broker.address}: it does not say where topic T is: JSON"):
            await producer.send(MESSAGE)


class SlowNetwork(MemoryNetwork):
    """Connections to one port come about late, or not in the time that they are given."""

    port = 0
    after_s = 0.1

    async def connect(self, host: str, port: int, *, timeout_s: float) -> MemoryStream:
        if port == self.port:
            await trio.sleep(min(self.after_s, timeout_s))
            if timeout_s <= self.after_s:
                raise RemotingConnectError(f"{host}:{port}", "no connection in time")
        return await super().connect(host, port, timeout_s=timeout_s)


@pytest.mark.parametrize("late", [10911, 10921])
async def test_beside_who_gives_no_route_that_can_be_read_a_topic_is_made(late: int, autojump_clock: MockClock) -> None:
    """Of a topic that nobody knows it was left to whose answer came first."""
    network, broken, broker = SlowNetwork(), MuteBroker(), FakeBroker(port=10921)
    network.port, broken.answer = late, RemotingCommand(ResponseCode.SUCCESS, body=b"{")
    async with producing(network, f"{broken.address};{broker.address}") as (producer, nursery):
        nursery.start_soon(broken.run, network)
        nursery.start_soon(broker.run, network)
        await trio.testing.wait_all_tasks_blocked()
        assert (await producer.send(MESSAGE)).is_ok


async def test_who_consumes_is_told_that_no_route_can_be_read(autojump_clock: MockClock) -> None:
    """A topic that is unknown is waited for; this one may be there, and it was waited for without a word."""
    network, broker = MemoryNetwork(), MuteBroker()
    broker.answer = RemotingCommand(ResponseCode.SUCCESS, body=b"{")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.run, network)
        await trio.testing.wait_all_tasks_blocked()
        with trio.fail_after(1000), pytest.raises(RmqhaError, match="does not say where topic T is"):
            async with open_consumer(broker.address, "T", group="g", network=network) as consumer:
                await consumer.poll()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("timeout_s", [1, 3])
@pytest.mark.parametrize("is_piped", [True, False])
async def test_a_route_that_leads_nowhere_is_looked_up_again_however_short_a_send_s_time_is(
    is_piped: bool, timeout_s: float, autojump_clock: MockClock
) -> None:
    """A message with no more time than a connection is given found the master where it had been, for 30 s."""
    network, names, broker = SlowNetwork(), FakeBroker(port=9876), FakeBroker()
    names.topics["T"], names.addrs = 1, {0: "10.0.0.1:7"}
    network.port, network.after_s = 7, 1000

    async def send(producer: Producer) -> object:
        if is_piped:
            pipeline = producer.pipeline(timeout_s=timeout_s)
            return [*await pipeline.send(MESSAGE), *await pipeline.finish()][0]
        try:
            return await producer.send(MESSAGE, timeout_s=timeout_s)
        except RmqhaError as error:
            return error

    async with producing(network, names.address) as (producer, nursery):
        nursery.start_soon(names.run, network)
        nursery.start_soon(broker.run, network)
        await trio.testing.wait_all_tasks_blocked()
        assert isinstance(await send(producer), RemotingConnectError)
        names.addrs = {0: broker.address}
        assert isinstance(await send(producer), SendResult)


async def test_an_answer_to_a_send_that_cannot_be_read_leaves_open_what_became_of_it(autojump_clock: MockClock) -> None:
    """It said SUCCESS, and was told as a message that is not stored."""
    network, broker = MemoryNetwork(), FakeBroker()
    broker.topics["T"] = 1

    def send(connection: Connection, requests: list[Request]) -> None:
        for one in requests:
            connection.respond(one.command, ResponseCode.SUCCESS)

    broker.register_batch([RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2], send)
    async with producing(network, broker.address) as (producer, nursery):
        nursery.start_soon(broker.run, network)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(RemoteProtocolError) as caught:
            await producer.send(MESSAGE, retries=2)
        assert may_be_stored(caught.value)
