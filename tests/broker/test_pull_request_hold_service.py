"""A held pull goes on with the next message, or when its time is over; once."""

from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from rmqha.broker import pull_request_hold_service
from rmqha.broker.pull_request_hold_service import AT_ONCE_MAX, PullRequestHoldService
from rmqha.replication.watermark import Waiter


async def test_a_held_pull_goes_on_when_its_message_arrives(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    holds = PullRequestHoldService()
    nursery.start_soon(holds.run)
    outcome: list[bool] = []
    holds.suspend_pull_request("t", 0, offset=7, queue_end=7, deadline=15.0, retry=outcome.append)
    holds.notify_message_arriving("t", 1, 8)
    assert outcome == []
    holds.notify_message_arriving("t", 0, 8)
    assert not holds.is_holding()
    await trio.sleep(20)
    assert outcome == [True]
    nursery.cancel_scope.cancel()


async def test_a_held_pull_ends_at_its_deadline_and_not_before(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    holds = PullRequestHoldService()
    nursery.start_soon(holds.run)
    await wait_all_tasks_blocked()
    ended: list[tuple[bool, float]] = []

    def retry(arrived: bool) -> None:
        ended.append((arrived, trio.current_time()))

    holds.suspend_pull_request("t", 0, offset=7, queue_end=7, deadline=15.0, retry=retry)
    await trio.sleep(30)
    holds.notify_message_arriving("t", 0, 8)
    assert ended == [(False, 15.0)]
    nursery.cancel_scope.cancel()


async def test_what_finds_nothing_before_the_end_of_its_queue_waits_for_the_next_message() -> None:
    holds = PullRequestHoldService()
    outcome: list[bool] = []

    def hold(arrived: bool) -> None:
        outcome.append(arrived)
        holds.suspend_pull_request("t", 0, offset=7, queue_end=9 + len(outcome), deadline=15.0, retry=hold)

    holds.suspend_pull_request("t", 0, offset=7, queue_end=9, deadline=15.0, retry=hold)
    assert outcome == []
    holds.notify_message_arriving("t", 0, 10)
    assert (outcome, holds.held) == ([True], 1)


async def test_a_pull_for_many_tags_gives_back_all_its_places(
    nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """Whether its message arrives, or its time is over; else no pull would be held any more after some hours."""
    monkeypatch.setattr(pull_request_hold_service, "HELD_MAX", 12)
    holds = PullRequestHoldService()
    nursery.start_soon(holds.run)
    outcome: list[bool] = []
    for end in range(7, 11):
        for peer in ("10.0.0.1:1", "10.0.0.2:1"):
            deadline = trio.current_time() + 15
            holds.suspend_pull_request(
                "t", 0, offset=end, queue_end=end, deadline=deadline, retry=outcome.append, tags=75, peer=peer
            )
        assert holds.held == 2 * 4, "a place for 25 tags, and its own"
        if end % 2:
            holds.notify_message_arriving("t", 0, end + 1)
        else:
            await trio.sleep(20)
        assert holds.held == 0
    assert outcome == [True, True, False, False] * 2
    nursery.cancel_scope.cancel()


async def test_queues_that_come_and_go_leave_nothing_behind(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr(pull_request_hold_service, "ENDS_MIN", 8)
    holds = PullRequestHoldService()
    came: list[int] = []

    def hold(queue_id: int) -> None:
        retry = lambda arrived: came.append(queue_id)  # noqa: E731
        holds.suspend_pull_request("t", queue_id, offset=1, queue_end=1, deadline=15.0, retry=retry)

    for queue_id in range(4):
        hold(queue_id)
    for queue_id in range(4, 40):
        hold(queue_id)
        holds.notify_message_arriving("t", queue_id, 2)
    assert len(holds._ends) <= 16
    for queue_id in range(4):
        holds.notify_message_arriving("t", queue_id, 2)
    assert sorted(came) == list(range(40))


async def test_a_queue_that_begins_anew_has_its_pulls_go_on(autojump_clock: MockClock) -> None:
    holds = PullRequestHoldService()
    outcome: list[bool] = []
    holds.suspend_pull_request("t", 0, offset=9, queue_end=9, deadline=15.0, retry=outcome.append)
    holds.notify_message_arriving("t", 0, 1)
    assert outcome == [True]
    holds.suspend_pull_request("t", 0, offset=1, queue_end=1, deadline=15.0, retry=outcome.append)
    holds.notify_message_arriving("t", 0, 2)
    assert outcome == [True, True]


async def test_a_queue_that_begins_anew_lets_its_pulls_go_on_in_turns(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """All of them went on in one step of the event loop; those that are held meanwhile wait for the new queue."""
    holds = PullRequestHoldService()
    nursery.start_soon(holds.run)
    outcome: list[bool] = []
    for _ in range(10 * AT_ONCE_MAX):
        holds.suspend_pull_request("t", 0, offset=9, queue_end=9, deadline=15.0, retry=outcome.append)
    ended = list[int]()
    finished = Waiter.finish

    def count(waiter: Waiter, *, reached: bool, value: int) -> None:
        ended.append(1)
        finished(waiter, reached=reached, value=value)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Waiter, "finish", count)
        holds.notify_message_arriving("t", 0, 1)
    assert (len(ended), outcome) == (AT_ONCE_MAX, [True] * AT_ONCE_MAX)
    holds.suspend_pull_request(
        "t", 0, offset=1, queue_end=1, deadline=15.0, retry=lambda _arrived: outcome.append(False)
    )
    await trio.sleep(1)
    assert (outcome, holds.held) == ([True] * 10 * AT_ONCE_MAX, 1)
    holds.notify_message_arriving("t", 0, 2)
    assert outcome[-1] is False
    nursery.cancel_scope.cancel()


async def test_stopping_lets_every_held_pull_go(nursery: trio.Nursery, mock_clock: MockClock) -> None:
    holds = PullRequestHoldService()
    nursery.start_soon(holds.run)
    outcome: list[bool] = []
    holds.suspend_pull_request("t", 0, offset=7, queue_end=7, deadline=15.0, retry=outcome.append)
    await wait_all_tasks_blocked()
    holds.release_all()
    await wait_all_tasks_blocked()
    assert outcome == [False]
    nursery.cancel_scope.cancel()


async def test_a_pull_that_comes_while_the_broker_stops_is_not_held(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """One whose message arrived just before, and is not for it; one of a client that is served in the same moment."""
    holds = PullRequestHoldService()
    nursery.start_soon(holds.run)
    outcome: list[bool] = []

    def hold(arrived: bool) -> None:
        outcome.append(arrived)
        if arrived:
            holds.suspend_pull_request("t", 0, offset=8, queue_end=8, deadline=15.0, retry=hold)

    for _ in range(2 * AT_ONCE_MAX):
        holds.suspend_pull_request("t", 0, offset=7, queue_end=7, deadline=15.0, retry=hold)
    holds.notify_message_arriving("t", 0, 8)
    holds.release_all()
    holds.suspend_pull_request("t", 0, offset=8, queue_end=8, deadline=15.0, retry=hold)
    await wait_all_tasks_blocked()
    assert (holds.held, trio.current_time(), outcome.count(False)) == (0, 0.0, 2 * AT_ONCE_MAX + 1)
    nursery.cancel_scope.cancel()


async def test_one_message_that_ends_many_holds_lets_others_have_their_turns(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Each of them looks for messages and answers, so 65,536 at once would hold the event loop for seconds."""
    holds = PullRequestHoldService()
    nursery.start_soon(holds.run)
    await wait_all_tasks_blocked()
    outcome: list[bool] = []
    count = 20 * AT_ONCE_MAX
    for _ in range(count):
        holds.suspend_pull_request("t", 0, offset=7, queue_end=7, deadline=15.0, retry=outcome.append)
    holds.notify_message_arriving("t", 0, 8)
    turns = []
    while holds.held:
        turns.append(len(outcome))
        await trio.lowlevel.checkpoint()
    assert max(after - before for before, after in pairwise([*turns, len(outcome)])) <= 2 * AT_ONCE_MAX
    assert (turns[0], outcome) == (AT_ONCE_MAX, [True] * count)
    for _ in range(count):
        holds.suspend_pull_request("t", 0, offset=8, queue_end=8, deadline=15.0, retry=outcome.append)
    await trio.sleep(16)
    assert (holds.held, outcome[count:]) == (0, [False] * count)
    nursery.cancel_scope.cancel()


async def test_those_that_go_on_later_count_as_held(monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock) -> None:
    monkeypatch.setattr(pull_request_hold_service, "HELD_MAX", 2 * AT_ONCE_MAX)
    holds = PullRequestHoldService()
    outcome: list[bool] = []
    for _ in range(3):
        for _ in range(2 * AT_ONCE_MAX):
            holds.suspend_pull_request("t", 0, offset=7, queue_end=7, deadline=15.0, retry=outcome.append)
            assert holds.held <= 2 * AT_ONCE_MAX
        holds.release_all()
    assert holds.held + len(outcome) == 6 * AT_ONCE_MAX
