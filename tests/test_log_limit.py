"""Lines about peers are few, however many peers there are."""

from typing import Any

import trio
from trio.testing import MockClock

from rmqha.log_limit import LogLimit, RepeatLimit


def test_after_the_first_lines_there_is_one_a_second_however_many_are_asked_for() -> None:
    limit = LogLimit(burst=3)
    logged = [tenth for tenth in range(100) if limit.take(now=tenth / 10)]
    assert len(logged) in {11, 12}
    assert logged[:3] == [0, 1, 2]
    assert not limit.take(now=9.91)


async def test_each_line_tells_how_many_were_left_out_since_the_one_before(mock_clock: MockClock) -> None:
    lines: list[int] = []

    def say(_event: str, *, left_out: int, **_facts: Any) -> None:
        lines.append(left_out)

    limit = LogLimit(burst=2)
    for _ in range(100):
        limit.log(say, "something.happened")
        mock_clock.jump(0.1)
        await trio.lowlevel.checkpoint()
    assert lines[:2] == [0, 0]
    assert set(lines[3:]) <= {8, 9, 10}


async def test_who_says_the_same_for_ever_is_told_once_then_counted(mock_clock: MockClock) -> None:
    """A slave with a wrong account asked every ten seconds, and each of its questions was a line for ever."""
    lines: list[tuple[str, int]] = []

    def say(event: str, *, repeated: int, **_facts: Any) -> None:
        lines.append((event, repeated))

    limit = RepeatLimit()
    for _ in range(121):
        limit.log(say, "refused", key="10.0.0.2")
        mock_clock.jump(10)
        await trio.lowlevel.checkpoint()
    assert lines == [("refused", 0), ("refused", 59), ("refused", 59)]
    limit.log(say, "refused anew", key="10.0.0.3")
    assert lines[-1] == ("refused anew", 0)


async def test_what_was_said_of_many_is_forgotten_and_all_together_stay_few(mock_clock: MockClock) -> None:
    lines: list[str] = []

    def say(event: str, **_facts: Any) -> None:
        lines.append(event)

    limit = RepeatLimit(LogLimit(burst=2))
    for number in range(1000):
        limit.log(say, "refused", key=number)
    assert len(lines) == 2
    for number in range(1000):
        mock_clock.jump(1)
        limit.log(say, "refused", key=number)
    assert len(lines) == 1002 - 2
