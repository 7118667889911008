"""DamagedRecords: looks, behind the pulls, and at what came unchecked from elsewhere, whether it is what was stored.

A pull answers with bytes as they lie in the log: where a disk has changed a body since, only its CRC tells, and of
consumers only some compare it, and tell nobody. So what pulls were given is checked here afterwards, a fiftieth of
the time: all of what is consumed slowly, and a part of what is consumed fast.
"""

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import structlog
import trio

from rmqha.codec.record.dispatch import DispatchRequest
from rmqha.codec.record.scan import Stop, scan_records
from rmqha.errors import StoreReadError
from rmqha.store.consume_queue import ConsumeQueue
from rmqha.store.log import Log

logger = structlog.get_logger()

_ANSWERS_MAX: Final = 256
"""The last ones that wait to be checked."""
_GATHER_S: Final = 0.5
"""From the first answer on; then all that came meanwhile are checked."""
_SHARE: Final = 50
"""Checking takes one part in this many of the time."""
_AT_ONCE: Final = 32
_BYTES_AT_ONCE: Final = 256 * 1024
"""Or as many records: less than a millisecond's work, unless one record is large."""
_PLACES_MAX: Final = 64
"""More are not looked for: by then the log is to be replaced as a whole."""


class DamagedRecords:
    """Which records were found damaged since the start. Each is logged once."""

    def __init__(self, log: Log) -> None:
        self._log: Final = log
        self._given: Final[deque[tuple[ConsumeQueue, int, int]]] = deque(maxlen=_ANSWERS_MAX)
        """By their places in queues: the records themselves would keep files mapped."""
        self._woken = trio.Event()
        self._places: Final[dict[int, str]] = {}

    def note_given(self, queue: ConsumeQueue, first: int, count: int) -> None:
        """Hot path: a pull was answered from these places of a queue."""
        if not self._given:
            self._woken.set()
        self._given.append((queue, first, count))

    def check_all(self, requests: Sequence[DispatchRequest]) -> None:
        """Hot path: check these records here and now."""
        for request in requests:
            self._check(request.commit_log_offset)

    async def run(self) -> None:
        """Check what pulls are given until cancelled."""
        while True:
            await self._woken.wait()
            await trio.sleep(_GATHER_S)
            self._woken = trio.Event()
            while self._given:
                queue, first, count = self._given.popleft()
                while count:
                    begun_at = trio.current_time()
                    checked = self._check_units(queue, first, count)
                    first, count = first + checked, count - checked
                    await trio.sleep((_SHARE - 1) * (trio.current_time() - begun_at))

    def _check_units(self, queue: ConsumeQueue, first: int, count: int) -> int:
        """Check some; returns how many, or all where they are gone, or cannot be read: who pulls them is told."""
        checked = size_checked = 0
        with suppress(StoreReadError):
            for offset, size, _ in queue.units(first, min(_AT_ONCE, count)):
                self._check(offset)
                checked, size_checked = checked + 1, size_checked + size
                if size_checked >= _BYTES_AT_ONCE:
                    break
        return checked or count

    def _check(self, offset: int) -> None:
        record = self._log.record_at(offset, end=self._log.max_offset)
        if record is None or offset in self._places or len(self._places) >= _PLACES_MAX:
            return
        scan = scan_records(record, 0, len(record), phy_offset_base=offset)
        if scan.stop is not Stop.END:
            self._places[offset] = scan.reason
            logger.error(
                "commit_log.record_damaged",
                offset=offset,
                reason=scan.reason,
                consequence="consumers that compare the CRC stop there, others take the message as it is",
                next="'rmqha log verify STORE' shows all such places; docs/operations.md, 'A damaged record'",
            )

    def offsets(self, min_offset: int) -> list[int]:
        """Where the damaged records lie that are still in the log, which begins at ``min_offset``."""
        for offset in [offset for offset in self._places if offset < min_offset]:
            del self._places[offset]
        return sorted(self._places)

    def describe(self, min_offset: int) -> str:
        """What was found, in a sentence; empty if there is nothing."""
        offsets = self.offsets(min_offset)
        if not offsets:
            return ""
        more = " or more" if len(offsets) == _PLACES_MAX else ""
        many = f"{len(offsets)}{more} records are" if len(offsets) > 1 else "a record is"
        return f"{many} damaged in its log, the first at offset {offsets[0]}: {self._places[offsets[0]]}"
