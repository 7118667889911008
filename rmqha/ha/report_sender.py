"""ReportSender: a slave's acknowledgements and heartbeats on their way to the master."""

import trio

from rmqha.codec.transfer import encode_report
from rmqha.transport import Stream


class ReportSender:
    """Hot path: sends each new offset at once, and the last one again at least every ``heartbeat_s``.

    Invariant: ``reported_offset`` never falls; everything below it is as safe as the slave promises.
    """

    def __init__(self, stream: Stream, first_report: int, *, heartbeat_s: float) -> None:
        self.reported_offset = first_report
        self._stream = stream
        self._heartbeat_s = heartbeat_s
        self._sent_offset = first_report
        self._unsent = b""
        self._stalled = trio.Event()
        self._last_write_at = trio.current_time()

    async def send_first(self) -> None:
        """Ask for the stream; nothing may be sent before."""
        self._last_write_at = trio.current_time()
        await self._stream.send_all(encode_report(self.reported_offset))

    def report(self, offset: int) -> None:
        """Acknowledge everything before ``offset``, unless that has been done."""
        if offset > self.reported_offset:
            self.reported_offset = offset
            self._send_now()

    def _send_now(self) -> None:
        """Send without waiting. While the line is full only the newest offset waits, as reports are cumulative."""
        if self._unsent:
            return
        self._sent_offset = self.reported_offset
        report = encode_report(self._sent_offset)
        taken = self._stream.send_nowait(report)
        self._last_write_at = trio.current_time()
        if taken < len(report):
            self._unsent = report[taken:]
            self._stalled.set()

    async def run(self) -> None:
        """Send heartbeats, and what did not fit, until cancelled. Raises trio.BrokenResourceError."""
        while True:
            with trio.move_on_at(self._last_write_at + self._heartbeat_s) as pause:
                await self._stalled.wait()
            if not pause.cancelled_caught:
                await self._send_rest()
            elif trio.current_time() >= self._last_write_at + self._heartbeat_s:
                self._send_now()

    async def _send_rest(self) -> None:
        """Finish the report that was cut, then send what came up in the meantime."""
        await self._stream.send_all(self._unsent)
        self._unsent, self._stalled = b"", trio.Event()
        if self._sent_offset != self.reported_offset:
            self._send_now()
