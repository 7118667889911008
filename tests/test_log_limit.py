"""Lines about peers are few, however many peers there are."""

from typing import Any

import trio
from trio.testing import MockClock

from rmqha.log_limit import LogLimit


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
