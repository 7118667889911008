"""Whether a log's last file was removed, moved or replaced behind its broker's back.

Such a file is written and flushed as before, and is gone when its process ends: what was acknowledged would be nowhere.
"""

import errno
from collections.abc import Sequence
from typing import Protocol

from rmqha.errors import StoreWriteError
from rmqha.store.disk import DataFile


class HeldFile(Protocol):
    """One of a log's files."""

    @property
    def held(self) -> DataFile | None:
        """It, as long as it is open."""
        ...


def displaced_file(files: Sequence[HeldFile]) -> StoreWriteError | None:
    """What to fail with if the last of ``files`` is not found under its name any more; None: it is, or is not open.

    Raises:
        StoreReadError: the disk does not tell.
    """
    held = files[-1].held if files else None
    if held is None or held.is_in_place():
        return None
    cause = OSError(errno.ENOENT, "it, or its directory, was removed, moved or replaced while this process writes it")
    return StoreWriteError(cause, operation="find", path=held.path)
