"""A damaged record among half messages and marks."""

import errno
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from rmqha.broker.transaction.half_message import HALF_TOPIC, OP_TOPIC, PREPARED_QUEUE_OFFSET, first_place
from rmqha.broker.transaction.transactional_message_bridge import TransactionalMessageBridge
from rmqha.errors import StoreReadError
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.status import GetMessageResult
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import ROOT, dispatched, message, put, running


def make_unreadable(store: DefaultMessageStore, place: int, *, error: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a store says of a unit whose record is damaged, or of a disk."""
    read = store.get_message

    def get_message(topic: str, queue_id: int, offset: int, **limits: Any) -> GetMessageResult:
        if offset == place:
            raise StoreReadError(OSError(error, "cannot be read"), operation="read", path="/store")
        return read(topic, queue_id, offset, **limits | {"max_msg_nums": 1})

    monkeypatch.setattr(store, "get_message", get_message)


@pytest.mark.parametrize(("error", "is_passed"), [(errno.EAGAIN, True), (errno.EMFILE, False)])
@pytest.mark.parametrize("topic", [HALF_TOPIC, OP_TOPIC])
async def test_it_is_passed_over_in_the_end(
    topic: str, error: int, is_passed: bool, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All transactions of the broker waited for it, for as long as the log held it. A lack of descriptors passes."""
    async with running(SimDisk().mount()) as store:
        await put(store, *[message(b"%d" % number, topic=topic) for number in range(5)])
        await dispatched(store)
        make_unreadable(store, 2, error=error, monkeypatch=monkeypatch)
        bridge = TransactionalMessageBridge(store, ConsumerOffsetManager())
        seen, offset, begun_at = list[int](), 0, trio.current_time()
        with capture_logs() as logs:
            while offset < 5 and trio.current_time() < begun_at + 1000:
                try:
                    found, offset = bridge.read(topic, offset, count=1)
                    seen += [one.queue_offset for one in found]
                except StoreReadError:
                    await trio.sleep(1)
        assert seen == ([0, 1, 3, 4] if is_passed else [0, 1])
        assert trio.current_time() - begun_at >= (20 if topic == HALF_TOPIC else 0)
        told = [(line["topic"], line["offset"]) for line in logs if line["event"] == "transaction.passed_over"]
        assert told == [(topic, 2)] * is_passed


async def test_what_cannot_be_read_now_and_then_is_waited_for(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(SimDisk().mount()) as store:
        await put(store, message(b"1", topic=HALF_TOPIC))
        await dispatched(store)
        make_unreadable(store, 0, error=errno.EAGAIN, monkeypatch=monkeypatch)
        bridge = TransactionalMessageBridge(store, ConsumerOffsetManager())
        for _ in range(15):
            with pytest.raises(StoreReadError):
                bridge.read(HALF_TOPIC, 0, count=1)
            await trio.sleep(400)


@pytest.mark.parametrize(("is_readable", "expected"), [(True, 1), (False, 0)])
async def test_a_first_place_that_cannot_be_read_now_is_believed(
    is_readable: bool, expected: int, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What had ended there would be ended once more by its later place; here another one lies there."""
    async with running(SimDisk().mount()) as store:
        named = f"{PREPARED_QUEUE_OFFSET}\x010\x02UNIQ_KEY\x01b\x02".encode()
        for properties in (b"UNIQ_KEY\x01a\x02", named):
            await put(store, message(topic=HALF_TOPIC, properties=properties))
        await dispatched(store)
        bridge = TransactionalMessageBridge(store, ConsumerOffsetManager())
        if not is_readable:
            make_unreadable(store, 0, error=errno.EMFILE, monkeypatch=monkeypatch)
        half = bridge.next_half_message(1).half
        assert half is not None
        assert first_place(half) == expected


async def test_nobody_is_told_of_an_old_mark(autojump_clock: MockClock) -> None:
    """Reading it at a start made the log be read, and the broker take no more messages."""
    disk = SimDisk()
    async with running(disk.mount()) as store:
        results = await put(store, *[message(b"%d" % number, topic=OP_TOPIC) for number in range(5)])
        await dispatched(store)
        disk.files[f"{ROOT}/commitlog/{0:020}"].cache[results[2].wrote_offset + 5] ^= 1
        bridge = TransactionalMessageBridge(store, ConsumerOffsetManager())
        assert [bridge.read_marks(offset)[1] for offset in (0, 2, 3)] == [2, 3, 5]
        await trio.sleep(60)
        assert store.running_flags.is_writeable
