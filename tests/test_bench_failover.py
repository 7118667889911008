"""What is told of many failovers."""

import pytest

from scripts.bench_failover import rank


@pytest.mark.parametrize(
    ("count", "p50", "p99"), [(1, 1.0, 1.0), (2, 1.0, 2.0), (5, 3.0, 5.0), (100, 50.0, 99.0), (1000, 500.0, 990.0)]
)
def test_ranks(count: int, p50: float, p99: float) -> None:
    ordered = [float(number + 1) for number in range(count)]
    assert (rank(ordered, 0.5), rank(ordered, 0.99)) == (p50, p99)
