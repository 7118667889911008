"""Lag in seconds and rates, for an operator."""

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.replication.progress import EndHistory, RateMeter


def test_lag_is_the_time_since_the_log_went_beyond_the_offset() -> None:
    history = EndHistory()
    for now, end in ((0.0, 100), (1.0, 200), (2.0, 300), (3.0, 300)):
        history.note(end, now=now)
    assert history.lag_s(300, now=10.0) == 0.0
    assert history.lag_s(250, now=10.0) == 8.0
    assert history.lag_s(100, now=10.0) == 9.0
    assert history.lag_s(99, now=10.0) == inf


def test_steps_closer_than_the_resolution_share_an_entry() -> None:
    history = EndHistory(resolution_s=1.0)
    for now, end in ((0.0, 0), (5.0, 10), (5.5, 20), (6.5, 30)):
        history.note(end, now=now)
    assert [history.lag_s(offset, now=7.0) for offset in (5, 15, 25, 30)] == [2.0, 2.0, 0.5, 0.0]


def test_what_was_noted_of_a_tail_that_was_cut_is_forgotten() -> None:
    history = EndHistory()
    for now, end in ((0.0, 100), (1.0, 200), (2.0, 300), (3.0, 150)):
        history.note(end, now=now)
    assert history.lag_s(150, now=10.0) == 0.0
    history.note(250, now=5.0)
    assert history.lag_s(150, now=10.0) == 5.0
    history.note(50, now=6.0)
    assert [history.lag_s(offset, now=10.0) for offset in (50, 49)] == [0.0, inf]


def test_a_cut_to_where_the_log_once_ended_forgets_nothing_of_what_lies_before() -> None:
    history = EndHistory()
    for now, end in ((0.0, 100), (1.0, 200), (2.0, 300), (3.0, 200)):
        history.note(end, now=now)
    assert [history.lag_s(offset, now=10.0) for offset in (200, 150)] == [0.0, 9.0]


def test_however_many_steps_there_were_how_long_ago_each_was_is_known() -> None:
    """A master that is written to all the time has more of them after some minutes than are kept."""
    history, last = EndHistory(size=2048), 50_000
    history.note(0, now=0.0)
    for second in range(1, last + 1):
        history.note(100 * second, now=float(second))
    assert len(history._ends) <= 2048
    for age in (1, 10, 100, 1000, 10_000, last - 1):
        lag_s = history.lag_s(100 * (last - age), now=last + 1.0)
        assert age <= lag_s <= 1.05 * age, f"{age} s ago, and {lag_s} s are told"
    assert history.lag_s(-1, now=last + 1.0) == inf, "of what was before the first step it is not known"
    assert history.lag_s(100 * last, now=last + 1.0) == 0.0


def test_who_lacks_the_end_of_what_was_written_before_a_pause_has_lagged_since() -> None:
    history = EndHistory(size=64)
    for second in range(64):
        history.note(100 * second, now=float(second))
    for second in range(3600, 3700):
        history.note(100 * second, now=float(second))
    assert history.lag_s(6299, now=3700.0) == pytest.approx(3637, rel=0.05)


def test_without_history_there_is_no_lag() -> None:
    assert EndHistory().lag_s(5, now=1.0) == 0.0


@given(st.lists(st.tuples(st.floats(0.2, 3), st.integers(1, 50)), max_size=30), st.integers(0, 500))
def test_lag_agrees_with_a_plain_search(steps: list[tuple[float, int]], offset: int) -> None:
    history, noted, now, end = EndHistory(), [(-inf, 0)], 0.0, 0
    history.note(0, now=0.0)
    for pause, growth in steps:
        now, end = now + pause, end + growth
        history.note(end, now=now)
        noted.append((now, end))
    beyond = [at for at, noted_end in noted if noted_end > offset]
    assert history.lag_s(offset, now=now) == (now - beyond[0] if beyond else 0.0)


def test_the_rate_covers_the_last_window_or_two() -> None:
    meter = RateMeter(0, now=0.0, window_s=5.0)
    assert meter.rate(0, now=0.0) == 0.0
    assert meter.rate(100, now=2.0) == 50.0
    meter.note(1000, now=5.0)
    meter.note(2000, now=10.0)
    assert meter.rate(2000, now=10.0) == 200.0


def test_a_counter_that_stands_still_has_no_rate_after_a_window() -> None:
    """A stopped slave was promised to be in sync in 0 s, at the rate of its past."""
    meter = RateMeter(0, now=0.0, window_s=5.0)
    for second in range(1, 11):
        meter.note(1000 * second, now=float(second))
    assert meter.rate(10_000, now=14.9) > 0
    assert meter.rate(10_000, now=15.0) == 0.0
    meter.note(11_000, now=20.0)
    assert meter.rate(11_000, now=20.0) > 0
