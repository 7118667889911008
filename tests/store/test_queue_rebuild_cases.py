"""Rebuilding lost queues: what of the log belongs into them, and what the rest of the store does meanwhile."""

import errno

import pytest
import trio
from trio.testing import MockClock

from rmqha.codec.deleted_topic import DeletedQueue
from rmqha.codec.record.layout import SysFlag
from rmqha.errors import CorruptLogError, StoreReadError
from rmqha.store.consume_queue import ConsumeQueue
from tests.sim.sim_disk import SimDisk, SimMount
from tests.store.helpers import commit_log, dispatched, message, put, running
from tests.store.test_damaged_queues import damage_log
from tests.store.test_flush_consume_queue_service import service_of
from tests.store.test_queue_rebuild import healed, lose, offsets, put_everywhere

DIRECTORY = "/store/consumequeue/TopicTest"


async def test_half_messages_get_no_unit(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount()) as store:
        half = message(sys_flag=SysFlag.TRANSACTION_PREPARED)
        first, _, last = await put(store, message(), half, message())
        await dispatched(store)
        device.remove(f"{DIRECTORY}/0")
        await lose(store)
        await healed(store)
        assert offsets(store, 0) == [first.wrote_offset, last.wrote_offset]


async def test_of_queues_that_begin_apart_none_loses_its_beginning(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount()) as store:
        early = await put(store, *[message(queue_id=0) for _ in range(30)])
        late = await put(store, *[message(queue_id=1) for _ in range(30)])
    async with running(device.mount()) as store:
        device.remove(DIRECTORY)
        store.queues.note_missing(f"{DIRECTORY}/1")
        await lose(store)
        await healed(store)
        assert offsets(store, 0) == [result.wrote_offset for result in early]
        assert offsets(store, 1) == [result.wrote_offset for result in late]


async def test_what_is_left_of_a_queue_is_removed_from_its_end(autojump_clock: MockClock) -> None:
    """A crash in between leaves no hole, which would stop the next start."""
    device = SimDisk()
    async with running(device.mount()) as store:
        await put_everywhere(store, rounds=25)
        await dispatched(store)
        device.files.pop(f"{DIRECTORY}/0/{0:020d}")
        unlinked: list[str] = []
        device.on_unlink = unlinked.append
        await lose(store)
        await healed(store)
        assert [path for path in unlinked if path.startswith(DIRECTORY)] == [
            f"{DIRECTORY}/0/{start:020d}" for start in (400, 200)
        ]


async def test_a_reader_that_finds_a_file_missing_starts_the_rebuilding(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount(), open_files_max=1) as store:
        await put_everywhere(store, rounds=2)
        await dispatched(store)
        await trio.sleep(15)  # everything is flushed, and nothing else will wake dispatch soon
        device.remove(f"{DIRECTORY}/0")
        with pytest.raises(StoreReadError):
            [store.get_message("TopicTest", number, 0) for number in (1, 0)]
        await trio.sleep(2)
        assert len(store.get_message("TopicTest", 0, 0).views) == 2


async def test_a_last_record_longer_than_the_log_ends_dispatch_rather_than_being_read_for_ever(
    autojump_clock: MockClock,
) -> None:
    device = SimDisk()
    async with running(device.mount(), crash=True) as store:
        *_, last = await put(store, *[message() for _ in range(5)])
        await dispatched(store)
        damage_log(store, last.wrote_offset, (400).to_bytes(4, "big"))
        device.remove(f"{DIRECTORY}/0")
        await lose(store)
        await trio.sleep(5)
        assert isinstance(store.running_flags.final_error, CorruptLogError)


async def test_the_checkpoint_waits_for_lost_queues(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount()) as store:
        await put_everywhere(store)
        await dispatched(store)
        device.creation_s = 100.0
        device.remove(f"{DIRECTORY}/0")
        await lose(store)
        await trio.sleep(1)
        assert store.queues.lost
        before = store.parts.checkpoint.durable
        assert not await service_of(store).flush_all()
        assert store.parts.checkpoint.durable == before
        device.creation_s = 0.0
        await trio.sleep(200)
        assert await service_of(store).flush_all()


async def test_what_held_an_earlier_rebuilding_is_not_said_of_the_next(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount()) as store:
        await put_everywhere(store)
        await dispatched(store)
        device.faults.root_full = True
        device.remove(f"{DIRECTORY}/0")
        await lose(store)
        await trio.sleep(5)
        assert "No space left" in store.queue_rebuild.describe()
        device.faults.heal()
        await healed(store)
        device.creation_s = 100.0
        device.remove(f"{DIRECTORY}/1")
        await lose(store, 1)
        await trio.sleep(1)
        assert "TopicTest/1 lost" in store.queue_rebuild.describe()
        assert "No space left" not in store.queue_rebuild.describe()


async def test_a_message_that_comes_while_a_queue_without_any_is_kept(autojump_clock: MockClock) -> None:
    """Its end is told by fillers in a file, which takes a while to make; the message is the first behind them."""
    device = SimDisk()
    async with running(device.mount()) as store:
        await put(store, *[message() for _ in range(25)])
        await put(store, *[message(topic="Other", size=2000) for _ in range(3)])
        await store.flush_now(store.max_offset)
        await dispatched(store)
        await commit_log(store).queue.delete_first_in_thread()
        store.queues.correct_min_offset(store.min_offset)
        device.remove(DIRECTORY)
        device.creation_s = 10.0
        await lose(store)
        await trio.sleep(3)
        (result,) = await put(store, message())
        await dispatched(store)
        assert store.queues.lost, "its file is still being made"
        device.creation_s = 0.0
        await healed(store)
        assert (store.refusal(), store.queues.range_of("TopicTest", 0)) == ("", (25, 26))
        assert offsets(store, 0) == [result.wrote_offset]


class Unknowable(SimMount):
    """Nobody can tell what is in ``where``: the device fails."""

    where = "/nowhere"

    def exists(self, path: str) -> bool:
        if path.startswith(self.where):
            raise StoreReadError(OSError(errno.EIO, "Input/output error"), operation="stat", path=path)
        return super().exists(path)


@pytest.mark.parametrize("where", ["/store/commitlog", f"{DIRECTORY}/0", f"{DIRECTORY}/1"])
async def test_where_nobody_can_look_for_a_moment_nothing_ends_and_nothing_is_forgotten(
    autojump_clock: MockClock, where: str
) -> None:
    device = SimDisk()
    mount = Unknowable(device, device.mount().epoch)
    async with running(mount, open_files_max=1) as store:
        before = await put_everywhere(store, rounds=3)
        await dispatched(store)
        mount.where = where
        device.remove(f"{DIRECTORY}/0")
        store.queues.note_missing(f"{DIRECTORY}/0")
        store.queues.note_missing(f"{DIRECTORY}/1", damaged=f"{DIRECTORY}/1/{0:020d}")
        await trio.sleep(5)
        assert store.refusal() == ""
        mount.where = "/nowhere"
        after = await put_everywhere(store)
        await trio.sleep(5)
        assert not store.queues.lost
        assert offsets(store, 0) == before[0] + after[0]
        assert offsets(store, 1) == before[1] + after[1]


@pytest.mark.parametrize("was", ["deleted", "lost"])
@pytest.mark.parametrize("becomes", ["deleted again", "shown again", "deleted and shown again"])
async def test_what_is_deleted_of_a_queue_changes_while_it_is_built(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, was: str, becomes: str
) -> None:
    """Of a topic that was deleted twice dispatch missed what lay between, and the broker took nothing any more."""
    device, key, building, may_go_on = SimDisk(), ("TopicTest", 0), trio.Event(), trio.Event()
    really = ConsumeQueue.create_file_in_thread

    async def create_when_told(queue: ConsumeQueue) -> None:
        building.set()
        await may_go_on.wait()
        await really(queue)

    async with running(device.mount()) as store:
        put_before = await put_everywhere(store, rounds=3)
        await dispatched(store)
        monkeypatch.setattr(ConsumeQueue, "create_file_in_thread", create_when_told)
        store.queues.hide({key: DeletedQueue(2, put_before[0][2])})
        if was == "deleted":
            store.queues.drop_hidden([key], before=put_before[0][2])
        else:
            device.remove(f"{DIRECTORY}/0")
            store.queues.note_missing(f"{DIRECTORY}/0")
        with trio.fail_after(60):
            await building.wait()
        put_meanwhile = await put_everywhere(store, rounds=2)
        await dispatched(store)
        if becomes.startswith("deleted"):
            store.queues.hide({key: DeletedQueue(5, store.max_offset)})
            store.queues.drop_hidden([key], before=store.max_offset)
        if becomes.endswith("shown again"):
            store.queues.show_again([key])
        put_after = await put_everywhere(store)
        await dispatched(store)
        may_go_on.set()
        await healed(store)
        assert store.running_flags.dispatch_error is None
        of_all = [put_before[number] + put_meanwhile[number] + put_after[number] for number in range(2)]
        assert offsets(store, 0) == (put_after[0] if becomes == "deleted again" else of_all[0])
        assert offsets(store, 1) == of_all[1]
        strays = [queue for queue in store.queues.dirty if store.queues.find(queue.topic, queue.queue_id) is not queue]
        assert not strays, "once their files are gone they cannot be flushed, and the checkpoint stays where it is"
    assert not device.mount().exists("/store/abort")


@pytest.mark.parametrize("comes", ["before", "while it is put aside", "while it is lost"])
async def test_a_deletion_by_a_master_whose_log_went_further_hides_nothing_of_the_topic_made_again(
    autojump_clock: MockClock, comes: str
) -> None:
    """It says that nothing that is kept lies before an offset that this log did not reach then."""
    device, key, beyond = SimDisk(), ("TopicTest", 0), 1 << 20
    async with running(device.mount()) as store:
        await put(store, *[message() for _ in range(3)])
        await dispatched(store)
        if comes == "while it is lost":
            device.creation_s = 10.0
            device.remove(f"{DIRECTORY}/0")
            await lose(store)
        store.queues.hide({key: DeletedQueue(3, beyond)})
        places = list[int]()
        if comes == "before":
            places += [result.wrote_offset for result in await put(store, message(), message())]
            await dispatched(store)
        store.queues.drop_hidden([key], before=beyond)
        if comes != "before":
            store.queues.take_out_missing()
            assert store.queues.lost
            places += [result.wrote_offset for result in await put(store, message(), message())]
            await dispatched(store)
        device.creation_s = 0.0
        await healed(store)
        await trio.sleep(5)
        await healed(store)
        assert (store.queues.range_of(*key), store.running_flags.final_error) == ((3, 5), None)
        assert offsets(store, 0) == places


async def test_a_deleted_queue_that_cannot_be_read_for_a_moment_goes_later_and_holds_no_other(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys, really, fails = [("TopicTest", 0), ("TopicTest", 1)], ConsumeQueue.unit, True

    def unit(queue: ConsumeQueue, index: int) -> tuple[int, int, int] | None:
        if fails and queue.queue_id == 1:
            raise StoreReadError(OSError(errno.EIO, "Input/output error"), operation="pread", path="a file")
        return really(queue, index)

    async with running(SimDisk().mount()) as store:
        await put_everywhere(store, rounds=3)
        await dispatched(store)
        before = store.max_offset
        store.queues.hide({key: DeletedQueue(3, before) for key in keys})
        after = await put_everywhere(store)
        await dispatched(store)
        monkeypatch.setattr(ConsumeQueue, "unit", unit)
        store.queues.drop_hidden(keys, before=before)
        await trio.sleep(5)
        assert (offsets(store, 0), store.running_flags.final_error) == (after[0], None)
        fails = False
        await put(store, message(queue_id=2))
        await trio.sleep(5)
        assert offsets(store, 1) == after[1]
