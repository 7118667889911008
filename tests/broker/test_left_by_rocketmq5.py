"""Stores of RocketMQ 5: what it alone delivers is told at each start, and nothing else is."""

from collections.abc import Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs
from trio.testing import MockClock

from tests.broker.machines import Machine
from tests.broker.test_delayed_messages import ALONE
from tests.sim.sim_net import SimNet
from tests.store.helpers import message

TIMER = "rmq_sys_wheel_timer"
REVIVE = "rmq_sys_REVIVE_LOG_C"


@pytest.fixture
def machine() -> Machine:
    return Machine(SimNet(), "10.0.0.1", ALONE)


async def told_at_start(machine: Machine) -> list[dict[str, Any]]:
    with capture_logs() as logs:
        async with machine.broker():
            pass
    return [dict(line) for line in logs if line["event"] == "rocketmq5.not_delivered"]


async def put(machine: Machine, topics: Sequence[str], *, revived: int = 0) -> None:
    async with machine.broker() as broker:
        await broker.store.put_messages_when_allocated([message(b"x", topic=topic, queue_id=0) for topic in topics])
        if revived:
            broker.offsets.commit_offset("CID_RMQ_SYS_REVIVE_GROUP", REVIVE, 0, offset=revived)


async def test_timers_and_pop_notes_are_told_once_a_start(machine: Machine, autojump_clock: MockClock) -> None:
    await put(machine, [TIMER, TIMER, REVIVE, REVIVE, REVIVE, "t"], revived=2)
    for _ in range(2):
        (line,) = await told_at_start(machine)
        assert (line["log_level"], line["timer_messages"], line["pop_checkpoints"]) == ("warning", 2, 1)
        assert "Only RocketMQ 5 delivers these: docs/migration.md, 'From RocketMQ 5'" in line["reason"]


async def test_what_was_looked_at_is_not_told(machine: Machine, autojump_clock: MockClock) -> None:
    await put(machine, [REVIVE, REVIVE, "t", "rmq_sys_wheel_timers"], revived=2)
    assert await told_at_start(machine) == []


async def test_topics_with_queues_of_batches_are_told(machine: Machine, autojump_clock: MockClock) -> None:
    """The log's inner batches are refused where they are read; a start after a clean stop reads its end only."""
    await put(machine, ["t"])
    machine.disk.mount().makedirs("/store/batchconsumequeue/TB/0")
    (line,) = await told_at_start(machine)
    assert line["batch_topics"] == ["TB"]
    assert {"timer_messages", "pop_checkpoints"}.isdisjoint(line)
