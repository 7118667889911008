"""Takes a member's directories for the life of its process: others write into files of their own."""

from contextlib import ExitStack

from rmqha.dledger.dledger_config import DLedgerConfig
from rmqha.errors import StoreLockedError
from rmqha.store.disk import Closable, Disk


def lock_store(config: DLedgerConfig, disk: Disk) -> Closable:
    """The member's own directory, as DLedger knows it, and each of dataStorePath and readOnlyDataStoreDirs.

    Raises:
        StoreLockedError: another member uses one of them, or one was named twice.
        StoreWriteError: the disk does not let us.
    """
    with ExitStack() as taken:
        disk.makedirs(config.default_path)
        taken.callback(disk.lock(f"{config.default_path}/lock").close)
        for path in config.data_store_paths:
            disk.makedirs(path)
        for path in sorted({*config.data_store_paths, *config.read_only_paths}):
            if disk.exists(path):
                taken.callback(_lock_data(path, disk).close)
        return taken.pop_all()


def _lock_data(path: str, disk: Disk) -> Closable:
    try:
        return disk.lock_directory(path)
    except StoreLockedError as error:
        raise StoreLockedError(
            f"{path} (dataStorePath, readOnlyDataStoreDirs) is in use by another member, or named twice by way of a "
            "link: each member needs directories of its own"
        ) from error
