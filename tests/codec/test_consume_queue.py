"""How many units of a queue are written, and how much they lead to; wherever in a log of terabytes."""

import pytest

from rmqha.codec.consume_queue import FILLER, UNIT, count_valid, sum_of_sizes

GOOD = [UNIT.pack(offset, 100, -1) for offset in (0, 1 << 31, (1 << 32) - 100, 1 << 40, (1 << 63) - 1)]


def test_any_offset_of_a_log_is_valid() -> None:
    units = FILLER * 3 + b"".join(GOOD)
    assert count_valid(units) == 8
    assert count_valid(FILLER * 5) == 5
    assert count_valid(b"") == 0
    assert sum_of_sizes(b"".join(GOOD)) == 500


@pytest.mark.parametrize(
    "bad", [bytes(20), UNIT.pack(-1, 100, 0), UNIT.pack(-(1 << 40), 100, 0), UNIT.pack(5, -1, 0), UNIT.pack(5, 0, 7)]
)
def test_the_first_unit_that_is_none_ends_the_queue(bad: bytes) -> None:
    for before in (b"", FILLER, b"".join(GOOD)):
        assert count_valid(before + bad + GOOD[1]) == len(before) // 20
