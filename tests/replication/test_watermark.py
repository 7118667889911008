"""A watermark answers every waiter exactly once: when it passes its offset, or at its own deadline."""

from math import inf
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from rmqha.replication.watermark import Watermark
from tests.reachable import count_entries


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


def test_no_advance_makes_the_value_fall() -> None:
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
            st.tuples(st.just("cut"), st.integers(0, 25), st.just(0)),
        )
    )
)
def test_everyone_is_answered_exactly_once_and_truthfully(steps: list[tuple[str, int, int]]) -> None:
    mark = Watermark()
    answered: dict[int, list[bool]] = {}
    waits_for: dict[int, int] = {}
    for number, (step, x, deadline) in enumerate(steps):
        if step == "add":
            answers, waits_for[number] = answered.setdefault(number, []), x

            def complete(reached: bool, value: int, *, x: int = x, answers: list[bool] = answers) -> None:
                assert not reached or value >= x
                answers.append(reached)

            mark.add(x, float(deadline), complete)
        elif step == "advance":
            mark.advance(x)
        elif step == "cut":
            mark.cut(x)
            assert all(answered[waiter] for waiter, offset in waits_for.items() if offset > x)
            assert mark.value <= x
        else:
            mark.deadlines.expire(float(x))
    mark.fail_all()
    assert all(len(answers) == 1 for answers in answered.values())


def test_cancelled_waiters_behind_a_live_one_do_not_pile_up() -> None:
    mark = Watermark()
    mark.add(1, inf, lambda reached, value: None)
    for _ in range(10_000):
        mark.add(2, 5.0, lambda reached, value: None).cancel()
    assert count_entries(mark) < 1000


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


def test_who_waits_for_what_was_cut_is_failed_and_the_others_go_on_waiting() -> None:
    log, mark = Log(), Watermark(50)
    for name, offset in (("d", 301), ("b", 200), ("c", 300), ("a", 100)):
        mark.add(offset, 9.0, log.waits(name))
    mark.cut(200)
    assert (mark.value, log.answers) == (50, [("c", False, 50), ("d", False, 50)])
    mark.advance(400)
    assert log.answers[2:] == [("a", True, 400), ("b", True, 400)]
    assert mark.deadlines.next() == inf


def test_what_takes_the_place_of_what_was_cut_is_not_taken_for_it() -> None:
    log, mark = Log(), Watermark(500)
    mark.add(600, inf, log.waits("of the old term"))
    mark.cut(300)
    assert mark.value == 300
    mark.add(600, inf, log.waits("of this term"))
    mark.advance(600)
    assert log.answers == [("of the old term", False, 300), ("of this term", True, 600)]


def test_of_a_cut_hear_first_who_counts_and_then_who_waits_and_then_who_follows() -> None:
    log, mark = Log(), Watermark(500)
    mark.on_cut(lambda end: log.answers.append(("counts", False, end)))
    mark.subscribe(lambda: log.answers.append(("follows", False, mark.value)))
    mark.add(600, inf, log.waits("waits"))
    mark.cut(300)
    assert log.answers == [("counts", False, 300), ("waits", False, 300), ("follows", False, 300)]


def test_who_begins_to_wait_during_a_cut_waits_for_what_comes() -> None:
    log, mark = Log(), Watermark(500)

    def wait_for_new(_end: int) -> None:
        mark.add(400, inf, log.waits("new"))

    def wait_again(_reached: bool, _value: int) -> None:
        mark.add(350, inf, log.waits("again"))

    mark.on_cut(wait_for_new)
    mark.add(600, inf, wait_again)
    mark.cut(300)
    assert (log.answers, mark.waiting) == ([], 2)
    mark.advance(400)
    assert log.answers == [("again", True, 400), ("new", True, 400)]


def test_a_cut_from_inside_an_answer_holds_for_those_who_come_next() -> None:
    log, mark = Log(), Watermark()
    mark.add(100, inf, lambda _reached, _value: mark.cut(100))
    mark.add(200, inf, log.waits("b"))
    mark.advance(300)
    assert (mark.value, log.answers) == (100, [("b", False, 100)])
