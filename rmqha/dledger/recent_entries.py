"""RecentEntries. Hot path: what a leader has just appended, as its file has it: it need not be read for each follower.

DLedger reads each entry from its file once for each follower, and writes it as JSON as often.
"""

from collections import deque
from typing import Final

from rmqha.codec.dledger_entry import DLedgerEntry

BYTES_MAX: Final = 4 << 20
COUNT_MAX: Final = 4096
"""Followers that are farther behind are served from the files."""


class RecentEntries:
    """The last entries of a log, each as it is in the file; together with their JSON they take up to 10 MiB."""

    def __init__(self) -> None:
        self._entries: Final[deque[DLedgerEntry]] = deque()
        self._bytes = 0

    def put(self, entry: DLedgerEntry) -> None:
        """Add the log's new last entry, which nobody changes any more."""
        entries = self._entries
        if entries and entries[-1].index + 1 != entry.index:
            self.clear()
        entries.append(entry)
        self._bytes += entry.size
        while self._bytes > BYTES_MAX or len(entries) > COUNT_MAX:
            self._bytes -= entries.popleft().size

    def get(self, index: int) -> DLedgerEntry | None:
        """The entry of that index, if it is among them."""
        entries = self._entries
        if not entries or not 0 <= (at := index - entries[0].index) < len(entries):
            return None
        return entries[at]

    def clear(self) -> None:
        """The log was cut, or is another one."""
        self._entries.clear()
        self._bytes = 0
