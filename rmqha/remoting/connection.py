"""Connection: one client of a RemotingServer. Hot path."""

from collections.abc import Awaitable, Callable, Iterator
from math import inf
from typing import Final, TypeVarTuple

import trio

from rmqha.codec.host import host_of
from rmqha.codec.remoting import FLAG_ONEWAY, FLAG_RESPONSE, RemotingCommand
from rmqha.codec.usual.decoder import RequestDecoder
from rmqha.codec.usual.sends import Request
from rmqha.ending import ENDINGS, Ending
from rmqha.errors import RemotingSendRequestError, RemotingTimeoutError
from rmqha.memory import BytesLike
from rmqha.remoting.fence import Fence, Guard
from rmqha.remoting.in_flight import InFlight
from rmqha.remoting.limits import Capacity, RemotingLimits
from rmqha.remoting.outgoing import OutgoingQueue
from rmqha.remoting.request_handler import RequestHandler
from rmqha.remoting.response_table import ResponseTable, invoke
from rmqha.remoting.turns import PASS_S
from rmqha.transport import Stream
from rmqha.waiting import wait_overdue

Arguments = TypeVarTuple("Arguments")

_CRUMB_BYTES_MAX: Final = 64
_CRUMBS_MAX: Final = 16
"""Who sends so many, one after the other and no whole request, is read only now and then: each costs as a request."""
_CRUMBS_GATHERED_S: Final = 0.25
_ASKED_MAX: Final = 64


class Connection:
    """One client's connection: a reader task, a writer task, and no task per request.

    Attributes:
        peer: the client as ``ip:port``.
        in_flight: requests not answered yet.
        requests: how many arrived in all, one-way ones included.
    """

    def __init__(
        self, stream: Stream, *, handler: RequestHandler, limits: RemotingLimits, capacity: Capacity, fence: Fence
    ) -> None:
        self.peer = stream.peer
        self.in_flight = InFlight(limits, capacity)
        self.requests = 0
        self.closed = False
        self.close_reason = "closed by the client"
        self._stream = stream
        self._handler = handler
        self._limits = limits
        self._capacity = capacity
        self._turns = capacity.turns
        self._undecoded_bytes = self._begun_bytes = 0
        self._fence = fence
        self._outgoing = OutgoingQueue(
            stream, write_timeout_s=limits.write_timeout_s, owe=capacity.owed.add, turns=capacity.turns
        )
        self._responses = ResponseTable(stream.peer)
        self._heard_at = inf
        self._frame_begun_at = inf
        self._turn_ends_at = inf
        self._watches_frame = False
        self._steps: Iterator[bool] | None = None
        self._reader = trio.CancelScope()
        self._draining = False
        self._ending = trio.CancelScope()
        self._nursery: trio.Nursery | None = None

    def send_response(self, *parts: BytesLike, size: int) -> None:
        """Queue the answer to one request, of ``size`` bytes; answers queued meanwhile go out together."""
        if not self.closed:
            self.in_flight.release(1, size)
            self._outgoing.put_all(parts)

    def send_responses(self, frames: list[bytes], size: int) -> None:
        """Queue the answers to as many requests, of ``size`` bytes; a lone one is sent at once if nothing is queued."""
        if frames and not self.closed:
            self.in_flight.release(len(frames), size)
            (self._outgoing.put_nowait if len(frames) == 1 else self._outgoing.put)(b"".join(frames))

    def respond(
        self,
        request: Request,
        code: int,
        *,
        remark: str | None = None,
        ext_fields: dict[str, str] | None = None,
        body: bytes = b"",
    ) -> None:
        """Answer ``request`` in its own form; a one-way request is never answered."""
        self.send_reply(request, RemotingCommand(code, remark=remark, ext_fields=ext_fields, body=body))

    def send_reply(self, request: Request, response: RemotingCommand) -> None:
        """Send ``response`` as the answer to ``request``, in its form; a one-way request is never answered."""
        response.opaque, response.flag, response.serialize = request.opaque, FLAG_RESPONSE, request.serialize
        is_awaited = not request.flag & FLAG_ONEWAY and not self.closed
        frame = response.encode() if is_awaited else b""  # if it does not fit, the request is in flight till refused
        self.in_flight.release(1, request.size)
        if frame:
            self._outgoing.put_nowait(frame)

    def finish_oneway(self, requests: int, size: int) -> None:
        """Give back what so many one-way requests of ``size`` bytes took: nothing of them is held any more."""
        self.in_flight.release(requests, size)

    def let_go(self, request: RemotingCommand) -> RemotingCommand:
        """Give back the bytes of ``request``, which is answered maybe much later: no more is kept than is returned."""
        self.in_flight.let_go(request.size)
        return request.to_answer()

    def fenced(self, request: Request | None = None) -> Guard:
        """Keep what goes wrong in a block with this client: ``request`` is refused, or this connection ends."""
        return self._fence.guard(self, request)

    def refuse(self, request: Request, error: Exception) -> None:
        """Answer ``request`` with SYSTEM_ERROR; what is no error of ours is a bug, and is told of."""
        self._fence.refuse(self, request, error)

    def notify(self, request: RemotingCommand) -> bool:
        """Tell the client something that it does not answer; the body is not copied. False: it takes no answers now."""
        if not self.takes_answers:
            return False
        request.opaque, request.flag = self._responses.next_opaque(), FLAG_ONEWAY
        self._outgoing.put_all((request.encode_header(len(request.body)), request.body))
        return True

    async def invoke(self, request: RemotingCommand, *, timeout_s: float) -> RemotingCommand:
        """Ask the client something.

        Raises:
            RemotingTimeoutError: no answer in time.
            RemotingSendRequestError: the connection ended first, or the client has too much to take or to answer.
        """
        if not self.takes_answers or len(self._responses) >= _ASKED_MAX:
            raise RemotingSendRequestError(self.peer, "the client's connection ended, or it takes no requests now")
        with trio.move_on_after(timeout_s):
            return await invoke(self._responses, self._outgoing, request, timeout_s=inf)
        raise RemotingTimeoutError(self.peer, "no answer in time")

    def start_soon(self, async_fn: Callable[[*Arguments], Awaitable[object]], *args: *Arguments) -> None:
        """Run a task that ends, at the latest, with this connection."""
        if self._nursery is not None and not self.closed:
            self._nursery.start_soon(async_fn, *args)

    def work(self, steps: Iterator[bool]) -> None:
        """Take the ``steps`` now, and those that this turn has no time for in the next ones, before anything else.

        A step that is True has found nothing to do yet, and ends the turn.
        """
        self._steps = steps
        self._take_steps()

    def _take_steps(self) -> None:
        assert self._steps is not None
        with self.fenced():
            for waits in self._steps:
                if waits or trio.current_time() >= self._turn_ends_at:
                    return
        self._steps = None

    def close(self, reason: str) -> None:
        """End this connection now; what is queued is dropped."""
        if not self.closed:
            self.close_reason = reason
            self._outgoing.close()
            self._ending.cancel()

    def drain(self, reason: str) -> None:
        """Handle nothing more; end this connection when everything in flight is answered, and the client has left."""
        self.close_reason = reason
        self._draining = True
        self._reader.cancel()

    async def run(self) -> None:
        """Serve until the client leaves, breaks the protocol, idles or does not take its answers.

        Raises:
            RemoteProtocolError: the client broke the protocol.
            trio.BrokenResourceError: the client is gone, or does not take its answers.
        """
        ending = Ending(*ENDINGS)
        self._capacity.owed.join(self, host_of(self.peer))
        try:
            with self._ending:
                async with trio.open_nursery() as self._nursery:
                    self._nursery.start_soon(ending.keep, self._outgoing.run, self._nursery)
                    self._nursery.start_soon(self._watch_idle)
                    await ending.keep(self._serve, self._nursery)
                    self._nursery.cancel_scope.cancel()
            ending.tell()
        finally:
            self._forget()

    async def _serve(self) -> None:
        with self._reader:
            await self._read()
        while self._draining and self.in_flight.requests:
            await self.in_flight.wait_released()
        await self._outgoing.wait_below(1)
        if self._draining and self.requests:
            await self._take_leave()

    async def _take_leave(self) -> None:
        """Take in for nothing what the client goes on sending till it has seen the end of its answers, and leaves.

        Closed before, the connection would be reset, and answers on their way be lost.
        """
        self._stream.send_eof()
        while await self._stream.receive_into(self._capacity.receive_buffer):
            pass

    def _forget(self) -> None:
        self.closed = True
        self._stream.close()
        self._outgoing.close()
        self._note_pending(0, waits_for_turn=False)
        self._capacity.owed.leave(self)
        self.in_flight.forget()
        self._responses.fail_all("the client's connection ended")
        self._steps = None
        self._handler.connection_closed(self)

    async def _read(self) -> None:
        decoder = self._capacity.new_decoder()
        buffer = self._capacity.receive_buffer
        self._heard_at, crumbs = trio.current_time(), 0
        while True:
            held = decoder.pending_size
            if self.in_flight.is_full or self.has_too_many_answers:
                self._heard_at = self._frame_begun_at = inf  # it is we who do not listen
                await self._wait_capacity()
                self._heard_at = trio.current_time()
                self._frame_begun_at = self._heard_at if held else inf
            if held and not self._watches_frame:
                self._watches_frame = True
                self.start_soon(self._watch_frame)
            count = await self._stream.receive_into(decoder.space(buffer))
            self._heard_at = trio.current_time()
            if count == 0:
                return
            if self._turns.taken_s >= PASS_S:
                decoder.put_off(buffer, count)
                commands: list[Request] = []
            else:
                commands = decoder.on_received(buffer, count)
            completed = bool(commands)
            pending = decoder.pending_size
            if held or pending:
                self._note_pending(pending, waits_for_turn=decoder.more)
            if completed:
                self._frame_begun_at = inf  # of what comes next we hear when these have had their turns
                await self._take_in_turns(commands, held + count - pending)
            del commands  # a frame may have 16 MiB, and the client may sit there from now on
            if decoder.more:
                completed = await self._take_more(decoder) or completed
            if completed or not held:
                self._heard_at = trio.current_time()
                self._frame_begun_at = self._heard_at if decoder.pending_size else inf
            crumbs = 0 if completed or count >= _CRUMB_BYTES_MAX else crumbs + 1
            if crumbs >= _CRUMBS_MAX:
                await trio.sleep(_CRUMBS_GATHERED_S)

    async def _take_more(self, decoder: RequestDecoder) -> bool:
        """Decode and handle, in turns, what was received beyond that; returns whether any frame was completed."""
        completed, begun_at = False, self._frame_begun_at
        while decoder.more:
            self._heard_at = self._frame_begun_at = inf  # it is we who do not listen
            held = decoder.pending_size
            await self._wait_turn(held)
            while self.in_flight.is_full:
                await self._wait_capacity()
                await self._wait_turn(held)
            self._heard_at = trio.current_time()
            commands = decoder.decode_more(self._turns.requests)
            self._note_pending(decoder.pending_size, waits_for_turn=decoder.more)
            if commands:
                completed = True
                await self._take_in_turns(commands, held - decoder.pending_size)
        self._frame_begun_at = begun_at
        return completed

    def _note_pending(self, size: int, *, waits_for_turn: bool) -> None:
        """Keep account of what was received and is no request yet."""
        undecoded_before, begun_before = self._undecoded_bytes, self._begun_bytes
        self._undecoded_bytes, self._begun_bytes = (size, 0) if waits_for_turn else (0, size)
        self._capacity.release(undecoded_before - self._undecoded_bytes)
        self._capacity.owed.add(self._begun_bytes - begun_before)

    @property
    def owed_bytes(self) -> int:
        """See :class:`~rmqha.remoting.owed.Debtor`."""
        return self._begun_bytes + self._outgoing.size

    @property
    def owed_since(self) -> float:
        """See :class:`~rmqha.remoting.owed.Debtor`."""
        return min(self._frame_begun_at, self._outgoing.sent_at if self._outgoing.size else inf)

    async def _watch_idle(self) -> None:
        """End the connection when nothing went over it, in either direction, for too long."""
        limit_s = self._limits.server_channel_max_idle_time_s
        await wait_overdue(lambda: max(self._heard_at, self._outgoing.sent_at) + limit_s, ahead_s=limit_s)
        self.close_reason = f"idle for {limit_s:g} s"
        self._reader.cancel()

    async def _watch_frame(self) -> None:
        """End the connection when a frame begun is not complete in time; return when none is begun."""
        limit_s = self._limits.frame_timeout_s
        while (due := self._frame_begun_at + limit_s) < inf:
            if due <= trio.current_time():
                self.close_reason = f"a frame begun was not complete after {limit_s:g} s"
                self._reader.cancel()
                return
            await trio.sleep_until(due)
        self._watches_frame = False

    async def _take_in_turns(self, requests: list[Request], size: int) -> None:
        """Handle what arrived, and keep nothing of what is handled.

        Between any two turns everybody else has one, and answers not taken are waited for.
        """
        self._count_in(requests, size)
        turns, begun_at = self._turns, self._heard_at
        if not requests:
            turns.taken_s += trio.current_time() - begun_at
        try:
            while requests:
                self._turn_ends_at = begun_at + turns.turn_s
                del requests[: self._handler.process(self, requests[: turns.requests])]
                turns.taken_s += trio.current_time() - begun_at
                if self._steps is not None:
                    await self._finish_steps()
                if requests:
                    await self._wait_turn()
                    begun_at = trio.current_time()
        finally:
            self.in_flight.release(len(requests), sum(request.size for request in requests))

    async def _finish_steps(self) -> None:
        """What has been begun is finished, also while the server is shutting down, until this connection is closed."""
        turns = self._turns
        with trio.CancelScope(shield=True):
            while self._steps is not None and not self._ending.cancel_called:
                await turns.wait()
                self._turn_ends_at = (begun_at := trio.current_time()) + turns.turn_s
                self._take_steps()
                turns.taken_s += trio.current_time() - begun_at

    def _count_in(self, commands: list[Request], size: int) -> None:
        """Complete with the answers what was asked; the requests, which alone are left, are in flight from now on."""
        if [command for command in commands if command.flag]:
            for command in commands:
                if isinstance(command, RemotingCommand) and command.flag & FLAG_RESPONSE:
                    self._responses.complete(command)
                    size -= command.size
            commands[:] = [command for command in commands if not command.flag & FLAG_RESPONSE]
        if commands:
            self.in_flight.add(len(commands), size)
            self.requests += len(commands)

    async def _wait_turn(self, undecoded_bytes: int = 0) -> None:
        await self._turns.wait(undecoded_bytes)
        while self._outgoing.size >= (size := self._outgoing_bytes_max()):
            await self._outgoing.wait_below(size)
            await self._turns.wait(undecoded_bytes)

    @property
    def is_turn_over(self) -> bool:
        """Whether what else arrived waits: it is somebody else's turn, or the answers are to be taken first."""
        return trio.current_time() >= self._turn_ends_at or self._steps is not None or not self.takes_answers

    @property
    def has_too_many_answers(self) -> bool:
        """Whether so many are left to be taken that nothing more is read, and what was held is to get no messages."""
        return self._outgoing.size >= self._outgoing_bytes_max()

    def _outgoing_bytes_max(self) -> int:
        limits = self._limits
        is_much = self._capacity.owed.size >= limits.outgoing_bytes_max
        return limits.outgoing_share_bytes if is_much else limits.connection_outgoing_bytes_max

    @property
    def takes_answers(self) -> bool:
        """Whether a large answer may be made; with one in the way a client may as well ask again later."""
        return not self.closed and self._outgoing.size < self._limits.outgoing_share_bytes

    async def wait_taken(self) -> None:
        """Wait until :attr:`takes_answers`, or the connection has ended."""
        await self._outgoing.wait_below(self._limits.outgoing_share_bytes)

    async def _wait_capacity(self) -> None:
        while self.in_flight.is_full or self.has_too_many_answers:
            if self._outgoing.size >= (size := self._outgoing_bytes_max()):
                await self._outgoing.wait_below(size)
            else:
                await self.in_flight.wait_released()
