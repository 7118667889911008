"""DamagedRecords: looks, behind the pulls, whether what they were given is what was stored.

A pull answers with bytes as they lie in the log: where a disk has changed a body since, only its CRC tells, and of
consumers only some compare it, and tell nobody. So of what pulls are given some is checked here afterwards, ten
answers a second: all of what is consumed slowly, a part of what is consumed fast, and sooner or later what a consumer
asks for again and again.
"""

from collections.abc import Sequence
from typing import Final

import structlog
import trio

from rmqha.codec.record.layout import physical_offset_at
from rmqha.codec.record.scan import Stop, scan_records
from rmqha.errors import StoreReadError
from rmqha.store.log import Log

logger = structlog.get_logger()

_PAUSE_S: Final = 0.1
"""Between two answers, each of which may have 256 KiB: less than a millisecond's work."""
_PLACES_MAX: Final = 64
"""More are not looked for: by then the log is to be replaced as a whole."""


class DamagedRecords:
    """Which records were found damaged since the start. Each is logged once."""

    def __init__(self, log: Log) -> None:
        self._log: Final = log
        self._given: list[int] = []
        """Where the records of one answer lie that is to be checked next. They themselves would keep files mapped."""
        self._woken = trio.Event()
        self._places: Final[dict[int, str]] = {}

    def note_given(self, records: Sequence[memoryview]) -> None:
        """Hot path: a pull was given these."""
        if not self._given:
            self._given = [physical_offset_at(record) for record in records]
            self._woken.set()

    async def run(self) -> None:
        """Check what pulls are given until cancelled."""
        while len(self._places) < _PLACES_MAX:
            await self._woken.wait()
            for offset in self._given:
                self._check(offset)
            await trio.sleep(_PAUSE_S)
            self._given, self._woken = [], trio.Event()

    def _check(self, offset: int) -> None:
        try:
            record = self._log.record_at(offset, end=self._log.max_offset)
        except StoreReadError:
            return  # who pulls it again is told
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
        many = f"{len(offsets)} records are" if len(offsets) > 1 else "a record is"
        more = " or more" if len(offsets) == _PLACES_MAX else ""
        return f"{many}{more} damaged in its log, the first at offset {offsets[0]}: {self._places[offsets[0]]}"
