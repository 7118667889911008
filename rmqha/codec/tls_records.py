"""TlsRecords: what was received of a TLS stream, a few records at a time.

    at  size  field
     0     1  type
     1     2  version
     3     2  length of what follows

To take a record in may be dear however small it is: one of 27 bytes can ask for new keys.

Source: RFC 8446 §5.1; RFC 5246 §6.2.1.
"""

from typing import Final

from rmqha.memory import new_buffer

_HEADER_SIZE: Final = 5
_SIZE_MAX: Final = 16 * 1024 + 512
"""Of a whole record, more or less."""
RECORDS_AT_ONCE: Final = 16
"""New keys take some 50 us."""


class TlsRecords:
    """Cuts at the records' ends, and between them. Knows nothing of what they hold."""

    def __init__(self) -> None:
        self._buffer = new_buffer(_SIZE_MAX)
        self._begin = self._end = 0
        """What was received, and is not taken yet."""
        self._left = 0
        """Bytes of a record begun that are not taken yet."""

    @property
    def more(self) -> bool:
        """Whether :meth:`take` gives anything."""
        return min(self._next_end(), self._end) > self._begin

    def space(self) -> memoryview:
        """Where to receive, when nothing is left to take; then call :meth:`on_received` at once."""
        held = bytes(self._buffer[self._begin : self._end])
        self._begin, self._end = 0, len(held)
        self._buffer[: len(held)] = held
        return self._buffer[len(held) :]

    def on_received(self, count: int) -> None:
        """So many bytes were put into :meth:`space`."""
        self._end += count

    def take(self) -> memoryview:
        """The next few records, of which the first and the last may be parts; empty if there is no whole header."""
        begin, end = self._begin, self._next_end()
        self._begin, self._left = min(end, self._end), max(end - self._end, 0)
        return self._buffer[begin : self._begin]

    def _next_end(self) -> int:
        """Where the last of the next few records ends, whether that is received or not."""
        at = self._begin + self._left
        for _ in range(RECORDS_AT_ONCE):
            if at + _HEADER_SIZE > self._end:
                break
            at += _HEADER_SIZE + int.from_bytes(self._buffer[at + 3 : at + _HEADER_SIZE], "big")
        return at
