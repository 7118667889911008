"""What a broker saves of when operators said something its next start reads again, whatever was told and asked for."""

from itertools import count

import pytest

from rmqha.broker.tables.change_stamps import ChangeStamps, decode_stamps
from rmqha.codec import java_json
from rmqha.codec.limits import STAMPS_SIZE_MAX


@pytest.mark.parametrize("stamp", [2**52, 2**52 + 1, 2**53 - 1])
@pytest.mark.parametrize("how", [ChangeStamps.replace, ChangeStamps.adopt_newer])
def test_no_stamp_of_a_broken_clock_lets_those_that_follow_become_unreadable(how: object, stamp: int) -> None:
    """The next one would be none: the table of topics that it is in would be damaged, and lost with the next start."""
    assert callable(how)
    stamps = ChangeStamps(lambda: 1000)
    how(stamps, {"told": stamp})
    for name in ("told", "b", "c"):
        stamps.note(name)
    kept = stamps.to_json()
    assert decode_stamps(kept) == kept
    assert stamps.of("c") > 1000


@pytest.mark.parametrize("letter", ["a", '"', "\\", "\t", "\x7f", "\u00e9", "\u4e2d", "\U0001f600"])
def test_names_of_any_letters_fit_as_they_are_written_down(letter: str) -> None:
    """An operator may ask for any name; a member that is larger than it may be is read by nobody."""
    stamps = ChangeStamps(count(2**52).__next__)
    for number in range(STAMPS_SIZE_MAX // 200):
        stamps.note(letter * 150 + str(number))
    kept = stamps.to_json()
    assert len(java_json.dumps(kept).encode()) <= STAMPS_SIZE_MAX
    assert decode_stamps(kept) == kept


def test_a_file_from_before_1970_has_no_date() -> None:
    """A disk without a clock says so; what is saved of it would be read by nobody."""
    stamps = ChangeStamps(lambda: 1000)
    stamps.date_all(-5)
    assert (stamps.to_json(), bool(stamps)) == ({}, False)
    stamps.note("a")
    assert decode_stamps(stamps.to_json()) == {"a": 1000}


def test_when_another_brokers_table_was_written_is_no_stamp_of_a_name() -> None:
    """All that is here would be as late as that; or, of a table that is taken over, as late as no clock says."""
    stamps = ChangeStamps(lambda: 1000)
    stamps.adopt_newer({"": 800, "a": 5})
    assert (stamps.to_json(), stamps.latest("b")) == ({"a": 5}, 0)
    stamps.replace({"": 2000, "a": 5})
    assert (stamps.to_json(), stamps.latest("b")) == ({"": 1000, "a": 5}, 1000)


def test_the_time_of_a_table_is_not_before_what_it_holds() -> None:
    """RocketMQ's brokers tell which table is later by that alone, and a clock may be set back."""
    now = [1000]
    stamps = ChangeStamps(lambda: now[0])
    stamps.note("a")
    now[0] = 5
    stamps.note("b")
    assert stamps.version_time() == stamps.of("b") == 1001
    now[0] = 3000
    assert stamps.version_time() == 3000
