"""LogReceiver: takes a master's stream into the local log, checked and in order. Shared by HAClient and catch-up."""

from math import inf
from typing import Final, cast

import trio

from rmqha.errors import DivergedLogError, RemoteProtocolError
from rmqha.ha.options import HAClientOptions
from rmqha.ha.replicated_log import ReplicatedLog
from rmqha.replication.overlap import StreamStart, find_overlap
from rmqha.replication.slave_session import AppendChunk, CompareChunk, SlaveSession
from rmqha.transport import Stream
from rmqha.waiting import wait_overdue


async def own_tail(log: ReplicatedLog, *, overlap_size: int) -> StreamStart | None:
    """The end of the local log and where to ask for an overlap; None if the log is empty.

    Raises:
        CorruptLogError: the log does not end with a whole record; it needs recovery first.
    """
    return await tail_below(log, log.max_offset, overlap_size=overlap_size)


async def tail_below(log: ReplicatedLog, limit: int, *, overlap_size: int) -> StreamStart | None:
    """The end of the local log as if it ended at ``limit``, even inside a record; None if nothing is below that.

    Clients decide what lies in bodies, and so how long the search takes: everybody else goes on meanwhile.

    Raises:
        CorruptLogError: the log does not end with a whole record, or no record leads to ``limit``.
    """
    end = min(limit, log.max_offset)
    if end <= log.min_offset:
        return None
    file_offset = (end - 1) // log.file_size * log.file_size
    view = log.view_range(file_offset, end - file_offset)
    is_whole = end == log.max_offset
    search = find_overlap(view, file_offset, file_size=log.file_size, overlap_size=overlap_size, is_whole=is_whole)
    while True:
        try:
            next(search)
        except StopIteration as found:
            return cast("StreamStart", found.value)
        await trio.lowlevel.checkpoint()


def first_difference(here: bytes, there: bytes) -> int:
    """Index of the first byte that differs; the length of the shorter if none does."""
    low, high = 0, min(len(here), len(there))
    while low < high:
        middle = (low + high + 1) // 2
        if here[low:middle] == there[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


class SilentMasterError(RemoteProtocolError):
    """Nothing came for too long: the connection may be half open."""


_BULK_SIZE: Final = 512 * 1024
"""So much in one receive comes only to a slave that is behind by more than what is being sent just now."""


class LogReceiver:
    """One connection's stream on its way into the log.

    Invariant: the log ends with a whole record after each :meth:`receive`, except inside a blank that is too large
    to be held back.

    Attributes:
        is_far_behind: what came last is part of a lot that the local log lacks.
    """

    def __init__(
        self, log: ReplicatedLog, stream: Stream, *, start: StreamStart, silence_max_s: float, buffer_size: int
    ) -> None:
        self.session: Final = SlaveSession(start, file_size=log.file_size, buffer_size=buffer_size)
        self._log: Final = log
        self._stream: Final = stream
        self._silence_max_s: Final = silence_max_s
        self._waits_since = inf
        self.is_far_behind = False

    async def watch(self) -> None:
        """Raise SilentMasterError when the master has been silent for too long; runs beside :meth:`receive`."""
        limit_s = self._silence_max_s
        await wait_overdue(lambda: self._waits_since + limit_s, ahead_s=limit_s)
        raise SilentMasterError(f"the master sent nothing for {limit_s:g} s, not even a heartbeat")

    def silent_s(self, *, now: float) -> float:
        """For how long the next bytes have been waited for."""
        return max(now - self._waits_since, 0.0)

    async def receive(self) -> bool:
        """Wait for bytes and take them into the log; False at the end of the stream.

        Raises:
            RemoteProtocolError: the stream is no replication stream, or holds bytes that are no records.
            DivergedLogError: other bytes than the local log's; nothing was changed.
            StoreError: the local store failed.
            trio.BrokenResourceError: the connection failed.
        """
        self._waits_since = trio.current_time()
        count = await self._stream.receive_into(self.session.space())
        self._waits_since = inf
        self.is_far_behind = count >= _BULK_SIZE
        if count == 0:
            return False
        self.session.on_received(count)
        while (chunk := self.session.next_chunk()) is not None:
            match chunk:
                case AppendChunk(phy_offset, data):
                    await self._append(data, phy_offset)
                case CompareChunk(phy_offset, data):
                    self._compare(phy_offset, bytes(data))
        return True

    async def _append(self, data: memoryview, phy_offset: int) -> None:
        log = self._log
        if log.max_offset != phy_offset and log.max_offset == log.min_offset:
            log.start_at(phy_offset)
        taken = log.append_raw(data, phy_offset)
        while taken < len(data):
            await log.wait_allocated()
            taken += log.append_raw(data[taken:], phy_offset + taken)

    def _compare(self, phy_offset: int, there: bytes) -> None:
        """Compare what is not deleted here."""
        deleted = max(self._log.min_offset - phy_offset, 0)
        phy_offset, there = phy_offset + deleted, there[deleted:]
        if not there:
            return
        here = bytes(self._log.view_range(phy_offset, len(there)))
        if here != there:
            offset = phy_offset + first_difference(here, there)
            raise DivergedLogError(
                offset,
                "the master holds other bytes here than this slave; nothing was cut. "
                "Find out which of the two is right before you rebuild the other",
            )


class ComparingReceiver(LogReceiver):
    """Compares a peer's stream with the local log, beyond its end at the beginning, too; nothing is appended.

    Attributes:
        is_peer_longer: the peer has sent bytes from beyond the end of the local log.
    """

    def __init__(self, log: ReplicatedLog, stream: Stream, *, start: StreamStart, options: HAClientOptions) -> None:
        super().__init__(
            log,
            stream,
            start=start,
            silence_max_s=options.ha_housekeeping_interval_s,
            buffer_size=options.stream_buffer_size,
        )
        self._start: Final = start
        self.is_peer_longer = False

    @property
    def has_compared(self) -> bool:
        """Whether the peer has sent anything that is here, too."""
        return self.session.position > self._start.first_report

    @property
    def has_passed_end(self) -> bool:
        """Whether the peer has sent what was appended here since the comparison began: it follows this log.

        A stream that begins beyond this log's end shows nothing before its first whole record.
        """
        return self._start.own_end < self.session.verified_offset <= self._log.max_offset

    @property
    def is_beyond_end(self) -> bool:
        """Whether the stream began beyond this log's end: the peer's own may end there, at the end of a file."""
        return self.session.verified_offset > self._log.max_offset

    async def _append(self, data: memoryview, phy_offset: int) -> None:
        await trio.lowlevel.checkpoint()
        here = max(min(self._log.max_offset - phy_offset, len(data)), 0)
        self.is_peer_longer = self.is_peer_longer or here < len(data)
        self._compare(phy_offset, bytes(data[:here]))
