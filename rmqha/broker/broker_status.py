"""What a broker tells about itself: RocketMQ's runtime table (28), and our status document inside it.

Source: spec: remoting §2.7 (28); decision 8. The document's members are listed in rmqha/cli/verdict.py.
"""

import json
from collections.abc import Callable
from typing import Any, Final

from rmqha import __version__
from rmqha.broker.replication import Replication
from rmqha.codec.codes import STATUS_KEY
from rmqha.codec.remoting import VERSION
from rmqha.config import BrokerConfig
from rmqha.remoting.fence import Fence
from rmqha.store.message_store import DefaultMessageStore

_VERSION_DESC: Final = "V4_9_8"
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode

# Read by mqadmin, which fails without them; nothing here has a thread pool or counts by the day.
_ABSENT_QUEUES: Final = ("sendThreadPoolQueue", "pullThreadPoolQueue", "queryThreadPoolQueue")
_ABSENT_TOTALS: Final = (
    "msgPutTotalYesterdayMorning",
    "msgPutTotalTodayMorning",
    "msgPutTotalTodayNow",
    "msgGetTotalYesterdayMorning",
    "msgGetTotalTodayMorning",
    "msgGetTotalTodayNow",
)
_ABSENT: Final = dict.fromkeys(
    [f"{name}{what}" for name in _ABSENT_QUEUES for what in ("Size", "HeadWaitTimeMills")] + [*_ABSENT_TOTALS], "0"
)


class BrokerStatus:
    """Reads the running parts when asked; holds no figures of its own."""

    def __init__(
        self,
        config: BrokerConfig,
        store: DefaultMessageStore,
        replication: Replication,
        *,
        fence: Fence,
        address: str,
        clock: Callable[[], float],
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._store = store
        self._replication = replication
        self._fence = fence
        self._group = replication.group
        self._address = address
        self._clock = clock
        self._now_ms = now_ms
        self._started_at = clock()
        self._boot_ms = now_ms()

    def runtime_table(self) -> dict[str, str]:
        """RocketMQ's keys as far as they mean something here, those that mqadmin insists on, and ``rmqhaStatus``."""
        store = self._store
        ratio = store.disk_used_percent / 100
        table = {
            "brokerVersion": str(VERSION),
            "brokerVersionDesc": _VERSION_DESC,
            "bootTimestamp": str(self._boot_ms),
            "commitLogDiskRatio": str(ratio),
            "commitLogMaxOffset": str(store.max_offset),
            "commitLogMinOffset": str(store.min_offset),
            "dispatchBehindBytes": str(store.max_offset - store.reput_from_offset),
            "earliestMessageTimeStamp": str(store.earliest_message_time_ms()),
            "getTransferedTps": "0.0 0.0 0.0",
            "getTransferredTps": "0.0 0.0 0.0",
            "pageCacheLockTimeMills": "0",
            "putTps": "0.0 0.0 0.0",
            "remainHowManyDataToFlush": f"{store.max_offset - store.flushed_offset} B",
            "runtime": f"[ {int(self._clock() - self._started_at)} seconds ]",
            STATUS_KEY: _encode(self.document()),
        }
        return dict(sorted((table | _ABSENT).items()))

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
            "mapped_file_size_commit_log": config.mapped_file_size_commit_log,
            "group_clashes": self._group.clashes(now=self._clock()),
            "flush_disk_type": config.flush_disk_type.value,
            "in_sync_replicas": config.in_sync_replicas,
            "up_s": round(self._clock() - self._started_at, 3),
            "min_offset": store.min_offset,
            "max_offset": store.max_offset,
            "flushed_offset": store.flushed_offset,
            "confirm_offset": store.confirm_offset(),
            "dispatched_offset": store.reput_from_offset,
            "write_refusal": (store if store.role.is_master else store.running_flags).refusal() or None,
            "lost_queues": store.queue_rebuild.describe() or None,
            "disk_used_percent": store.disk_used_percent,
            "disk_looked_s_ago": round(self._clock() - store.cleaner.disk_looked_at, 3),
            "requests_broken": self._fence.bugs,
        } | self._replication.facts()
