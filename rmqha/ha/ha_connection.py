"""HAConnection: one slave at the trio edge, with a reading and a writing half that live and die together."""

from math import inf
from typing import TYPE_CHECKING, Final, assert_never

import structlog
import trio

from rmqha.codec.transfer import REPORT_SIZE, ReportDecoder, describe_stranger, encode_frame_header
from rmqha.errors import ProtocolError, StoreError
from rmqha.ha.runtime_info import ConnectionInfo, ConnectionState
from rmqha.replication.master_session import (
    LogRange,
    MasterSession,
    Refusal,
    RefusedSlaveError,
    SendHeartbeat,
    SendRange,
    WaitUntil,
)
from rmqha.replication.progress import RateMeter
from rmqha.transport import Stream
from rmqha.waiting import wait_reached

if TYPE_CHECKING:
    from rmqha.ha.ha_service import HAService

logger = structlog.get_logger()

_READ_BUFFER_SIZE: Final = 64 * 1024
_IN_SYNC_LAG_S: Final = 1.0


class HAConnection:
    """A connected slave, registered with the service while :meth:`run` runs.

    Start: ``await connection.run()``. Stop: cancel it; both halves end and the stream is closed.
    """

    def __init__(self, service: "HAService", stream: Stream) -> None:
        now = trio.current_time()
        self.service: Final = service
        self.stream: Final = stream
        self.peer: Final = stream.peer
        self.session: Final = MasterSession(service.settings, now=now)
        self.first_report_came: Final = trio.Event()
        self.refusal: RefusedSlaveError | None = None
        self._connected_at: Final = now
        self._rate = RateMeter(0, now=now)
        self._ended = ""

    async def run(self) -> None:
        """Serve this slave until either half ends. What the peer or the network did is logged here, not raised."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._run_half, ReadSocketService(self), nursery.cancel_scope)
                nursery.start_soon(self._run_half, WriteSocketService(self), nursery.cancel_scope)
        finally:
            self.stream.close()
            session = self.session
            logger.info(
                "ha_connection.closed",
                peer=self.peer,
                reason=self._ended or "shutdown",
                first_report=session.first_report,
                slave_ack_offset=session.slave_ack_offset,
                next_transfer_from_where=session.next_transfer_from_where,
                connected_s=round(trio.current_time() - self._connected_at, 3),
            )

    async def _run_half(self, half: "ReadSocketService | WriteSocketService", other: trio.CancelScope) -> None:
        try:
            await half.run()
            reason = "the slave ended the connection"
        except RefusedSlaveError as error:
            reason, self.refusal = str(error), error
        except (ProtocolError, StoreError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            reason = str(error)
        self._ended = self._ended or reason
        other.cancel()

    def log_range(self) -> LogRange:
        """What the master has now."""
        log = self.service.log
        return LogRange(log.min_offset, log.max_offset)

    def on_report(self, offset: int) -> None:
        """Check and count one report. Raises RefusedSlaveError."""
        self.session.on_report(offset, log=self.log_range())
        if not self.first_report_came.is_set():
            now = trio.current_time()
            self._rate = RateMeter(offset, now=now)
            self.first_report_came.set()
            logger.info(
                "ha_connection.transfer_started",
                peer=self.peer,
                first_report=offset,
                next_transfer_from_where=self.session.next_transfer_from_where,
            )

    def on_acknowledged(self) -> None:
        """Pass the newest acknowledgement on to whoever waits."""
        self._rate.note(self.session.slave_ack_offset, now=trio.current_time())
        self.service.notify_transfer_some(self.peer, self.session.slave_ack_offset)

    def info(self) -> ConnectionInfo:
        """This connection as an operator sees it."""
        now, session, log = trio.current_time(), self.session, self.service.log
        acked = session.slave_ack_offset
        lag_bytes = log.max_offset - max(acked, 0)
        lag_s = self.service.history.lag_s(max(acked, 0), now=now)
        rate = self._rate.rate(acked, now=now) if session.is_transferring else 0.0
        if not session.is_transferring:
            state = ConnectionState.FIRST_REPORT_AWAITED
        elif lag_s <= _IN_SYNC_LAG_S:
            state = ConnectionState.IN_SYNC
        else:
            state = ConnectionState.CATCH_UP
        eta_s = 0.0 if state is ConnectionState.IN_SYNC else lag_bytes / rate if rate > 0 else None
        return ConnectionInfo(
            peer=self.peer,
            state=state,
            connected_s=now - self._connected_at,
            slave_ack_offset=acked,
            next_transfer_from_where=session.next_transfer_from_where,
            lag_bytes=lag_bytes,
            lag_s=now - self._connected_at if lag_s == inf else lag_s,
            rate_bytes_s=rate,
            eta_s=eta_s,
        )


class ReadSocketService:
    """Receives reports. Source: rocketmq-all-4.9.8 HAConnection.java:80-196."""

    def __init__(self, connection: HAConnection) -> None:
        self._connection = connection

    async def run(self) -> None:
        """Count reports until the slave ends the connection.

        Raises:
            RefusedSlaveError: a report that cannot be, a stranger, or silence.
        """
        connection, session = self._connection, self._connection.session
        decoder = ReportDecoder()
        buffer = memoryview(bytearray(_READ_BUFFER_SIZE))
        first_bytes = b""
        while True:
            with trio.move_on_at(session.read_deadline) as deadline:
                count = await connection.stream.receive_into(buffer)
            if deadline.cancelled_caught:
                raise session.on_read_deadline()
            if count == 0:
                return
            if not session.is_transferring:
                first_bytes += bytes(buffer[: 2 * REPORT_SIZE])
                self._check_stranger(first_bytes)
            reports = decoder.receive_data(buffer[:count])
            session.on_read(decoder.unfinished_size, now=trio.current_time())
            for offset in reports:
                connection.on_report(offset)
            if reports:
                connection.on_acknowledged()

    def _check_stranger(self, first_bytes: bytes) -> None:
        who = describe_stranger(first_bytes)
        if who is not None:
            raise RefusedSlaveError(Refusal.STRANGER, f"not a slave: it sent {who}")


class WriteSocketService:
    """Sends the log. Source: rocketmq-all-4.9.8 HAConnection.java:198-390."""

    def __init__(self, connection: HAConnection) -> None:
        self._connection = connection

    async def run(self) -> None:
        """Send what the session says, woken by the log's watermark.

        Raises:
            RefusedSlaveError: what the slave needs is gone, or it does not read.
        """
        connection, service = self._connection, self._connection.service
        session, log, sendable = connection.session, service.log, service.sendable
        await connection.first_report_came.wait()
        while True:
            now = trio.current_time()
            service.history.note(log.max_offset, now=now)
            action = session.next_action(now=now, min_offset=log.min_offset, limit=sendable.value)
            match action:
                case SendRange(offset, size):
                    await self._send(offset, size)
                case SendHeartbeat(offset):
                    await self._send(offset, 0)
                case WaitUntil(deadline, offset):
                    await wait_reached(sendable, offset, deadline=deadline)
                case _:
                    assert_never(action)

    async def _send(self, offset: int, size: int) -> None:
        """Send one frame whole; if that does not succeed the connection ends, as half a frame cannot be taken back."""
        connection = self._connection
        limit_s = connection.service.settings.housekeeping_s
        header = encode_frame_header(offset, size)
        with trio.move_on_after(limit_s) as deadline:
            if size:
                segment = connection.service.log.segment_at(offset)
                assert segment is not None, "a session asks only for what is written and not yet deleted"
                file, position, _ = segment
                await connection.stream.send_file(header, file, position, size)
            else:
                await connection.stream.send_all(header)
        if deadline.cancelled_caught:
            raise RefusedSlaveError(Refusal.STUCK, f"it did not take a frame of {size} bytes within {limit_s:g} s")
        connection.session.on_sent(now=trio.current_time())
