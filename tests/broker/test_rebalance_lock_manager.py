"""RebalanceLockManager: locks are bounded, and nobody loses one that it renews."""

import pytest

from rmqha.broker.clients import rebalance_lock_manager
from rmqha.broker.clients.rebalance_lock_manager import LOCK_MAX_LIVE_TIME_S, RebalanceLockManager
from rmqha.codec.lock_batch import MessageQueue
from tests.reachable import count_entries


def queues(*ids: int) -> list[MessageQueue]:
    return [MessageQueue("t", "b", queue_id) for queue_id in ids]


def lock(locks: RebalanceLockManager, client_id: str, *ids: int, host: str = "", now: float = 0) -> list[int]:
    locked = locks.try_lock_batch("g", queues(*ids), client_id=client_id, host=host, now=now)
    return [queue.queue_id for queue in locked]


def test_i11_a_lock_ends_when_it_is_given_up_or_not_renewed() -> None:
    locks = RebalanceLockManager()
    assert lock(locks, "a", 0, 1) == [0, 1]
    assert lock(locks, "b", 0, 1, 2, now=LOCK_MAX_LIVE_TIME_S / 2) == [2]
    assert lock(locks, "a", 1, now=LOCK_MAX_LIVE_TIME_S / 2) == [1]
    assert lock(locks, "b", 0, 1, now=LOCK_MAX_LIVE_TIME_S) == [0]
    locks.unlock_batch("g", queues(1, 2, 3), client_id="a")
    assert lock(locks, "c", 0, 1, 2, now=LOCK_MAX_LIVE_TIME_S) == [1]


def test_groups_do_not_lock_each_other_out() -> None:
    locks = RebalanceLockManager()
    assert lock(locks, "a", 0) == [0]
    assert locks.try_lock_batch("other", queues(0), client_id="b", host="", now=0) == queues(0)


def test_locks_are_bounded_and_shared_by_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebalance_lock_manager, "LOCKS_MAX", 100)
    locks = RebalanceLockManager()
    mine = lock(locks, "a", *range(1000), host="10.0.0.1")
    assert len(mine) == 50
    theirs = lock(locks, "b", *range(1000, 2000), host="10.0.0.2")
    assert len(theirs) == 25
    assert lock(locks, "a", *mine, host="10.0.0.1", now=30) == mine, "what it has it keeps"
    assert lock(locks, "c", *range(2000, 2100), host="10.0.0.3", now=LOCK_MAX_LIVE_TIME_S)
    locks.unlock_batch("g", queues(*mine), client_id="a")


def test_nothing_is_left_of_locks_that_ended() -> None:
    locks = RebalanceLockManager()
    for number in range(5000):
        lock(locks, "a", number, host="10.0.0.1", now=number)
    assert count_entries(locks) < 1000
    for _ in range(5):
        lock(locks, "a", 0, now=1e6)
    locks.unlock_batch("g", queues(0), client_id="a")
    assert count_entries(locks) == count_entries(RebalanceLockManager())


def test_locks_that_ended_make_room_though_an_older_one_is_renewed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebalance_lock_manager, "LOCKS_MAX", 100)
    locks = RebalanceLockManager()
    assert lock(locks, "a", 0, host="10.0.0.1") == [0]
    ended = lock(locks, "gone", *range(1, 101), host="10.0.0.2")
    assert lock(locks, "a", 0, host="10.0.0.1", now=LOCK_MAX_LIVE_TIME_S / 2) == [0]
    others = lock(locks, "b", *range(101, 201), host="10.0.0.2", now=LOCK_MAX_LIVE_TIME_S)
    assert len(others) == len(ended)
    assert lock(locks, "b", 0, host="10.0.0.2", now=LOCK_MAX_LIVE_TIME_S) == []
