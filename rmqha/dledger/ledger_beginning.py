"""LedgerBeginning: what lies before a ledger's first entry: nothing, or a broker's old commitlog."""

from typing import Final

from rmqha.codec.dledger_entry import DLedgerEntry

WHAT_NEXT: Final = (
    "Nothing was changed, and no member copies such a log to another. Find out who has the right one; stop the member "
    "that has not, and give it a copy of the whole store of one that has (storePathRootDir, its dledger-ID renamed)"
)


class LedgerBeginning:
    """Nothing. Of a broker's ledger: :class:`~rmqha.dledger.old_commit_log.OldCommitLog`."""

    @property
    def is_there(self) -> bool:
        """Whether anything lies before it, at present."""
        return False

    @property
    def properties_raw(self) -> bytes:
        """What the first entry of an empty ledger tells other members of it, as properties of its message."""
        return b""

    def problem(self, first: DLedgerEntry) -> str:
        """Why an entry of index 0 that a leader has cannot follow it; empty if it can."""
        del first
        return ""

    def drop(self) -> None:
        """The ledger begins anew, far behind it: it goes. Raises StoreWriteError."""
