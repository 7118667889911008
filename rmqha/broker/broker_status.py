"""What a broker tells about itself: RocketMQ's runtime table (28), and our status document inside it.

Source: spec: remoting §2.7 (28); decision 8. The document's members are listed in rmqha/cli/verdict.py.
"""

import json
import os
from collections.abc import Callable
from math import ceil
from typing import Any, Final

from rmqha import __version__
from rmqha.broker.acl.plain_permission_manager import PlainPermissionManager
from rmqha.broker.broker_stats_manager import BrokerStatsManager
from rmqha.broker.replication import Replication
from rmqha.broker.tables.metadata import MetadataService
from rmqha.certificates import first_to_expire, not_valid_yet, why_kept
from rmqha.codec.codes import STATUS_KEY
from rmqha.codec.remoting import VERSION
from rmqha.config import BrokerConfig
from rmqha.remoting.fence import Fence
from rmqha.store.message_store import DefaultMessageStore

_VERSION_DESC: Final = "V4_9_8"
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode

_NO_POOL: Final = "2147483647"
"""What RocketMQ tells where no pool of transient buffers is used."""
_UNKNOWN_RATIO: Final = -1.0
_QUEUES: Final = ("send", "pull", "query")
_ABSENT: Final = dict.fromkeys(
    [f"{name}ThreadPoolQueue{what}" for name in _QUEUES for what in ("Size", "Capacity", "HeadWaitTimeMills")]
    + ["EndTransactionQueueSize", "EndTransactionThreadPoolQueueCapacity", "pageCacheLockTimeMills"]
    + ["startAcceptSendRequestTimeStamp"],
    "0",
)
"""mqadmin and the exporter fail without them. Here nothing waits for a thread, or for a lock."""
_UNITS: Final = "KMGTPE"


class BrokerStatus:
    """Reads the running parts when asked; holds no figures of its own.

    Attributes:
        more: further entries of the table, of parts that this one does not know.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: DefaultMessageStore,
        replication: Replication,
        *,
        tables: MetadataService,
        fence: Fence,
        stats: BrokerStatsManager,
        address: str,
        clock: Callable[[], float],
        now_ms: Callable[[], int],
        permissions: PlainPermissionManager | None,
        crowded: Callable[..., str],
    ) -> None:
        self._config = config
        self._store = store
        self._replication = replication
        self._tables = tables
        self._fence = fence
        self._stats = stats
        self.more: Final = list[Callable[[], dict[str, str]]]()
        self._group = replication.group
        self._address = address
        self._clock = clock
        self._now_ms = now_ms
        self._permissions = permissions
        self._crowded = crowded
        self._started_at = clock()
        self._boot_ms = now_ms()
        directories = {
            "storePathRootDir": config.store_path_root_dir,
            "storePathCommitLog": config.store_path_commit_log,
        }
        self._directories: Final = {key: os.path.realpath(path) for key, path in directories.items()}

    def runtime_table(self) -> dict[str, str]:
        """RocketMQ's keys, of which mqadmin and the exporter insist on most, and ``rmqhaStatus``."""
        store = self._store
        table = {
            "brokerVersion": str(VERSION),
            "brokerVersionDesc": _VERSION_DESC,
            "bootTimestamp": str(self._boot_ms),
            "commitLogMaxOffset": str(store.max_offset),
            "commitLogMinOffset": str(store.min_offset),
            "dispatchBehindBytes": str(store.max_offset - store.reput_from_offset),
            "earliestMessageTimeStamp": str(store.earliest_message_time_ms()),
            "remainHowManyDataToFlush": readable_bytes(store.max_offset - store.flushed_offset),
            "remainTransientStoreBufferNumbs": _NO_POOL,
            "runtime": _readable_time(int(self._clock() - self._started_at)),
            STATUS_KEY: _encode(self.document()),
        }
        table |= _ABSENT | store.stats.runtime_info() | dict(self._stats.runtime_info()) | self._disks()
        for more in self.more:
            table |= more()
        return dict(sorted(table.items()))

    def _disks(self) -> dict[str, str]:
        """The disks as the cleaning last saw them; of what it could not see -1, as RocketMQ tells it."""
        cleaner, log_directory = self._store.cleaner, self._store.commit_log.files.directory
        log, queues = cleaner.log_disk, cleaner.queues_disk
        log_ratio = str(log.used_percent / 100 if log is not None else _UNKNOWN_RATIO)
        capacity = readable_bytes(log.total if log is not None else 0)
        free = readable_bytes(log.available if log is not None else 0)
        return {
            "commitLogDiskRatio": log_ratio,
            f"commitLogDiskRatio_{log_directory}": log_ratio,
            "consumeQueueDiskRatio": str(queues.used_percent / 100 if queues is not None else _UNKNOWN_RATIO),
            "commitLogDirCapacity": f"Total : {capacity}, Free : {free}.",
        }

    def document(self) -> dict[str, Any]:
        """Everything `rmqha status` judges by. Seconds and bytes; None where something does not apply."""
        config, store = self._config, self._store
        return {
            "version": __version__,
            "broker_name": self._group.broker_name,
            "broker_cluster_name": config.broker_cluster_name,
            "broker_id": config.broker_id,
            "role": config.broker_role.value,
            "address": self._address,
            "store": self._directories,
            "mapped_file_size_commit_log": config.mapped_file_size_commit_log,
            "group_clashes": self._group.clashes(now=self._clock()),
            "lacking_slaves": self._group.lacking_slaves(now=self._clock()),
            "slave_troubles": self._group.troubles(now=self._clock()),
            "shared_ids": self._group.shared_ids(now=self._clock()),
            "flush_disk_type": config.flush_disk_type.value,
            "in_sync_replicas": config.in_sync_replicas,
            "up_s": round(self._clock() - self._started_at, 3),
            "min_offset": store.min_offset,
            "max_offset": store.max_offset,
            "flushed_offset": store.flushed_offset,
            "confirm_offset": store.confirm_offset(),
            **self._dispatch(),
            "write_refusal": self._refusal() or None,
            "not_send_ok": store.stats.unsafe_puts.facts(now=self._clock()),
            "needs_restart": store.running_flags.final_error is not None,
            "lost_queues": store.queue_rebuild.describe() or None,
            "stopped_queues": store.queues.stopped.describe() or None,
            "damaged_records": store.damaged_records.describe(store.min_offset) or None,
            "dropped": store.dropped or None,
            "undeliverable": _undeliverable(store.stats.undeliverable_messages) or None,
            **self._transactions(),
            "hidden_messages": store.hidden_messages(),
            "deleted_early": store.cleaner.early.facts(now=self._clock()),
            **self._wall_clock(),
            "topics_refused": self._tables.topics.refused.facts(now_ms=self._now_ms()),
            "index_trouble": store.index.trouble or None,
            "not_saved": self._tables.trouble or None,
            "lost_tables": "; ".join(self._tables.lost) or None,
            "no_inodes": store.cleaner.inodes.trouble or None,
            "disk_used_percent": store.disk_used_percent,
            "disk_unknown": store.cleaner.disk_unknown or None,
            "disk_looked_s_ago": round(self._clock() - store.cleaner.disk_looked_at, 3),
            "put_p99_ms": store.stats.put_times.recent_latency_ms(0.99),
            "requests_broken": self._fence.bugs,
            "crowded": self._crowded(now=self._clock()) or None,
            **self._certificates(),
            "certificates_kept": why_kept() or None,
            "accounts_kept": (self._permissions and self._permissions.not_read) or None,
        } | self._replication.facts()

    def _dispatch(self) -> dict[str, Any]:
        reput = self._store.reput
        return {
            "dispatched_offset": reput.reput_from_offset,
            "dispatch_behind_s": round(reput.behind_s(self._clock()), 1),
        }

    def _wall_clock(self) -> dict[str, Any]:
        return {"clock_ms": self._now_ms(), "clock_jumped_s": round(self._store.cleaner.clock.jumped_ms / 1000) or None}

    def _transactions(self) -> dict[str, Any]:
        stats = self._store.stats
        return {
            "damaged_halves": _damaged_halves(len(stats.damaged_halves)) or None,
            "damaged_marks": _damaged_marks(len(stats.damaged_marks)) or None,
            "discarded_halves": stats.discarded_halves.facts(now=self._clock()),
        }

    def _refusal(self) -> str:
        """Why sends are refused; a slave's role is no reason here."""
        store = self._store
        if not store.role.is_master:
            return store.running_flags.refusal()
        return store.refusal() or self._replication.refusal()

    def _certificates(self) -> dict[str, Any]:
        """Of those that this process shows, the one that ends first, and the last to begin, if that is to come."""
        now_s, first = self._now_ms() / 1000, first_to_expire()
        early = not_valid_yet(now_s=now_s)
        return {
            "certificate": first and {"path": first.path, "expires_in_s": round(first.ends_s - now_s)},
            "early_certificate": early and {"path": early.path, "begins_in_s": ceil(early.begins_s - now_s)},
        }


def _undeliverable(count: int) -> str:
    if not count:
        return ""
    were = "delayed message was" if count == 1 else "delayed messages were"
    return f"{count:,} {were} left out since the start, never to be delivered (schedule.undeliverable in the log)"


def _damaged_halves(count: int) -> str:
    if not count:
        return ""
    are = "a half message is" if count == 1 else f"{count:,} half messages are"
    return f"{are} damaged: nobody can commit them, and no producer is asked (transaction.half_damaged in the log)"


def _damaged_marks(count: int) -> str:
    if not count:
        return ""
    were = "a mark" if count == 1 else f"{count:,} marks"
    return f"{were} of ended transactions could not be read; those that may have ended are put aside, and nobody asked"


def readable_bytes(size_bytes: int) -> str:
    """As RocketMQ writes it, and its exporter reads it: ``512 B``, ``1.5 GiB``."""
    exponent = 0
    while size_bytes >> 10 * (exponent + 1) and exponent < len(_UNITS):
        exponent += 1
    return f"{size_bytes / (1 << 10 * exponent):.1f} {_UNITS[exponent - 1]}iB" if exponent else f"{size_bytes} B"


def _readable_time(seconds: int) -> str:
    minutes, hours, days = seconds // 60, seconds // 3600, seconds // 86_400
    return f"[ {days} days, {hours % 24} hours, {minutes % 60} minutes, {seconds % 60} seconds ]"
