"""Reports leave at once, whole, and never fall."""

import trio
from trio.testing import MockClock

from rmqha.ha.report_sender import ReportSender
from tests.fakes import MemoryStream, memory_connection
from tests.ha.harness import settle


async def received(stream: MemoryStream) -> list[int]:
    space = memoryview(bytearray(1000))
    wire = b""
    while stream.incoming.size or len(wire) % 8 != 0:
        wire += space[: await stream.receive_into(space)]
        await settle()
    return [int.from_bytes(wire[at : at + 8], "big") for at in range(0, len(wire), 8)]


async def test_a_report_leaves_before_anybody_else_runs(autojump_clock: MockClock) -> None:
    mine, theirs = memory_connection()
    sender = ReportSender(mine, 5, heartbeat_s=5.0)
    sender.report(5)
    sender.report(4)
    assert theirs.incoming.size == 0, "what has been reported is not said again, and nothing falls"
    sender.report(6)
    assert theirs.incoming.size == 8


async def test_a_full_line_gets_the_cut_report_and_then_only_the_newest(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    mine, theirs = memory_connection(capacity=11)
    sender = ReportSender(mine, 0, heartbeat_s=5.0)
    nursery.start_soon(sender.run)
    for offset in (1, 2, 3, 4):
        sender.report(offset)
    await settle()
    assert await received(theirs) == [1, 2, 4]
    nursery.cancel_scope.cancel()


async def test_a_report_waits_while_the_rest_of_the_one_before_is_on_its_way(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    mine, theirs = memory_connection(capacity=11)
    sender = ReportSender(mine, 0, heartbeat_s=5.0)
    nursery.start_soon(sender.run)
    sender.report(1)
    sender.report(2)
    await settle()
    assert await theirs.receive_into(memoryview(bytearray(8))) == 8
    sender.report(3)  # there is room now, and the task has not run yet
    await settle()
    assert await received(theirs) == [2, 3]
    nursery.cancel_scope.cancel()


async def test_a_heartbeat_is_due_five_seconds_after_the_last_report(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    mine, theirs = memory_connection()
    sender = ReportSender(mine, 7, heartbeat_s=5.0)
    await sender.send_first()
    nursery.start_soon(sender.run)
    await trio.sleep(4.0)
    sender.report(9)
    await trio.sleep(4.9)
    assert theirs.incoming.size == 16
    await trio.sleep(0.2)
    assert await received(theirs) == [7, 9, 9]
    nursery.cancel_scope.cancel()
