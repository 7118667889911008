"""A store's life: load, serve, stop; and what a crash, a kill or a failing disk leaves for the next one."""

import errno
from pathlib import Path
from random import Random
from unittest.mock import Mock

import pytest
import trio
from trio.testing import MockClock

from rmqha.codec.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from rmqha.codec.record.layout import SysFlag
from rmqha.errors import CorruptLogError, StoreError, StoreLockedError, StoreReadError, StoreWriteError
from rmqha.store.log_verify import verify_log
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.os_disk import OsDisk
from rmqha.store.queue_verify import verify_queues
from rmqha.store.status import PutMessageStatus
from rmqha.store.stopped_queues import StoppedQueue
from tests.sim.sim_disk import Inode, SimDisk, SimMount
from tests.store.helpers import (
    SEGMENT,
    Clock,
    bodies,
    commit_log,
    dispatched,
    make_store,
    message,
    options,
    put,
    running,
)

CLOCK = Clock()


async def test_a_clean_stop_leaves_nothing_to_repair(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount()) as store:
        await put(store, *[message(b"%d" % i) for i in range(100)])
        end = store.max_offset
    disk = device.mount()
    assert disk.listdir("/store") == ["checkpoint", "commitlog", "config", "consumequeue", "lock"]
    assert decode_checkpoint(disk.read_bytes("/store/checkpoint")).master_flushed_offset == end
    device.power_cut()
    async with running(device.mount()) as store:
        assert (store.max_offset, store.flushed_offset, store.reput_from_offset) == (end, end, end)
        assert bodies(store) == [b"%d" % i for i in range(100)]
        (result,) = await put(store, message())
        assert (result.queue_offset, result.wrote_offset) == (100, end)
        assert store.disk.exists("/store/abort")


async def test_after_a_clean_stop_all_is_durable(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount()) as store:
        await put(store, *[message() for _ in range(5)])
        await dispatched(store)
        await put(store, message())
    assert not device.mount().exists("/store/abort")
    assert [path for path, _ in device.dirty_sectors() if path != "/store/lock"] == []


async def test_an_unused_segment_does_not_stay_after_a_clean_stop(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount()) as store:
        await put(store, message(size=3000))
        await trio.sleep(1)
        assert len(device.files) > 0
        assert store.disk.listdir("/store/commitlog") == [f"{0:020d}", f"{SEGMENT:020d}"]
    assert device.mount().listdir("/store/commitlog") == [f"{0:020d}"]


async def test_a_killed_store_comes_back_with_all_it_had_written(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount(), crash=True) as store:
        await put(store, *[message(b"%d" % i, size=1500 + i) for i in range(20)])
        await dispatched(store)
        await put(store, message(queue_id=1))
        end = store.max_offset
    device.kill()
    async with running(device.mount()) as store:
        assert (store.max_offset, store.reput_from_offset) == (end, end)
        assert (len(bodies(store)), len(bodies(store, queue_id=1))) == (20, 1)
        (result,) = await put(store, message())
        assert result.queue_offset == 20


async def test_a_checkpoint_that_is_lost_is_not_taken_for_a_log_that_never_was_durable(
    autojump_clock: MockClock,
) -> None:
    """What a bad record then hides was stored minutes later, so it was durable: nothing is cut."""
    device, clock = SimDisk(), Clock()
    async with running(device.mount(), now_ms=clock, crash=True) as store:
        for number in range(4):
            await put(store, message(b"%d" % number, size=1000))
            clock.now_ms += 61_000
        await dispatched(store)
    device.kill()
    disk = device.mount()
    assert decode_checkpoint(disk.read_bytes("/store/checkpoint")) == Checkpoint()
    file = disk.open(f"/store/commitlog/{0:020d}", writable=True)
    file.pwrite([b"damage"], 1500)
    file.sync()
    file.close()
    disk.unlink("/store/checkpoint")
    with pytest.raises(CorruptLogError, match="ms later follow at 2000"):
        make_store(options(), device.mount(), now_ms=clock).load()


@pytest.mark.parametrize("seed", range(20))
async def test_after_a_power_cut_everything_flushed_is_there(autojump_clock: MockClock, seed: int) -> None:
    device = SimDisk(Random(seed))
    durable: list[bytes] = []
    for life in range(3):
        crash = life < 2
        async with running(device.mount(), crash=crash, sync_flush=True) as store:
            assert bodies(store)[: len(durable)] == durable
            assert store.max_offset == store.flushed_offset
            found = bodies(store)
            new = [b"%d-%d" % (life, i) for i in range(30)]
            await put(store, *[message(body, properties=b"k\x01" + b"v" * 300) for body in new[:20]])
            await store.flush_now(store.max_offset)
            durable = [*found, *new[:20]]
            await put(store, *[message(body) for body in new[20:]])
        if crash:
            device.power_cut()
    async with running(device.mount()) as store:
        assert bodies(store)[: len(durable)] == durable


async def test_a_recovery_does_not_go_over_what_the_one_before_made_durable(autojump_clock: MockClock) -> None:
    """A broker that is killed again and again, each time before the checkpoint's minute is over."""
    device, clock = SimDisk(), Clock()
    for life in range(4):
        store = make_store(options(), device.mount(), now_ms=clock)
        report = store.load()
        segments_again = (report.end - report.scanned_from) / SEGMENT
        assert segments_again <= 8, "five of the last life, and some for the slack of clocks"
        async with trio.open_nursery() as nursery:
            await nursery.start(store.run)
            await trio.sleep(5)
            if life:
                checkpoint = decode_checkpoint(store.disk.read_bytes("/store/checkpoint"))
                assert checkpoint.master_flushed_offset == report.end
                assert checkpoint.commit_log_timestamp_ms == checkpoint.consume_queue_timestamp_ms > 0
            for _ in range(5):
                clock.now_ms += 10_000
                await put(store, *[message(size=1000) for _ in range(4)])
            nursery.cancel_scope.cancel()
        device.kill()


async def test_a_tail_that_was_cut_never_comes_back(autojump_clock: MockClock) -> None:
    """Records of equal size: new ones end exactly where old ones begin (spec: commitlog §7.2, stale tail)."""
    device = SimDisk()
    async with running(device.mount(), crash=True, sync_flush=True) as store:
        await put(store, *[message(b"old-%d" % i) for i in range(5)])
    log = f"/store/commitlog/{0:020d}"
    inode = device.files[log]
    inode.write(b"\xff", 105 * 2 + 4)
    async with running(device.mount(), crash=True) as store:
        assert store.max_offset == 105 * 2
        await put(store, message(b"new-2"))
    device.kill()
    async with running(device.mount()) as store:
        assert bodies(store) == [b"old-0", b"old-1", b"new-2"]


@pytest.mark.parametrize("lost", ["/store/consumequeue/TopicTest/0", "/store/consumequeue"])
@pytest.mark.parametrize("crash", [False, True])
async def test_lost_queues_come_back_whole(autojump_clock: MockClock, lost: str, crash: bool) -> None:
    device = SimDisk()
    async with running(device.mount(), crash=crash) as store:
        await put(store, *[message(b"%d" % i, queue_id=i % 2) for i in range(200)])
        await dispatched(store)
    for path in [path for path in device.files if path.startswith(lost)]:
        del device.files[path]
    for path in [path for path in device.directories if path.startswith(lost)]:
        del device.directories[path]
    async with running(device.mount()) as store:
        assert bodies(store) == [b"%d" % i for i in range(0, 200, 2)]
        assert bodies(store, queue_id=1) == [b"%d" % i for i in range(1, 200, 2)]


@pytest.mark.parametrize("size", [0, 60, 200], ids=["no-byte", "short", "zeros"])
@pytest.mark.parametrize("is_expired", [False, True], ids=["all-there", "log-begins-later"])
@pytest.mark.parametrize("kept", [10, 0], ids=["one-file-kept", "nothing-kept"])
async def test_an_empty_last_queue_file_does_not_stop_the_start(
    autojump_clock: MockClock, size: int, is_expired: bool, kept: int
) -> None:
    """#9728: the file was made, and what it was to hold was lost with the log's unflushed tail."""
    device = SimDisk()
    async with running(device.mount(), crash=True) as store:
        await put(store, *[message(b"first", topic="Other", size=1500) for _ in range(3)])
        await put(store, *[message(b"%d" % i) for i in range(kept)])
        end = store.max_offset
        await put(store, *[message(b"lost") for _ in range(15 - kept)])
        await dispatched(store)
    empty_log_behind(device, end)
    last = f"/store/consumequeue/TopicTest/0/{kept * 20:020d}"
    device.files[last] = Inode(size)
    for path in [path for path in device.files if "TopicTest" in path and path > last]:
        del device.files[path]
    if is_expired:
        del device.files["/store/commitlog/00000000000000000000"]
    async with running(device.mount()) as store:
        assert store.max_offset == end
        assert bodies(store) == [b"%d" % i for i in range(kept)]
        (result,) = await put(store, message(b"next"))
        assert result.queue_offset == kept
        await dispatched(store)
        assert bodies(store)[-1] == b"next"


def empty_log_behind(device: SimDisk, end: int) -> None:
    """What a power cut may leave of a log that was not flushed."""
    for path, inode in device.files.items():
        if "/commitlog/" in path:
            at = max(end - int(path.rpartition("/")[2]), 0)
            inode.cache[at:] = inode.durable[at:] = bytes(max(inode.size - at, 0))


async def test_queue_offsets_go_on_behind_what_may_not_be_seen_yet(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount(), crash=True) as store:
        half = message(queue_id=1, sys_flag=SysFlag.TRANSACTION_PREPARED)
        results = await put(
            store, *[message(size=1500) for _ in range(5)], message(queue_id=1), message(queue_id=1), half
        )
        await store.flush_now(store.max_offset)
    limited = make_store(options(), device.mount(), now_ms=CLOCK)
    limited.connect_replication(confirmed=lambda: results[1].end_offset)
    limited.load()
    assert limited.reput_from_offset == results[1].end_offset
    assert commit_log(limited).topic_queue_table == {("TopicTest", 0): 5, ("TopicTest", 1): 2}
    limited.close()


async def test_a_stop_before_everything_may_be_seen_is_no_clean_stop(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount()) as store:
        store.connect_replication(confirmed=lambda: 0)
        await put(store, message())
    assert device.mount().exists("/store/abort")


async def test_puts_are_refused_with_the_reason(autojump_clock: MockClock) -> None:
    device = SimDisk()
    store = make_store(options(), device.mount(), now_ms=CLOCK)
    store.load()
    (refused,) = store.put_messages([message()])
    assert (refused.status, refused.remark) == (
        PutMessageStatus.SERVICE_NOT_AVAILABLE,
        "the store is not running, or shutting down",
    )
    with pytest.raises(StoreError, match="not running"):
        store.append_raw(b"x", 0)
    store.close()
    async with running(device.mount(), is_slave=True) as slave:
        (refused,) = await slave.put_messages_when_allocated([message()])
        assert (refused.status, refused.remark) == (
            PutMessageStatus.SERVICE_NOT_AVAILABLE,
            "this broker is a slave: send to its master",
        )


async def test_who_waits_for_a_segment_is_told_that_it_cannot_be_made(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount()) as store:
        await put(store, message(size=1000))
        device.faults.full = True
        results = await store.put_messages_when_allocated([message(size=2000) for _ in range(4)])
        assert [result.status for result in results] == [
            PutMessageStatus.PUT_OK,
            *[PutMessageStatus.CREATE_MAPEDFILE_FAILED] * 3,
        ]
        assert "No space left on device" in results[1].remark
        assert store.write_error is None
        with trio.fail_after(2):
            await store.wait_allocated()


async def test_waiting_puts_are_refused_at_the_stop(autojump_clock: MockClock) -> None:
    device = SimDisk(latency_s=(50, 50))
    statuses: list[PutMessageStatus] = []

    async def wait_and_put(store: DefaultMessageStore) -> None:
        results = await store.put_messages_when_allocated([message()])
        statuses.append(results[0].status)

    async with trio.open_nursery() as nursery, running(device.mount()) as store:
        nursery.start_soon(wait_and_put, store)
        await trio.testing.wait_all_tasks_blocked()
    assert statuses == [PutMessageStatus.SERVICE_NOT_AVAILABLE]


async def test_watermarks_answer_everybody_at_the_stop(autojump_clock: MockClock) -> None:
    answers: list[tuple[bool, int]] = []
    async with running(SimDisk().mount()) as store:
        store.wrote.add(1000, float("inf"), lambda ok, value: answers.append((ok, value)))
        store.flushed.add(1000, float("inf"), lambda ok, value: answers.append((ok, value)))
    assert answers == [(False, 0), (False, 0)]


async def test_a_slave_takes_the_masters_bytes(autojump_clock: MockClock) -> None:
    async with running(SimDisk().mount()) as master:
        await put(master, *[message(b"%d" % i, size=1500) for i in range(6)])
        async with running(SimDisk().mount(), is_slave=True) as slave:
            slave.start_at(SEGMENT)
            assert (slave.min_offset, slave.max_offset, slave.flushed_offset) == (SEGMENT, SEGMENT, SEGMENT)
            offset = SEGMENT
            while offset < master.max_offset:
                piece = commit_log(master).view_range(offset, 1000)
                taken = slave.append_raw(piece, offset)
                offset += taken
                if taken < len(piece):
                    await slave.wait_allocated()
                await slave.wait_writable()
            await slave.flush_now(offset)
            await dispatched(slave)
            assert (slave.max_offset, slave.flushed_offset) == (master.max_offset, master.max_offset)
            assert (slave.get_min_offset_in_queue("TopicTest", 0), len(bodies(slave))) == (2, 4)


async def test_a_log_that_begins_anew_before_its_end_vouches_for_nothing(autojump_clock: MockClock) -> None:
    """It is empty, as its master's was when it began; and the master has an older log by now."""
    async with running(SimDisk().mount()) as master:
        await put(master, message(b"one"), message(b"two"))
        data = bytes(commit_log(master).view_range(0, master.max_offset))
    device = SimDisk()
    disk = device.mount()
    disk.makedirs("/store/commitlog")
    disk.create(f"/store/commitlog/{3 * SEGMENT:020d}", SEGMENT)
    async with running(disk, is_slave=True, crash=True) as slave:
        await trio.sleep(1)
        assert decode_checkpoint(disk.read_bytes("/store/checkpoint")).master_flushed_offset == 3 * SEGMENT
        slave.queues.stopped.note(("TopicTest", 0), StoppedQueue(1, 5, phy_offset=0, goes_on_at=99, next=6, last=0))
        slave.start_at(0)
        assert (slave.wrote.value, slave.flushed_offset, slave.queues.stopped) == (0, 0, {})
        await slave.wait_allocated()
        assert slave.append_raw(data, 0) == len(data)
        assert await slave.parts.flush_queues.flush_all()
    device.lose_power(lambda _path, _number, old, _new: old)
    async with running(device.mount(), is_slave=True) as slave:
        assert slave.max_offset == 0


async def test_a_slave_that_ended_inside_a_record_begins_that_record_again(autojump_clock: MockClock) -> None:
    async with running(SimDisk().mount()) as master:
        first, _ = await put(master, message(b"one"), message(b"two"))
        data = bytes(commit_log(master).view_range(0, first.end_offset + 50))
    device = SimDisk()
    async with running(device.mount(), is_slave=True) as slave:
        while not slave.append_raw(data, 0):
            await slave.wait_allocated()
    assert device.mount().exists("/store/abort")
    async with running(device.mount(), is_slave=True) as slave:
        assert slave.max_offset == first.end_offset
        assert bodies(slave) == [b"one"]


async def test_bytes_for_replication(autojump_clock: MockClock) -> None:
    async with running(SimDisk().mount()) as store:
        log = commit_log(store)
        assert log.segment_at(0) is None
        assert bytes(log.view_range(0, 10)) == b""
        await put(store, *[message(size=1500) for _ in range(3)])
        file, position, size = log.segment_at(SEGMENT + 100) or pytest.fail("it is written")
        assert (file.path, position, size) == (f"/store/commitlog/{SEGMENT:020d}", 100, 1400)
        assert log.segment_at(store.max_offset) is None
        assert len(log.view_range(SEGMENT - 10, 100)) == 10
        assert len(log.view_range(SEGMENT, 10_000)) == 1500
        assert len(log.view_range(store.max_offset + 5, 10)) == 0
        assert log.file_size == SEGMENT


async def test_a_store_is_used_by_one_process(autojump_clock: MockClock) -> None:
    mount = SimDisk().mount()
    async with running(mount):
        with pytest.raises(StoreLockedError):
            make_store(options(), mount, now_ms=CLOCK).load()
    async with running(mount):
        pass


async def test_a_log_belongs_to_one_store(tmp_path: Path, autojump_clock: MockClock) -> None:
    """A copied broker.conf with another storePathRootDir and the same storePathCommitLog: two would write one log."""
    one, other = str(tmp_path / "one"), str(tmp_path / "other")
    log = f"{one}/commitlog"

    def store(root: str) -> DefaultMessageStore:
        return make_store(options(root, store_path_commit_log=log), OsDisk(), now_ms=CLOCK)

    first, second = store(one), store(other)
    first.load()
    with pytest.raises(StoreLockedError, match="commitlog is in use by the broker of another store"):
        second.load()
    first.close()
    second.load()
    second.close()


def test_a_log_that_is_gone_stops_the_start(tmp_path: Path) -> None:
    disk = SimDisk(latency_s=(0, 0)).mount()

    async def fill() -> None:
        async with running(disk) as store:
            await put(store, message())
            await dispatched(store)

    trio.run(fill, clock=MockClock(autojump_threshold=0))
    disk.unlink(f"/store/commitlog/{0:020d}")
    store = make_store(options(), disk, now_ms=CLOCK)
    with pytest.raises(CorruptLogError, match="is the right disk mounted there"):
        store.load()


async def test_a_log_that_is_gone_with_its_queues_is_known_to_the_checkpoint(autojump_clock: MockClock) -> None:
    """Both may be on a disk that is not mounted: what a start on nothing takes would be out of sight afterwards."""
    device = SimDisk()
    async with running(device.mount()) as store:
        await put(store, *[message() for _ in range(20)])
        end = store.max_offset
    saved = device.mount().read_bytes("/store/checkpoint")
    device.remove("/store/commitlog")
    device.remove("/store/consumequeue")
    for _ in range(2):
        refused = make_store(options(), device.mount(), now_ms=CLOCK)
        with pytest.raises(
            CorruptLogError, match=f"durable, says the checkpoint, up to {end}: is the right disk mounted"
        ):
            refused.load()
    assert device.mount().read_bytes("/store/checkpoint") == saved


async def test_an_emptied_store_forgets_its_checkpoint(autojump_clock: MockClock) -> None:
    """One that RocketMQ wrote, which says nothing about offsets."""
    device = SimDisk()
    device.mount().makedirs("/store")
    device.mount().replace_bytes("/store/checkpoint", encode_checkpoint(Checkpoint(1 << 60, 1 << 60)))
    async with running(device.mount(), crash=True) as store:
        await put(store, message())
    async with running(device.mount()) as store:
        assert len(bodies(store)) == 1


@pytest.mark.parametrize("faults", ["read_only", "full"])
def test_a_store_that_cannot_be_written_does_not_start(faults: str) -> None:
    device = SimDisk(latency_s=(0, 0))
    setattr(device.faults, faults, True)
    with pytest.raises(StoreWriteError):
        make_store(options(), device.mount(), now_ms=CLOCK).load()


async def test_queues_are_flushed_now_and_then_and_the_checkpoint_after_them(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(
        device.mount(), mapped_file_size_commit_log=1 << 20, mapped_file_size_consume_queue=60_000
    ) as store:
        await put(store, message())
        await trio.sleep(5)
        queue = store.queues.find("TopicTest", 0)
        assert queue is not None
        assert queue.flushed_offset == 0, "less than two pages"
        await put(store, *[message() for _ in range(500)])
        await trio.sleep(2)
        assert queue.flushed_offset == 501 * 20
        assert decode_checkpoint(store.disk.read_bytes("/store/checkpoint")) == Checkpoint()
        await put(store, message())
        await trio.sleep(60)
        assert queue.flushed_offset == 502 * 20, "what the checkpoint vouches for"
        saved = decode_checkpoint(store.disk.read_bytes("/store/checkpoint"))
        stamp = store.commit_log.last_store_timestamp_ms
        assert (saved.commit_log_timestamp_ms, saved.consume_queue_timestamp_ms) == (stamp, stamp)
        assert saved.master_flushed_offset == store.max_offset


async def test_a_queue_that_cannot_be_flushed_stops_dispatch_and_is_not_vouched_for(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount()) as store:
        await put(store, message())
        await store.flush_now(store.max_offset)
        end = store.max_offset
        await dispatched(store)
        device.faults.sync_errors = 1
        await trio.sleep(62)
        assert store.running_flags.dispatch_error is not None
        assert store.write_error is None
    saved = decode_checkpoint(device.mount().read_bytes("/store/checkpoint"))
    assert (saved.consume_queue_timestamp_ms, saved.master_flushed_offset) == (0, end), "the log alone"
    assert device.mount().exists("/store/abort")


async def test_a_checkpoint_waits_for_space(autojump_clock: MockClock) -> None:
    """The one before is as true as it was: the next recovery would merely begin earlier."""
    device = SimDisk()
    async with running(device.mount()) as store:
        await put(store, message())
        await store.flush_now(store.max_offset)
        await dispatched(store)
        await store.queues.find("TopicTest", 0).flush_in_thread()  # type: ignore[union-attr]
        device.faults.full = True
        await trio.sleep(200)
        assert store.write_error is None
        assert decode_checkpoint(store.disk.read_bytes("/store/checkpoint")) == Checkpoint()
        device.faults.full = False
        await trio.sleep(62)
        assert decode_checkpoint(store.disk.read_bytes("/store/checkpoint")) != Checkpoint()


async def test_a_checkpoint_that_cannot_be_written_is_a_write_error(autojump_clock: MockClock) -> None:
    disk = SimDisk().mount()

    async def broken(path: str, data: bytes) -> None:
        raise StoreWriteError(OSError(errno.EIO, "Input/output error"), operation="replace", path=path)

    async with running(disk) as store:
        await put(store, message())
        await dispatched(store)
        disk.replace_bytes_in_thread = broken  # type: ignore[method-assign]
        await trio.sleep(62)
        assert store.write_error is not None
        assert store.write_error.operation == "replace"


async def test_on_a_real_disk(tmp_path: Path) -> None:
    root = str(tmp_path / "store")
    with trio.fail_after(60):
        for life in range(3):
            async with running(OsDisk(), root=root, sync_flush=True) as store:
                assert len(bodies(store)) == 10 * life
                results = await put(store, *[message(b"%d" % i, size=1200 + i) for i in range(10)])
                await store.flush_now(results[-1].end_offset)
            assert OsDisk().listdir(root) == ["checkpoint", "commitlog", "config", "consumequeue", "lock"]


async def test_a_start_that_was_refused_leaves_the_store_as_it_was(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount()) as store:
        await put(store, message(b"one"), message(b"two"))
        await dispatched(store)
    device.files[f"/store/commitlog/{0:020d}"].write(b"\xff", 95)
    mount = device.mount()
    for _ in range(2):
        refused = make_store(options(), mount, now_ms=CLOCK)
        with pytest.raises(CorruptLogError, match="nothing was changed"):
            refused.load()
        assert not mount.exists("/store/abort"), "the next start knows that the last stop was clean"


@pytest.mark.parametrize("damage", ["a record that no queue knows", "a segment that cannot be read"])
async def test_whatever_refuses_a_start_the_last_stop_stays_a_clean_one(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    """Otherwise the second start takes for a crash's leftover what the first one knew to be damage."""
    device = SimDisk()
    async with running(device.mount()) as store:
        await put(store, *[message(b"%d" % number, size=1500) for number in range(20)])
    del device.files["/store/checkpoint"]
    mount = device.mount()
    if damage == "a record that no queue knows":  # and that is too far back to be verified after a clean stop
        device.remove("/store/consumequeue")
        device.files[f"/store/commitlog/{SEGMENT:020d}"].write(b"\xff", 7)
    else:
        error = StoreReadError(OSError(errno.EACCES, "Permission denied"), operation="open", path="segment")
        monkeypatch.setattr(mount, "open", Mock(side_effect=error))
    before = bytes(device.files[f"/store/commitlog/{2 * SEGMENT:020d}"].cache)
    for _ in range(2):
        refused = make_store(options(), mount, now_ms=CLOCK)
        with pytest.raises((CorruptLogError, StoreReadError)):
            refused.load()
        assert not mount.exists("/store/abort")
    assert bytes(device.files[f"/store/commitlog/{2 * SEGMENT:020d}"].cache) == before


async def test_a_clean_stop_does_not_miss_what_somebody_removed(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount()) as store:
        await put(store, message())
        store.disk.unlink("/store/abort")
    assert not device.mount().exists("/store/abort")


async def test_a_log_and_queues_on_disks_of_their_own_are_not_alone_there(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """lost+found belongs to the file system, and nobody but root may look into it."""
    device = SimDisk()
    for directory in ("commitlog", "consumequeue"):
        device.mount().makedirs(f"/store/{directory}/lost+found")
    listdir = SimMount.listdir

    def guarded(self: SimMount, path: str) -> list[str]:
        if path.endswith("lost+found"):
            raise StoreReadError(OSError(errno.EACCES, "Permission denied"), operation="listdir", path=path)
        return listdir(self, path)

    monkeypatch.setattr(SimMount, "listdir", guarded)
    for life in range(2):
        async with running(device.mount()) as store:
            await put(store, *[message(size=1500) for _ in range(5)])
            await dispatched(store)
            assert len(bodies(store)) == 5 * (life + 1)
    assert verify_log(device.mount(), "/store/commitlog").problems == []
    assert verify_queues(device.mount(), "/store/commitlog", "/store/consumequeue").units == 10
