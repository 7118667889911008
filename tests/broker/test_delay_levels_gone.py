"""A messageDelayLevel with fewer levels: what waits at those that are gone comes when it is due."""

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.broker.broker_controller import BrokerController
from rmqha.codec.delayed_message import waiting_properties
from rmqha.codec.record.layout import SCHEDULE_TOPIC
from rmqha.remoting.client import RemotingClient
from tests.broker.machines import Machine, ask
from tests.broker.test_delayed_messages import ALONE, bodies, delayed
from tests.sim.sim_net import SimNet
from tests.store.helpers import message

FOUR = {"messageDelayLevel": "1s 2s 4s 60s"}
TWO = {"messageDelayLevel": "1s 2s"}
QUEUES = f"/store/consumequeue/{SCHEDULE_TOPIC}"


@pytest.fixture
def machine() -> Machine:
    return Machine(SimNet(), "10.0.0.1", ALONE)


async def send_some(client: RemotingClient) -> None:
    """Three to the highest level, and one to the lowest."""
    for number, level in enumerate((4, 4, 4, 1)):
        await ask(client, delayed(b"%d" % number, level))


def told(broker: BrokerController, level: int) -> str:
    return broker.schedule.running_stats()[f"scheduleMessageOffset_{level}"]


async def test_they_come_when_they_are_due_and_once(machine: Machine, autojump_clock: MockClock) -> None:
    async with machine.broker(**FOUR), machine.client() as client:
        await send_some(client)
    with capture_logs() as logs:
        async with machine.broker(**TWO) as broker, machine.client() as client:
            await trio.sleep(55)
            assert await bodies(client) == [b"3"]
            assert told(broker, 4) == "0,3"
            assert broker.schedule.waiting == {1: 0, 2: 0, 4: 3}
            await trio.sleep(10)
            assert await bodies(client) == [b"3", b"0", b"1", b"2"]
            assert told(broker, 4) == "3,3"
            assert broker.schedule.waiting == {1: 0, 2: 0}
    (line,) = [line for line in logs if line["event"] == "schedule.level_gone"]
    assert (line["log_level"], line["delay_level"], line["waiting"]) == ("warning", 4, 3)
    with capture_logs() as logs:
        async with machine.broker(**TWO), machine.client() as client:
            await trio.sleep(65)
            assert await bodies(client) == [b"3", b"0", b"1", b"2"]
    assert not [line for line in logs if line["event"] == "schedule.level_gone"]


async def test_where_no_level_is_left_they_come_too(machine: Machine, autojump_clock: MockClock) -> None:
    async with machine.broker(**FOUR), machine.client() as client:
        await send_some(client)
    async with machine.broker(messageDelayLevel=""), machine.client() as client:
        await trio.sleep(65)
        assert await bodies(client) == [b"3", b"0", b"1", b"2"]


async def test_those_whose_queue_is_built_again_come_after_the_longest_delay(
    machine: Machine, autojump_clock: MockClock
) -> None:
    """The time when each is due was in the queue, and is told by the present levels now."""
    async with machine.broker(**FOUR), machine.client() as client:
        await send_some(client)
    disk = machine.disk.mount()
    for queue in disk.listdir(QUEUES):
        for name in disk.listdir(f"{QUEUES}/{queue}"):
            disk.unlink(f"{QUEUES}/{queue}/{name}")
    async with machine.broker(**TWO) as broker, machine.client() as client:
        await trio.sleep(10)
        assert sorted(await bodies(client)) == [b"0", b"1", b"2", b"3"]
        assert told(broker, 4) == "3,3"


async def test_those_that_are_dispatched_only_now_come_too(machine: Machine, autojump_clock: MockClock) -> None:
    """They lay in the end of a log whose writer had more levels."""
    properties = waiting_properties({}, delay_level=7, topic="t", queue_id=0)
    async with machine.broker(**TWO) as broker, machine.client() as client:
        await trio.sleep(1)
        record = message(b"x", topic=SCHEDULE_TOPIC, queue_id=6, properties=properties)
        await broker.store.put_messages_when_allocated([record])
        await trio.sleep(1.9)
        assert await bodies(client) == []
        await trio.sleep(1)
        assert await bodies(client) == [b"x"]


async def test_a_clock_that_is_set_back_keeps_them_no_longer_than_files_are_kept(
    machine: Machine, autojump_clock: MockClock
) -> None:
    """How long the delay of a level was that is gone nobody knows."""
    async with machine.broker(messageDelayLevel="1s 2h"), machine.client() as client:
        await ask(client, delayed(b"x", 2))
    async with machine.broker(messageDelayLevel="1s", fileReservedTime="1"), machine.client() as client:
        await trio.sleep(3)
        assert await bodies(client) == [b"x"]
