"""A damaged record among half messages and marks."""

import errno
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from rmqha.broker.transaction.half_message import OP_TOPIC
from rmqha.broker.transaction.transactional_message_bridge import TransactionalMessageBridge
from rmqha.errors import StoreReadError
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.status import GetMessageResult
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import dispatched, message, put, running


def make_unreadable(store: DefaultMessageStore, place: int, *, error: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a store says of a unit whose record is damaged, or of a disk."""
    read = store.get_message

    def get_message(topic: str, queue_id: int, offset: int, **limits: Any) -> GetMessageResult:
        if offset == place:
            raise StoreReadError(OSError(error, "cannot be read"), operation="read", path="/store")
        return read(topic, queue_id, offset, **limits | {"max_msg_nums": 1})

    monkeypatch.setattr(store, "get_message", get_message)


@pytest.mark.parametrize(("error", "is_passed"), [(errno.EAGAIN, True), (errno.EMFILE, False)])
async def test_it_is_passed_over_in_the_end(
    error: int, is_passed: bool, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All transactions of the broker waited for it, for as long as the log held it. A lack of descriptors passes."""
    async with running(SimDisk().mount()) as store:
        await put(store, *[message(b"%d" % number, topic=OP_TOPIC) for number in range(5)])
        await dispatched(store)
        make_unreadable(store, 2, error=error, monkeypatch=monkeypatch)
        bridge = TransactionalMessageBridge(store, ConsumerOffsetManager())
        seen, offset, begun_at = list[int](), 0, trio.current_time()
        with capture_logs() as logs:
            while offset < 5 and trio.current_time() < begun_at + 1000:
                try:
                    found, offset = bridge.read_marks(offset)
                    seen += [mark.queue_offset for mark in found]
                except StoreReadError:
                    await trio.sleep(1)
        assert seen == ([0, 1, 3, 4] if is_passed else [0, 1])
        assert trio.current_time() - begun_at >= 20
        told = [(line["topic"], line["offset"]) for line in logs if line["event"] == "transaction.passed_over"]
        assert told == [(OP_TOPIC, 2)] * is_passed


async def test_what_cannot_be_read_now_and_then_is_waited_for(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(SimDisk().mount()) as store:
        await put(store, message(b"1", topic=OP_TOPIC))
        await dispatched(store)
        make_unreadable(store, 0, error=errno.EAGAIN, monkeypatch=monkeypatch)
        bridge = TransactionalMessageBridge(store, ConsumerOffsetManager())
        for _ in range(15):
            with pytest.raises(StoreReadError):
                bridge.read_marks(0)
            await trio.sleep(400)
