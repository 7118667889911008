"""DamagedHalves: half messages that are damaged in the log, so that nobody can commit them, nor ask about them.

Each is told once, when a round of questions meets it, or a request to end it.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Any, Final

import structlog

from rmqha.broker.transaction.fates import Fates
from rmqha.broker.transaction.half_message import place_of
from rmqha.broker.transaction.own_queue import OwnQueue
from rmqha.codec.properties import KEYS, PGROUP, REAL_TOPIC, UNIQ_KEY, find_property
from rmqha.errors import StoreReadError
from rmqha.log_limit import LogLimit
from rmqha.store.message_store import DefaultMessageStore

logger = structlog.get_logger()

_COUNTED_MAX: Final = 10_000
"""More say nothing more."""
_NAMES: Final = {"topic": REAL_TOPIC, "group": PGROUP, "keys": KEYS, "unique_key": UNIQ_KEY}
_CONSEQUENCE: Final = "its producer is not asked, and nobody can commit it"
_NEXT: Final = "docs/operations.md, 'A damaged half message'"


class DamagedHalves:
    """Those that were met since the start."""

    def __init__(self, store: DefaultMessageStore, halves: OwnQueue) -> None:
        self._store: Final = store
        self._halves: Final = halves
        self._lines: Final = LogLimit()

    def note_all(self, places: Iterable[int], fates: Fates) -> None:
        """No half messages can be read at these places; those that have ended are no matter."""
        for place in islice(places, _COUNTED_MAX):
            if not fates.has_ended(place):
                self.note(place)

    def note(self, place: int) -> str:
        """The half message at this place is; returns what its producer is told."""
        known = self._store.stats.damaged_halves
        if place not in known and len(known) < _COUNTED_MAX:
            known.add(place)
            facts = self._facts_of(place) | {"consequence": _CONSEQUENCE, "next": _NEXT}
            self._lines.log(logger.error, "transaction.half_damaged", half_offset=place, **facts)
        return f"half message {place} is damaged in the log, and cannot be committed: {_NEXT}"

    def _facts_of(self, place: int) -> dict[str, Any]:
        """Where it lies, and what can be read of it."""
        try:
            offset = self._halves.position_of(place)
            log = self._store.commit_log
            record = None if offset is None else log.record_at(offset, end=log.max_offset)
        except StoreReadError:
            return {}
        facts: dict[str, Any] = {"offset": offset}
        if record is not None:
            properties = place_of(record).properties
            values = {fact: find_property(properties, name.encode()) or b"" for fact, name in _NAMES.items()}
            facts |= {fact: value.decode(errors="replace") for fact, value in values.items()}
        return facts
