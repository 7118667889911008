"""BrokerStatsManager: how much each topic gets and each group takes: what request 315 and the exporter ask for.

Source: spec: remoting §2.7 (315); rocketmq-all-4.9.8 BrokerStatsManager.java, BrokerStats.java.
"""

import time
from collections.abc import Callable, Iterator
from typing import Final

import trio

from rmqha.broker.stats_item import DAY, HOUR, INTERVALS_S, MINUTE, StatsItem
from rmqha.store.store_stats_service import StoreStatsService

TOPIC_PUT_NUMS: Final = "TOPIC_PUT_NUMS"
TOPIC_PUT_SIZE: Final = "TOPIC_PUT_SIZE"
GROUP_GET_NUMS: Final = "GROUP_GET_NUMS"
GROUP_GET_SIZE: Final = "GROUP_GET_SIZE"
BROKER_PUT_NUMS: Final = "BROKER_PUT_NUMS"
BROKER_GET_NUMS: Final = "BROKER_GET_NUMS"
ITEMS_MAX: Final = 20_000
"""Some 20 MB. What comes beyond is not told apart, until items that nobody has added to for a day have gone."""
_SAMPLED_AT_ONCE: Final = 500

_Key = tuple[str, str]


class BrokerStatsManager:
    """The counts, by statistic and key (a topic, ``topic@group``, or the cluster), and the totals of yesterday."""

    def __init__(
        self,
        cluster_name: str,
        store_stats: StoreStatsService,
        *,
        clock: Callable[[], float],
        now_ms: Callable[[], int],
    ) -> None:
        self._store_stats: Final = store_stats
        self._clock: Final = clock
        self._now_ms: Final = now_ms
        self._broker_put: Final = StatsItem()
        self._broker_get: Final = StatsItem()
        self._items: Final[dict[_Key, StatsItem]] = {
            (BROKER_PUT_NUMS, cluster_name): self._broker_put,
            (BROKER_GET_NUMS, cluster_name): self._broker_get,
        }
        self._day = self._local_day()
        self._morning = self._former_morning = (0, 0)
        """Messages put and got when the day began, and when the one before did."""

    def find(self, name: str, key: str) -> StatsItem | None:
        """The count, if anything was ever added to it."""
        return self._items.get((name, key))

    def _add(self, name: str, key: str, value: int) -> None:
        item = self._items.get((name, key))
        if item is None:
            if len(self._items) >= ITEMS_MAX:
                return
            item = self._items[name, key] = StatsItem()
            item.begin(self._clock())
        item.add(value)

    def note_put(self, topic: str, messages: int, size_bytes: int) -> None:
        """A round of dispatch has found so many messages of a topic."""
        self._add(TOPIC_PUT_NUMS, topic, messages)
        self._add(TOPIC_PUT_SIZE, topic, size_bytes)
        self._broker_put.add(messages)

    def note_get(self, topic: str, group: str, messages: int, size_bytes: int) -> None:
        """A pull of a group is answered with so many messages."""
        key = f"{topic}@{group}"
        self._add(GROUP_GET_NUMS, key, messages)
        self._add(GROUP_GET_SIZE, key, size_bytes)
        self._broker_get.add(messages)

    def tps_group_get_nums(self, group: str, topic: str) -> float:
        """Messages a second that the group got of the topic during the last minute."""
        item = self.find(GROUP_GET_NUMS, f"{topic}@{group}")
        return item.snapshot(MINUTE).tps if item is not None else 0.0

    def on_topic_deleted(self, topic: str) -> None:
        """What was counted of a topic that is deleted is not told any more."""
        for name in (TOPIC_PUT_NUMS, TOPIC_PUT_SIZE):
            self._items.pop((name, topic), None)

    # ---- samples

    async def run(self) -> None:
        """Take the samples, and note the totals of each morning, until cancelled."""
        due_at = [self._clock() for _ in INTERVALS_S]
        for item in self._items.values():
            item.begin(self._clock())
        while True:
            for span in (MINUTE, HOUR, DAY):
                if self._clock() >= due_at[span]:
                    due_at[span] += INTERVALS_S[span]
                    await self._sample(span)
            self._note_morning()
            await trio.sleep(max(min(due_at) - self._clock(), 0))

    async def _sample(self, span: int) -> None:
        for number, (key, item) in enumerate([*self._items.items()]):
            if number % _SAMPLED_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            item.sample(span, self._clock())
            if span == DAY and item.is_idle and item not in (self._broker_put, self._broker_get):
                self._items.pop(key, None)

    def _local_day(self) -> tuple[int, int]:
        local = time.localtime(self._now_ms() / 1000)
        return local.tm_year, local.tm_yday

    def _note_morning(self) -> None:
        """RocketMQ does so at midnight, local time; here the first look after it counts."""
        if (day := self._local_day()) != self._day:
            self._day, self._former_morning, self._morning = day, self._morning, self._totals()

    def _totals(self) -> tuple[int, int]:
        stats = self._store_stats
        return stats.put_message_times_total, stats.get_message_transfered_msg_count

    def runtime_info(self) -> Iterator[tuple[str, str]]:
        """RocketMQ's keys: how many messages there were by then, since the start."""
        for number, what in enumerate(("Put", "Get")):
            yield f"msg{what}TotalYesterdayMorning", str(self._former_morning[number])
            yield f"msg{what}TotalTodayMorning", str(self._morning[number])
            yield f"msg{what}TotalTodayNow", str(self._totals()[number])
