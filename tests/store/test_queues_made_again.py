"""Queues whose topics RocketMQ deletes and makes again, over many starts: the log alone says what is in them."""

import random

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.codec.record.layout import encode_blank
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.queue_verify import verify_queues
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_mount import SimMount
from tests.store.helpers import SEGMENT, dispatched, message, running

TOPICS = ("TopicTest", "Other", "Third")


class Master:
    """Writes a log as a RocketMQ master would, and knows what is in each queue."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.end = 0
        self.places: dict[str, list[int]] = {topic: [] for topic in TOPICS}
        self.hidden = dict.fromkeys(TOPICS, 0)
        self.passed_over = dict.fromkeys(TOPICS, 0)
        """Of queues that have stopped."""
        self.next = dict.fromkeys(TOPICS, 0)

    def write(self) -> bytes:
        """The next record, and before it the blank that ends a segment, if it does not fit there."""
        topic = self.chance.choice(TOPICS)
        if self.chance.random() < 0.1:
            self.hidden[topic] += len(self.places[topic]) + self.passed_over[topic]
            self.places[topic], self.passed_over[topic], self.next[topic] = [], 0, 0
        data = b""
        if (rest := SEGMENT - self.end % SEGMENT) < 150:
            data, self.end = encode_blank(rest) + bytes(rest - 8), self.end + rest
        queue_offset = fits = len(self.places[topic])
        if self.passed_over[topic] or (fits and self.chance.random() < 0.05):
            queue_offset = self.chance.choice([number for number in range(1, 9) if number != fits])
            self.passed_over[topic] += 1
        self.next[topic] = max(self.next[topic], queue_offset + 1)
        record = message(topic=topic).pack(queue_offset=queue_offset, physical_offset=self.end, store_timestamp_ms=5)
        self.places[topic] += [] if self.passed_over[topic] else [self.end]
        self.end += len(record)
        return data + record


def places_of(store: DefaultMessageStore) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for topic in TOPICS:
        queue = store.queues.find(topic, 0)
        units = [queue.unit(index) for index in range(*store.queues.range_of(topic, 0))] if queue else []
        found[topic] = [unit[0] for unit in units if unit is not None]
    return found


def hidden_of(store: DefaultMessageStore) -> dict[str, int]:
    facts = store.hidden_messages() or {"messages": 0, "queues": {}}
    assert facts["messages"] == sum(facts["queues"].values())
    return {topic: facts["queues"].get(f"{topic}/0", 0) for topic in TOPICS}


def passed_over_in(store: DefaultMessageStore) -> dict[str, int]:
    return {topic: store.queues.stopped.messages_of((topic, 0)) for topic in TOPICS}


async def feed(store: DefaultMessageStore, data: bytes) -> None:
    start, taken = store.max_offset, 0
    while taken < len(data):
        taken += store.append_raw(data[taken:], start + taken)
        if taken < len(data):
            await store.wait_allocated()


async def test_a_start_after_a_clean_stop_reads_nothing_again(autojump_clock: MockClock) -> None:
    """What lies before a queue's 0th message lacks no unit."""
    device, master = SimDisk(), Master(1)
    async with running(device.mount(), is_slave=True) as store:
        await feed(store, b"".join(master.write() for _ in range(100)))
        await dispatched(store)
    with capture_logs() as logs:
        async with running(device.mount(), is_slave=True) as store:
            assert places_of(store) == master.places
            assert hidden_of(store) == master.hidden
    assert not [line for line in logs if line["event"] == "consume_queue.begun_again"]


@pytest.mark.parametrize("seed", range(8))
async def test_each_start_comes_to_the_same_queues(seed: int, autojump_clock: MockClock) -> None:
    """After crashes, with queues that are lost while it runs, and with all lost at a start."""
    device, master = SimDisk(), Master(seed)
    for _ in range(6):
        is_crash = master.chance.random() < 0.5
        async with running(device.mount(), is_slave=True, crash=is_crash) as store:
            assert store.running_flags.final_error is None
            assert places_of(store) == {topic: places[:] for topic, places in master.places.items()}
            assert passed_over_in(store) == master.passed_over
            assert hidden_of(store) == master.hidden
            for _ in range(4):
                await feed(store, b"".join(master.write() for _ in range(master.chance.randrange(12))))
                if master.chance.random() < 0.3:
                    store.queues.note_missing("/store/consumequeue/TopicTest/0", damaged="a file")
                await dispatched(store)
                await trio.sleep(5)
                assert store.running_flags.final_error is None
                assert places_of(store) == master.places
                assert passed_over_in(store) == master.passed_over
                assert hidden_of(store) == master.hidden
            await store.recover_topic_queue_table()
            assert [store.next_queue_offset(topic, 0) for topic in TOPICS] == [*master.next.values()]
            await store.flush_now(store.max_offset)
            await trio.sleep(60)
        found = verify_queues(device.mount(), "/store/commitlog", "/store/consumequeue")
        stopped = {f"/store/consumequeue/{topic}/0" for topic, count in master.passed_over.items() if count}
        assert {problem.path for problem in found.problems} <= stopped
        if master.chance.random() < 0.3:
            device.remove("/store/consumequeue")


async def test_consumers_are_told_of_a_queue_that_begins_anew(autojump_clock: MockClock) -> None:
    device, begun = SimDisk(), list[tuple[str, int]]()
    async with running(device.mount(), is_slave=True) as store:
        store.queues.on_begun_again = lambda topic, queue_id: begun.append((topic, queue_id))
        end = 0
        for queue_offset in (0, 1, 2, 0, 1, 0):
            record = message(topic="t").pack(queue_offset=queue_offset, physical_offset=end, store_timestamp_ms=5)
            await feed(store, record)
            await dispatched(store)
            end += len(record)
    assert begun == [("t", 0)] * 2


async def test_a_queue_that_begins_anew_while_it_is_lost_goes_on_where_it_ends(autojump_clock: MockClock) -> None:
    """A master would leave out numbers, and its log be refused by the next start."""
    device = SimDisk()
    async with running(device.mount(), is_slave=True) as store:
        end = 0
        for queue_offset in (0, 1, 2, 3, 4):
            record = message(topic="t").pack(queue_offset=queue_offset, physical_offset=end, store_timestamp_ms=5)
            await feed(store, record)
            end += len(record)
        await dispatched(store)
        store.queues.note_missing("/store/consumequeue/t/0", damaged="a file")
        store.queues.take_out_missing()
        for queue_offset in (5, 0, 1):
            record = message(topic="t").pack(queue_offset=queue_offset, physical_offset=end, store_timestamp_ms=5)
            await feed(store, record)
            await dispatched(store)
            end += len(record)
            if ("t", 0) in store.queues.lost:
                assert store.queues.range_of("t", 0)[1] == queue_offset + 1
        await store.recover_topic_queue_table()
        assert store.next_queue_offset("t", 0) == 2
        await trio.sleep(60)
        assert (store.queues.range_of("t", 0), store.running_flags.final_error) == ((0, 2), None)


async def test_the_files_of_a_queue_that_begins_anew_are_deleted_in_a_thread(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hundreds of them held the event loop; and nothing is written before they are gone, whatever fails."""
    device, directory = SimDisk(), "/store/consumequeue/t/0"
    unlinked = list[str]()
    unlink = SimMount.unlink_in_thread

    async def note(mount: SimMount, path: str) -> None:
        unlinked.append(path)
        await unlink(mount, path)

    monkeypatch.setattr(SimMount, "unlink_in_thread", note)
    async with running(device.mount(), is_slave=True) as store:
        end = 0
        for queue_offset in (*range(35), 0, 1):
            if queue_offset == 0 and end:
                await dispatched(store)
                assert len([path for path in device.files if directory in path]) == 4
                device.faults.root_full = True
            record = message(topic="t").pack(queue_offset=queue_offset, physical_offset=end, store_timestamp_ms=5)
            await feed(store, record)
            end += len(record)
        await trio.sleep(10)
        assert store.queues.range_of("t", 0) == (35, 35), "nothing of it is written yet"
        device.faults.heal()
        await dispatched(store)
        assert (store.queues.range_of("t", 0), store.running_flags.final_error) == ((0, 2), None)
        assert [path for path in device.files if directory in path] == [f"{directory}/{0:020d}"]
    assert unlinked == [f"{directory}/{offset:020d}" for offset in (600, 400, 200, 0)], "no crash leaves a hole"
