"""Delayed messages whose log files are deleted before they are due: those behind them come all the same."""

import pytest
import trio
from structlog.testing import capture_logs

from rmqha.codec.codes import ResponseCode
from rmqha.codec.record.layout import SCHEDULE_TOPIC
from rmqha.codec.record.message import decode_message
from tests.broker.machines import Machine, ask, pull_request, send_request
from tests.broker.test_delayed_messages import ALONE, delayed
from tests.sim.sim_clock import VirtualClock
from tests.sim.sim_net import SimNet

MINUTES = {"messageDelayLevel": "5m 10m", "fileReservedTime": "0"}
GONE = "schedule.messages_gone"


@pytest.mark.parametrize("count", [5, 250])
@pytest.mark.parametrize("restarts", [False, True])
async def test_those_behind_them_come_when_they_are_due(
    count: int, virtual_clock: VirtualClock, *, restarts: bool
) -> None:
    """Whether files of the queue went with them or not: the level would stand still for ever."""
    machine = Machine(SimNet(), "10.0.0.1", ALONE | MINUTES)
    with capture_logs() as lines:
        async with machine.broker() as broker:
            async with machine.client() as client:
                await ask(client, delayed(b"first", 1))
            await trio.sleep(301)
            async with machine.client() as client:
                for number in range(count):
                    await ask(client, delayed(b"expires %d" % number, 1))
                for _ in range(3):
                    assert (await ask(client, send_request(bytes(40_000), topic="busy"))).code == ResponseCode.SUCCESS
                await ask(client, delayed(b"stays", 1))
            await trio.sleep(1)
            broker.store.cleaner.execute_delete_files_manually()
            await trio.sleep(60)
            assert broker.store.queues.range_of(SCHEDULE_TOPIC, 0) == (count + 1, count + 2)
            assert broker.schedule.waiting == {1: 1, 2: 0}
            if not restarts:
                await trio.sleep(301)
                assert await second(machine) == b"stays"
        if restarts:
            async with machine.broker():
                await trio.sleep(301)
                assert await second(machine) == b"stays"
    gone = [(line["from_offset"], line["to_offset"]) for line in lines if line["event"] == GONE]
    assert set(gone) == {(1, count + 1)}


async def second(machine: Machine) -> bytes:
    """The message behind the first one that was delivered, which has expired as well."""
    async with machine.client() as client:
        return bytes(decode_message(memoryview((await ask(client, pull_request(1))).body)).body)
