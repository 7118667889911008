"""What ``rmqha log verify`` reads: the logs of a store, as it lies there or as its broker.conf says."""

import errno
from pathlib import Path
from typing import NamedTuple

from rmqha.broker.dledger.dledger_options import member_options
from rmqha.cli.errors import CliError
from rmqha.cli.store_place import commit_log_directory, member_directory
from rmqha.config import load_config
from rmqha.errors import StoreReadError
from rmqha.exit_codes import EXIT_USAGE


class NothingThereError(CliError):
    """There is no log, or none that may be read: nothing was found good or bad."""

    exit_code = EXIT_USAGE


class LogPlaces(NamedTuple):
    """Where the logs of one broker are."""

    root: str
    """Of the store: with the queues, the checkpoint and the lock."""
    commit_log: str
    """The directory of the classic log's segments; a member of a group may have none."""
    member: str = ""
    """The directory ``dledger-ID``; empty: of a classic broker."""
    data: tuple[str, ...] = ()
    """The directories of its data files."""


def places_of_store(path: str) -> LogPlaces:
    """Of a store, its commitlog directory, or a member's ``dledger-ID``.

    Raises:
        CliError: there is none of these.
    """
    directory = Path(path)
    if directory.name.startswith("dledger-") and (directory / "data").is_dir():
        return LogPlaces(path, f"{path}/commitlog", path, (f"{path}/data",))
    member = member_directory(path) if directory.name != "commitlog" else None
    if member is not None:
        return LogPlaces(path, f"{path}/commitlog", member, (f"{member}/data",))
    try:
        return LogPlaces(path, commit_log_directory(path))
    except CliError as error:
        hint = "name a store (storePathRootDir); or its broker.conf with -c FILE, if its log lies elsewhere"
        raise NothingThereError(f"nothing to verify: {error.message}", why=error.why, hint=hint) from None


def places_of_config(path: Path) -> LogPlaces:
    """Of the broker that starts by this file.

    Raises:
        ConfigError: no broker could.
        CliError: none has started so far, or its disk is not there.
    """
    config = load_config(path)
    root, commit_log = config.store_path_root_dir, config.store_path_commit_log
    places = LogPlaces(root, commit_log)
    if config.enable_dleger_commit_log:
        store = member_options(config).store
        places = LogPlaces(root, commit_log, store.default_path, (*store.data_store_paths, *store.read_only_paths))
    if not any(Path(directory).is_dir() for directory in (commit_log, *places.data)):
        raise NothingThereError(
            f"nothing to verify: there is no directory {', '.join(places.data) or commit_log}",
            why=f"no broker has started with {path}, or a disk is not mounted",
            hint="is the right disk mounted there, and the file that of the broker?",
        )
    return places


def not_readable(error: StoreReadError | PermissionError, root: str) -> Exception:
    """What to raise where a file of the log cannot be read: of one that this user may not read nothing is known.

    ``root`` is the store, or, where not even that is known, what was named.
    """
    if error.errno not in {errno.EACCES, errno.EPERM}:
        return error
    hint = f"run it as the owner of {root}: 'sudo -u USER rmqha log verify ...'"
    return NothingThereError(f"nothing was verified: {error}", hint=hint)
