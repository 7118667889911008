"""Fakes for replication: a log in memory, made of real records, and how to make records."""

from collections.abc import Callable, Sequence
from itertools import cycle, islice

import trio

from rmqha.codec.record.encoder import prepare
from rmqha.codec.record.layout import FIXED_SIZE_V4, encode_blank
from rmqha.errors import StoreWriteError
from rmqha.memory import BytesLike
from rmqha.replication.watermark import Watermark

HOST = b"\x7f\x00\x00\x01\x00\x00\x2a\x9f"


def record(offset: int, body: bytes, *, topic: str = "T", timestamp_ms: int = 1_700_000_000_000) -> bytes:
    """One whole record that lives at ``offset``."""
    prepared = prepare(topic, body, queue_id=0, born_timestamp_ms=timestamp_ms, born_host_raw=HOST, store_host_raw=HOST)
    return prepared.pack(queue_offset=0, physical_offset=offset, store_timestamp_ms=timestamp_ms)


def inner_batch(offset: int, *, host: bytes = HOST) -> bytes:
    """Two messages of a topic with queue.type=BatchCQ, as RocketMQ 5.3 stores them: one record at ``offset``."""
    body = bytes.fromhex("000000180000000000000000000000000000000161000100") * 2
    prepared = prepare(
        "TB", body, queue_id=0, born_timestamp_ms=1, born_host_raw=host, store_host_raw=host, sys_flag=0xC0,
        properties_raw=b"CLUSTER\x01C\x02INNER_NUM\x012\x02INNER_BASE\x010",
    )  # fmt: skip
    return prepared.pack(queue_offset=0, physical_offset=offset, store_timestamp_ms=1_700_000_000_000)


def records(bodies: Sequence[bytes], *, file_size: int = 4096, start: int = 0, blank_rest: bytes = b"\0") -> bytes:
    """The log's bytes from ``start`` on, rolled as a master rolls: blanks are filled with ``blank_rest``."""
    log = bytearray()
    for body in bodies:
        at = start + len(log)
        one = record(at, body)
        free = file_size - at % file_size
        if len(one) + 8 > free:
            log += encode_blank(free) + bytes(islice(cycle(blank_rest), free - 8))
            one = record(start + len(log), body)
        log += one
    return bytes(log)


def forged(at: int, *inner: Callable[[int], bytes]) -> bytes:
    """A record at ``at`` whose body is put together of what is made for the very places where it will lie."""
    body = bytearray()
    for make in inner:
        body += make(at + FIXED_SIZE_V4 + len(body))
    return record(at, bytes(body))


class MemoryFile:
    """A store file in memory (rmqha.store.disk.DataFile)."""

    def __init__(self, size: int, path: str) -> None:
        self.path = path
        self.size = size
        self.bytes = bytearray(size)

    def pwrite(self, buffers: Sequence[BytesLike], at: int) -> None:
        for data in buffers:
            self.bytes[at : at + len(data)] = data
            at += len(data)

    def pread(self, size: int, at: int) -> bytes:
        return bytes(self.bytes[at : at + size])

    def view(self) -> memoryview:
        return memoryview(self.bytes).toreadonly()

    def is_in_place(self) -> bool:
        return True

    def is_zero_tail(self, at: int) -> bool:
        """See rmqha.store.disk.DataFile."""
        return not any(self.view()[at:])

    def zero_tail(self, at: int) -> None:
        self.bytes[at:] = bytes(self.size - at)

    def sync(self) -> None: ...

    async def sync_in_thread(self) -> None: ...

    def fileno(self) -> int | None:
        return None

    def close(self) -> None: ...


class MemoryLog:
    """A log in memory (rmqha.ha.replicated_log.ReplicatedLog) whose disk can be slow, full or broken."""

    def __init__(self, file_size: int = 4096, *, start: int = 0, flush_s: float = 0.0) -> None:
        self.file_size = file_size
        self.files: dict[int, MemoryFile] = {}
        self.start = start
        self.wrote = Watermark(start)
        self.flushed = Watermark(start)
        self.flush_s = flush_s
        self.flushes = 0
        self.write_error: OSError | None = None
        self.flush_error: OSError | None = None
        self.allocated = trio.Event()
        self.allocated.set()
        self.space = trio.Event()
        self.space.set()

    @classmethod
    def holding(cls, data: bytes, *, file_size: int = 4096, start: int = 0) -> "MemoryLog":
        log = cls(file_size, start=start)
        log.extend(data)
        return log

    def extend(self, data: bytes, *, flush: bool = True) -> None:
        """Append ``data`` in one go, over as many files as it takes."""
        while data:
            room = self.file_size - self.max_offset % self.file_size
            self.append_raw(memoryview(data)[:room], self.max_offset)
            data = data[room:]
        if flush:
            self.flushed.advance(self.max_offset)

    def delete_first_file(self) -> None:
        del self.files[min(self.files)]

    def crash(self) -> "MemoryLog":
        """What a power cut leaves: only what was flushed."""
        return MemoryLog.holding(
            self.content()[: self.flushed.value - self.min_offset], file_size=self.file_size, start=self.min_offset
        )

    @property
    def min_offset(self) -> int:
        return min(self.files, default=self.start)

    @property
    def max_offset(self) -> int:
        return self.wrote.value

    @property
    def lack_of_room(self) -> str:
        return "" if self.space.is_set() else "the disk is too full"

    def content(self) -> bytes:
        whole = b"".join(bytes(file.bytes) for _, file in sorted(self.files.items()))
        return whole[: self.max_offset - self.min_offset]

    def segment_at(self, offset: int) -> tuple[MemoryFile, int, int]:
        at = offset % self.file_size
        return self.files[offset - at], at, min(self.max_offset - offset, self.file_size - at)

    def view_range(self, offset: int, size: int) -> memoryview:
        file, at, readable = self.segment_at(offset)
        assert size <= readable
        return file.view()[at : at + size]

    def start_at(self, phy_offset: int) -> None:
        assert self.max_offset == self.min_offset
        assert phy_offset % self.file_size == 0
        self.start = phy_offset
        self.wrote.advance(phy_offset)
        self.flushed.advance(phy_offset)

    def append_raw(self, data: memoryview, phy_offset: int) -> int:
        if self.write_error is not None:
            raise StoreWriteError(self.write_error, operation="pwrite", path="memory")
        assert phy_offset == self.max_offset
        at = phy_offset % self.file_size
        if at == 0:
            if not self.allocated.is_set():
                return 0
            self.files[phy_offset] = MemoryFile(self.file_size, f"{phy_offset:020d}")
        assert at + len(data) <= self.file_size
        self.files[phy_offset - at].pwrite([data], at)
        self.wrote.advance(phy_offset + len(data))
        return len(data)

    def truncate(self, offset: int) -> None:
        """Forget what lies at ``offset`` and behind, as a follower's log does in another term."""
        self.files = {begin: file for begin, file in self.files.items() if begin < offset}
        self.wrote.cut(offset)
        self.flushed.cut(offset)

    async def wait_allocated(self) -> None:
        await self.allocated.wait()

    async def flush_now(self, offset: int) -> None:
        assert offset <= self.max_offset
        await trio.lowlevel.checkpoint()
        if offset <= self.flushed.value:
            return
        end = self.max_offset
        await trio.sleep(self.flush_s)
        self.flushes += 1
        if self.flush_error is not None:
            raise StoreWriteError(self.flush_error, operation="fdatasync", path="memory")
        self.flushed.advance(end)

    async def wait_writable(self) -> None:
        await self.space.wait()
