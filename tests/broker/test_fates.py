"""What is remembered of half messages that ended, or were written again."""

from types import SimpleNamespace
from typing import Any

from rmqha.broker.transaction.fates import KEPT_MAX, Fates
from rmqha.broker.transaction.half_message import Mark
from rmqha.broker.transaction.marks import Damage, learn_marks


def test_what_has_ended_ends_no_second_time() -> None:
    fates = Fates()
    assert not fates.has_ended(3)
    places = fates.begin_end(3)
    assert (places, fates.begin_end(3)) == ([3], [])
    fates.finish_end(places)
    assert fates.has_ended(3)
    assert fates.begin_end(3) == []


def test_all_places_of_a_half_message_end_together() -> None:
    fates = Fates()
    assert fates.note_renewed(3, 7)
    assert fates.note_renewed(7, 9)
    places = fates.begin_end(7)
    assert places == [3, 7, 9]
    fates.finish_end(places)
    assert [fates.has_ended(offset) for offset in (3, 7, 9, 8)] == [True, True, True, False]
    assert fates.begin_end(3) == []


def test_what_ended_while_it_was_written_again_has_ended_there_too() -> None:
    fates = Fates()
    fates.end(3)
    assert not fates.note_renewed(3, 7)
    assert fates.has_ended(7)


def test_an_end_that_could_not_be_stored_is_taken_back() -> None:
    fates = Fates()
    fates.note_renewed(3, 7)
    places = fates.begin_end(3)
    assert fates.is_ending(7)
    fates.take_back(places)
    assert not fates.is_left(7)
    assert not fates.has_ended(3)
    assert fates.begin_end(3) == [3, 7]


def test_what_is_written_again_while_it_ends_waits_there() -> None:
    fates = Fates()
    places = fates.begin_end(3)
    assert not fates.is_left(3)
    assert fates.note_renewed(3, 7)
    assert (places, fates.is_left(3), fates.is_left(7), fates.is_ending(7)) == ([3, 7], True, False, True)
    fates.finish_end(places)
    assert fates.has_ended(3)
    assert (fates.is_left(7), fates.is_ending(7)) == (True, False)


def test_what_is_found_to_be_that_which_ends_ends_with_it() -> None:
    """Its end came by a later place, before it was known that it lies at an earlier one as well."""
    fates = Fates()
    places = fates.begin_end(7)
    fates.unite(3, 7)
    assert (places, fates.is_ending(7), fates.begin_end(3)) == ([3, 7], True, [])
    fates.unite(7, 9)
    assert (places, fates.is_ending(7), fates.is_ending(9)) == ([3, 7, 9], False, True)
    fates.finish_end(places)
    assert [fates.has_ended(place) for place in (3, 7, 9)] == [True, True, True]


def test_no_producer_fills_the_memory() -> None:
    fates = Fates(kept_max=10)
    for offset in range(100):
        fates.end(offset)
    assert [fates.has_ended(offset) for offset in (0, 89, 90, 99)] == [False, False, True, True]


def test_of_what_is_forgotten_it_is_not_known_whether_it_has_ended() -> None:
    """The last one that is forgotten, too: its mark in the log has to be looked for."""
    fates = Fates(kept_max=10)
    for offset in range(100):
        fates.end(offset)
    assert [fates.is_known(offset) for offset in (0, 89, 90, 99, 100)] == [False, False, True, True, True]


async def test_where_not_all_marks_are_read_less_is_known_by_the_last_that_is_not() -> None:
    """What lies before that one in the log may have ended by it, or by one before it."""

    def read_marks(offset: int) -> tuple[list[object], int]:
        return [], offset

    bridge: Any = SimpleNamespace(
        range_of=lambda _topic: (0, KEPT_MAX + 2),
        position_of=lambda _topic, queue_offset: queue_offset * 100,
        first_behind=lambda _topic, position: position // 100 + 50,
        read_marks=read_marks,
        end_of=lambda _topic: 0,
    )
    fates = Fates()
    await learn_marks(bridge, fates)
    assert (fates.marks_begin, fates.known_from) == (2, 51)


def test_a_damaged_mark_may_be_of_what_lies_before_the_next_that_can_be_read_and_of_no_more() -> None:
    bridge: Any = SimpleNamespace(first_behind=lambda _topic, position: position // 100, end_of=lambda _topic: 90)
    fates = Fates()
    damage, undecided = Damage(bridge, fates), list[int]()
    for place, position in enumerate((2000, None, 1000, 5000, None, None, 300)):
        damage.note(Mark(place, [], position))
        undecided.append(fates.undecided_before)
    damage.end()
    assert (undecided, fates.undecided_before) == ([0, 0, 10, 10, 10, 10, 10], 10)
    damage.note(Mark(7, [], None))
    damage.end()
    assert fates.undecided_before == 90
