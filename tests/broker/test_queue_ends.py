"""QueueEnds: the table of ends, page by page, and what others may not put into it."""

from copy import deepcopy
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.tables.queue_ends import QueueEnds
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.codec import java_json
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.deleted_topic import DeletedQueue
from rmqha.codec.headers import QueueEndsRequestHeader, encode_header
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.send_answers import decode_send_response
from rmqha.errors import RemoteProtocolError
from rmqha.remoting.client import RemotingClient
from tests.broker.machines import Machine, ask, send_request
from tests.settings import topic_rules
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_net import SimNet
from tests.store.helpers import SEGMENT, Clock, commit_log, make_store, message, options, put, running
from tests.store.test_stopped_queues import feed


def queue_ends() -> QueueEnds:
    return QueueEnds(make_store(options(), SimDisk().mount(), now_ms=Clock()))


async def page(client: RemotingClient, before: int, start: int = 0) -> RemotingCommand:
    fields = encode_header(QueueEndsRequestHeader(before, start))
    return await ask(client, RemotingCommand(RequestCode.GET_QUEUE_ENDS, ext_fields=fields))


async def test_an_end_never_falls() -> None:
    ends = queue_ends()
    assert ends.learn({("a", 0): 5, ("b", 1): 7}) == 2
    ends.dirty = False
    assert ends.learn({("a", 0): 4, ("b", 1): 7}) == 0
    assert not ends.dirty
    assert await ends.to_json_in_turns() == {"queueEnds": {"a": {0: 5}, "b": {1: 7}}}


async def test_the_end_of_a_queue_that_begins_again_is_saved() -> None:
    """Nothing else tells it once dispatch has dropped the queue's files."""
    store = make_store(options(), SimDisk().mount(), now_ms=Clock())
    ends, told = QueueEnds(store), []
    ends.on_learned = lambda: told.append(True)
    queue = store.queues.find_or_create("a", 0)
    queue.start_at(5)
    queue.create_file()
    queue.correct_min_offset(1 << 40)
    store.queues.begin_again(queue)
    assert await ends.to_json_in_turns() == {"queueEnds": {"a": {0: 5}}}
    assert (ends.dirty, told) == (True, [True])


@pytest.mark.parametrize("first", [0, 2])
async def test_the_end_of_a_queue_that_began_anew_is_that_of_its_last_messages(
    first: int, autojump_clock: MockClock
) -> None:
    """The end of its former messages counted, once the later ones had gone: a master left out the numbers between."""
    async with running(SimDisk().mount(), is_slave=True) as store:
        ends = QueueEnds(store)
        ends.learn({("TopicTest", 0): 9, ("TopicTest", 1): 9})
        await feed(store, *range(first, first + 3))
        await ends.note_going(store.max_offset)
        assert store.queues.known_ends == {("TopicTest", 0): first + 3, ("TopicTest", 1): 9}
        assert ends.dirty


async def test_the_ends_of_queues_that_are_about_to_go_are_noted_and_no_others(autojump_clock: MockClock) -> None:
    """After a crash between the log's file and the note nothing else tells them."""
    async with running(SimDisk().mount(), is_slave=True) as store:
        ends = QueueEnds(store)
        await feed(store, 0, 1, 2)
        before = store.max_offset
        await feed(store, 0, topic="Later")
        await ends.note_going(before)
        assert store.queues.known_ends == {("TopicTest", 0): 3}


async def test_a_queue_whose_file_is_older_than_its_messages_goes_on_behind_an_end_that_is_learned(
    autojump_clock: MockClock,
) -> None:
    """These have expired. What its file says counted, and a master that was told 10 by its slave gave 6 again."""
    device = SimDisk()

    async def fill(count: int, topic: str, *, size: int = 10) -> None:
        async with running(device.mount()) as store:
            await put(store, *[message(topic=topic, size=size) for _ in range(count)])

    await fill(6, "idle")
    older = {path: deepcopy(file) for path, file in device.files.items() if not path.startswith("/store/commitlog/")}
    await fill(4, "idle")
    await fill(10, "t", size=SEGMENT // 3)
    for path in [path for path in device.files if not path.startswith("/store/commitlog/")]:
        del device.files[path]
    device.files.update(older)
    del device.files[min(path for path in device.files if path.startswith("/store/commitlog/"))]
    async with running(device.mount()) as store:
        assert store.queues.range_of("idle", 0) == (6, 6)
        ends = QueueEnds(store)
        ends.learn({("idle", 0): 10, ("t", 0): 8})
        placed = await put(store, message(topic="idle"), message(topic="t"))
        assert [result.queue_offset for result in placed] == [10, 10]


async def test_a_queue_goes_on_behind_an_end_that_is_learned_unless_it_has_begun_again(
    autojump_clock: MockClock,
) -> None:
    async with running(SimDisk().mount()) as store:
        ends = QueueEnds(store)

        async def place(topic: str) -> int:
            (result,) = await put(store, message(topic=topic))
            return result.queue_offset

        assert await place("begun") == 0
        ends.learn({("silent", 0): 3, ("begun", 0): 3})
        assert [await place("silent"), await place("begun")] == [3, 1]
        ends.learn({("silent", 0): 2})
        assert await place("silent") == 4


async def test_a_queue_that_shows_messages_goes_on_behind_these_whatever_is_told(autojump_clock: MockClock) -> None:
    """It was made again: consumers would be sent over the places between."""
    async with running(SimDisk().mount()) as store:
        await put(store, message(topic="begun"))
        await trio.sleep(1)
        assert store.queues.range_of("begun", 0) == (0, 1)
        QueueEnds(store).learn({("begun", 0): 3})
        (placed,) = await put(store, message(topic="begun"))
        assert placed.queue_offset == 1


async def test_no_end_falls_below_what_is_deleted_or_has_gone(autojump_clock: MockClock) -> None:
    """A number would be given twice."""
    async with running(SimDisk().mount(), is_slave=True) as store:
        ends = QueueEnds(store)
        await feed(store, 0, 1, 2)
        store.queues.hide({("TopicTest", 0): DeletedQueue(9, store.max_offset + 1000)})
        await ends.note_going(store.max_offset)
        assert store.queues.known_ends == {("TopicTest", 0): 9}
        await feed(store, 0, 1, topic="Other")
        ends.learn({("Other", 0): 7})
        await feed(store, *range(SEGMENT // 1000 + 1), topic="Busy", size=1000)
        await commit_log(store).queue.delete_first_in_thread()
        await ends.note_going(store.min_offset)
        await feed(store, 3, topic="Lost")
        store.queues.note_missing("/store/consumequeue/Lost/0", damaged="a file")
        assert store.queues.take_out_missing()
        ends.learn({("Lost", 0): 5})
        await ends.note_going(store.max_offset)
        assert store.queues.known_ends.items() >= {("TopicTest", 0): 9, ("Other", 0): 7, ("Lost", 0): 5}.items()


async def test_the_end_of_a_queue_that_is_being_built_again_is_saved_before_its_messages_go() -> None:
    """Its files are gone already, and after a crash so is what memory knows."""
    store = make_store(options(), SimDisk().mount(), now_ms=Clock())
    ends, queue = QueueEnds(store), store.queues.find_or_create("a", 0)
    queue.start_at(5)
    queue.create_file()
    store.queues.note_missing(queue.queue.directory, damaged=queue.queue.files[0].path)
    assert store.queues.take_out_missing()
    await ends.note_going(1 << 40)
    assert await ends.to_json_in_turns() == {"queueEnds": {"a": {0: 5}}}


async def test_a_large_table_is_made_in_turns_and_changes_meanwhile() -> None:
    """A million of them at once would hold up everybody for seconds."""
    ends = queue_ends()
    ends.learn({("t", number): number + 1 for number in range(20_000)})
    turns = 0

    async def learn() -> None:
        nonlocal turns
        while True:
            turns += 1
            ends.learn({("t", 19_999): 20_000 + turns, ("new", turns): 1})
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(learn)
        table = (await ends.to_json_in_turns())["queueEnds"]
        nursery.cancel_scope.cancel()
    assert 20 < turns < 200
    assert [table["t"][number] for number in range(19_999)] == [*range(1, 20_000)]
    assert 20_000 < table["t"][19_999] <= 20_000 + turns
    assert ends.dirty


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"queueEnds": []},
        {"queueEnds": {"t": [5]}},
        {"queueEnds": {"../t": {0: 5}}},
        {"queueEnds": {"": {0: 5}}},
        {"queueEnds": {5: {0: 5}}},
        {"queueEnds": {"t": {-1: 5}}},
        {"queueEnds": {"t": {1 << 31: 5}}},
        {"queueEnds": {"t": {"x": 5}}},
        {"queueEnds": {"t": {"9" * 5000: 5}}},
        {"queueEnds": {"t": {0: -5}}},
        {"queueEnds": {"t": {0: 1 << 57}}},
        {"queueEnds": {"t": {0: 5.0}}},
        {"queueEnds": {"t": {0: True}}},
        {"queueEnds": {"good": {0: 5}, "t": {0: "5"}}},
    ],
)
def test_what_is_no_table_changes_nothing(value: dict[str, Any]) -> None:
    ends = queue_ends()
    with pytest.raises(RemoteProtocolError, match="queue ends do not parse"):
        ends.merge_from_json(value)
    assert (list(ends), ends.dirty) == ([], False)


def test_the_table_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rmqha.broker.tables.queue_ends.ENTRIES_MAX", 3)
    ends = queue_ends()
    ends.merge_from_json({"queueEnds": {"t": {0: 1, 1: 1, 2: 1}}})
    assert ends.merge_from_json({"queueEnds": {"t": {0: 2, 1: 2, 2: 2}}}) == 3
    with pytest.raises(RemoteProtocolError, match="the limit"):
        ends.merge_from_json({"queueEnds": {"t": {3: 1}}})


async def test_pages_hold_every_queue(autojump_clock: MockClock) -> None:
    """Those with messages as well as those of which only the end is known; the ends are those before the offset."""
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker() as broker, machine.client() as client:
        for _ in range(2):
            middle = broker.store.max_offset
            await ask(client, send_request(b"x", topic="alive"))
        await trio.sleep(15)
        broker.queue_ends.learn({("silent", number): 7 for number in range(1200)})
        found: dict[str, dict[int, int]] = {}
        start: int | None = 0
        while start is not None:
            answer = await page(client, middle, start)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            value = java_json.loads(answer.body)
            start = value["next"]
            for topic, ends in value["queueEnds"].items():
                found.setdefault(topic, {}).update(ends)
        assert found == {"alive": {0: 1}, "silent": dict.fromkeys(range(1200), 7)}
        assert java_json.loads((await page(client, 0)).body)["queueEnds"].get("alive") is None, "it began at 0"
        for odd in (-1, 1 << 62, -(1 << 63), (1 << 63) - 1):
            assert (await page(client, 0, odd)).code == ResponseCode.SUCCESS


async def test_queues_without_a_message_do_not_end_the_pages() -> None:
    """They are in no page, and those behind them are."""
    store = make_store(options(), SimDisk().mount(), now_ms=Clock())
    ends = QueueEnds(store)
    for number in range(1200):
        store.queues.find_or_create("new", number)
    ends.learn({("silent", 0): 7})
    found: dict[str, dict[int, int]] = {}
    start: int | None = 0
    while start is not None:
        answer = await ends.page_in_turns(start, before=0)
        found |= answer["queueEnds"]
        start = answer["next"]
    assert found == {"silent": {0: 7}}


async def test_a_save_in_the_middle_of_a_cleaning_notes_what_is_gone(autojump_clock: MockClock) -> None:
    """The segment is deleted, and the queues have not been told yet: nobody would come back to them."""
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker() as broker, machine.client() as client:
        await ask(client, send_request(b"x", topic="silent"))
        for _ in range(3):
            await ask(client, send_request(bytes(40_000), topic="busy"))
        await trio.sleep(15)
        await commit_log(broker.store).queue.delete_first_in_thread()
        await broker.metadata.save()
        assert broker.store.queues.known_ends == {("silent", 0): 1}
        assert not broker.queue_ends.dirty, "it is in the file: the broker may be about to end"


async def test_what_a_cleaning_takes_while_ends_are_noted_is_noted_by_the_next_save(autojump_clock: MockClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker() as broker, machine.client() as client:
        segments = commit_log(broker.store).queue

        def delete_first() -> None:
            segments.disk.unlink(segments.files[0].path)
            segments.forget_vanished()

        for topic in ("first", "second"):
            await ask(client, send_request(b"x", topic=topic))
            for _ in range(2):
                await ask(client, send_request(bytes(40_000), topic="busy"))
        await trio.sleep(15)
        broker.queue_ends.on_learned = delete_first
        delete_first()
        await broker.queue_ends.note_gone()
        assert await broker.queue_ends.to_json_in_turns() == {"queueEnds": {"first": {0: 1}}}
        broker.queue_ends.on_learned = lambda: None
        await broker.queue_ends.note_gone()
        assert await broker.queue_ends.to_json_in_turns() == {"queueEnds": {"first": {0: 1}, "second": {0: 1}}}


async def test_what_is_not_dispatched_yet_has_no_ends_to_tell(autojump_clock: MockClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker() as broker, machine.client() as client:
        assert (await page(client, broker.store.max_offset + 1)).code == ResponseCode.SYSTEM_BUSY


def test_a_queue_found_in_the_log_is_one_of_its_topic() -> None:
    """Queue 4 makes five queues: one short, and consumers would never ask for it."""
    topics = TopicConfigManager(topic_rules("cluster", "broker"), now_ms=lambda: 0)
    topics.learn_queue("new", 4)
    new = topics.select("new")
    assert new is not None
    assert (new.read_queue_nums, new.write_queue_nums) == (5, 5)
    topics.learn_queue("new", 5)
    grown = topics.select("new")
    assert grown is not None
    assert (grown.read_queue_nums, grown.write_queue_nums) == (6, 6)
    topics.learn_queue("new", 2)
    assert topics.select("new") == grown
    again = TopicConfigManager(topic_rules("cluster", "broker"), now_ms=lambda: 1)
    again.replace_from_json(java_json.loads(java_json.dumps(topics.to_json()).encode()))
    assert again.select("new") == topics.select("new"), "the table is a good one"


async def test_a_queue_goes_on_where_it_ended_after_a_restart_though_nothing_else_tells(
    autojump_clock: MockClock,
) -> None:
    """Its messages are gone, and so are its files, or they never were here."""
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker() as broker, machine.client() as client:
        await ask(client, send_request(b"x", topic="gone", queue_id=1))
        broker.queue_ends.learn({("gone", 0): 500})
    async with machine.broker(), machine.client() as client:
        answer = await ask(client, send_request(b"x", topic="gone"))
        assert decode_send_response(answer).queue_offset == 500


async def test_pages_are_made_one_after_the_other_and_in_turns(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A page took 20 ms, for 100 bytes: 300 clients that asked for one kept everybody else waiting for 20 s."""
    machine, looked_at = Machine(SimNet(), "10.0.0.1"), [0]

    class Passes(trio.abc.Instrument):
        def before_io_wait(self, timeout: float) -> None:
            looked_at.append(0)

    async with machine.broker() as broker, machine.client() as first, machine.client() as second:
        queues = broker.store.queues
        broker.queue_ends.learn({("t", number): 1 for number in range(500)})
        ends_before = queues.ends_before

        def count(phy_offset: int, *, start: int, count: int) -> dict[tuple[str, int], int]:
            looked_at[-1] += count
            return ends_before(phy_offset, start=start, count=count)

        monkeypatch.setattr(queues, "ends_before", count)
        passes = Passes()
        trio.lowlevel.add_instrument(passes)
        async with trio.open_nursery() as nursery:
            for client in (first, second):
                nursery.start_soon(page, client, 0)
        trio.lowlevel.remove_instrument(passes)
    assert sum(looked_at) == 1000
    assert max(looked_at) <= 25
