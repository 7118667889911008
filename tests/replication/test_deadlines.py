"""Each deadline happens once, in its turn, unless it was cancelled."""

import gc
import weakref
from functools import partial
from math import inf
from random import Random

from rmqha.replication.deadlines import Deadlines


def test_what_is_due_happens_in_order_and_once() -> None:
    deadlines, done, added = Deadlines(), list[str](), list[float]()
    deadlines.added = added.append
    for name, at in (("c", 3.0), ("a", 1.0), ("never", inf), ("b", 1.0)):
        deadlines.add(at, partial(done.append, name))
    assert (deadlines.next(), added) == (1.0, [3.0, 1.0, 1.0])
    deadlines.expire(0.999)
    assert done == []
    deadlines.expire(1.0)
    deadlines.expire(2.0)
    assert (done, deadlines.next()) == (["a", "b"], 3.0)
    deadlines.expire(1e9)
    assert (done, deadlines.next()) == (["a", "b", "c"], inf)


def test_what_was_cancelled_never_happens_and_is_not_waited_for() -> None:
    deadlines, done = Deadlines(), list[str]()
    first = deadlines.add(1.0, partial(done.append, "first"))
    deadlines.add(2.0, lambda: third.cancel())  # noqa: PLW0108 - it is added after this
    third = deadlines.add(2.0, partial(done.append, "third"))
    first.cancel()
    assert deadlines.next() == 2.0
    deadlines.expire(2.0)
    assert (done, deadlines.next()) == ([], inf)


def test_what_happens_may_add_more_that_is_due() -> None:
    deadlines, done = Deadlines(), list[str]()

    def add_again() -> None:
        deadlines.add(1.0, partial(done.append, "again"))

    deadlines.add(1.0, add_again)
    deadlines.expire(1.0)
    assert done == ["again"]


def test_the_order_survives_the_dropping_of_many_that_were_cancelled() -> None:
    chance, deadlines, done, live = Random(7), Deadlines(), list[float](), list[float]()
    for _ in range(1000):
        at = chance.random()
        deadline = deadlines.add(at, partial(done.append, at))
        if chance.random() < 0.9:
            deadline.cancel()
        else:
            live.append(at)
    for now in range(101):
        deadlines.expire(now / 100)
        assert deadlines.next() > now / 100
    assert done == sorted(live)


def test_what_was_cancelled_is_let_go_at_once() -> None:
    class Heavy:
        def expire(self) -> None: ...

    deadlines, heavy = Deadlines(), Heavy()
    seen = weakref.ref(heavy)
    deadlines.add(1.0, lambda: None)
    deadlines.add(2.0, heavy.expire).cancel()
    del heavy
    gc.collect()
    assert seen() is None


def test_of_many_that_are_due_some_may_wait_for_the_next_turn() -> None:
    deadlines, done = Deadlines(), list[int]()
    for number in range(5):
        deadlines.add(1.0, partial(done.append, number))
    assert deadlines.expire(1.0, at_most=2)
    assert done == [0, 1]
    assert deadlines.expire(1.0, at_most=2)
    assert not deadlines.expire(1.0, at_most=2)
    assert done == [0, 1, 2, 3, 4]


def test_what_is_hastened_is_due_at_any_time_and_what_is_added_later_is_not() -> None:
    deadlines, called, told = Deadlines(), list[int](), list[float]()
    for number in (3, 1, 2):
        deadlines.add(float(number), partial(called.append, number))
    deadlines.added = told.append
    deadlines.hasten()
    deadlines.add(0.5, partial(called.append, 4))
    assert told == [float("-inf"), 0.5]
    assert not deadlines.expire(0.0)
    assert sorted(called) == [1, 2, 3]
    assert deadlines.next() == 0.5
    Deadlines().hasten()
