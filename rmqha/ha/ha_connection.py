"""HAConnection: one slave at the trio edge, with a reading and a writing half that live and die together."""

from collections.abc import Awaitable, Callable
from math import inf
from typing import TYPE_CHECKING, Final, TypeVar, assert_never

import structlog
import trio

from rmqha.codec.host import host_of
from rmqha.codec.strangers import describe_on_ha_port, is_open_on_ha_port
from rmqha.codec.transfer import REPORT_SIZE, ReportDecoder, encode_frame_header
from rmqha.errors import ProtocolError, StoreError, StoreReadError, forget_origin
from rmqha.ha.runtime_info import ConnectionInfo, ConnectionState
from rmqha.replication.in_sync import Replica
from rmqha.replication.master_session import (
    Action,
    LogRange,
    MasterSession,
    Refusal,
    RefusedSlaveError,
    SendHeartbeat,
    SendRange,
    WaitUntil,
)
from rmqha.replication.progress import RateMeter
from rmqha.replication.slave_identity import SlaveIdentity
from rmqha.replication.watermark import Waiter
from rmqha.transport import Stream, UntrustedPeerError
from rmqha.waiting import wait_overdue

if TYPE_CHECKING:
    from rmqha.ha.ha_service import HAService

logger = structlog.get_logger()

_READ_BUFFER_SIZE: Final = 512 * REPORT_SIZE
_IN_SYNC_LAG_S: Final = 1.0
_STRANGER_S: Final = 1.0
"""How long to wait for the bytes that tell a slave from a stranger, where those before did not."""
_DIRECT_SIZE_MAX: Final = 64 * 1024
"""Frames up to this size may be sent, with one copy, from inside the append."""

Part = TypeVar("Part")


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
        self.replica: Final = Replica(SlaveIdentity(host_of(stream.peer)))
        self.first_report_came: Final = trio.Event()
        self.refusal: RefusedSlaveError | None = None
        self.has_spoken = False
        """Something came of the peer that may be a slave's, by TLS where that is required."""
        self.is_held = True
        """Nothing is sent yet."""
        self._connected_at: Final = now
        self._rate = RateMeter(0, now=now)
        self._ended = ""
        self._scope: Final = trio.CancelScope()
        self._was_announced = False
        self._has_joined = self._has_taken = False
        self._missed: tuple[int, float] | None = None
        """Of a slave that was away: where the log ended when it came back, and since when it has been behind."""

    async def run(self) -> None:
        """Serve this slave until either half ends. What the peer or the network did is logged here, not raised."""
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    reading, writing = ReadSocketService(self), WriteSocketService(self)
                    for part in (reading.run, reading.watch, writing.run, writing.watch):
                        nursery.start_soon(self._run_part, part)
        finally:
            self.stream.close()
            session, now = self.session, trio.current_time()
            allowed = self._was_announced or (session.has_taken and self.service.log_limit.take(now=now))
            log = logger.info if allowed else logger.debug
            log(
                "ha_connection.closed",
                peer=self.peer,
                reason=self._ended or "shutdown",
                first_report=session.first_report,
                slave_ack_offset=session.slave_ack_offset,
                next_transfer_from_where=session.next_transfer_from_where,
                connected_s=round(now - self._connected_at, 3),
            )

    async def _run_part(self, part: Callable[[], Awaitable[None]]) -> None:
        try:
            await part()
            self.end("the slave ended the connection")
        except RefusedSlaveError as error:
            self.refuse(error)
        except UntrustedPeerError as error:
            self.refuse(RefusedSlaveError(Refusal.UNTRUSTED, str(error)))
        except (ProtocolError, StoreError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            self.end(str(error))
        except Exception as bug:  # noqa: BLE001 - it ends this connection, and nothing else
            self.end(self.service.on_bug(bug, self.peer))

    def refuse(self, error: RefusedSlaveError) -> None:
        """End the connection, and remember why its slave is turned away."""
        forget_origin(error)
        self.refusal = self.refusal or error
        self.end(str(error))

    def end(self, reason: str) -> None:
        """End the connection, unless it has ended already: nothing of it is sent or counted any more."""
        self._ended = self._ended or reason
        self._scope.cancel()

    @property
    def ended(self) -> str:
        """Why the connection ended; empty while it has not, or if it was the service that ended it."""
        return self._ended

    def log_range(self) -> LogRange:
        """What the master has now."""
        log = self.service.log
        return LogRange(log.min_offset, log.max_offset)

    def on_report(self, offset: int) -> None:
        """Check and count one report. Raises RefusedSlaveError."""
        self.session.on_report(offset, log=self.log_range())
        if not self.first_report_came.is_set():
            self._rate = RateMeter(offset, now=trio.current_time())
            self.first_report_came.set()

    def start_transfer(self) -> None:
        """From now on the slave is sent the log, and its reports count."""
        self.is_held = False
        self._was_announced = self.service.log_limit.take(now=trio.current_time())
        log = logger.info if self._was_announced else logger.debug
        log(
            "ha_connection.transfer_started",
            peer=self.peer,
            first_report=self.session.first_report,
            next_transfer_from_where=self.session.next_transfer_from_where,
        )
        self.on_acknowledged()

    def on_acknowledged(self) -> None:
        """Pass the newest acknowledgement on to the sends that wait for it."""
        self._rate.note(self.session.slave_ack_offset, now=trio.current_time())
        self.service.notify_transfer_some(self)
        if not self._has_joined:
            self._has_joined = True
            self.service.on_joined(self)
        if not self._has_taken and self.session.has_taken:
            self._has_taken = True
            self.service.on_taken(self)

    def on_returned(self, behind_since: float | None) -> None:
        """The slave that follows here was away, and has been behind since then; None: it was not missed."""
        if behind_since is not None:
            self._missed = (self.service.log.max_offset, behind_since)

    def lag_s(self, *, now: float) -> float:
        """How long there has been something that the slave has not acknowledged; its time away is part of it."""
        acked = max(self.session.slave_ack_offset, 0)
        noted_s = self.service.history.lag_s(acked, now=now)
        known_s = now - self._connected_at if noted_s == inf else noted_s
        if self._missed is not None and acked < self._missed[0]:
            return max(known_s, now - self._missed[1])
        return known_s

    def info(self) -> ConnectionInfo:
        """This connection as an operator sees it."""
        now, session, log = trio.current_time(), self.session, self.service.log
        acked = session.slave_ack_offset
        lag_bytes = log.max_offset - max(acked, 0)
        lag_s = self.lag_s(now=now)
        rate = self._rate.rate(acked, now=now) if session.is_transferring else 0.0
        if not session.is_transferring:
            state = ConnectionState.FIRST_REPORT_AWAITED
        elif self.is_held or lag_s > _IN_SYNC_LAG_S or self.service.history.lag_s(max(acked, 0), now=now) == inf:
            state = ConnectionState.CATCH_UP  # however short it has been here, where it lacks what was there before
        else:
            state = ConnectionState.IN_SYNC
        eta_s = 0.0 if state is ConnectionState.IN_SYNC else lag_bytes / rate if rate > 0 else None
        return ConnectionInfo(
            peer=self.peer,
            name=self.replica.who.name,
            state=state,
            connected_s=now - self._connected_at,
            slave_ack_offset=acked,
            next_transfer_from_where=session.next_transfer_from_where,
            lag_bytes=lag_bytes,
            lag_s=lag_s,
            rate_bytes_s=rate,
            eta_s=eta_s,
            heard_s_ago=session.silent_s(now=now),
        )


class ReadSocketService:
    """Receives reports. Source: rocketmq-all-4.9.8 HAConnection.java:80-196."""

    def __init__(self, connection: HAConnection) -> None:
        self._connection = connection

    async def run(self) -> None:
        """Count reports until the slave ends the connection.

        Raises:
            RefusedSlaveError: a report that cannot be, or a stranger.
        """
        connection, session = self._connection, self._connection.session
        decoder = ReportDecoder()
        buffer = memoryview(bytearray(_READ_BUFFER_SIZE))
        first_bytes = b""
        while True:
            count = await connection.stream.receive_into(buffer)
            if count == 0:
                return
            if not session.is_transferring:
                count += await self._receive_what_tells(first_bytes + bytes(buffer[:count]), buffer[count:])
                first_bytes = (first_bytes + bytes(buffer[:count]))[: 2 * REPORT_SIZE]
                self._check_stranger(first_bytes)
                connection.has_spoken = True
            reports = decoder.receive_data(buffer[:count])
            session.on_read(decoder.unfinished_size, now=trio.current_time())
            for offset in reports:
                connection.on_report(offset)
            if reports and not connection.is_held:
                connection.on_acknowledged()

    async def _receive_what_tells(self, first_bytes: bytes, buffer: memoryview) -> int:
        """Wait a moment for more where a stranger may have begun like this: a network may cut its bytes anywhere."""
        count = 0
        with trio.move_on_after(_STRANGER_S):
            while is_open_on_ha_port(first_bytes + bytes(buffer[:count])):
                more = await self._connection.stream.receive_into(buffer[count:])
                if more == 0:
                    break
                count += more
        return count

    async def watch(self) -> None:
        """Raise RefusedSlaveError when the slave has been silent for too long; runs beside :meth:`run`."""
        session = self._connection.session
        await wait_overdue(lambda: session.read_deadline, ahead_s=self._connection.service.settings.housekeeping_s)
        raise session.on_read_deadline()

    def _check_stranger(self, first_bytes: bytes) -> None:
        if (who := describe_on_ha_port(first_bytes)) is not None:
            raise RefusedSlaveError(Refusal.STRANGER, f"not a slave: it sent {who}")


class WriteSocketService:
    """Sends the log. Source: rocketmq-all-4.9.8 HAConnection.java:198-390.

    While the slave keeps up, a small frame goes out from inside the append that made it, without a task switch
    (:meth:`_send_nowait`); everything else, and what the line does not take at once, is the task's.
    """

    def __init__(self, connection: HAConnection) -> None:
        self._connection = connection
        self._woken = trio.Event()
        self._waiter: Waiter | None = None
        self._bug: Exception | None = None
        self._frame: SendRange | None = None
        self._rest: memoryview | None = None
        self._sending_since = inf

    async def run(self) -> None:
        """Send what the session says, woken by the log's watermark.

        Raises:
            RefusedSlaveError: what the slave needs is gone, or it does not read.
        """
        connection = self._connection
        await connection.first_report_came.wait()
        await connection.service.before_sending(connection)
        connection.start_transfer()
        while True:
            match self._next_action():
                case SendRange() as frame:
                    await self._send(self._send_frame, frame)
                case SendHeartbeat(offset) if self._may_spoil():
                    await self._wait(
                        offset + 1, trio.current_time() + connection.service.options.ha_send_heartbeat_interval_s
                    )
                case SendHeartbeat(offset):
                    await self._send(connection.stream.send_all, encode_frame_header(offset, 0))
                case WaitUntil(deadline, offset):
                    await self._wait(offset, deadline)
                case _ as unknown:
                    assert_never(unknown)

    def _may_spoil(self) -> bool:
        """Whether a heartbeat may be harmful: an empty RocketMQ slave makes its first file by it, as one at 0.

        Where this log is to begin is not known then; what begins later would be appended to that file all the same.
        Slaves of ours have said their names.
        """
        return not self._connection.replica.who.name and self._connection.service.is_begin_awaited()

    def _next_action(self) -> Action:
        service, now = self._connection.service, trio.current_time()
        service.history.note(service.log.max_offset, now=now)
        return self._connection.session.next_action(
            now=now, min_offset=service.log.min_offset, limit=service.sendable.value
        )

    async def _wait(self, offset: int, deadline: float) -> None:
        """Sleep while there is nothing to send but what :meth:`_send_nowait` can; finish what it has begun."""
        self._woken = trio.Event()
        self._waiter = self._connection.service.sendable.add(offset, inf, self._send_nowait)
        try:
            with trio.move_on_at(deadline):
                await self._woken.wait()
        finally:
            self._waiter.cancel()
        frame, rest = self._frame, self._rest
        self._frame = self._rest = None
        if self._bug is not None:
            raise self._bug
        if rest is not None:
            await self._send(self._connection.stream.send_all, rest)
        elif frame is not None:
            await self._send(self._send_frame, frame)

    def _send_nowait(self, reached: bool, _value: int) -> None:
        """Hot path: called by the append, or the flush, that made more of the log sendable.

        That one is no business of this slave: what goes wrong here is raised by the task.
        """
        try:
            if reached and self._is_sent_nowait():
                return
        except RefusedSlaveError:
            pass  # the task asks again, and ends the connection
        except Exception as bug:  # noqa: BLE001 - see above
            self._bug = bug
        self._woken.set()

    def _is_sent_nowait(self) -> bool:
        """Whether all there is to send is on its way, in small frames, and more is awaited; else the task goes on.

        It is registered once only: a waiter for what was sent here already would send beside the task.
        """
        while isinstance(action := self._next_action(), SendRange):
            if action.size > _DIRECT_SIZE_MAX:
                self._frame = action
                return False
            if not self._send_directly(action):
                return False
        if not isinstance(action, WaitUntil):
            return False
        self._waiter = self._connection.service.sendable.add(action.offset, inf, self._send_nowait)
        return True

    def _send_directly(self, frame: SendRange) -> bool:
        """Send a small frame at once; what does not fit is left in ``_rest``."""
        connection = self._connection
        try:
            body = connection.service.log.view_range(frame.offset, frame.size)
        except StoreReadError:
            self._frame = frame  # the task meets the same error, and ends the connection
            return False
        data = b"".join((encode_frame_header(frame.offset, frame.size), body))
        try:
            taken = connection.stream.send_nowait(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            taken = 0  # the task meets the same error, and ends the connection
        if taken < len(data):
            self._rest = memoryview(data)[taken:]
            return False
        connection.session.on_sent(now=trio.current_time())
        return True

    async def _send_frame(self, frame: SendRange) -> None:
        segment = self._connection.service.log.segment_at(frame.offset)
        assert segment is not None, "a session asks only for what is written and not yet deleted"
        file, position, _ = segment
        header = encode_frame_header(frame.offset, frame.size)
        await self._connection.stream.send_file(header, file, position, frame.size)

    async def _send(self, send: Callable[[Part], Awaitable[None]], part: Part) -> None:
        self._sending_since = trio.current_time()
        await send(part)
        self._sending_since = inf
        self._connection.session.on_sent(now=trio.current_time())

    async def watch(self) -> None:
        """Raise RefusedSlaveError when the slave does not take a frame: half of one cannot be taken back."""
        limit_s = self._connection.service.settings.housekeeping_s
        await wait_overdue(lambda: self._sending_since + limit_s, ahead_s=limit_s)
        raise RefusedSlaveError(Refusal.STUCK, f"it did not take a frame within {limit_s:g} s")
