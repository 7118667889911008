"""What the store tests share: messages, options for small files, and a running store."""

import gc
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio

from rmqha.codec.host import parse_host
from rmqha.codec.record.encoder import PreparedRecord, prepare
from rmqha.codec.record.message import decode_message
from rmqha.codec.record.prepared_batch import PreparedBatch
from rmqha.replication.role import Role, RoleKind
from rmqha.store.classic_log import make_classic_log
from rmqha.store.commit_log import CommitLog
from rmqha.store.disk import Disk
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.parts import make_parts
from rmqha.store.status import AppendResult, GetMessageStatus, PutMessageStatus
from rmqha.store.store_log import StoreGround
from rmqha.store.store_options import StoreOptions
from tests.settings import store_options

HOST = parse_host("127.0.0.1:10911")
ROOT = "/store"
SEGMENT = 4096


def message(
    body: bytes = b"hello",
    *,
    topic: str = "TopicTest",
    queue_id: int = 0,
    properties: bytes = b"",
    sys_flag: int = 0,
    size: int | None = None,
) -> PreparedRecord:
    """A record to put; with ``size`` its body is chosen so that the record has exactly that many bytes."""
    if size is not None:
        body = b"x" * (size - 91 - len(topic) - len(properties))
    return prepare(
        topic,
        body,
        queue_id=queue_id,
        born_timestamp_ms=1,
        born_host_raw=HOST,
        store_host_raw=HOST,
        properties_raw=properties,
        sys_flag=sys_flag,
    )


def batch_of(*records: PreparedRecord) -> PreparedBatch:
    """A batch of records that :func:`message` made for one queue."""
    first = records[0] if records else message()
    batch = PreparedBatch(message(b"", topic=first.topic, queue_id=first.queue_id, sys_flag=first.sys_flag))
    assert {(one.topic, one.queue_id, one.sys_flag) for one in records} <= {
        (first.topic, first.queue_id, first.sys_flag)
    }
    if records:
        flags, bodies = [one.flag for one in records], [bytes(one.body) for one in records]
        batch.add(flags, bodies, [one.tail[one.tail[0] + 3 :] for one in records])
    return batch


def options(root: str = ROOT, **changes: Any) -> StoreOptions:
    """Small files: segments of 4 KiB, 10 units a queue file."""
    small: dict[str, Any] = {
        "mapped_file_size_commit_log": SEGMENT,
        "mapped_file_size_consume_queue": 200,
    }
    return store_options(root, **(small | changes))


class Clock:
    """A wall clock that stands still until told otherwise."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


def make_store(
    options: StoreOptions, disk: Disk, *, now_ms: Callable[[], int], role: Role | None = None
) -> DefaultMessageStore:
    """A store on the classic log, a master's unless ``role`` says otherwise; nothing is opened yet."""
    ground = StoreGround(options, disk, now_ms=now_ms)
    return DefaultMessageStore(make_parts(ground, make_classic_log(ground), role=role or Role()))


def commit_log(store: DefaultMessageStore) -> CommitLog:
    """The classic log that ``store`` was made with."""
    assert isinstance(store.commit_log, CommitLog)
    return store.commit_log


@asynccontextmanager
async def running(
    disk: Disk,
    *,
    now_ms: Callable[[], int] | None = None,
    crash: bool = False,
    is_slave: bool = False,
    **changes: Any,
) -> AsyncIterator[DefaultMessageStore]:
    """A loaded, serving store; stopped cleanly at the end, or with ``crash`` just dropped."""
    role = Role(RoleKind.SLAVE if is_slave else RoleKind.MASTER)
    store = make_store(options(**changes), disk, now_ms=now_ms or Clock(), role=role)
    store.load()
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        yield store
        if crash:
            nursery.cancel_scope.cancel()
        else:
            store.stop()


async def put(store: DefaultMessageStore, *requests: Any) -> list[AppendResult]:
    """Put, whatever segments that needs; every message must be taken."""
    results = await store.put_messages_when_allocated(requests)
    refused = [result for result in results if result.status is not PutMessageStatus.PUT_OK]
    assert (len(results), refused[:1]) == (len(requests), [])
    return results


async def dispatched(store: DefaultMessageStore) -> None:
    """Return when everything that may be seen is dispatched."""
    with trio.fail_after(60):
        while store.reput_from_offset < store.confirm_offset():
            await trio.testing.wait_all_tasks_blocked()
            await trio.sleep(0.01)


def bodies(store: DefaultMessageStore, topic: str = "TopicTest", queue_id: int = 0) -> list[bytes]:
    """Every message of a queue, as a consumer is shown them."""
    found: list[bytes] = []
    offset = store.get_min_offset_in_queue(topic, queue_id)
    while (result := store.get_message(topic, queue_id, offset)).status is GetMessageStatus.FOUND:
        found += [decode_message(view).body for view in result.views]
        offset = result.next_begin_offset
    return found


def descriptors() -> int:
    """How many this process has, without those of other tests' objects that nobody holds any more."""
    for _ in range(3):  # on PyPy what one finds the next one closes
        gc.collect()
    return len(os.listdir("/proc/self/fd"))
