"""Thousands of queues that lose their files at one moment: short steps, and as much work as there are queues."""

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.codec.deleted_topic import DeletedQueue
from rmqha.store import queue_rebuild, segment_reader
from rmqha.store.consume_queue_table import QueueKey
from rmqha.store.lost_queue import LostQueue
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.queue_rebuild import QueueRebuildService
from rmqha.store.unit_group import UnitGroup, write_groups
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import dispatched, message, put, running
from tests.store.test_queue_rebuild import healed

QUEUES = 500
DIRECTORY = "/store/consumequeue"


class Steps(trio.abc.Instrument):
    """How many queues one step of a task puts aside, or back, at most."""

    def __init__(self, store: DefaultMessageStore) -> None:
        self._store, self._before, self.most = store, 0, 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._before = len(self._store.queues.lost)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.most = max(self.most, abs(len(self._store.queues.lost) - self._before))


async def test_many_lost_queues_are_built_again_in_short_steps(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """20,000 were put aside in one step of seconds, and each round of reading looked at all of them."""
    looked_at, written, find_facts = 0, list[int](), QueueRebuildService._facts_of

    def facts_of(self: QueueRebuildService, key: QueueKey) -> tuple[LostQueue, DeletedQueue | None]:
        nonlocal looked_at
        looked_at += 1
        return find_facts(self, key)

    async def write(groups: list[UnitGroup]) -> None:
        written.append(len(groups))
        await write_groups(groups)

    monkeypatch.setattr(segment_reader, "_ROUND_BYTES", 500)
    monkeypatch.setattr(QueueRebuildService, "_facts_of", facts_of)
    monkeypatch.setattr(queue_rebuild, "write_groups", write)
    device = SimDisk()
    async with running(device.mount(), open_files_max=20) as store:
        for _ in range(2):
            await put(store, *[message(queue_id=number) for number in range(QUEUES)])
        await dispatched(store)
        for path in [path for path in device.files if path.startswith(f"{DIRECTORY}/TopicTest")]:
            device.remove(path)
            device.files.pop(path, None)
        steps = Steps(store)
        trio.lowlevel.add_instrument(steps)
        with capture_logs() as logs:
            store.queues.note_missing(f"{DIRECTORY}/TopicTest/0")
            while not store.queues.lost:  # noqa: ASYNC110 - the store has no event for it
                await trio.sleep(0.01)
            await healed(store)
        trio.lowlevel.remove_instrument(steps)
        ends = [store.get_max_offset_in_queue("TopicTest", number) for number in range(QUEUES)]
    assert ends == [2] * QUEUES
    assert 0 < steps.most <= 200  # they are put back faster than aside: nothing is closed
    assert (looked_at < 5 * QUEUES, len(written) > QUEUES / 10, max(written) < 10) == (True, True, True)
    lost = [line["count"] for line in logs if line["event"] == "consume_queue.lost"]
    assert (sum(lost), len(lost) < 5) == (QUEUES, True)
