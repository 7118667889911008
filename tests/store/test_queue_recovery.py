"""Consume queues that hold what cannot be true are built again from the log, which is the truth."""

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.codec.consume_queue import UNIT, UNIT_SIZE
from rmqha.store import segment_reader
from rmqha.store.queue_recovery import read_pieces
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import SEGMENT, bodies, commit_log, dispatched, message, put, running

QUEUE_FILE = "/store/consumequeue/TopicTest/0/{:020d}"
IN_ORDER = [b"%d" % i for i in range(200)]


async def two_hundred(*, crash: bool) -> SimDisk:
    """Two hundred messages in one queue, in twenty queue files."""
    device = SimDisk()
    async with running(device.mount(), crash=crash) as store:
        await put(store, *[message(body) for body in IN_ORDER])
        await store.flush_now(store.max_offset)
        await dispatched(store)
    return device


@pytest.mark.parametrize("crash", [False, True], ids=["clean", "crash"])
@pytest.mark.parametrize(
    "unit",
    [bytes(UNIT_SIZE), UNIT.pack(0, 120, 0), UNIT.pack(0, -(1 << 31), 0), UNIT.pack(1 << 40, 1 << 30, 0), b"\xff" * 20],
    ids=["zeros", "an-earlier-place", "a-negative-size", "a-later-place", "ones"],
)
@pytest.mark.parametrize("index", [0, 8, 97, 158, 170])
async def test_a_damaged_unit_hides_no_message(autojump_clock: MockClock, index: int, unit: bytes, crash: bool) -> None:
    device = await two_hundred(crash=crash)
    device.files[QUEUE_FILE.format(index // 10 * 200)].write(unit, index % 10 * UNIT_SIZE)
    async with running(device.mount()) as store:
        assert bodies(store) == IN_ORDER
        (result,) = await put(store, message())
        assert result.queue_offset == 200


@pytest.mark.parametrize("index", [0, 97, 199])
async def test_after_a_crash_a_unit_that_leads_to_its_record_gets_its_tag_back(
    autojump_clock: MockClock, index: int
) -> None:
    """A power cut may tear a unit within: what is verified again of the log is dispatched again, tags and all."""
    device = await two_hundred(crash=True)
    device.files[QUEUE_FILE.format(index // 10 * 200)].write((7).to_bytes(8), index % 10 * UNIT_SIZE + 12)
    async with running(device.mount()) as store:
        queue = store.queues.find("TopicTest", 0)
        assert queue is not None
        assert {unit[2] for unit in map(queue.unit, range(200)) if unit is not None} == {0}


async def test_a_damaged_unit_does_not_make_a_queue_look_as_if_its_messages_were_gone(
    autojump_clock: MockClock,
) -> None:
    """Its last unit names a place that was deleted; the one before it is good, and must not go with it."""
    device = SimDisk()
    async with running(device.mount()) as store:
        await put(store, *[message(size=1800, topic="Other") for _ in range(4)], message(b"0"), message(b"1"))
        await store.flush_now(store.max_offset)
        await dispatched(store)
        await commit_log(store).queue.delete_first_in_thread()
    device.files[QUEUE_FILE.format(0)].write(UNIT.pack(0, 120, 0), UNIT_SIZE)
    async with running(device.mount()) as store:
        assert bodies(store) == [b"0", b"1"]


async def test_a_damaged_last_unit_behind_deleted_ones_does_not_make_a_queue_look_empty(
    autojump_clock: MockClock,
) -> None:
    """The first unit's message was deleted, the last unit names a deleted place: the one between must not go, too."""
    device = SimDisk()
    async with running(device.mount()) as store:
        others = [message(size=1800, topic="Other") for _ in range(4)]
        await put(store, message(b"0"), *others, message(b"1"), message(b"2"))
        await store.flush_now(store.max_offset)
        await dispatched(store)
        await commit_log(store).queue.delete_first_in_thread()
        store.queues.correct_min_offset(store.min_offset)
        assert bodies(store) == [b"1", b"2"]
    device.files[QUEUE_FILE.format(0)].write(UNIT.pack(0, 120, 0), 2 * UNIT_SIZE)
    async with running(device.mount()) as store:
        assert [*store.queues.lost] == [("TopicTest", 0)], "nobody is told a wrong beginning"
        await trio.sleep(5)
        assert bodies(store) == [b"1", b"2"]
        assert not store.queues.stopped


def swap(device: SimDisk, one: str, other: str) -> None:
    """Swap two directories, or files of one name in them, by hand."""
    moved = {path.replace(a, b, 1): path for a, b in [(one, other), (other, one)] for path in device.files if a in path}
    files = {path: device.files[was] for path, was in moved.items()}
    for path in moved.values():
        del device.files[path]
    device.files |= files


@pytest.mark.parametrize("crash", [False, True], ids=["clean", "crash"])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("TopicTest/0/", "Other/0/"),
        ("TopicTest/0/", "TopicTest/1/"),
        (f"TopicTest/0/{200:020d}", f"Other/0/{200:020d}"),
    ],
    ids=["of-two-topics", "of-one-topic", "files"],
)
async def test_queues_that_were_swapped_are_told_apart(
    autojump_clock: MockClock, one: str, other: str, crash: bool
) -> None:
    """Added up they hold what the log does."""
    device = SimDisk()
    places = [("TopicTest", 0), ("Other", 0)] * 25 + [("TopicTest", 0), ("TopicTest", 1)] * 10
    async with running(device.mount(), crash=crash) as store:
        await put(store, *[message(b"%d" % number, topic=t, queue_id=q) for number, (t, q) in enumerate(places)])
        await store.flush_now(store.max_offset)
        await dispatched(store)
        before = {place: bodies(store, *place) for place in set(places)}
    swap(device, one, other)
    async with running(device.mount()) as store:
        assert {place: bodies(store, *place) for place in set(places)} == before
        results = await put(store, *[message(topic=t, queue_id=q) for t, q in dict.fromkeys(places)])
        assert [result.queue_offset for result in results] == [35, 25, 10]


async def test_zeros_at_a_file_s_end_are_not_taken_for_another_queue_s_unit(autojump_clock: MockClock) -> None:
    """They seem to lead to the log's first message: the operator was told that somebody had moved files by hand."""
    device = await two_hundred(crash=False)
    device.files[QUEUE_FILE.format(1000)].write(bytes(UNIT_SIZE), 9 * UNIT_SIZE)
    with capture_logs() as lines:
        async with running(device.mount()) as store:
            assert bodies(store) == IN_ORDER
    assert not [line for line in lines if line["event"] == "consume_queue.misplaced"]


@pytest.mark.parametrize("index", [190, 199])
async def test_a_log_that_contradicts_itself_costs_one_queue(autojump_clock: MockClock, index: int) -> None:
    """No start did anything about it: it was refused, for a bit that had flipped in one record."""
    device = await two_hundred(crash=True)
    phy_offset, _, _ = UNIT.unpack_from(device.files[QUEUE_FILE.format(3800)].cache, (index - 190) * UNIT_SIZE)
    segment = device.files[f"/store/commitlog/{phy_offset // SEGMENT * SEGMENT:020d}"]
    segment.write((999).to_bytes(8, "big"), phy_offset % SEGMENT + 20)
    for _ in range(2):
        async with running(device.mount()) as store:
            assert bodies(store) == IN_ORDER[:index]
            assert store.queues.stopped["TopicTest", 0].number == 999


async def test_a_segment_is_read_in_pieces(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_reader, "_ROUND_BYTES", 250)
    disk = SimDisk().mount()
    async with running(disk) as store:
        await put(store, *[message(body) for body in IN_ORDER[:60]])
    async with running(disk) as store:
        log = store.commit_log
        pieces = [*read_pieces(log, log.extents()[0])]
        found = [request.queue_offset for piece in pieces for request in piece]
        assert found == [*range(60)][: len(found)]
        assert len(found) > 30
        assert len(pieces) > 10
        half = pieces[len(pieces) // 2][0]
        rest = [request for piece in read_pieces(log, log.extents()[0], half.commit_log_offset) for request in piece]
        assert [request.queue_offset for request in rest] == found[half.queue_offset :]


async def test_where_queues_go_on_is_learned_in_turns(autojump_clock: MockClock) -> None:
    """A peer may have brought gigabytes that are not dispatched yet; a large record is no end of the log."""
    async with running(SimDisk().mount(), mapped_file_size_commit_log=1 << 23) as store:
        store.connect_replication(confirmed=lambda: 0)
        small = [message(size=1000, queue_id=number % 2) for number in range(9000)]
        await put(store, *small, message(size=600_000), message(queue_id=1), message(queue_id=2))
        learned, turns = False, 0

        async def learn() -> None:
            nonlocal learned
            await store.recover_topic_queue_table()
            learned = True

        expected = dict(commit_log(store).topic_queue_table)
        store.commit_log.learn_queue_offsets({})
        async with trio.open_nursery() as nursery:
            nursery.start_soon(learn)
            while not learned:
                turns += 1
                await trio.lowlevel.checkpoint()
        assert turns > 8_000_000 // (256 * 1024)
        assert commit_log(store).topic_queue_table == expected
