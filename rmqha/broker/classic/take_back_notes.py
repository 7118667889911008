"""TakeBackNotes: what a master's store says of tables that are yet to be taken back."""

from typing import NamedTuple

from rmqha.store.disk import Disk
from rmqha.store.store_note import StoreNote


class TakeBackNotes(NamedTuple):
    """Files of the store, so that a start in between goes on with it."""

    taking: StoreNote
    """The tables of a new store, or of a part of the log, are not those of the group."""
    lost: StoreNote
    """Tables were lost beside a log, whatever was made since, and some peer is yet to tell its own."""
    older: StoreNote
    """Some of the tables are older than the log, likewise."""

    @classmethod
    def below(cls, root: str, disk: Disk) -> "TakeBackNotes":
        """Those of the store whose ``storePathRootDir`` that is."""
        return cls(*(StoreNote(disk, f"{root}/{name}") for name in ("takesTablesBack", "tablesLost", "tablesOlder")))
