"""A log with a record of RocketMQ 5 in a file that a start after a clean stop does not verify."""

from collections.abc import Iterator

import pytest
import trio
from trio.testing import MockClock

from rmqha.codec.consume_queue import UNIT
from rmqha.codec.record.dispatch import DispatchRequest
from rmqha.errors import CorruptLogError
from rmqha.store import queue_recovery
from rmqha.store.log import Extent, Log
from rmqha.store.queue_recovery import empty_queues_of
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import SEGMENT, make_store, message, options, put, running

SYS_FLAG_AT = 36
QUEUES = "/store/consumequeue/TopicTest/0/"


async def store_of_rocketmq_5(*, is_first: bool) -> tuple[SimDisk, int]:
    """Many messages; the first one of the log, or one of its middle, is an inner batch, of which no queue knows."""
    device, offsets, batch = SimDisk(), list[int](), 0 if is_first else 60
    async with running(device.mount()) as store:
        for number in range(200):
            topic, properties = ("TB", b"INNER_NUM\x012") if number == batch else ("TopicTest", b"")
            (result,) = await put(store, message(b"%d" % number, topic=topic, properties=properties))
            offsets.append(result.offsets[0])
    offset = offsets[batch]
    log = device.files[f"/store/commitlog/{offset // SEGMENT * SEGMENT:020d}"]
    log.write((0xC0).to_bytes(4, "big"), offset % SEGMENT + SYS_FLAG_AT)
    for path in [path for path in device.files if "/consumequeue/TB/" in path]:
        del device.files[path]
    return device, offset


def files_of(device: SimDisk) -> dict[str, bytes]:
    return {path: bytes(file.cache) for path, file in device.files.items() if path != "/store/abort"}


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("is_queue_damaged", [True, False])
async def test_a_start_is_refused_and_changes_no_queue(
    is_first: bool, is_queue_damaged: bool, autojump_clock: MockClock
) -> None:
    """It cut the queues, and emptied them: RocketMQ 5 builds none again that end before others do."""
    device, offset = await store_of_rocketmq_5(is_first=is_first)
    if is_queue_damaged:
        device.files[f"{QUEUES}{0:020d}"].write(UNIT.pack(0, 120, 0), 5 * UNIT.size)
    before = files_of(device)
    for _ in range(2):
        with pytest.raises(CorruptLogError, match=r"an inner batch of RocketMQ 5.*do not cut it away") as caught:
            async with running(device.mount()):
                pass
        assert caught.value.offset == offset
        assert files_of(device) == before
        assert "/store/abort" not in device.files


async def test_queues_are_not_emptied_of_what_such_a_log_cannot_build_again(autojump_clock: MockClock) -> None:
    device, offset = await store_of_rocketmq_5(is_first=False)
    store = make_store(options(), device.mount(), now_ms=int)
    store.queues.load()
    store.commit_log.load()
    before = files_of(device)
    with pytest.raises(CorruptLogError, match="an inner batch") as caught:
        empty_queues_of(store.queues, store.commit_log)
    assert (caught.value.offset, files_of(device)) == (offset, before)


async def test_what_was_verified_is_not_read_for_that_once_more(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start after a kill has read the end of the log by then, and dispatch reads it again."""
    read, real = list[int](), queue_recovery.read_pieces

    def read_pieces(log: Log, extent: Extent, start: int = 0) -> Iterator[list[DispatchRequest]]:
        read.append(start)
        return real(log, extent, start)

    async with running(SimDisk().mount()) as store:
        for number in range(20):
            (last,) = await put(store, message(b"%d" % number))
        await trio.sleep(1)
        monkeypatch.setattr(queue_recovery, "read_pieces", read_pieces)
        recover, (verified_from,) = queue_recovery.recover_consume_queues, last.offsets
        assert recover(store.queues, store.commit_log, rebuild_from=verified_from) == verified_from
    assert verified_from not in read
