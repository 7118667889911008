"""A second log, as of Raft: records with gaps between them, and an end that falls until a quorum has them."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final, NamedTuple

import trio

from rmqha.codec.record.dispatch import DispatchRequest, read_dispatch
from rmqha.codec.record.encoder import PreparedRecord
from rmqha.errors import StoreError
from rmqha.replication.watermark import Watermark
from rmqha.store.disk import Disk
from rmqha.store.log import PutRequest
from rmqha.store.log_recovery import DurableKnowledge, LogRecovery
from rmqha.store.recovery_progress import RecoveryProgress
from rmqha.store.status import AppendResult, PutMessageStatus
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import message

GAP = 48
"""Bytes before each record, as of a Raft entry's header."""
EXTENT = 1000
ROOM = 40
"""So many records are taken before there has to be room for more."""
FLUSH_S = 0.01
DIRECTORY = "/store/ledger"


class Medium:
    """What survives a process: the records that were flushed, and how far a quorum had them."""

    def __init__(self) -> None:
        self.disk: Final = SimDisk()
        self.records: dict[int, bytes] = {}
        self.confirmed = 0


class SparseExtent(NamedTuple):
    begin: int
    end: int

    def holds_just(self, size_bytes: int) -> bool:
        """Sizes tell nothing here."""
        return False


class SparseFile(NamedTuple):
    path: str
    end_offset: int
    held: None = None


class SparseFiles:
    """What cleaning sees: an empty file for each extent, which is gone together with the records."""

    directory = DIRECTORY

    def __init__(self, log: "SparseLog", disk: Disk) -> None:
        self._log = log
        self._disk = disk

    @property
    def files(self) -> list[SparseFile]:
        return [SparseFile(f"{DIRECTORY}/{extent.begin}", extent.end) for extent in self._log.extents()]

    @property
    def min_offset(self) -> int:
        return self._log.min_offset

    @property
    def max_offset(self) -> int:
        return self._log.max_offset

    def forget_vanished(self) -> list[SparseFile]:
        return []

    async def delete_first_in_thread(self) -> None:
        first = self.files[0]
        await self._disk.unlink_in_thread(first.path)
        self._log.drop_before(first.end_offset)

    def make_missing(self) -> None:
        for file in self.files:
            if not self._disk.exists(file.path):
                self._disk.create(file.path, 0, sparse=True)


class RoomService:
    """Makes room for as many records again as soon as there is none."""

    def __init__(self) -> None:
        self.left = ROOM
        self._made = trio.Event()

    def take(self) -> bool:
        has_room, self.left = self.left > 0, max(self.left - 1, 0)
        return has_room

    async def wait_allocated(self) -> None:
        while self.left == 0:
            await self._made.wait()

    async def run(self) -> None:
        while True:
            await trio.sleep(1)
            if self.left == 0:
                self.left = ROOM
                self._made.set()
                self._made = trio.Event()


class SparseLog:
    """Each record its entry; the last may be cut until a quorum has them. It lives in memory, and on ``medium``."""

    is_there = True
    file_size = EXTENT

    def __init__(self, medium: Medium | None = None, disk: Disk | None = None) -> None:
        self.medium = medium or Medium()
        self.kept: dict[int, bytes] = {}
        self.min_offset = 0
        self.confirmed = 0
        self.wrote, self.flushed = Watermark(), Watermark()
        self.ends: dict[tuple[str, int], int] = {}
        self.put_message_times_total = self.put_message_size_total = 0
        self.boundary_offset = 0
        self.last_store_timestamp_ms = 0
        self.files: Final = SparseFiles(self, disk or self.medium.disk.mount())
        self.to_lock: Final = ()
        self.room: Final = RoomService()
        self.services: Final = (self.room,)
        self.wait_allocated: Final = self.room.wait_allocated
        self.is_prepared = self.is_closed = False

    @property
    def max_offset(self) -> int:
        return self.wrote.value

    # ---- written

    def append(self, body: bytes, *, queue_id: int = 0) -> None:
        (result,) = self.put_messages([message(body, queue_id=queue_id)])
        assert result.status is PutMessageStatus.PUT_OK

    def put_messages(self, requests: Sequence[PutRequest]) -> list[AppendResult]:
        results = []
        for request in requests:
            if not self.room.take():
                break
            assert isinstance(request, PreparedRecord)
            offset, queue_offset = self.max_offset + GAP, self.next_queue_offset(request.topic, request.queue_id)
            record = request.pack(queue_offset=queue_offset, physical_offset=offset, store_timestamp_ms=1)
            self.append_raw(memoryview(bytes(GAP) + record), self.max_offset)
            self.note_records(self.max_offset, 1)
            self.put_message_times_total += 1
            self.put_message_size_total += len(record)
            self.ends[request.topic, request.queue_id] = queue_offset + 1
            results.append(AppendResult(PutMessageStatus.PUT_OK, offset, len(record), queue_offset, 1))
        return results

    def has_begun(self, request: PutRequest) -> bool:
        return False

    def append_raw(self, data: memoryview, phy_offset: int) -> int:
        if phy_offset != self.max_offset:
            raise StoreError(f"{phy_offset} is not where the log ends, {self.max_offset}")
        self.kept[phy_offset + GAP] = bytes(data[GAP:])
        self.wrote.advance(phy_offset + len(data))
        return len(data)

    def start_at(self, phy_offset: int) -> None:
        if self.kept:
            raise StoreError(f"the log holds records up to {self.max_offset}")
        self.min_offset = phy_offset
        self.wrote.advance(phy_offset)
        self.flushed.advance(phy_offset)

    def truncate(self, offset: int) -> None:
        if not self.confirmed <= offset <= self.max_offset:
            raise StoreError(f"{offset} is confirmed, or beyond the end")
        for records in (self.kept, self.medium.records):
            for at in [at for at in records if at >= offset]:
                del records[at]
        self.boundary_offset = min(self.boundary_offset, offset)
        self.wrote.cut(offset)
        self.flushed.cut(offset)

    def cut(self, offset: int) -> None:
        """As a follower does in another term."""
        self.truncate(offset)

    def confirm_all(self) -> None:
        """A quorum has all of it."""
        self.confirm(self.max_offset)

    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        return self.ends.get((topic, queue_id), 0)

    def learn_queue_offsets(self, table: dict[tuple[str, int], int]) -> None:
        self.ends = table

    def learn_queue_offset(self, topic: str, queue_id: int, end: int) -> None:
        self.ends[topic, queue_id] = end

    def note_records(self, end: int, store_timestamp_ms: int) -> None:
        self.boundary_offset, self.last_store_timestamp_ms = max(self.boundary_offset, end), store_timestamp_ms

    # ---- a quorum, flushed, cleaned

    def confirm(self, offset: int) -> None:
        """So much the quorum has: it stays."""
        self.confirmed = self.medium.confirmed = offset

    async def flush_in_thread(self, end: int) -> None:
        await trio.sleep(FLUSH_S)
        end = min(end, self.max_offset)
        self.medium.records |= {at: record for at, record in self.kept.items() if at < end}
        self.files.make_missing()
        self.flushed.advance(end)

    def drop_before(self, offset: int) -> None:
        for records in (self.kept, self.medium.records):
            for at in [at for at in records if at < offset]:
                del records[at]
        self.min_offset = min(self.kept) - GAP

    # ---- a start, and the end

    def load(self) -> None:
        self.kept = dict(self.medium.records)

    def recover(self, known: DurableKnowledge, *, check_crc: bool, progress: RecoveryProgress) -> LogRecovery:
        self.confirmed = self.medium.confirmed
        if self.kept:
            self.min_offset = min(self.kept) - GAP
        end = max((at + len(record) for at, record in self.kept.items()), default=self.min_offset)
        self.wrote.advance(end)
        self.flushed.advance(end)
        return LogRecovery(end if known.clean else self.min_offset, end)

    def prepare_first(self) -> None:
        self.is_prepared = True

    def close(self) -> None:
        self.is_closed = True
        self.wrote.fail_all()
        self.flushed.fail_all()

    # ---- read

    def records(self, start: int, end: int) -> tuple[list[DispatchRequest], int]:
        offsets = sorted(self.kept)
        found: list[DispatchRequest] = []
        for offset in offsets[bisect_left(offsets, start) :][:3]:
            record = self.kept[offset]
            if offset + len(record) > end:
                break
            found += read_dispatch(record, 0, len(record), phy_offset_base=offset)[0]
            start = offset + len(record)
        return found, start

    def record_at(self, offset: int, *, end: int) -> memoryview | None:
        record = self.kept.get(offset)
        return None if record is None or offset + len(record) > end else memoryview(record)

    def extents(self, start: int = 0) -> list[SparseExtent]:
        found: list[SparseExtent] = []
        for offset, record in self.kept.items():
            begin = found.pop().begin if found and offset - found[-1].begin < EXTENT else offset
            found.append(SparseExtent(begin, offset + len(record)))
        return [extent for extent in found if extent.end > start]
