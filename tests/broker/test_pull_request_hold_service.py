"""A held pull goes on with the next message, or when its time is over; once."""

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from rmqha.broker.pull_request_hold_service import PullRequestHoldService


async def test_a_held_pull_goes_on_when_its_message_arrives(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    holds = PullRequestHoldService()
    nursery.start_soon(holds.run)
    outcome: list[bool] = []
    holds.suspend_pull_request("t", 0, offset=7, queue_end=7, deadline=15.0, retry=outcome.append)
    holds.notify_message_arriving("t", 1, 8)
    assert outcome == []
    holds.notify_message_arriving("t", 0, 8)
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


async def test_stopping_lets_every_held_pull_go() -> None:
    holds = PullRequestHoldService()
    outcome: list[bool] = []
    holds.suspend_pull_request("t", 0, offset=7, queue_end=7, deadline=15.0, retry=outcome.append)
    holds.release_all()
    assert outcome == [False]
