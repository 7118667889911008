"""Where a store's commitlog is, whatever directory the operator named."""

import fcntl
import os
import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rmqha.cli.errors import CliError

if TYPE_CHECKING:
    from rmqha.codec.deleted_topic import DeletedQueue
    from rmqha.config import BrokerConfig
    from rmqha.store.consume_queue_table import QueueKey
    from rmqha.store.disk import Disk

_FLOCK: Final = struct.Struct("hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length, pid


def commit_log_directory(path: str) -> str:
    """Return the directory of the commitlog's files for a store, or for that directory itself.

    Raises:
        CliError: there is no commitlog.
    """
    directory = Path(path)
    if not directory.is_dir():
        raise CliError(f"{path} is no directory", hint="name a store (storePathRootDir) or its commitlog directory")
    if (directory / "commitlog").is_dir():
        return str(directory / "commitlog")
    if any(len(entry.name) == 20 and entry.name.isdigit() for entry in directory.iterdir()):
        return path
    if member := member_directory(path):
        raise CliError(
            f"there is no commitlog in {path}",
            why="its broker is a member of a DLedger group, whose messages are in entries",
            hint=f"read them with 'rmqha dledger dump {member}', or 'rmqha replay'",
        )
    raise CliError(
        f"there is no commitlog in {path}",
        why="it has neither a directory 'commitlog' nor files named by 20 digits",
        hint="name a store (storePathRootDir) or its commitlog directory; 'rmqha dledger dump' reads a DLedger store",
    )


def member_directory(path: str) -> str | None:
    """Return the ``dledger-ID`` of the store, if its broker is a member of a group.

    Then its commitlog is an old one: behind it, and in the consume queues, the group's entries go on.
    """
    directory = Path(path)
    stores = [directory, directory.resolve().parent] if directory.name == "commitlog" else [directory]
    members = [member for store in stores for member in sorted(store.glob("dledger-*"))]
    return next((str(member) for member in members if any(member.glob("data/[0-9]*"))), None)


def queue_directory(path: str) -> str:
    """Return where the consume queues of a store are.

    Raises:
        CliError: there are none.
    """
    directory = Path(path) / "consumequeue"
    if not directory.is_dir():
        raise CliError(f"there are no consume queues in {path}", hint="name the store's directory (storePathRootDir)")
    return str(directory)


def has_queues(path: str) -> bool:
    """Whether there are consume queues to compare."""
    return (Path(path) / "consumequeue").is_dir()


def deleted_queues(disk: "Disk", path: str) -> "dict[QueueKey, DeletedQueue]":
    """Which messages of the store's queues were deleted with their topic."""
    from rmqha.broker.tables.topic_config import TopicTable  # noqa: PLC0415
    from rmqha.store.config_files import TOPICS, ConfigFiles  # noqa: PLC0415

    saved = ConfigFiles(disk, f"{path}/config").load(TOPICS, TopicTable.from_json)
    deleted = TopicTable.from_json(saved).deleted if saved is not None else {}
    return {key: queue for topic, one in deleted.items() for key, queue in one.queues(topic).items()}


def is_in_use(path: str) -> bool:
    """Whether a process holds the store's lock, i.e. a broker runs on it. Asks only, and takes no lock."""
    return lock_holder(path) is not None


def lock_holder(path: str) -> int | None:
    """The process that holds the store's lock; 0: one without a number here, as in a container. None: nobody does."""
    try:
        with (Path(path) / "lock").open("rb") as file:
            answer = fcntl.fcntl(file, fcntl.F_GETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
    except OSError:
        return None
    kind, *_, pid = _FLOCK.unpack(answer)
    return None if kind == fcntl.F_UNLCK else max(int(pid), 0)


def other_store(config: "BrokerConfig", own: dict[str, Any]) -> str:
    """In what the store of the broker that runs is another one than its file says; empty if it does not say so."""
    told = own.get("store")
    if not isinstance(told, dict):
        return ""
    named = {"storePathRootDir": config.store_path_root_dir, "storePathCommitLog": config.store_path_commit_log}
    wrong = [(key, told[key], os.path.realpath(path)) for key, path in named.items() if key in told]
    return "; ".join(f"its {key} is {there}, the file's is {here}" for key, there, here in wrong if there != here)
