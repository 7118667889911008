"""What is said when the event loop stood still."""

import trio
from structlog.testing import capture_logs
from trio.testing import MockClock, wait_all_tasks_blocked

from rmqha.stalls import tell_of_stalls


async def test_a_stall_is_told_when_it_is_over(mock_clock: MockClock, nursery: trio.Nursery) -> None:
    """A snapshot froze the file system: half a minute without an answer, and not a word of it."""
    nursery.start_soon(tell_of_stalls)
    told = list[float]()
    for seconds in (1.0, 5.9, 31.0, 1.0):
        await wait_all_tasks_blocked()
        with capture_logs() as logs:
            mock_clock.jump(seconds)
            await wait_all_tasks_blocked()
        stalls = [entry for entry in logs if entry["event"] == "process.stood_still"]
        told += [entry["seconds"] for entry in stalls]
        for cause in ("stopped", "disk", "collector"):
            assert all(cause in entry["why"] for entry in stalls)
    assert told == [30.0]
    nursery.cancel_scope.cancel()
