"""SlaveConnection: one connection to a master, from the first report to the end."""

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from rmqha.choices import HaAck
from rmqha.ending import Ending
from rmqha.errors import ProtocolError, RemoteProtocolError, StoreError
from rmqha.ha.log_receiver import LogReceiver
from rmqha.ha.options import HAClientOptions
from rmqha.ha.replicated_log import ReplicatedLog
from rmqha.ha.report_sender import ReportSender
from rmqha.ha.runtime_info import ClientState
from rmqha.replication.overlap import StreamStart
from rmqha.replication.slave_session import SlaveSession
from rmqha.transport import Stream

_LOOKS_AT_ROOM_S: Final = 1.0


class UnfitMasterError(RemoteProtocolError):
    """This master's log does not continue the local one; nothing was changed on either side.

    Attributes:
        state: how the slave stands while it waits for that to change.
    """

    def __init__(self, state: ClientState, message: str) -> None:
        self.state: Final = state
        super().__init__(message)


def _without_room(lack: str) -> UnfitMasterError:
    return UnfitMasterError(ClientState.DISK_FULL, f"nothing can be taken here: {lack}")


class SlaveConnection:
    """Receives, stores and acknowledges; these run side by side, so the stream flows while a flush runs.

    Several frames share a flush: whatever was appended while one ran is made durable by the next.
    """

    def __init__(
        self,
        log: ReplicatedLog,
        stream: Stream,
        *,
        start: StreamStart,
        options: HAClientOptions,
        silence_max_s: float,
        waits_for_space: bool = True,
        is_finished: Callable[[SlaveSession], bool] = lambda _session: False,
        beside: Callable[[], Awaitable[None]] = trio.sleep_forever,
        on_joined: Callable[[], None] = lambda: None,
    ) -> None:
        self._log: Final = log
        self._waits_for_space: Final = waits_for_space
        self._without_room_max_s: Final = silence_max_s
        self._is_finished: Final = is_finished
        self._beside: Final = beside
        self._on_joined: Final = on_joined
        self._is_joined = False
        self._ack: Final = options.ha_ack
        self._receiver: Final = LogReceiver(
            log, stream, start=start, silence_max_s=silence_max_s, buffer_size=options.stream_buffer_size
        )
        self._reports: Final = ReportSender(
            stream, start.first_report, heartbeat_s=options.ha_send_heartbeat_interval_s
        )
        self._has_asked: Final = trio.Event()
        self._appended = trio.Event()
        self._stored_offset = 0
        self._has_received = False
        self.session: Final = self._receiver.session

    @property
    def state(self) -> ClientState:
        """How it goes."""
        if self._log.lack_of_room:
            return ClientState.DISK_FULL
        return ClientState.COMPARING if self.session.is_comparing else ClientState.TRANSFER

    @property
    def is_far_behind(self) -> bool:
        """Whether the local log lacks a lot of what the master has."""
        return self._receiver.is_far_behind

    @property
    def heard_s_ago(self) -> float:
        """For how long the master's next bytes have been waited for."""
        return self._receiver.silent_s(now=trio.current_time())

    @property
    def reported_offset(self) -> int:
        """The last acknowledgement."""
        return self._reports.reported_offset

    async def run(self) -> None:
        """Replicate until ``is_finished(session)``, or until something fails, and raise that.

        Raises:
            RemoteProtocolError: the master's bytes cannot be taken, or it was silent.
            UnfitMasterError: the master has less than the local log.
            DivergedLogError: the master has other bytes than the local log.
            StoreError: the local store failed; nothing is acknowledged any more.
            trio.BrokenResourceError: the connection ended.
        """
        ending = Ending(ProtocolError, StoreError, trio.BrokenResourceError, trio.ClosedResourceError)
        async with trio.open_nursery() as nursery:
            receiving = (self._receive, self._receiver.watch, self._leave_without_room)
            for part in (*receiving, self._make_durable, self._send_reports, self._beside):
                nursery.start_soon(self._run_part, part, ending, nursery)
        ending.tell()

    async def _run_part(self, part: Callable[[], Awaitable[None]], ending: Ending, others: trio.Nursery) -> None:
        """Run one of them; whichever ends first ends them all."""
        await ending.keep(part, others)
        others.cancel_scope.cancel()

    async def _send_first_report(self) -> None:
        """Ask for the stream. That acknowledges, too: what a connection before this one left may not be durable yet."""
        if self._ack is HaAck.DURABLE:
            await self._log.flush_now(min(self._reports.reported_offset, self._log.max_offset))
        await self._reports.send_first()
        self._has_asked.set()

    async def _send_reports(self) -> None:
        """Heartbeats acknowledge, too: none goes before the first report, however long its flush takes."""
        await self._has_asked.wait()
        await self._reports.run()

    async def _receive(self) -> None:
        await self._send_first_report()
        self._tell_if_joined()
        while not self._is_finished(self.session):
            if lack := self._log.lack_of_room:
                await self._wait_for_space(lack)
            if not await self._receiver.receive():
                raise trio.BrokenResourceError(self._why_ended())
            self._has_received = True
            self._tell_if_joined()
            self._acknowledge()
            if self.session.is_master_shorter:
                raise UnfitMasterError(
                    ClientState.AHEAD,
                    f"the master has nothing more to send at offset {self.session.position}, but this log goes on to "
                    f"{self._log.max_offset}: it lost its tail, or begins later. Nothing is cut here",
                )

    def _tell_if_joined(self) -> None:
        if not self._is_joined and not self.session.is_comparing:
            self._is_joined = True
            self._on_joined()

    async def _wait_for_space(self, lack: str) -> None:
        """A slave on a full disk stops reading; a master at its start cannot wait, and gives up."""
        if not self._waits_for_space:
            raise _without_room(lack)
        await self._log.wait_writable()

    async def _leave_without_room(self) -> None:
        """Its master counts on it, and what it sends may fill buffers for hours before it notices."""
        had_room_at = trio.current_time()
        while True:
            await trio.sleep(_LOOKS_AT_ROOM_S)
            now, lack = trio.current_time(), self._log.lack_of_room
            if not lack:
                had_room_at = now
            elif now >= had_room_at + self._without_room_max_s:
                raise _without_room(lack)

    def _why_ended(self) -> str:
        if self._has_received:
            return "the master ended the connection"
        return (
            f"the master ended the connection when asked for offset {self._reports.reported_offset}: its log may end "
            "before this one, or begin after it, or this is not its HA port (listenPort + 1 by default); its own log "
            "says which"
        )

    def _acknowledge(self) -> None:
        """Report what has become true by the bytes just stored."""
        match self._ack:
            case HaAck.DURABLE:
                self._stored_offset = min(self.session.boundary_offset, self._log.max_offset)
                self._appended.set()
            case HaAck.WRITTEN:
                self._reports.report(self.session.boundary_offset)
            case HaAck.RECEIVED:
                self._reports.report(self.session.position)

    async def _make_durable(self) -> None:
        """Flush what was appended, then acknowledge it; never the other way round.

        Not up to where the session is by then: that may be ahead of the log, while the next file is being made.
        """
        while True:
            await self._appended.wait()
            self._appended = trio.Event()
            offset = self._stored_offset
            await self._log.flush_now(offset)
            self._reports.report(offset)
