"""BrokerStatsManager: how much each topic gets and each group takes: what request 315 and the exporter ask for.

Source: spec: remoting §2.7 (315); rocketmq-all-4.9.8 BrokerStatsManager.java, BrokerStats.java.
"""

import time
from collections.abc import Callable, Iterator
from typing import Final

import trio

from rmqha.broker.stats_item import DAY, HOUR, INTERVALS_S, MINUTE, NUMS, SIZE, StatsItem, StatsSnapshot
from rmqha.store.store_stats_service import StoreStatsService

_TOPIC_PUT, _GROUP_GET, _BROKER_PUT, _BROKER_GET = range(4)
STATISTICS: Final = {
    "TOPIC_PUT_NUMS": (_TOPIC_PUT, NUMS),
    "TOPIC_PUT_SIZE": (_TOPIC_PUT, SIZE),
    "GROUP_GET_NUMS": (_GROUP_GET, NUMS),
    "GROUP_GET_SIZE": (_GROUP_GET, SIZE),
    "BROKER_PUT_NUMS": (_BROKER_PUT, NUMS),
    "BROKER_GET_NUMS": (_BROKER_GET, NUMS),
}
"""RocketMQ's names that are told: by table, and what of its counts."""
ITEMS_MAX: Final = 20_000
"""Some 20 MB. What comes beyond is not told apart, until items that nobody has added to for a day have gone."""
_SAMPLED_AT_ONCE: Final = 500

_Table = dict[str, StatsItem]


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
        self._puts: Final[_Table] = {}
        self._gets: Final[_Table] = {}
        brokers = {cluster_name: self._broker_put}, {cluster_name: self._broker_get}
        self._tables: Final = (self._puts, self._gets, *brokers)
        self._day = self._local_day()
        self._morning = self._former_morning = (0, 0)
        """Messages put and got when the day began, and when the one before did."""

    def find(self, name: str, key: str) -> tuple[StatsItem, int] | None:
        """The counts, if anything was ever added to them, and which of them the name is for."""
        table, what = STATISTICS.get(name, (_TOPIC_PUT, NUMS))
        item = self._tables[table].get(key) if name in STATISTICS else None
        return None if item is None else (item, what)

    def snapshot(self, item: StatsItem, span: int, what: int = NUMS) -> StatsSnapshot:
        """What was added to the counts within the span, up to now."""
        return item.snapshot(span, what, now_s=self._clock())

    def _make(self, table: _Table, key: str) -> StatsItem:
        """A new one; what comes beyond :data:`ITEMS_MAX` is added to one that nobody asks for."""
        item = StatsItem()
        if len(self._puts) + len(self._gets) < ITEMS_MAX:
            item.begin(self._clock())
            table[key] = item
        return item

    def note_put(self, topic: str, messages: int, size_bytes: int) -> None:
        """A round of dispatch has found so many messages of a topic."""
        (self._puts.get(topic) or self._make(self._puts, topic)).add(messages, size_bytes)
        self._broker_put.add(messages, size_bytes)

    def note_get(self, topic: str, group: str, messages: int, size_bytes: int) -> None:
        """A pull of a group is answered with so many messages."""
        key = f"{topic}@{group}"
        (self._gets.get(key) or self._make(self._gets, key)).add(messages, size_bytes)
        self._broker_get.add(messages, size_bytes)

    def tps_group_get_nums(self, group: str, topic: str) -> float:
        """Messages a second that the group got of the topic during the last minute."""
        item = self._gets.get(f"{topic}@{group}")
        return self.snapshot(item, MINUTE).tps if item is not None else 0.0

    async def got_in_turns(self) -> dict[str, list[str]]:
        """By group the topics of which it got messages within the last hour; everybody else goes on meanwhile."""
        topics: dict[str, list[str]] = {}
        for number, (key, item) in enumerate([*self._gets.items()]):
            if number % _SAMPLED_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            if self.snapshot(item, HOUR).sum:
                topic, _, group = key.partition("@")
                topics.setdefault(group, []).append(topic)
        return topics

    def on_topic_deleted(self, topic: str) -> None:
        """What was counted of a topic that is deleted is not told any more."""
        self._puts.pop(topic, None)

    def on_group_deleted(self, group: str) -> None:
        """Nor is what a group got that is deleted."""
        for key in [key for key in self._gets if key.partition("@")[2] == group]:
            del self._gets[key]

    # ---- samples

    async def run(self) -> None:
        """Take the samples, and note the totals of each morning, until cancelled."""
        due_at = [self._clock() for _ in INTERVALS_S]
        for table in self._tables:
            for item in table.values():
                item.begin(self._clock())
        while True:
            for span in (MINUTE, HOUR, DAY):
                if self._clock() >= due_at[span]:
                    due_at[span] += INTERVALS_S[span]
                    await self._sample(span)
            self._note_morning()
            await trio.sleep(max(min(due_at) - self._clock(), 0))

    async def _sample(self, span: int) -> None:
        items = [(table, key, item) for table in self._tables for key, item in table.items()]
        for number, (table, key, item) in enumerate(items):
            if number % _SAMPLED_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            item.sample(span, self._clock())
            if span == DAY and item.is_idle and (table is self._puts or table is self._gets):
                table.pop(key, None)

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
