"""IndexService: builds the index behind dispatch, in a task of its own, so that nothing ever waits for it.

Dispatch hands over its rounds (:class:`~rmqha.store.build_index.CommitLogDispatcherBuildIndex`). What they do not
cover, because the index was missing, the disk was full, or rounds came too fast, is read from the log. An index that
cannot be built stays behind; the broker goes on (spec: commitlog §10).
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import structlog
import trio

from rmqha.codec.index_file import NAME_DIGITS, IndexHeader, IndexLayout
from rmqha.codec.key_hashes import KeyHashes
from rmqha.codec.record.dispatch import DispatchRequest
from rmqha.errors import CorruptLogError, StoreError
from rmqha.store.disk import Disk
from rmqha.store.index_file import IndexFile
from rmqha.store.index_keys import Keys, gather_keys
from rmqha.store.index_recovery import IndexRecovery, built_to
from rmqha.store.log import Log
from rmqha.store.open_files import OpenFiles
from rmqha.store.passing import may_pass

logger = structlog.get_logger()

_GATHER_S: Final = 0.01
_TRY_AGAIN_S: Final = 1.0
_COMMIT_S: Final = 10.0
_SHARE: Final = 4
"""Building what dispatch is past takes one part in this many of the time."""
_QUEUED_MAX: Final = 16_384
"""Messages; they take some megabytes."""
_QUEUED_BYTES_MAX: Final = 64 << 20
"""Of the log; the keys of messages are a part of it."""


class _Round(NamedTuple):
    begin: int
    end: int
    requests: Sequence[DispatchRequest]


class IndexService:
    """Builds and owns the files in ``directory``.

    Invariants: the index has each key of each message before ``position``, of the one at it ``_skip`` keys, and of what
    is behind none. What is queued lies behind each other and ends where dispatch is.

    Attributes:
        files: oldest first; only the last may have room.
        position: how far in the log the index is built.
        failed: what ended building for this process; empty if nothing did.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        layout: IndexLayout,
        *,
        log: Log,
        open_files: OpenFiles,
        now_ms: Callable[[], int],
        checkpoint_ms: Callable[[], int],
    ) -> None:
        """Nothing is opened yet.

        Args:
            disk: where the directory is.
            directory: of the files.
            layout: of each file.
            log: what this is an index of.
            open_files: shared by all that compete for descriptors.
            now_ms: the wall clock, by which files are named.
            checkpoint_ms: the index timestamp of the checkpoint file.
        """
        self.files: list[IndexFile] = []
        self.position = 0
        self.failed = ""
        self._disk: Final = disk
        self._directory: Final = directory
        self._layout: Final = layout
        self._log: Final = log
        self._open_files: Final = open_files
        self._now_ms: Final = now_ms
        self._checkpoint_ms: Final = checkpoint_ms
        self._hashes: Final = KeyHashes()
        self._skip = 0
        self._loaded_end = 0
        self._is_open = False
        self._begins_anew = False
        self._held_by = ""
        self._queue: deque[_Round] = deque()
        self._queued = 0
        self._queue_begin = self._queue_end = 0
        self._commit_at = 0.0
        self._wakeup = trio.Event()

    def begin(self, end: int, *, dispatched: int) -> None:
        """The log is recovered, and ends there: what the index has of anything behind is of a log that was cut."""
        self._loaded_end = end
        if self._queue_end != dispatched:
            self._forget_queue(dispatched)

    def begin_anew(self) -> None:
        """The log is empty, and will begin elsewhere: nothing that is indexed is of it."""
        self._begins_anew = True
        self._forget_queue(self._queue_end)
        self._wakeup.set()

    def take(self, begin: int, end: int, requests: Sequence[DispatchRequest]) -> None:
        """Hot path: a round of dispatch went from ``begin`` to ``end``."""
        if begin != self._queue_end:
            self._forget_queue(begin)
        self._queue_end = end
        self._queued += len(requests)
        if self._queued > _QUEUED_MAX or end - self._queue_begin > _QUEUED_BYTES_MAX:
            self._forget_queue(end)
        else:
            self._queue.append(_Round(begin, end, requests))
        self._wakeup.set()

    def _forget_queue(self, end: int) -> None:
        """What was queued will be read from the log."""
        self._queue.clear()
        self._queued = 0
        self._queue_begin = self._queue_end = end

    @property
    def durable_timestamp_ms(self) -> int:
        """Store time of the last message in the newest file that is whole on the disk; 0 if there is none."""
        whole = [file for file in self.files if file.is_sealed]
        return whole[-1].header.end_timestamp_ms if whole else 0

    @property
    def is_complete(self) -> bool:
        """Whether all that is dispatched is in the index."""
        return self._is_open and not self._begins_anew and self.position >= self._queue_end

    @property
    def trouble(self) -> str:
        """Why the index is not built at present; empty if it is."""
        if self.failed:
            return f"the index is not built any more, {self.failed}: queries by key find nothing behind {self.position}"
        return f"the index cannot be built at present, it tries again: {self._held_by}" if self._held_by else ""

    def describe(self) -> str:
        """What is wrong with the index, or still missing in it; empty if it is complete."""
        left_bytes = self._queue_begin - self.position
        if self.trouble:
            return self.trouble
        if not self._is_open:
            return "the index is being read after the start, until then queries by key find nothing"
        return f"the index is being built, {left_bytes} bytes of the log to go" if left_bytes > 0 else ""

    # ---- life

    async def run(self) -> None:
        """Build until cancelled, or until the disk fails, which ends nothing else."""
        while not self.failed:
            try:
                if not self._is_open:
                    await self._open()
                await self._wait()
                if self._begins_anew:
                    await self._remove_all()
                await self.catch_up()
                await self._tidy()
                self._held_by = ""
            except StoreError as error:
                if not may_pass(error):
                    self.failed = str(error)
                    logger.error("index_service.failed", reason=self.failed, next="queries by key find older messages")
                    return
                if not self._held_by:
                    logger.warning("index_service.held", reason=str(error))
                self._held_by = str(error)
                self._wakeup.set()
                await trio.sleep(_TRY_AGAIN_S)

    async def finish(self) -> None:
        """After :meth:`run`, at a clean stop: build what is queued, and leave files as RocketMQ does."""
        if not self._is_open or self.failed or self._begins_anew:
            return
        try:
            while self._queue and self.position >= self._queue_begin:
                await self._build_next()
            if self.files and not self.files[-1].is_sealed:
                await self.files[-1].seal()
        except StoreError as error:
            logger.warning("index_service.unfinished", reason=str(error), next="the next start goes on")

    def close(self) -> None:
        """Close every file. Idempotent."""
        for file in self.files:
            file.close()

    async def _open(self) -> None:
        recovery = IndexRecovery(
            self._disk,
            self._directory,
            self._layout,
            log=self._log,
            end=self._loaded_end,
            durable_timestamp_ms=self._checkpoint_ms(),
            open_files=self._open_files,
        )
        files = await recovery.load()
        offset, keys = built_to(files)
        self.position, self._skip = (offset, keys) if offset >= self._log.min_offset else (self._log.min_offset, 0)
        self.files, self._is_open = files, True
        self._wakeup.set()
        logger.info("index_service.loaded", files=len(files), built_to=self.position)

    async def _remove_all(self) -> None:
        while self.files:
            await self.files[-1].remove()
            self.files.pop()
        self.position, self._skip = self._log.min_offset, 0
        self._begins_anew = False

    async def _wait(self) -> None:
        """Until there is something to do."""
        with trio.move_on_at(self._commit_at if self._is_dirty else trio.current_time() + _COMMIT_S):
            await self._wakeup.wait()
            await trio.sleep(_GATHER_S)
        self._wakeup = trio.Event()

    @property
    def _is_dirty(self) -> bool:
        return bool(self.files) and self.files[-1].is_dirty

    async def _tidy(self) -> None:
        """Let go of files of which the log has no message left; commit now and then."""
        while len(self.files) > 1 and self.files[0].header.end_phy_offset < self._log.min_offset:
            await self.files[0].remove()
            logger.info("index_service.file_deleted", path=self.files[0].path)
            del self.files[0]
        if trio.current_time() >= self._commit_at:
            if self._is_dirty:
                await self.files[-1].commit()
            self._commit_at = trio.current_time() + _COMMIT_S

    # ---- building

    async def catch_up(self) -> None:
        """Build what dispatch is past. Raises StoreError."""
        while not self._begins_anew:
            begun_at = trio.current_time()
            if self.position < self._queue_begin:
                await self._build_from_log()
                await trio.sleep((_SHARE - 1) * (trio.current_time() - begun_at))
            elif self._queue:
                await self._build_next()
                await trio.lowlevel.checkpoint()
            else:
                return

    async def _build_next(self) -> None:
        this = self._queue[0]
        await self._build(this.requests, this.end)
        if self._queue and self._queue[0] is this:
            self._queue.popleft()
            self._queued -= len(this.requests)
            self._queue_begin = this.end

    async def _build_from_log(self) -> None:
        at = max(self.position, self._log.min_offset)
        try:
            requests, behind = self._log.records(at, self._queue_begin)
        except CorruptLogError as error:
            behind, requests = self._behind_damage(at), []
            logger.warning("index_service.passed_over", begin=at, end=behind, reason=str(error))
        await self._build(requests, behind if behind > at else self._queue_begin)

    def _behind_damage(self, at: int) -> int:
        """Where the next part of the log begins that can be read."""
        return next((extent.begin for extent in self._log.extents(at) if extent.begin > at), self._queue_begin)

    async def _build(self, requests: Sequence[DispatchRequest], end: int) -> None:
        """Add the keys of consecutive messages; then the index is built up to ``end``."""
        for keys in gather_keys(requests, after=self.position, skip=self._skip):
            await self._add(keys)
        if end > self.position:
            self.position, self._skip = end, 0

    async def _add(self, keys: Keys) -> None:
        hashes = self._hashes.of(keys.topics, keys.keys)
        offsets, times_ms = keys.offsets, keys.times_ms
        while hashes:
            file = await self._file_to_write()
            taken = file.append(hashes, offsets, times_ms)
            self._note_added(offsets, taken)
            hashes, offsets, times_ms = hashes[taken:], offsets[taken:], times_ms[taken:]
        if keys.keys:
            await trio.lowlevel.checkpoint()

    def _note_added(self, offsets: Sequence[int], taken: int) -> None:
        """So many of these are in the index: after a failure, or a cancellation, building goes on just there."""
        last, count = offsets[taken - 1], 1
        while count < taken and offsets[taken - 1 - count] == last:
            count += 1
        if count == taken and last == self.position:
            count += self._skip
        self.position, self._skip = last, count

    async def _file_to_write(self) -> IndexFile:
        """The last file; a full one is made whole first, and the next one made. Raises StoreError."""
        last = self.files[-1] if self.files else None
        if last is not None and not last.is_full:
            return last
        if last is not None and not last.is_sealed:
            await last.seal()
        file = IndexFile(self._disk, self._next_path(), self._layout, open_files=self._open_files)
        await file.create(last.header if last is not None else IndexHeader())
        self.files.append(file)
        return file

    def _next_path(self) -> str:
        """The local time, as RocketMQ names them, but always behind the last one: they are sorted by it."""
        now_ms = self._now_ms()
        name = time.strftime("%Y%m%d%H%M%S", time.localtime(now_ms / 1000)) + f"{now_ms % 1000:03d}"
        if self.files:
            name = max(name, _next_name(self.files[-1].path.rpartition("/")[2]))
        while self._disk.exists(f"{self._directory}/{name}"):
            name = _next_name(name)
        return f"{self._directory}/{name}"


def _next_name(name: str) -> str:
    return f"{int(name) + 1:0{NAME_DIGITS}d}"
