"""Whose turn it is where strangers come: those who stay have a line of their own, and are remembered."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio
from trio.testing import MockClock

from rmqha.waiting import Handshakes

SOME_HUNDREDS = 500


@asynccontextmanager
async def having_its_turn(handshakes: Handshakes, host: str) -> AsyncIterator[None]:
    """Somebody of this host has it, and does not end."""

    async def take(*, task_status: trio.TaskStatus[None]) -> None:
        async with handshakes.turn(host):
            task_status.started()
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        await nursery.start(take)
        yield
        nursery.cancel_scope.cancel()


async def passes(handshakes: Handshakes, host: str, *, has_answered: bool = False) -> bool:
    """Whether it has its turn although others' are not over."""
    with trio.move_on_after(60):
        async with handshakes.turn(host, has_answered=has_answered):
            return True
    return False


async def test_who_has_been_through_or_has_answered_does_not_wait_for_strangers(autojump_clock: MockClock) -> None:
    handshakes = Handshakes()
    handshakes.note_done("a slave's")
    async with having_its_turn(handshakes, "a stranger's"):
        assert await passes(handshakes, "a slave's")
        assert await passes(handshakes, "a stranger's", has_answered=True)
        assert not await passes(handshakes, "a stranger's")
        assert not await passes(handshakes, "another stranger's")
        async with having_its_turn(handshakes, "a slave's"):
            assert not await passes(handshakes, "a slave's")
    assert await passes(handshakes, "another stranger's")


async def test_a_host_that_comes_again_and_again_is_remembered_and_one_that_came_once_is_not(
    autojump_clock: MockClock,
) -> None:
    """It was there first, and those that come once are many: it is not the oldest that is forgotten for them."""
    handshakes = Handshakes()
    for host in ("regular", "once"):
        handshakes.note_done(host)
    async with having_its_turn(handshakes, "a stranger's"):
        for number in range(10 * SOME_HUNDREDS):
            handshakes.note_done(f"host {number}")
            if number % SOME_HUNDREDS == 0:
                assert await passes(handshakes, "regular"), number
                handshakes.note_done("regular")
        assert await passes(handshakes, f"host {number}")
        assert not await passes(handshakes, "once")
