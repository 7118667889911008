"""TakeBackNotes: what a master's store says of tables that are yet to be taken back."""

from typing import NamedTuple

import structlog

from rmqha.errors import StoreReadError, StoreWriteError
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.store_note import StoreNote

logger = structlog.get_logger()


class TakeBackNotes(NamedTuple):
    """Files of the store, so that a start in between goes on with it."""

    taking: StoreNote
    """The tables of a new store, or of a part of the log, are not those of the group."""
    lost: StoreNote
    """Tables were lost beside a log, whatever was made since, and some peer is yet to tell its own."""
    older: StoreNote
    """Some of the tables are older than the log, likewise."""

    @classmethod
    def of(cls, store: DefaultMessageStore) -> "TakeBackNotes":
        """Those of a store, which makes the last one itself if it finds an older copy beside its log."""
        disk, root = store.disk, store.options.store_path_root_dir
        notes = cls(*(StoreNote(disk, f"{root}/{name}") for name in ("takesTablesBack", "tablesLost", "tablesOlder")))
        store.on_older_root = notes.note_older
        return notes

    def note_older(self) -> None:
        """Before the start that finds it makes all else as late as the log: it may be interrupted."""
        try:
            if not self.older.look():
                self.older.make()
        except (StoreReadError, StoreWriteError) as error:
            logger.warning("master_link.not_noted", reason=str(error))
