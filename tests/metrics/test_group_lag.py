"""What groups lack that have committed nothing, and what they gave up."""

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.tables.topic_config import TopicConfig
from rmqha.codec.heartbeat import SubscriptionData
from rmqha.remoting.client import RemotingClient
from tests.broker.group_members import consuming, member_of
from tests.broker.machines import Machine, ask, send_request
from tests.sim.sim_net import SimNet

pytest.importorskip("h11", reason="h11 is in the extra [web]")
pytest.importorskip("prometheus_client", reason="prometheus-client is in the extra [web]")

from tests.metrics.scrapes import Sample, scraped, settings, value
from tests.metrics.test_broker_port import commit

LISTEN = settings()


async def samples_of(broker: BrokerController, machine: Machine) -> dict[Sample, float]:
    await trio.sleep(15)
    async with scraped(broker, machine.net) as monitoring:
        return await monitoring.scrape()


async def send(client: RemotingClient, *queue_ids: int, topic: str = "t") -> None:
    for queue_id in queue_ids:
        await ask(client, send_request(b"x", topic=topic, queue_id=queue_id))


def lags(samples: dict[Sample, float], name: str = "rocketmq_group_diff") -> dict[tuple[str, str], float]:
    """By topic and group."""
    found = {tuple(dict(labels)[label] for label in ("topic", "group")): number
             for (one, labels), number in samples.items() if one == name}  # fmt: skip
    return {(topic, group): number for (topic, group), number in found.items()}


async def test_a_group_that_has_committed_nothing_lacks_what_is_there(autojump_clock: MockClock) -> None:
    """It had no line at all, and the alert for groups that fall behind did not fire."""
    machine = Machine(SimNet(), "10.0.0.1", LISTEN)
    async with machine.broker() as broker, machine.client() as client, member_of(machine, "one") as one:
        await send(client, 0, 0, 1)
        subscribed = (SubscriptionData("t"), SubscriptionData("gone"))
        await one.heartbeat(consuming("stuck", *subscribed), consuming("all", model="BROADCASTING"))
        samples = await samples_of(broker, machine)
        assert lags(samples) == {("t", "stuck"): 3}
        assert value(samples, "rmqha_group_members", topic="t", group="stuck") == 1
        assert value(samples, "rocketmq_group_consume_total_offset", topic="t", group="stuck") == 0
        assert value(samples, "rmqha_subscriptions") == 1
        await commit(client, 1, group="stuck", topic="t")
        samples = await samples_of(broker, machine)
        assert lags(samples) == {("t", "stuck"): 2}
        assert value(samples, "rmqha_subscriptions") == 1


async def test_what_has_expired_is_not_lacked_by_who_has_committed_nothing(autojump_clock: MockClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1", LISTEN)
    async with machine.broker(fileReservedTime="1") as broker, machine.client() as client:
        for _ in range(8):
            await ask(client, send_request(bytes(30_000)))
        await trio.sleep(1.5 * 3600)
        broker.store.cleaner.execute_delete_files_manually()
        assert await broker.store.cleaner.clean() > 0
        first, end = broker.store.queues.readable_range_of("t", 0)
        async with member_of(machine, "one") as one:
            await one.heartbeat("stuck")
            assert lags(await samples_of(broker, machine)) == {("t", "stuck"): end - first}


async def test_dead_letters_that_have_expired_are_not_there(autojump_clock: MockClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1", LISTEN)
    async with machine.broker(fileReservedTime="1") as broker, machine.client() as client:
        broker.topics.update_topic_config(TopicConfig("%DLQ%g", 2, 2))
        for number in range(8):
            await ask(client, send_request(bytes(30_000), topic="%DLQ%g", queue_id=number % 2))
        assert value(await samples_of(broker, machine), "rmqha_dead_letters", group="g") == 8
        await trio.sleep(1.5 * 3600)
        broker.store.cleaner.execute_delete_files_manually()
        assert await broker.store.cleaner.clean() > 0
        ranges = [broker.store.queues.readable_range_of("%DLQ%g", queue_id) for queue_id in (0, 1)]
        left = sum(end - first for first, end in ranges)
        assert value(await samples_of(broker, machine), "rmqha_dead_letters", group="g") == left < 8


async def test_beyond_the_limit_groups_that_have_committed_nothing_are_left_out(autojump_clock: MockClock) -> None:
    """Members may name more topics than could be looked at."""
    machine = Machine(SimNet(), "10.0.0.1", LISTEN | {"metricsTopicsMax": "2"})
    async with machine.broker() as broker, machine.client() as client, member_of(machine, "one") as one:
        await send(client, 0)
        await commit(client, 0, group="z", topic="t")
        await one.heartbeat("a", "b", "c")
        assert lags(await samples_of(broker, machine)) == {("t", "z"): 1, ("t", "a"): 1}


async def test_retries_and_dead_letters_are_told_of_each_group(autojump_clock: MockClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1", LISTEN)
    async with machine.broker() as broker, machine.client() as client:
        for topic in ("%RETRY%g", "%DLQ%g", "%DLQ%other"):
            broker.topics.update_topic_config(TopicConfig(topic, 2, 2))
        await send(client, 0, 0, 1, topic="%DLQ%g")
        await send(client, 0, 1, topic="%RETRY%g")
        await send(client, 0)
        await commit(client, 1, group="g", topic="%RETRY%g")
        await commit(client, 0, group="g", topic="t")
        samples = await samples_of(broker, machine)
        assert lags(samples, "rocketmq_group_retrydiff") == {("%RETRY%g", "g"): 1}
        assert lags(samples) == {("%RETRY%g", "g"): 1, ("t", "g"): 1}
        assert value(samples, "rmqha_dead_letters", group="g") == 3
        assert value(samples, "rmqha_dead_letters", group="other") == 0
