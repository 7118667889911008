"""BrokerStatsManager: counts of topics and groups, sampled, bounded, and the totals of the morning."""

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker import broker_stats_manager
from rmqha.broker.broker_stats_manager import BrokerStatsManager
from rmqha.broker.stats_item import DAY, HOUR, MINUTE, StatsSnapshot
from rmqha.replication.role import Role, RoleKind
from rmqha.store.store_stats_service import StoreStatsService
from tests.sim.sim_clock import VirtualClock

DAY_MS = 86_400_000


class Machine:
    put_message_times_total = put_message_size_total = 0

    def __init__(self) -> None:
        self.store_stats = StoreStatsService(self, Role(RoleKind.SLAVE), clock=trio.current_time)
        self.stats = BrokerStatsManager(
            "cluster", self.store_stats, clock=trio.current_time, now_ms=lambda: int(trio.current_time() * 1000)
        )


def told(stats: BrokerStatsManager, name: str, key: str, *, span: int = MINUTE) -> StatsSnapshot:
    found = stats.find(name, key)
    assert found is not None
    item, what = found
    return stats.snapshot(item, span, what)


async def test_a_minutes_rate_is_that_of_its_samples(virtual_clock: VirtualClock) -> None:
    stats = Machine().stats
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stats.run)
        await trio.sleep(5)
        for _ in range(120):
            stats.note_put("t", 20, 2000)
            stats.note_get("t", "g", 7, 700)
            await trio.sleep(1)
        put, got = told(stats, "TOPIC_PUT_NUMS", "t"), told(stats, "GROUP_GET_NUMS", "t@g")
        assert (put.sum, put.avgpt, got.sum) == (64 * 20, 20.0, 64 * 7), "from the first of its samples to now"
        assert put.tps == told(stats, "BROKER_PUT_NUMS", "cluster").tps == pytest.approx(20, rel=0.02)
        assert told(stats, "TOPIC_PUT_SIZE", "t").tps == pytest.approx(2000, rel=0.02)
        assert told(stats, "GROUP_GET_SIZE", "t@g").tps == pytest.approx(700, rel=0.02)
        assert told(stats, "BROKER_GET_NUMS", "cluster").tps == got.tps
        assert stats.tps_group_get_nums("g", "t") == got.tps
        assert stats.tps_group_get_nums("other", "t") == 0.0
        await trio.sleep(100)
        assert told(stats, "TOPIC_PUT_NUMS", "t") == (0, 0.0, 0.0)
        assert told(stats, "TOPIC_PUT_NUMS", "t", span=HOUR).sum >= 0
        nursery.cancel_scope.cancel()


async def test_what_is_counted_is_told_at_once(virtual_clock: VirtualClock) -> None:
    """It was told with the next sample: up to ten seconds later of the minute, an hour later of the day."""
    stats = Machine().stats
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stats.run)
        await trio.sleep(25)
        stats.note_put("t", 20, 2000)
        for span in (MINUTE, HOUR, DAY):
            assert told(stats, "TOPIC_PUT_NUMS", "t", span=span).sum == 20
            assert told(stats, "BROKER_PUT_NUMS", "cluster", span=span).sum == 20
        assert told(stats, "TOPIC_PUT_NUMS", "t").tps == pytest.approx(2.0)
        await trio.sleep(71)
        assert told(stats, "TOPIC_PUT_NUMS", "t").sum == 0
        assert told(stats, "TOPIC_PUT_NUMS", "t", span=DAY).sum == 20
        nursery.cancel_scope.cancel()


async def test_only_so_many_are_told_apart_and_idle_ones_go(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_stats_manager, "ITEMS_MAX", 8)
    stats = Machine().stats
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stats.run)
        for number in range(10):
            stats.note_put(f"t{number}", 1, 1)
        assert stats.find("TOPIC_PUT_NUMS", "t9") is None
        await trio.sleep(11)
        assert told(stats, "BROKER_PUT_NUMS", "cluster").sum == 10
        await trio.sleep(26 * 3600)
        assert stats.find("TOPIC_PUT_NUMS", "t0") is None
        stats.note_put("t9", 1, 1)
        assert stats.find("TOPIC_PUT_NUMS", "t9") is not None
        nursery.cancel_scope.cancel()


async def test_the_totals_of_the_morning_and_of_the_one_before(virtual_clock: VirtualClock) -> None:
    machine = Machine()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(machine.stats.run)
        totals = []
        await trio.sleep(15)
        for puts in (5, 3, 1):
            machine.store_stats.note_dispatched("t", puts, 100)
            machine.store_stats.note_get(puts, 0.0)
            info = dict(machine.stats.runtime_info())
            names = ("YesterdayMorning", "TodayMorning", "TodayNow")
            totals.append([int(info[f"msgPutTotal{name}"]) for name in names])
            assert [info[f"msgGetTotal{name}"] for name in names] == [str(total) for total in totals[-1]]
            await trio.sleep(DAY_MS / 1000)
        assert totals == [[0, 0, 5], [0, 5, 8], [5, 8, 9]]
        nursery.cancel_scope.cancel()


async def test_what_is_counted_of_a_deleted_topic_is_not_told(mock_clock: MockClock) -> None:
    stats = Machine().stats
    stats.note_put("t", 1, 1)
    stats.on_topic_deleted("t")
    assert stats.find("TOPIC_PUT_NUMS", "t") is None


async def test_what_a_deleted_group_got_is_not_told(mock_clock: MockClock) -> None:
    stats = Machine().stats
    for group in ("g", "gg"):
        stats.note_get("t", group, 1, 1)
    stats.on_group_deleted("g")
    assert stats.find("GROUP_GET_NUMS", "t@g") is None
    assert await stats.got_in_turns() == {"gg": ["t"]}
