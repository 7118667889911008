"""StoreLog: what a log brings along, so that a store can live on it; who composes a broker makes it."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from rmqha.store.cleaner import LogFiles
from rmqha.store.disk import Disk
from rmqha.store.flush_service import FlushedLog
from rmqha.store.log import Log
from rmqha.store.open_files import OpenFiles
from rmqha.store.running_flags import RunningFlags
from rmqha.store.store_options import StoreOptions


class Service(Protocol):
    """What has a task of its own."""

    async def run(self) -> None:
        """Until cancelled."""
        ...


class StoreGround:
    """What the log and all other parts of a store stand on; made first, for one life.

    Attributes:
        running_flags: what has failed, or is lacking.
        open_files: shared by all that compete for descriptors.
    """

    def __init__(self, options: StoreOptions, disk: Disk, *, now_ms: Callable[[], int]) -> None:
        """Nothing is opened yet.

        Args:
            options: the operator's decisions.
            disk: the door to files.
            now_ms: the door to wall-clock time.
        """
        self.options: Final = options
        self.disk: Final = disk
        self.now_ms: Final = now_ms
        self.running_flags: Final = RunningFlags()
        self.open_files: Final = OpenFiles(options.open_files_max)


class StoreLog(Log, FlushedLog, Protocol):
    """A log that can be flushed and cleaned. When that is done is the store's business, and the same for all logs.

    A write or a cut of its own that the disk refused it reports to ``StoreGround.running_flags``; those of a flush the
    store reports.

    The classic one is made by :func:`~rmqha.store.classic_log.make_classic_log`.
    """

    @property
    def files(self) -> LogFiles:
        """What cleaning deletes, oldest first; their directory is looked at for space."""
        ...

    @property
    def to_lock(self) -> Sequence[str]:
        """Directories that the store takes for itself before it is loaded; not those that the log takes itself."""
        ...

    @property
    def services(self) -> Sequence[Service]:
        """What runs beside it while the store serves: in the classic log what makes the next segment."""
        ...

    def prepare_first(self) -> None:
        """Have made what an empty log's first put needs, before it comes."""
        ...

    async def wait_allocated(self) -> None:
        """Return when the rest of what a put or :meth:`append_raw` did not take is worth another try."""
        ...

    def close(self) -> None:
        """Fail who waits for :attr:`wrote` or :attr:`flushed`, and close every file. Idempotent."""
        ...
