"""Places of records behind the one at which a queue stopped."""

import pytest

from rmqha.store import passed_over
from rmqha.store.passed_over import PassedOver


@pytest.mark.parametrize(
    ("end", "numbers", "proven", "behind"),
    [
        (1, (9,), [], 2),
        (1, (9, 2, 3), [2, 3], 4),
        (1, (9, 7, 3, 4), [3, 4], 5),
        (1, (-5, 2), [2], 3),
        (1, ((1 << 62) - 1, 1 << 62, 3), [3], 4),
        (4, (1, 5), [5], 6),
        (1, (9, 2, 11, 4), [2, 4], 5),
        (2, (3, 3), [3], 4),
        (3, (1, 2, 3, 4), [3, 4], 5),
        (1, (2,), [2], 3),
        (1, (2, 1), [1], 2),
        (1, (2, 9, 3), [3], 4),
        (2, (8,), [8], 9),
        (2, (8, 9), [8, 9], 10),
        (2, (8, 3), [3], 4),
        (2, (1 << 20 | 5,), [], 3),
        (1, (2, 3), [2, 3], 4),
        (3, (5, 6, 7), [5, 6, 7], 8),
        (3, (5, 6, 15, 8), [5, 6, 8], 9),
    ],
)
def test_a_place_is_proven_by_what_lies_around_it(
    end: int, numbers: tuple[int, ...], proven: list[int], behind: int
) -> None:
    """Bits that flipped, a record that is missing, places that a master gave twice, and ones that it left out."""
    passed = PassedOver(end)
    for at, number in enumerate(numbers):
        passed.note(number, 100 * at)
    places, offsets = passed.proven
    assert [*places] == proven
    assert [numbers[at // 100] for at in offsets] == proven
    assert passed.next == behind
    places, offsets = passed.counted
    assert [*places] == [*range(end, end + len(numbers))]
    assert [*offsets] == [100 * at for at in range(len(numbers))]


@pytest.mark.parametrize(
    ("numbers", "proven", "begin", "behind"),
    [
        ((1, 2, 3), [1, 2, 3], 0, 4),
        ((1, 9, 3, 4), [3, 4], 0, 5),
        ((1, 2, 11, 4), [1, 2, 4], 0, 5),
        ((1001, 1002), [1001, 1002], None, 1003),
        ((131, 130), [130], None, 131),
        ((1,), [], None, 130),
    ],
)
def test_a_first_place_that_nothing_proves_gives_way_to_a_run(
    numbers: tuple[int, ...], proven: list[int], begin: int | None, behind: int
) -> None:
    """The queue has one unit, which says that it is the 128th."""
    passed = PassedOver(129, is_end_proven=False)
    for at, number in enumerate(numbers):
        passed.note(number, 100 * at)
    places, offsets = passed.proven
    assert [*places] == proven
    assert [numbers[at // 100] for at in offsets] == proven
    assert (passed.begin, passed.next) == (begin, behind)


def test_a_place_that_is_proven_gives_way_to_none() -> None:
    passed = PassedOver(129)
    for number in (1, 2, 3):
        passed.note(number, 100 * number)
    assert (len(passed.proven.places), passed.begin, passed.next) == (0, None, 132)


def test_of_many_the_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passed_over, "_KEPT_MAX", 3)
    passed = PassedOver(1)
    for at, number in enumerate((9, *range(2, 100)), 1):
        passed.note(number, 100 * at)
        for places, offsets in (passed.counted, passed.proven):
            assert len(places) == len(offsets) <= 6
            assert [100 * place for place in places] == [*offsets]
    assert (passed.counted.places[-1], passed.proven.places[-1], passed.next) == (99, 99, 100)
