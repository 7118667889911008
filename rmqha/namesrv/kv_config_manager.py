"""KVConfigManager: names and values that operators keep in a name server, by namespace. All that it has on disk.

    {"configTable":{NAMESPACE:{KEY:VALUE}}}

Source: rocketmq-all-4.9.8 KVConfigManager.java, KVConfigSerializeWrapper.java.
"""

from typing import Any, Final

import structlog
import trio

from rmqha.errors import RemoteProtocolError, StoreReadError, StoreWriteError
from rmqha.replication.watermark import Watermark
from rmqha.shares import Room
from rmqha.store.config_files import ConfigFiles

logger = structlog.get_logger()

KV_CONFIG: Final = "kvConfig.json"
NAMESPACE_ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
SIZE_MAX: Final = 4 * 1024 * 1024
"""Bytes, more or less: the file is written anew at each change."""
_ENTRY_SIZE: Final = 64
_TRY_AGAIN_S: Final = 1.0
_MEANS_ELSE: Final = frozenset({"$ref", "@type"})
"""Fastjson, and what reads as it does, takes them for a reference or a class, and then reads nothing of the table."""


def decode_kv_config(value: dict[str, Any]) -> dict[str, dict[str, str]]:
    """The table of a file, by namespace. Raises RemoteProtocolError: it is none."""
    try:
        namespaces = (value.get("configTable") or {}).items()
        return {name: {str(key): str(text) for key, text in entries.items()} for name, entries in namespaces}
    except AttributeError as error:
        raise RemoteProtocolError(f"it is no table of names and values: {error}") from None


class KVConfigManager:
    """Invariant: ``_room``, the sum of the entries' sizes, is at most :data:`SIZE_MAX`; shared by those who add.

    Attributes:
        changes: how many there were.
        saved: so many of them are on the disk; waiters are told when a save succeeds, and when it fails.
        problem: why the last save failed; empty if it did not.
    """

    def __init__(self, files: ConfigFiles, name: str = KV_CONFIG) -> None:
        self._files: Final = files
        self._name: Final = name
        self._table: dict[str, dict[str, str]] = {}
        self._hosts: Final[dict[tuple[str, str], str]] = {}
        """Who added an entry; nobody knows that of what was in the file."""
        self._room: Final = Room("what is stored", of_host="what {host} stored", size_max=SIZE_MAX)
        self._changed = trio.Event()
        self.changes = 0
        self.saved: Final = Watermark()
        self.problem = ""

    def load(self) -> None:
        """Read what was saved; a file that is missing or broken is none. Raises StoreReadError: it may not be read."""
        self._files.load(self._name, self._take)

    def _take(self, value: dict[str, Any]) -> None:
        self._table = table = decode_kv_config(value)
        self._room.size = sum(
            _size(name, key, text) for name, entries in table.items() for key, text in entries.items()
        )

    def get_kv_config(self, namespace: str, key: str) -> str | None:
        """A value; None if there is none."""
        return self._table.get(namespace, {}).get(key)

    def get_kv_list_by_namespace(self, namespace: str) -> dict[str, str]:
        """All keys and values of a namespace."""
        return self._table.get(namespace, {})

    def put_kv_config(self, namespace: str, key: str, *, value: str, host: str) -> None:
        """Set a value, which a client on ``host`` asks for; :meth:`run` saves it.

        Raises:
            RemoteProtocolError: there is no room for it, or no table can have such a name; nothing has changed.
        """
        if not _MEANS_ELSE.isdisjoint((namespace, key)):
            raise RemoteProtocolError(f"key {key:.80} is not stored: in JSON $ref and @type are no names")
        former = self.get_kv_config(namespace, key)
        size = _size(namespace, key, value)
        former_size = 0 if former is None else _size(namespace, key, former)
        if problem := self._room.problem(host, size - former_size):
            raise RemoteProtocolError(f"key {key:.80} is not stored: {problem}")
        self.delete_kv_config(namespace, key)
        self._table.setdefault(namespace, {})[key] = value
        self._hosts[namespace, key] = host
        self._room.add(host, size)

    def delete_kv_config(self, namespace: str, key: str) -> None:
        """Remove a value, if it is there; :meth:`run` saves that."""
        self.changes += 1
        self._changed.set()
        entries = self._table.get(namespace, {})
        if (former := entries.pop(key, None)) is None:
            return
        if not entries:
            del self._table[namespace]
        self._room.add(self._hosts.pop((namespace, key), ""), -_size(namespace, key, former))

    async def run(self) -> None:
        """Save what is changed, until cancelled; what fails is told once, and tried again.

        Those who wait together share a write, and a disk that does not answer keeps nobody but them.
        """
        while True:
            await self._changed.wait()
            self._changed = trio.Event()
            try:
                await self._save()
            except (StoreWriteError, StoreReadError) as error:
                if str(error) != self.problem:
                    logger.warning("kv_config.not_saved", reason=str(error))
                self.problem = str(error)
                self.saved.fail_all()
                await trio.sleep(_TRY_AGAIN_S)
                self._changed.set()

    async def _save(self) -> None:
        changes, table = self.changes, {name: dict(entries) for name, entries in self._table.items()}
        await self._files.save(self._name, {"configTable": table})
        self.problem = ""
        self.saved.advance(changes)


def _size(namespace: str, key: str, value: str) -> int:
    return _ENTRY_SIZE + 4 * (len(namespace) + len(key) + len(value))
