"""Segments made ahead: who waits is always told, and nothing unused stays behind."""

import structlog
import trio
from trio.testing import MockClock

from rmqha.errors import StoreWriteError
from rmqha.store.allocate_service import AllocateMappedFileService
from rmqha.store.mapped_file_queue import MappedFileQueue
from rmqha.store.running_flags import RunningFlags
from tests.sim.sim_disk import SimDisk


def make(device: SimDisk) -> tuple[AllocateMappedFileService, MappedFileQueue, list[StoreWriteError]]:
    disk = device.mount()
    disk.makedirs("/log")
    failures: list[StoreWriteError] = []
    queue = MappedFileQueue(disk, "/log", file_size=1024)
    flags = RunningFlags()
    flags.on_write_error.append(failures.append)
    return AllocateMappedFileService(queue, flags=flags), queue, failures


async def test_an_unused_segment_is_deleted_at_the_end(autojump_clock: MockClock) -> None:
    service, queue, _ = make(SimDisk())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(service.run)
        service.prepare()
        service.prepare()
        await trio.sleep(1)
        assert (service.is_ready, queue.disk.listdir("/log")) == (True, ["0" * 20])
        nursery.cancel_scope.cancel()
    assert queue.disk.listdir("/log") == []
    assert service.take() is None


async def test_an_unused_segment_that_cannot_be_deleted_is_only_a_warning(autojump_clock: MockClock) -> None:
    device = SimDisk()
    service, queue, failures = make(device)
    with structlog.testing.capture_logs() as logs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(service.run)
            service.prepare()
            await trio.sleep(1)
            device.faults.read_only = True
            nursery.cancel_scope.cancel()
    assert [log["event"] for log in logs] == ["allocate_mapped_file_service.discard_failed"]
    assert (failures, queue.disk.listdir("/log")) == ([], ["0" * 20])


async def test_who_waits_is_told_at_the_end_and_after_it(autojump_clock: MockClock) -> None:
    service, _, failures = make(SimDisk(latency_s=(100, 100)))
    told: list[str] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(service.run)
        service.when_allocated(lambda: told.append("during"))
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    service.when_allocated(lambda: told.append("after"))
    assert (told, failures) == (["during", "after"], [])


async def test_a_ready_segment_is_told_at_once(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    service, queue, _ = make(SimDisk())
    nursery.start_soon(service.run)
    await service.wait_allocated()
    told: list[int] = []
    service.when_allocated(lambda: told.append(1))
    assert told == [1]
    file = service.take()
    assert file is not None
    assert queue.add(file).file_from_offset == 0


async def test_who_waits_for_a_segment_that_is_not_wanted_any_more_is_told(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    service, queue, _ = make(SimDisk(latency_s=(1, 1)))
    nursery.start_soon(service.run)
    told: list[str] = []
    service.when_allocated(lambda: told.append("first"))
    await trio.sleep(0.5)
    service.discard()
    assert told == ["first"]
    queue.start_offset = 4096
    service.when_allocated(lambda: told.append("second"))
    await trio.sleep(10)
    assert (told, service.is_ready, queue.disk.listdir("/log")) == (["first", "second"], True, [f"{4096:020d}"])


async def test_who_waits_again_when_told_of_the_end_is_told_again(autojump_clock: MockClock) -> None:
    service, _, _ = make(SimDisk(latency_s=(100, 100)))
    told: list[str] = []

    def wait_again() -> None:
        told.append("once")
        service.when_allocated(lambda: told.append("again"))

    service.when_allocated(wait_again)
    with trio.CancelScope() as scope:
        scope.cancel()
        await service.run()
    assert told == ["once", "again"]


async def test_a_segment_that_lacks_space_is_not_tried_when_nobody_wants_it_any_more(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    device = SimDisk()
    disk = device.mount()
    disk.makedirs("/log")
    flags = RunningFlags()
    service = AllocateMappedFileService(MappedFileQueue(disk, "/log", file_size=1024), flags=flags)
    nursery.start_soon(service.run)
    device.faults.full = True
    await service.wait_allocated()
    assert flags.put_hold is not None
    service.discard()
    assert flags.is_writeable
    await trio.sleep(10)
    calls = device.calls
    await trio.sleep(100)
    assert device.calls == calls


async def test_who_waits_is_told_when_the_store_fails(autojump_clock: MockClock) -> None:
    """A slave whose flush has failed leaves its master at once, however long the disk takes over its next segment."""
    queue = MappedFileQueue(SimDisk(latency_s=(100, 100)).mount(), "/log", file_size=1024)
    flags = RunningFlags()
    service = AllocateMappedFileService(queue, flags=flags)
    told: list[str] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(service.run)
        service.when_allocated(lambda: told.append("before"))
        await trio.testing.wait_all_tasks_blocked()
        flags.fail(StoreWriteError(OSError(5, "Input/output error"), operation="fdatasync", path="/log/0"))
        service.when_allocated(lambda: told.append("after"))
        assert told == ["before", "after"]
        nursery.cancel_scope.cancel()
