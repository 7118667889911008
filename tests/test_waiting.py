"""Waiting for a watermark in a task takes exactly as long as it must."""

from functools import partial

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from rmqha.replication.deadlines import Deadlines
from rmqha.replication.watermark import Complete, Watermark
from rmqha.waiting import DeadlineService, wait_overdue, wait_reached
from tests.garbage import FEW, PEERS, counted_garbage


async def test_wait_reached_returns_when_the_offset_passes(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    mark = Watermark()
    outcome: list[bool] = []

    async def wait() -> None:
        outcome.append(await wait_reached(mark, 10, deadline=5.0))

    nursery.start_soon(wait)
    await wait_all_tasks_blocked()
    mark.advance(10)
    await wait_all_tasks_blocked()
    assert (outcome, trio.current_time()) == ([True], 0.0)


async def test_wait_reached_gives_up_at_its_deadline(autojump_clock: MockClock) -> None:
    mark = Watermark()
    assert not await wait_reached(mark, 10, deadline=5.0)
    assert (trio.current_time(), mark.waiting) == (5.0, 0)


async def test_nothing_is_left_of_a_wait_that_is_cancelled(autojump_clock: MockClock) -> None:
    mark = Watermark()
    with trio.move_on_after(1):
        await wait_reached(mark, 10)
    assert mark.waiting == 0


async def test_each_waiter_expires_at_his_own_deadline(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    mark = Watermark()
    nursery.start_soon(DeadlineService(mark.deadlines).run)
    expired: dict[str, float] = {}
    await wait_all_tasks_blocked()

    def note(name: str) -> Complete:
        return lambda reached, value: expired.update({name: trio.current_time()})

    for name, deadline in (("late", 4.0), ("early", 1.5)):
        mark.add(10, deadline, note(name))
    await trio.sleep(10)
    assert expired == {"late": 4.0, "early": 1.5}
    nursery.cancel_scope.cancel()


async def test_deadlines_and_what_keeps_them_leave_nothing_to_the_collector(autojump_clock: MockClock) -> None:
    """Each connection has both; some thousands may end in a minute."""
    with counted_garbage() as left:
        for _ in range(PEERS):
            service = DeadlineService(deadlines := Deadlines())
            async with trio.open_nursery() as nursery:
                nursery.start_soon(service.run)
                deadlines.add(1.0, nursery.cancel_scope.cancel)
                await trio.sleep(2.0)
            del service, deadlines, nursery
    assert left.total() < FEW, left.most_common(20)


async def test_deadlines_are_kept_that_were_there_before_and_again(autojump_clock: MockClock) -> None:
    deadlines, expired = Deadlines(), list[float]()
    service = DeadlineService(deadlines)
    for after_s in (3.0, 6.0):
        deadlines.add(trio.current_time() + after_s, lambda: expired.append(trio.current_time()))
        with trio.move_on_after(after_s + 0.5):
            await service.run()
    assert expired == [3.0, 9.5]


async def test_time_in_which_the_process_stood_still_is_no_silence(mock_clock: MockClock) -> None:
    """A slave that was stopped for half a minute said that its master had sent nothing for 20 s."""
    deadline = trio.current_time() + 20.0
    async with trio.open_nursery() as nursery:
        nursery.start_soon(partial(wait_overdue, lambda: deadline, ahead_s=20.0))
        for jump_s, is_waiting in ((30.0, True), (19.9, True), (0.2, False)):
            await wait_all_tasks_blocked()
            mock_clock.jump(jump_s)
            await wait_all_tasks_blocked()
            assert bool(nursery.child_tasks) is is_waiting


async def test_what_came_while_the_process_stood_still_is_read_before_anybody_is_overdue(mock_clock: MockClock) -> None:
    """A machine that was suspended takes no peer for silent whose bytes wait in its socket."""
    deadline, has_come = 0.0, trio.Event()

    async def read() -> None:
        nonlocal deadline
        await has_come.wait()
        deadline += 20.0

    for _ in range(20):  # who of two tasks goes first is drawn
        deadline, has_come = trio.current_time() + 20.0, trio.Event()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            nursery.start_soon(wait_overdue, lambda: deadline)  # noqa: B023 - it has ended before the next one
            await wait_all_tasks_blocked()
            has_come.set()
            mock_clock.jump(25.0)
            await wait_all_tasks_blocked()
            assert len(nursery.child_tasks) == 1, "it waits for the next deadline"
            nursery.cancel_scope.cancel()
