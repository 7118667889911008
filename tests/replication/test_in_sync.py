"""Up to which offset enough slaves hold the log."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.codec.host import host_of
from rmqha.replication.in_sync import InSyncReplicas, Proof, Replica
from rmqha.replication.slave_identity import SlaveIdentity


def connect(made: InSyncReplicas, peer: str, acked: int = -1, *, begins_at: int = -1, name: str = "") -> Replica:
    replica = Replica(SlaveIdentity(host_of(peer), name))
    made.add(replica)
    if acked >= 0:
        made.acknowledge(replica, acked, begins_at=begins_at)
    return replica


def replicas(n: int, acked: dict[str, int], *, fallbehind_max: int = 1000) -> InSyncReplicas:
    made = InSyncReplicas(n, fallbehind_max)
    for peer, offset in acked.items():
        connect(made, peer, offset)
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
        (3, {"127.0.0.1:1": 500, "127.0.0.1:2": 700}, -1),
        (3, {"127.0.0.1:1": 500, "[::1]:2": 700}, -1),
        (3, {"127.0.0.2:1": 500, "127.0.0.3:2": 700}, 500),
        (3, {"[fd00::1]:1": 500, "[fd00::1]:2": 700}, -1),
        (3, {"10.0.0.1:1": 500, "10.0.0.2:1": -1}, -1),
    ],
)
def test_the_value_is_what_enough_distinct_slaves_hold(n: int, acked: dict[str, int], value: int) -> None:
    assert replicas(n, acked).value() == value


def test_a_first_report_acknowledges_nothing_however_often_it_is_repeated() -> None:
    """Its slave has still to find out whether its log is a copy of this one at all."""
    made = InSyncReplicas(2, 1000)
    first = connect(made, "10.0.0.1:1", 300, begins_at=0)
    second = connect(made, "10.0.0.2:1", 700, begins_at=700)
    assert (made.value(), made.live_slaves, made.is_slave_ok(1700)) == (300, 2, False)
    made.remove(first)
    made.acknowledge(second, 700, begins_at=700)
    assert (made.value(), made.is_slave_ok(1699)) == (-1, True)
    made.acknowledge(second, 701, begins_at=700)
    assert made.value() == 701


def test_an_acknowledgement_leaves_with_its_connection() -> None:
    made = InSyncReplicas(2, 1000)
    first, second = connect(made, "10.0.0.1:1", 500), connect(made, "10.0.0.2:1", 700)
    made.remove(second)
    assert (made.value(), made.push2_slave_max_offset()) == (500, 500)
    made.remove(first)
    made.remove(first)
    assert (made.value(), made.push2_slave_max_offset()) == (-1, 0)


def test_connections_from_one_and_the_same_port_are_different_ones() -> None:
    """The old one may still be open here when its slave, with the same source port, is back."""
    made = InSyncReplicas(2, 1000)
    old, new = connect(made, "127.0.0.1:1", 500), connect(made, "127.0.0.1:1", 700)
    made.remove(old)
    assert made.value() == 700
    made.remove(new)
    assert made.value() == -1


def test_two_connections_of_one_slave_count_with_the_better_of_them() -> None:
    made = InSyncReplicas(2, 1000)
    connect(made, "10.0.0.1:1", 500)
    better = connect(made, "10.0.0.1:2", 700)
    assert made.value() == 700
    made.remove(better)
    assert made.value() == 500


@pytest.mark.parametrize(
    ("n", "streams", "beyond", "proof"),
    [
        (2, [(0, 500)], 499, Proof(0, 500)),
        (2, [(0, 500)], 500, None),
        (2, [(400, 500)], 400, Proof(400, 500)),
        (2, [(400, 500)], 399, Proof(400, 500)),  # [399, 400) is left out
        (2, [(400, 700), (0, 500)], 300, Proof(0, 500)),  # one that leaves nothing out comes first
        (2, [(400, 700), (0, 500)], 500, Proof(400, 700)),
        (2, [(600, 700), (500, 800)], 300, Proof(500, 800)),  # as little as possible is left out
        (2, [(600, 800), (500, 700)], 300, Proof(500, 700)),  # even where more is held further on
        (3, [(400, 700), (0, 500)], 400, Proof(400, 500)),
        (3, [(400, 700), (0, 500)], 300, Proof(400, 500)),
        (3, [(400, 700), (0, 300)], 300, None),
        (3, [(400, 700), (650, 650), (0, 500)], 300, Proof(400, 500)),
        (1, [(0, 500)], 0, None),
    ],
)
def test_what_is_proven_beyond_an_offset(
    n: int, streams: list[tuple[int, int]], beyond: int, proof: Proof | None
) -> None:
    made = InSyncReplicas(n, 1000)
    for host, (begins_at, acked) in enumerate(streams):
        connect(made, f"10.0.0.{host}:1", acked, begins_at=begins_at)
    assert made.proof_beyond(beyond) == proof


def test_two_connections_of_one_slave_are_not_two_slaves() -> None:
    made = replicas(3, {"10.0.0.1:1": 700, "10.0.0.1:2": 700})
    assert (made.value(), made.live_slaves, made.is_slave_ok(700)) == (-1, 1, False)
    assert made.proof_beyond(0) is None


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


@pytest.mark.parametrize(
    ("peers", "distinct"),
    [
        ([("127.0.0.1", ""), ("127.0.0.1", "")], 1),  # a tunnel's, or a Java slave's, that has come back
        ([("127.0.0.1", "pair/1"), ("127.0.0.1", "pair/1")], 1),
        ([("127.0.0.1", "pair/1"), ("127.0.0.1", "pair/2")], 2),
        ([("127.0.0.1", ""), ("127.0.0.1", "pair/2")], 1),
        ([("::1", ""), ("127.0.0.1", "pair/2")], 1),
        ([("127.0.0.1", ""), ("127.0.0.1", "pair/1"), ("127.0.0.1", "pair/2")], 2),
        ([("10.0.0.1", "pair/1"), ("10.0.0.2", "pair/1")], 1),  # it has two addresses
        ([("10.0.0.1", "pair/1"), ("10.0.0.1", "pair/2")], 1),  # anybody may say any name
        ([("10.0.0.1", "pair/1"), ("127.0.0.1", "pair/1")], 1),
        ([("10.0.0.1", "pair/1"), ("10.0.0.2", "")], 2),
    ],
)
def test_what_may_be_one_slave_is_one_acknowledgement(peers: list[tuple[str, str]], distinct: int) -> None:
    for order in permutations(peers):
        made = InSyncReplicas(distinct + 1, 1000)
        for number, (host, name) in enumerate(order):
            connect(made, f"{host}:1", 500 + number, begins_at=0, name=name)
        assert (made.live_slaves, made.is_slave_ok(600), made.proof_beyond(0) is not None) == (distinct, True, True)
        made.in_sync_replicas += 1
        assert (made.is_slave_ok(600), made.proof_beyond(0), made.value()) == (False, None, -1)


def test_addresses() -> None:
    assert (host_of("10.0.0.1:99"), host_of("[fd00::1]:99")) == ("10.0.0.1", "fd00::1")


@pytest.mark.parametrize(
    ("slaves", "held"),
    [
        ([], 0),
        ([("b/1", 500)], 500),
        ([("b/1", 500), ("b/2", 900)], 500),
        ([("b/2", 900)], 0),
        ([("b/1", 500), ("b/1", 700)], 700),  # the old connection, and the new one
        ([("b/1", -1), ("b/2", 900)], 0),
        ([("", 300)], 300),  # of RocketMQ: it says no name
        ([("", 300), ("", 900)], 300),
        ([("", 300), ("b/1", 500)], 500),
        ([("", 300), ("b/2", 900)], 300),
    ],
)
def test_what_the_slave_of_a_name_has_reported(slaves: list[tuple[str, int]], held: int) -> None:
    """Any that has said no name may be it."""
    made = InSyncReplicas(2, 1000)
    for number, (name, reported) in enumerate(slaves):
        connect(made, f"10.0.0.{number}:1", reported, name=name)
    assert made.reported_of("b/1") == held
