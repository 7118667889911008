"""StoreNote: an empty file that is there while something holds that the next start has to know.

* ``consumequeue.erasing``: units of consume queues are being erased. A flush that fails leaves zeros that only the page
  cache has; a start that finds the file erases again.
* ``beganEmpty``: this log began empty while peers were away, and what they hold is unknown
  (rmqha/ha/catch_up_service.py).
* ``takesTablesBack``: a master whose store was empty has yet to hear its peers, or to take all of one's log and tables
  (rmqha/broker/classic/takes_tables_back.py).
* ``tablesLost``: ``config`` was gone beside a log, and no peer has told the tables of the group since (likewise).
* ``tablesOlder``: one table alone was gone, all are a copy put back, or a longer peer's could not be had (likewise).
* ``tablesNotTaken``: a slave has not had all of its master's tables, or lost some
  (rmqha/broker/classic/taken_tables.py).
* ``mastersTablesLost``: a slave has all that its master had, which had yet to be told what it lost (likewise).
"""

from typing import Final

from rmqha.store.disk import Disk


class StoreNote:
    """One of them. It is durable when it was made, and durably gone when it was removed."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk: Final = disk
        self._path: Final = path
        self.is_there = False
        """As far as this process has looked, or made it."""

    def look(self) -> bool:
        """Whether a process before has left it. Raises StoreReadError."""
        self.is_there = self._disk.exists(self._path)
        return self.is_there

    def make(self) -> None:
        """Call this before it begins to hold. Raises StoreWriteError."""
        if not self.is_there:
            self._disk.create(self._path, 0, sparse=True).close()
            self.is_there = True

    async def make_in_thread(self) -> None:
        """As :meth:`make`, without holding up the event loop."""
        if not self.is_there:
            (await self._disk.create_in_thread(self._path, 0, sparse=True)).close()
            self.is_there = True

    def remove(self) -> None:
        """Call this when it holds no more, durably. Raises StoreWriteError."""
        if self.is_there:
            self._disk.unlink(self._path)
            self.is_there = False

    async def remove_in_thread(self) -> None:
        """As :meth:`remove`, without holding up the event loop."""
        if self.is_there:
            await self._disk.unlink_in_thread(self._path)
            self.is_there = False
