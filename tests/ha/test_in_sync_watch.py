"""The two lines about missing slaves: when they are due, and what they say."""

from typing import Any

from structlog.testing import capture_logs

from rmqha.ha.in_sync_watch import InSyncWatch


def leave(watch: InSyncWatch, live: int, *, now: float) -> None:
    watch.on_left(live, peer="10.0.0.2:1", name="", slave_ack_offset=0, reason="x", now=now)


def events(logs: list[Any]) -> list[str]:
    return [entry["event"] for entry in logs]


def test_exactly_enough_slaves_are_enough() -> None:
    watch = InSyncWatch(2)
    with capture_logs() as logs:
        watch.on_joined(1, now=1)
        watch.on_joined(2, now=2)
        leave(watch, 2, now=3)
        leave(watch, 1, now=4)
        leave(watch, 0, now=5)
    assert events(logs) == ["ha_service.in_sync", "ha_service.not_in_sync"]
    assert logs[-1]["slaves"] == 1


def test_each_outage_counts_its_own_answers() -> None:
    watch, unsafe = InSyncWatch(1), 7
    watch.count_unsafe = lambda: unsafe
    with capture_logs() as logs:
        watch.begin(now=0)
        watch.on_joined(1, now=1)
        leave(watch, 0, now=2)
        unsafe += 3
        watch.on_joined(1, now=5)
    assert [(one["lasted_s"], one["answers_not_send_ok"]) for one in logs if "lasted_s" in one] == [(1, 7), (3, 3)]


def test_a_loss_after_a_return_that_was_not_told_is_one() -> None:
    """Lines are few when a slave flaps; what is told later is true all the same."""
    watch = InSyncWatch(1)
    with capture_logs() as logs:
        for _ in range(1000):
            watch.on_joined(1, now=0)
            leave(watch, 0, now=0)
        watch.on_joined(1, now=0)
        told = len(logs)
        leave(watch, 0, now=3600)
        watch.on_joined(1, now=3700)
    assert events(logs[told:]) == ["ha_service.not_in_sync", "ha_service.in_sync"]
    assert logs[-1]["lasted_s"] == 100
