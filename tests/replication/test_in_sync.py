"""Up to which offset enough slaves hold the log."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.replication.in_sync import InSyncReplicas, address_of, is_loopback


def replicas(n: int, acked: dict[str, int], *, fallbehind_max: int = 1000) -> InSyncReplicas:
    made = InSyncReplicas(n, fallbehind_max)
    for peer, offset in acked.items():
        made.add(peer)
        if offset >= 0:
            made.acknowledge(peer, 0)
            made.acknowledge(peer, offset)
    return made


@pytest.mark.parametrize(
    ("n", "acked", "value"),
    [
        (1, {}, -1),
        (2, {}, -1),
        (2, {"10.0.0.1:1": 500}, 500),
        (2, {"10.0.0.1:1": 500, "10.0.0.2:1": 700}, 700),
        (3, {"10.0.0.1:1": 500, "10.0.0.2:1": 700}, 500),
        (3, {"10.0.0.1:1": 500}, -1),
        (3, {"10.0.0.1:1": 500, "10.0.0.1:2": 700}, -1),
        (3, {"127.0.0.1:1": 500, "127.0.0.1:2": 700}, 500),
        (3, {"[::1]:1": 500, "[::1]:2": 700}, 500),
        (3, {"[fd00::1]:1": 500, "[fd00::1]:2": 700}, -1),
        (3, {"10.0.0.1:1": 500, "10.0.0.2:1": -1}, -1),
    ],
)
def test_the_value_is_what_enough_distinct_slaves_hold(n: int, acked: dict[str, int], value: int) -> None:
    assert replicas(n, acked).value() == value


def test_a_first_report_acknowledges_nothing() -> None:
    """Its slave has still to find out whether its log is a copy of this one at all."""
    made = replicas(2, {"10.0.0.1:1": 300})
    made.add("10.0.0.2:1")
    made.acknowledge("10.0.0.2:1", 700)
    assert (made.value(), made.live_slaves, made.is_slave_ok(1700)) == (300, 2, False)
    made.remove("10.0.0.1:1")
    assert (made.value(), made.is_slave_ok(1699)) == (-1, True)
    made.acknowledge("10.0.0.2:1", 700)
    assert made.value() == 700


def test_an_acknowledgement_leaves_with_its_connection() -> None:
    made = replicas(2, {"10.0.0.1:1": 500, "10.0.0.2:1": 700})
    made.remove("10.0.0.2:1")
    assert (made.value(), made.push2_slave_max_offset()) == (500, 500)
    made.remove("10.0.0.1:1")
    made.remove("10.0.0.1:1")
    assert (made.value(), made.push2_slave_max_offset()) == (-1, 0)


def test_two_connections_of_one_slave_count_with_the_better_of_them() -> None:
    made = replicas(2, {"10.0.0.1:1": 500, "10.0.0.1:2": 700})
    assert made.value() == 700
    made.remove("10.0.0.1:2")
    assert made.value() == 500


def test_two_connections_of_one_slave_are_not_two_slaves() -> None:
    made = replicas(3, {"10.0.0.1:1": 700, "10.0.0.1:2": 700})
    assert (made.value(), made.live_slaves, made.is_slave_ok(700)) == (-1, 1, False)


@pytest.mark.parametrize(
    ("n", "acked", "ok"),
    [
        (1, {}, True),
        (2, {}, False),
        (2, {"10.0.0.1:1": -1}, False),
        (2, {"10.0.0.1:1": 4001}, True),
        (2, {"10.0.0.1:1": 4000}, False),
        (3, {"10.0.0.1:1": 4500, "10.0.0.2:1": 4000}, False),
        (3, {"10.0.0.1:1": 4500, "10.0.0.2:1": 4001}, True),
    ],
)
def test_a_slave_is_ok_when_it_has_reported_and_is_less_than_the_limit_behind(
    n: int, acked: dict[str, int], ok: bool
) -> None:
    assert replicas(n, acked).is_slave_ok(5000) is ok


@given(st.integers(2, 5), st.dictionaries(st.integers(1, 250), st.integers(0, 10_000), max_size=8))
def test_exactly_enough_slaves_hold_the_value(n: int, acked: dict[int, int]) -> None:
    value = replicas(n, {f"10.0.0.{host}:1": offset for host, offset in acked.items()}).value()
    assert (value >= 0) == (len(acked) >= n - 1)
    if value >= 0:
        assert sum(offset >= value for offset in acked.values()) >= n - 1
        assert sum(offset > value for offset in acked.values()) < n - 1


def test_addresses() -> None:
    assert (address_of("10.0.0.1:99"), address_of("[fd00::1]:99")) == ("10.0.0.1", "fd00::1")
    assert [is_loopback(a) for a in ("127.0.0.9", "::1", "10.0.0.1", "unknown")] == [True, True, False, False]
