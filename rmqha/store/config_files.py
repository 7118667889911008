"""ConfigFiles: JSON tables on disk, in RocketMQ's forms and places.

    ROOT/config/topics.json            on change
    ROOT/config/consumerOffset.json    every flushConsumerOffsetInterval
    ROOT/config/delayOffset.json       likewise
    ROOT/config/queueEnds.json         on change (rmqha/broker/tables/queue_ends.py)
    ROOT/config/tablesOrigin.json   each minute (rmqha/broker/tables/metadata.py)
    ROOT/config/kvConfig.json          on change (rmqha/namesrv/kv_config_manager.py)

Each save writes a temporary file, syncs it and renames it; the former content, if it was good, stays as ``.bak``,
which is read when the file itself is missing, empty or does not parse, and that is said: it lacks the last change. If
that is no table either the broker begins without, and says so: the log is the truth. What the system does not let it
read may be a good one, which the first save would replace: then it does not start, whatever the backup is.

Source: spec: commitlog §11; rocketmq-all-4.9.8 ConfigManager.java, MixAll.java:190-240.
"""

import os
from collections.abc import Callable
from errno import ENOENT
from itertools import islice
from typing import Any, Final

import structlog
import trio

from rmqha.codec import java_json
from rmqha.errors import RemoteProtocolError, StoreWriteError
from rmqha.store.disk import Disk

logger = structlog.get_logger()

TOPICS: Final = "topics.json"
CONSUMER_OFFSET: Final = "consumerOffset.json"
QUEUE_ENDS: Final = "queueEnds.json"
DELAY_OFFSET: Final = "delayOffset.json"
SUBSCRIPTION_GROUP: Final = "subscriptionGroup.json"
TABLES_ORIGIN: Final = "tablesOrigin.json"

_PARTS_AT_ONCE: Final = 1000
"""A millisecond's work, more or less."""
_TURN_S: Final = 0.01
"""A turn takes as long as everybody else took before it, at most this: a busy broker would save for minutes."""


async def encode_in_turns(value: Any) -> bytes:
    """The JSON of a table, of which some have megabytes; it may be changed meanwhile, and everybody else goes on."""
    parts, texts = java_json.dump_parts(value), list[str]()
    ends_at = trio.current_time()
    while text := "".join(islice(parts, _PARTS_AT_ONCE)):
        texts.append(text)
        if (now := trio.current_time()) >= ends_at:
            await trio.lowlevel.checkpoint()
            back_at = trio.current_time()
            ends_at = back_at + min(back_at - now, _TURN_S)
    return "".join(texts).encode()


class ConfigFiles:
    """The files of one directory: a store's ``config``, or a name server's own."""

    def __init__(self, disk: Disk, directory: str, *, inside: str = "") -> None:
        """``inside``: the store, which is not made again: it was moved or removed, and is to be put back there."""
        self._disk = disk
        self._inside = inside
        self._directory = directory
        self._unreadable: set[str] = set()
        """Files that are no tables, or cannot be read: they never become backups."""
        self._kept: Final = set[str]()
        """Files that were good when they were loaded, or were saved since."""
        self._vanished: Final = set[str]()
        self.lost: Final[dict[str, str]] = {}
        """By name what was no table when it was loaded, and what was taken instead, a sentence each."""

    def load(self, name: str, take: Callable[[dict[str, Any]], object] = bool) -> dict[str, Any] | None:
        """The table of a file, or of its backup; None if neither is there and good.

        Args:
            name: of the file.
            take: told the table; if it raises RemoteProtocolError, the file is not good.

        Raises:
            StoreReadError: the system does not let it be read, or the backup of one that is missing, or no table.
        """
        reasons = list[str]()
        for file in (name, f"{name}.bak"):
            path = f"{self._directory}/{file}"
            if not self._disk.exists(path):
                continue
            try:
                value = self._read(path)
                take(value)
            except RemoteProtocolError as error:
                self._unreadable.add(file)
                logger.warning("config_file.unreadable", path=path, reason=str(error))
                reasons.append(str(error))
                continue
            if file != name:
                instead = "its backup was taken instead, which lacks the last change"
                self._note_lost(name, "; ".join(reasons) or "it is missing", instead)
            else:
                self._kept.add(name)
            return value
        if reasons:
            self._note_lost(name, reasons[0], "nor was its backup")
        return None

    def note_missing(self, name: str) -> None:
        """It is not there, and has to be: who uses this broker began with what is left."""
        path = f"{self._directory}/{name}"
        logger.warning("config_file.missing", path=path)
        self.lost.setdefault(
            name,
            f"{path} was missing when this broker started, though the log holds messages: topics, groups, consumers' "
            "offsets and ends of queues are those that the log tells of, or another broker of this group",
        )

    def has(self, name: str) -> bool:
        """Whether the file is there. Raises StoreReadError."""
        return self._disk.exists(f"{self._directory}/{name}")

    @property
    def _is_ours(self) -> bool:
        """Whether the store is still where it was, with its mark of one that is in use, and no other in its place."""
        return not self._inside or self._disk.exists(f"{self._inside}/abort")

    @property
    def kept(self) -> frozenset[str]:
        """What was there and good when it was loaded, or was saved since."""
        return frozenset(self._kept)

    def has_vanished(self, name: str) -> bool:
        """Whether a file that was there is not any more: somebody removed it. Told once. Raises StoreReadError."""
        if name not in self._kept or self.has(name) or not self._is_ours:
            self._vanished.discard(name)
            return False
        if name not in self._vanished:
            told = "it is saved again: a start without it would not know what is in it"
            logger.warning("config_file.vanished", path=f"{self._directory}/{name}", consequence=told)
        self._vanished.add(name)
        return True

    def modified_ms(self, name: str) -> int:
        """When the table that was loaded was written, in milliseconds since 1970; 0 if none was."""
        paths = (f"{self._directory}/{file}" for file in (name, f"{name}.bak") if file not in self._unreadable)
        return next((self._disk.mtime_ms(path) for path in paths if self._disk.exists(path)), 0)

    def _note_lost(self, name: str, reason: str, instead: str) -> None:
        path = f"{self._directory}/{name}"
        self.lost.setdefault(name, f"{path} was no table when this broker started ({reason}); {instead}")

    def _read(self, path: str) -> dict[str, Any]:
        value = java_json.loads(self._disk.read_bytes(path))
        if not isinstance(value, dict):
            raise RemoteProtocolError("it holds no JSON object")
        return value

    async def save(self, name: str, value: dict[str, Any]) -> None:
        """Make the table durable, keeping the former one as the backup.

        Raises:
            StoreWriteError: it was not saved; the former content is untouched.
        """
        path = f"{self._directory}/{name}"
        data = await encode_in_turns(value)
        if self._inside and not self._disk.exists(self._inside):
            raise StoreWriteError(OSError(ENOENT, os.strerror(ENOENT)), operation="find", path=self._inside)
        self._disk.makedirs(self._directory)
        if self._disk.exists(path):
            former = self._disk.read_bytes(path)
            if former == data:
                self._kept.add(name)
                return
            if name not in self._unreadable:
                await self._disk.replace_bytes_in_thread(f"{path}.bak", former)
        await self._disk.replace_bytes_in_thread(path, data)
        self._unreadable.discard(name)
        self._kept.add(name)
