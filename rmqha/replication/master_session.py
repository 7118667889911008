"""MasterSession: what a master decides for one connected slave, as a pure machine.

Reports go in with :meth:`MasterSession.on_report`, :meth:`MasterSession.next_action` says what to do next: send a
range of the log, send a heartbeat, or wait. A session names ranges and never holds bytes; ``now`` is any clock in
seconds that does not go back.

Every report is checked before it may acknowledge anything, the first one too. That closes RocketMQ's widest hole: any
8 bytes on the port made every later SYNC_MASTER put succeed (spec: ha §15 rows 2, 7, 10; rocketmq issues 1155, 3015).

Source: rocketmq-all-4.9.8 HAConnection.java:150-190 (reports), 227-331 (transfer).
"""

from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import Final, NamedTuple

from rmqha.choices import HaStartFrom
from rmqha.codec.record.layout import FIRST_BYTE_OF_A_LOG
from rmqha.codec.transfer import BODY_SIZE_MAX, REPORT_SIZE
from rmqha.errors import RemoteProtocolError
from rmqha.replication.group import GroupMember

_FRAME_FAST_S: Final = 0.25
_FRAME_SLOW_S: Final = 1.0
_FOLLOWING_S_MAX: Final = 10.0


class Refusal(Enum):
    """Why a slave is turned away."""

    NEGATIVE = "negative-report"
    AHEAD = "slave-ahead"
    BELOW_MIN = "slave-below-min"
    UNFIT = "slave-unfit"
    NOT_SENT = "report-beyond-sent"
    FALLING = "report-falling"
    SILENT = "silent"
    STRAY_BYTES = "stray-bytes"
    STRANGER = "stranger"
    STUCK = "not-reading"
    NOT_ALLOWED = "not-allowed"
    TOO_MANY = "too-many-connections"
    UNTRUSTED = "untrusted"


class RefusedSlaveError(RemoteProtocolError):
    """Close this connection; nothing of the offending report was counted."""

    def __init__(self, refusal: Refusal, message: str, *, offset: int = 0) -> None:
        self.refusal: Final = refusal
        self.offset: Final = offset
        super().__init__(message)


class LogRange(NamedTuple):
    """The log holds the bytes ``[min_offset, max_offset)``.

    Attributes:
        checks_reports: its broker turns away, and shows, a slave that is ahead; RocketMQ counts its report.
        member: the broker that serves it, if that is known.
    """

    min_offset: int
    max_offset: int
    checks_reports: bool = False
    member: GroupMember | None = None


@dataclass(frozen=True, slots=True)
class SendRange:
    """Send one frame with the log's bytes ``[offset, offset + size)``; they lie in one file."""

    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class SendHeartbeat:
    """Send an empty frame at ``offset``."""

    offset: int


@dataclass(frozen=True, slots=True)
class WaitUntil:
    """Nothing to do before ``deadline``, unless the sendable log grows to ``offset``."""

    deadline: float
    offset: int


Action = SendRange | SendHeartbeat | WaitUntil


@dataclass(frozen=True, slots=True)
class MasterSettings:
    """What all sessions of a master share. Times in seconds, sizes in bytes."""

    file_size: int
    heartbeat_s: float
    housekeeping_s: float
    first_report_s: float
    transfer_batch_size: int
    transfer_size_max: int
    start_from: HaStartFrom

    def __post_init__(self) -> None:
        assert 0 < self.transfer_batch_size <= self.transfer_size_max <= BODY_SIZE_MAX


class MasterSession:
    """One slave, from accept to close.

    Invariants: ``first_report <= slave_ack_offset <= next_transfer_from_where``; before the first report all three
    are -1 and nothing is sent. ``next_transfer_from_where`` includes the frame that is being sent, ``stream_start`` is
    where the first frame began.
    """

    def __init__(self, settings: MasterSettings, *, now: float) -> None:
        self._settings = settings
        self._begun_at = now
        self._owing_since = inf  # when the slave was first sent something to acknowledge
        self._last_read_at = now
        self._last_write_at = now
        self._unfinished_since = inf
        self._frame_size_limit = settings.transfer_batch_size
        self._frame: SendRange | None = None
        self._frame_started_at = now
        self.first_report = -1
        self.slave_ack_offset = -1
        self.next_transfer_from_where = -1
        self.stream_start = -1

    @property
    def proves_from(self) -> int:
        """What lies from here to an acknowledgement is what this slave was sent, and took.

        A slave that asks from 1 needs no proof of byte 0, which is the same in every log.
        """
        return 0 if self.stream_start == len(FIRST_BYTE_OF_A_LOG) else self.stream_start

    @property
    def has_taken(self) -> bool:
        """Whether the slave acknowledged bytes that it was sent here; repeating its first report does not."""
        return self.slave_ack_offset > self.stream_start

    @property
    def is_transferring(self) -> bool:
        """Whether the first report has come, and was accepted."""
        return self.first_report >= 0

    def is_following(self, *, now: float) -> bool:
        """Whether this is a slave, as far as one can show it: it reported, and acknowledged what it was sent.

        It gets a while for that: it may be comparing, or waiting for its disk.
        """
        if not self.is_transferring:
            return False
        return self.has_taken or now < self._owing_since + _FOLLOWING_S_MAX

    @property
    def read_deadline(self) -> float:
        """When to give up on a slave that sends nothing, or never finishes the report it began."""
        deadline = min(self._last_read_at, self._unfinished_since) + self._settings.housekeeping_s
        return deadline if self.is_transferring else min(deadline, self._begun_at + self._settings.first_report_s)

    def silent_s(self, *, now: float) -> float:
        """For how long nothing has come."""
        return now - self._last_read_at

    def on_read(self, unfinished_size: int, *, now: float) -> None:
        """Bytes came; ``unfinished_size`` of them are the beginning of a report."""
        self._last_read_at = now
        if not unfinished_size:
            self._unfinished_since = inf
        elif self._unfinished_since == inf:
            self._unfinished_since = now

    def on_read_deadline(self) -> RefusedSlaveError:
        """The error to end the connection with when ``read_deadline`` has passed."""
        limit_s = self._settings.housekeeping_s
        if not self.is_transferring:
            limit_s = min(self._settings.first_report_s, limit_s)
        if self._unfinished_since < self._last_read_at:
            return RefusedSlaveError(
                Refusal.STRAY_BYTES, f"a report of fewer than {REPORT_SIZE} bytes stayed unfinished for {limit_s:g} s"
            )
        return RefusedSlaveError(Refusal.SILENT, f"no report for {limit_s:g} s")

    def on_report(self, offset: int, *, log: LogRange) -> None:
        """Count a report of ``offset``, or refuse it.

        Args:
            offset: as received.
            log: what the master has at this moment, flushed or not.

        Raises:
            RefusedSlaveError: nothing was counted; close the connection.
        """
        if offset < 0:
            raise RefusedSlaveError(Refusal.NEGATIVE, f"report of the negative offset {offset}", offset=offset)
        if self.is_transferring:
            self._on_later_report(offset)
        else:
            self._on_first_report(offset, log)

    def _on_first_report(self, offset: int, log: LogRange) -> None:
        if offset > log.max_offset:
            by = offset - log.max_offset
            raise RefusedSlaveError(
                Refusal.AHEAD,
                f"slave ahead by {by} bytes: it reports {offset}, the log here ends at {log.max_offset}; "
                "its tail may hold acknowledged messages, catch up from it before you discard it",
                offset=offset,
            )
        if 0 < offset < log.min_offset:
            raise RefusedSlaveError(
                Refusal.BELOW_MIN,
                f"slave needs offset {offset}, but the log here begins at {log.min_offset}: it must be rebuilt empty",
                offset=offset,
            )
        self.first_report = self.slave_ack_offset = offset
        self.stream_start = self.next_transfer_from_where = offset or self._start_of_history(log)

    def _start_of_history(self, log: LogRange) -> int:
        """Where a slave without data starts. Source: HAConnection.java:235-252 (the last file)."""
        if self._settings.start_from is HaStartFrom.MIN:
            return max(log.min_offset, 0)
        return log.max_offset - log.max_offset % self._settings.file_size

    def _on_later_report(self, offset: int) -> None:
        if offset < self.slave_ack_offset:
            raise RefusedSlaveError(
                Refusal.FALLING, f"report fell from {self.slave_ack_offset} to {offset}", offset=offset
            )
        if offset > self.next_transfer_from_where:
            raise RefusedSlaveError(
                Refusal.NOT_SENT,
                f"report of {offset}, but only bytes below {self.next_transfer_from_where} were sent",
                offset=offset,
            )
        self.slave_ack_offset = offset

    def next_action(self, *, now: float, min_offset: int, limit: int) -> Action:
        """What the writer does now, after the first report.

        Args:
            now: the present.
            min_offset: where the log begins now; cleaning may have moved it.
            limit: bytes below this may be sent (everything written, or only what is durable).

        Raises:
            RefusedSlaveError: what the slave needs next has been deleted here.
        """
        assert self.is_transferring, "nothing is sent before the first report"
        next_offset = self.next_transfer_from_where
        if next_offset < min_offset:
            raise RefusedSlaveError(
                Refusal.BELOW_MIN,
                f"slave needs offset {next_offset}, but the log here begins at {min_offset} by now: "
                "it was too slow for the cleaning and must be rebuilt empty",
                offset=next_offset,
            )
        if limit > next_offset:
            return self._start_frame(next_offset, limit, now)
        heartbeat_at = self._last_write_at + self._settings.heartbeat_s
        if now >= heartbeat_at:
            return SendHeartbeat(next_offset)
        return WaitUntil(heartbeat_at, next_offset + 1)

    def _start_frame(self, offset: int, limit: int, now: float) -> SendRange:
        file_end = offset - offset % self._settings.file_size + self._settings.file_size
        size = min(limit - offset, file_end - offset, self._frame_size_limit)
        self._frame = SendRange(offset, size)
        self._frame_started_at = now
        self._owing_since = min(self._owing_since, now)
        self.next_transfer_from_where = offset + size
        return self._frame

    def on_sent(self, *, now: float) -> None:
        """The frame or heartbeat of the last action is on its way.

        Frames adapt: as small as what there is to send when idle; in catch-up each full frame doubles the next one
        up to ``transfer_size_max``, and one that took too long halves it, so that a slow line still gets
        heartbeats' worth of progress.
        """
        self._last_write_at = now
        frame, self._frame = self._frame, None
        if frame is None:
            return
        settings, took_s = self._settings, now - self._frame_started_at
        if took_s > _FRAME_SLOW_S:
            self._frame_size_limit = max(self._frame_size_limit // 2, settings.transfer_batch_size)
        elif frame.size == self._frame_size_limit and took_s < _FRAME_FAST_S:
            self._frame_size_limit = min(self._frame_size_limit * 2, settings.transfer_size_max)
        elif frame.size < settings.transfer_batch_size:
            self._frame_size_limit = settings.transfer_batch_size
