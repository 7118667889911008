"""A slave's pauses between attempts."""

from rmqha.replication.backoff import Backoff


def test_pauses_double_up_to_the_limit() -> None:
    pauses = Backoff(lambda: 0.0)
    assert [pauses.next_pause_s() for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]


def test_after_progress_the_next_attempt_follows_at_once_and_only_that() -> None:
    pauses = Backoff(lambda: 0.0)
    pauses.next_pause_s()
    pauses.on_progress()
    assert [pauses.next_pause_s() for _ in range(3)] == [0.0, 1.0, 2.0]


def test_chance_shortens_a_pause_by_a_fifth_at_most() -> None:
    assert Backoff(lambda: 0.5).next_pause_s() == 0.9
    assert Backoff(lambda: 1.0).next_pause_s() == 0.8
