"""A watermark answers every waiter exactly once: when it passes its offset, or at its own deadline."""

from math import inf
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from rmqha.replication.watermark import Watermark


class Log:
    def __init__(self) -> None:
        self.answers: list[tuple[str, bool, int]] = []

    def waits(self, name: str) -> "Log.Complete":
        return Log.Complete(self, name)

    class Complete:
        def __init__(self, log: "Log", name: str) -> None:
            self.log = log
            self.name = name

        def __call__(self, reached: bool, value: int) -> None:
            self.log.answers.append((self.name, reached, value))


def test_one_advance_answers_all_it_passes_in_offset_order() -> None:
    log, mark = Log(), Watermark()
    mark.add(300, inf, log.waits("c"))
    mark.add(100, inf, log.waits("a"))
    mark.add(200, inf, log.waits("b"))
    mark.advance(200)
    assert log.answers == [("a", True, 200), ("b", True, 200)]
    assert mark.waiting == 1


def test_an_offset_already_passed_is_answered_at_once() -> None:
    log, mark = Log(), Watermark(50)
    mark.add(50, inf, log.waits("a"))
    assert log.answers == [("a", True, 50)]


def test_the_value_never_falls() -> None:
    mark = Watermark(50)
    mark.advance(20)
    assert mark.value == 50


def test_a_later_offset_with_an_earlier_deadline_times_out_first() -> None:
    """No head of line: the one behind does not wait for the one in front."""
    log, mark = Log(), Watermark()
    mark.add(100, 9.0, log.waits("long"))
    mark.add(200, 3.0, log.waits("short"))
    assert mark.deadlines.next() == 3.0
    mark.deadlines.expire(3.0)
    assert log.answers == [("short", False, 0)]
    assert mark.deadlines.next() == 9.0


def test_a_deadline_is_not_early() -> None:
    log, mark = Log(), Watermark()
    mark.add(100, 3.0, log.waits("a"))
    mark.deadlines.expire(2.999)
    assert log.answers == []


def test_a_cancelled_waiter_is_never_answered() -> None:
    log, mark = Log(), Watermark()
    mark.add(100, 3.0, log.waits("a")).cancel()
    mark.advance(100)
    mark.deadlines.expire(3.0)
    mark.fail_all()
    assert log.answers == []
    assert mark.deadlines.next() == inf


def test_fail_all_answers_everyone_and_the_watermark_goes_on() -> None:
    log, mark = Log(), Watermark()
    mark.add(100, 3.0, log.waits("a"))
    mark.add(200, inf, log.waits("b"))
    mark.fail_all()
    assert log.answers == [("a", False, 0), ("b", False, 0)]
    mark.add(10, inf, log.waits("c"))
    mark.advance(10)
    assert log.answers[-1] == ("c", True, 10)


def test_who_begins_to_wait_while_everyone_is_failed_waits() -> None:
    log, mark = Log(), Watermark()

    def wait_again(_reached: bool, _value: int) -> None:
        mark.add(100, 4.0, log.waits("again"))

    mark.add(100, 3.0, wait_again)
    mark.fail_all()
    assert (log.answers, mark.waiting, mark.deadlines.next()) == ([], 1, 4.0)
    mark.advance(100)
    assert log.answers == [("again", True, 100)]


def test_a_callback_may_add_a_waiter() -> None:
    log, mark = Log(), Watermark()

    def again(reached: bool, value: int) -> None:
        mark.add(150, inf, log.waits("next"))

    mark.add(100, inf, again)
    mark.advance(200)
    assert log.answers == [("next", True, 200)]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(1, 20), st.integers(1, 20)),
            st.tuples(st.just("advance"), st.integers(0, 25), st.just(0)),
            st.tuples(st.just("expire"), st.integers(0, 25), st.just(0)),
        )
    )
)
def test_everyone_is_answered_exactly_once_and_truthfully(steps: list[tuple[str, int, int]]) -> None:
    mark = Watermark()
    answered: dict[int, list[bool]] = {}
    for number, (step, x, deadline) in enumerate(steps):
        if step == "add":
            answers = answered[number] = []

            def complete(reached: bool, value: int, *, x: int = x, answers: list[bool] = answers) -> None:
                assert not reached or value >= x
                answers.append(reached)

            mark.add(x, float(deadline), complete)
        elif step == "advance":
            mark.advance(x)
        else:
            mark.deadlines.expire(float(x))
    mark.fail_all()
    assert all(len(answers) == 1 for answers in answered.values())


def test_cancelled_waiters_behind_a_live_one_do_not_pile_up() -> None:
    mark = Watermark()
    mark.add(1, inf, lambda reached, value: None)
    for _ in range(10_000):
        mark.add(2, 5.0, lambda reached, value: None).cancel()
    assert len(mark._by_offset) < 300


def test_who_is_left_when_the_cancelled_are_dropped_is_still_answered_in_his_turn() -> None:
    """Many are cancelled, so that the table is compacted; the earliest of the others stay first all the same."""
    chance = Random(25)
    by_offset, by_deadline = Watermark(), Watermark()
    reached: list[int] = []
    expired: list[float] = []
    for _ in range(500):
        offset, deadline = chance.randrange(1, 1000), float(chance.randrange(1, 1000))
        is_cancelled = chance.random() < 0.9
        for waiter in (
            by_offset.add(offset, inf, lambda _, __, offset=offset: reached.append(offset)),  # type: ignore[misc]
            by_deadline.add(1, deadline, lambda _, __, deadline=deadline: expired.append(deadline)),  # type: ignore[misc]
        ):
            if is_cancelled:
                waiter.cancel()
    for at in range(1000):
        by_offset.advance(at)
        by_deadline.deadlines.expire(float(at))
        assert by_deadline.deadlines.next() > at
    assert by_offset.waiting == by_deadline.waiting == 0
    assert len(reached) == len(expired) > 30
    assert reached == sorted(reached)
    assert expired == sorted(expired)


def test_subscribers_hear_of_every_advance_after_the_waiters() -> None:
    log, mark = Log(), Watermark()
    mark.subscribe(lambda: log.answers.append(("subscriber", True, mark.value)))
    mark.add(10, inf, log.waits("a"))
    mark.advance(10)
    mark.advance(10)
    mark.advance(12)
    assert log.answers == [("a", True, 10), ("subscriber", True, 10), ("subscriber", True, 12)]
