"""StoreStatsService: totals, rates over three spans, and how long puts took."""

import pytest

from rmqha.replication.role import Role, RoleKind
from rmqha.store.put_times import PutTimes
from rmqha.store.store_stats_service import StoreStatsService


class Log:
    put_message_times_total = put_message_size_total = 0

    def put(self, messages: int, size_bytes: int) -> None:
        self.put_message_times_total += messages
        self.put_message_size_total += size_bytes


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_rates_are_those_of_ten_seconds_a_minute_and_ten_minutes() -> None:
    clock, log = Clock(), Log()
    stats = StoreStatsService(log, Role(RoleKind.SLAVE), clock=clock)
    for second in range(1000):
        stats.sample()
        log.put(9 if second >= 970 else 0, 60)
        stats.note_dispatched("t", 1, 40)
        stats.note_get(2, 0.004)
        stats.note_get(0, 0.0)
        clock.now += 1
    stats.sample()
    info = stats.runtime_info()
    assert [float(rate) for rate in info["putTps"].split()] == [10.0, 5.5, pytest.approx((570 + 300) / 600)]
    assert [float(rate) for rate in info["getTransferedTps"].split()] == [2.0] * 3
    assert [float(rate) for rate in info["getTotalTps"].split()] == [2.0] * 3
    assert info["putMessageTimesTotal"] == str(970 + 300)
    assert info["putMessageSizeTotal"] == "100000"
    assert info["getMessageEntireTimeMax"] == "4"


def test_rates_before_there_are_two_samples_are_zero() -> None:
    stats = StoreStatsService(Log(), Role(), clock=Clock())
    assert stats.runtime_info()["putTps"] == "0 0 0".replace("0", "0.0")
    stats.sample()
    assert stats.runtime_info()["getFoundTps"] == "0.0 0.0 0.0"


def test_how_long_puts_took_is_told_of_the_last_whole_minute() -> None:
    times = PutTimes()
    for elapsed_ms, puts in ((0, 5), (1, 3), (9, 2), (10, 1), (49, 1), (50, 1), (9999, 1), (10_000, 1), (60_000, 1)):
        times.add(elapsed_ms / 1000 + 1e-6, puts)
    assert times.distribution().startswith("[<=0ms]:0 ")
    times.end_minute()
    told = dict(pair.split(":") for pair in times.distribution().split())
    assert told["[<=0ms]"] == "5"
    assert (told["[0~10ms]"], told["[10~50ms]"], told["[50~100ms]"]) == ("5", "2", "1")
    assert (told["[5~10s]"], told["[10s~]"]) == ("1", "2")
    assert times.longest_ms == 60_000
    times.end_minute()
    assert "[<=0ms]:0 " in times.distribution()


def test_latency_is_interpolated_within_its_bucket() -> None:
    times = PutTimes()
    times.add(0.0031, 98)
    times.add(0.15, 2)
    times.end_minute()
    assert 2 < times.latency_ms(0.5) <= 3
    assert 140 < times.latency_ms(0.99) <= 150
    times.end_minute()
    assert times.latency_ms(0.99) == 0


def test_recent_latency_is_that_of_the_last_ten_seconds() -> None:
    """`rmqha top` showed that of the last whole minute, up to two minutes after it was over."""
    clock = Clock()
    stats = StoreStatsService(Log(), Role(), clock=clock)
    assert stats.put_times.recent_latency_ms(0.99) is None
    stats.put_times.add(0.15, 1)
    told = stats.put_times.recent_latency_ms(0.99)
    assert told is not None
    assert 140 < told <= 150, "one put is enough, and it counts at once"
    stats.sample()
    stats.put_times.add(0.15, 1)
    for _ in range(9):
        stats.sample()
        assert stats.put_times.recent_latency_ms(0.99) is not None
    stats.sample()
    assert stats.put_times.recent_latency_ms(0.99) is None
    stats.put_times.add(3.002, 3)
    assert stats.put_times.recent_latency_ms(0.99) == 3002, "nothing takes longer than the longest"
    for _ in range(10):
        stats.sample()
    stats.put_times.add(0.0031, 99)
    stats.put_times.end_minute()
    stats.put_times.add(0.0031, 1)
    told = stats.put_times.recent_latency_ms(0.99)
    assert told is not None
    assert 2 < told <= 4, "a minute that ends meanwhile changes nothing"


def test_the_histogram_is_of_all_since_the_start() -> None:
    times = PutTimes()
    for _ in range(2):
        for elapsed_s in (0.0, 0.0009, 0.0011, 0.0019, 0.0021, 0.0099, 0.0101, 0.0199, 0.0201, 0.0999, 4.5, 11.0):
            times.add(elapsed_s, 2)
        times.end_minute()
    told = dict(times.histogram())
    assert [told[bound] for bound in (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)] == [8, 16, 20, 24, 32, 36, 40]
    assert (told[4.0], told[5.0], told[10.0], told[float("inf")]) == (40, 44, 44, 48)
    assert times.count == 48
    assert times.total_s == pytest.approx(
        4 * (0.0 + 0.0009 + 0.0011 + 0.0019 + 0.0021 + 0.0099 + 0.0101 + 0.0199 + 0.0201 + 0.0999 + 4.5 + 11.0)
    )
    assert list(told) == sorted(told)
    assert list(told.values()) == sorted(told.values())
