"""Lines about peers are few, however many peers there are."""

from rmqha.log_limit import LogLimit


def test_after_the_first_lines_there_is_one_a_second_however_many_are_asked_for() -> None:
    limit = LogLimit(burst=3)
    logged = [tenth for tenth in range(100) if limit.take(now=tenth / 10)]
    assert len(logged) in {11, 12}
    assert logged[:3] == [0, 1, 2]
    assert not limit.take(now=9.91)
