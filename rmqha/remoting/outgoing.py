"""OutgoingQueue: what waits to be sent on one connection, and the one task that sends it."""

from collections.abc import Callable, Iterator, Sequence

import trio

from rmqha.errors import forget_locals
from rmqha.memory import BytesLike
from rmqha.remoting.turns import PASS_S, Turns
from rmqha.transport import Stream

_GATHERED_BYTES_MAX = 1024 * 1024
_COPIED_BYTES_MAX = 32 * 1024
_AFTER_A_WAIT_BYTES = 128 * 1024
"""So much is sent as soon as the peer takes something again; thousands may at one moment. More has its turn."""


def _to_nobody(_size: int) -> None:
    pass


class OutgoingQueue:
    """Bytes leave in the order they were put, gathered into few sends.

    Invariant: ``size`` is the sum of what was put and has not been handed to the kernel, 0 once :meth:`run` has ended;
    ``owe`` is told of each change: how many bytes more, or less. What is large takes its ``turns``.
    """

    def __init__(
        self,
        stream: Stream,
        *,
        write_timeout_s: float,
        owe: Callable[[int], None] = _to_nobody,
        turns: Turns | None = None,
    ) -> None:
        self._stream = stream
        self._turns = turns
        self._write_timeout_s = write_timeout_s
        self._parts: list[BytesLike] = []
        self._sending = False
        self._closed = False
        self._writer = trio.lowlevel.ParkingLot()
        self._drained = trio.lowlevel.ParkingLot()
        self._owe = owe
        self.size = 0
        self.sent_at = trio.current_time()
        """When bytes were last handed to the kernel, or were put with none before them (trio's clock)."""

    def put(self, data: BytesLike) -> None:
        """Queue ``data``; it goes out with whatever else is queued until the writer task runs."""
        self.put_all((data,))

    def put_all(self, parts: Sequence[BytesLike]) -> None:
        """As :meth:`put`, all of them: an answer to a pull has a part for each message."""
        if self._closed or not parts:
            return
        if not self.size:
            self.sent_at = trio.current_time()
        self._parts += parts
        size = sum(map(len, parts))
        self.size += size
        self._owe(size)
        if self._writer:
            self._writer.unpark()

    def put_nowait(self, data: BytesLike) -> None:
        """Send ``data`` now if nothing is before it, which saves a task switch; queue what does not fit."""
        if self._sending or self._parts or self._closed:
            self.put(data)
            return
        try:
            taken = self._stream.send_nowait(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            taken = 0  # the writer task will meet the same error, and can raise it
        self.sent_at = trio.current_time()
        if taken < len(data):
            self.put(bytes(memoryview(data)[taken:]))  # a view would keep what is taken as well

    async def wait_below(self, size: int) -> None:
        """Wait until fewer than ``size`` bytes are queued, or the queue is closed."""
        while self.size >= size and not self._closed:
            await self._drained.park()
        await trio.lowlevel.checkpoint_if_cancelled()  # who waits again and again, of a queue that was closed, ends

    async def run(self) -> None:
        """Send what is put, until :meth:`close`.

        Raises:
            trio.BrokenResourceError: the peer is gone, or took nothing for ``write_timeout_s``.
        """
        try:
            while True:
                while not self._parts:
                    if self._closed:
                        return
                    await self._writer.park()
                await self._send_parts()
        except Exception as error:
            forget_locals(error)
            raise
        finally:
            self.close()
            self._owe(-self.size)
            self._parts = []
            self.size = 0  # nobody will take the rest, and nobody must wait until somebody does

    async def _send_parts(self) -> None:
        """Send what is queued now, and keep nothing of it."""
        parts, self._parts = self._parts, []
        self._sending = True
        for data, freed in _gather(parts):
            await self._send(data, freed)
        self._sending = False

    async def _send(self, data: BytesLike, freed: int) -> None:
        """Send ``data``; so many bytes are not kept any more then."""
        taken = await self._send_in_turn(data)
        if taken < len(data):
            with trio.move_on_after(self._write_timeout_s) as scope:  # as a rule none has to be set up
                await self._send_rest(memoryview(data)[taken:])
            if scope.cancelled_caught:
                waited_s = self._write_timeout_s
                raise trio.BrokenResourceError(f"slow reader: {len(data)} bytes not taken in {waited_s:g} s")
        self.sent_at = trio.current_time()
        self.size -= freed
        self._owe(-freed)
        self._drained.unpark_all()

    async def _send_rest(self, rest: memoryview) -> None:
        while rest:
            size = len(rest) if self._turns is None else _AFTER_A_WAIT_BYTES
            await self._stream.send_all(rest[:size])
            rest = rest[size:]
            if rest:
                rest = rest[await self._send_in_turn(rest) :]

    async def _send_in_turn(self, data: BytesLike) -> int:
        """The kernel copies a megabyte in half a millisecond; a thousand clients may have to take one."""
        turns = self._turns
        if turns is None or len(data) <= _COPIED_BYTES_MAX:
            return self._stream.send_nowait(data)
        if turns.taken_s >= PASS_S:
            await turns.wait()
        begun_at = trio.current_time()
        taken = self._stream.send_nowait(data)
        turns.taken_s += trio.current_time() - begun_at
        return taken

    def close(self) -> None:
        """Take nothing more. What is queued still goes out while :meth:`run` is running."""
        self._closed = True
        self._writer.unpark_all()
        self._drained.unpark_all()


def _gather(parts: list[BytesLike]) -> Iterator[tuple[BytesLike, int]]:
    """Join small neighbours; leave large ones, such as mapped log bytes, uncopied; send no more than 1 MiB at once.

    Takes out of ``parts`` what it has seen. With each piece goes what is kept no longer when it is sent: of a large
    part, with its last piece, all of it.
    """
    sizes = [len(part) for part in parts]
    if max(sizes) <= _COPIED_BYTES_MAX and sum(sizes) <= _GATHERED_BYTES_MAX:
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        yield data, len(data)
        return
    parts.reverse()
    small: list[BytesLike] = []
    size = 0
    while parts:
        part = parts.pop()
        is_large = len(part) > _COPIED_BYTES_MAX
        if not is_large:
            small.append(part)
            size += len(part)
        if small and (is_large or size >= _GATHERED_BYTES_MAX or not parts):
            data, freed = b"".join(small), size
            small, size = [], 0
            yield data, freed
        if is_large:
            yield from _pieces_of(part)


def _pieces_of(part: BytesLike) -> Iterator[tuple[BytesLike, int]]:
    view = memoryview(part)
    for at in range(0, len(view), _GATHERED_BYTES_MAX):
        end = at + _GATHERED_BYTES_MAX
        yield view[at:end], len(view) if end >= len(view) else 0
