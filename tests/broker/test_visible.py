"""Tools are answered when what was put before can be seen, or soon; what waits for that leaves nothing behind."""

from typing import cast

import trio
from trio.testing import MockClock

from rmqha.broker.visible import EndSeekers, wait_visible
from rmqha.replication.watermark import Watermark
from rmqha.store.message_store import DefaultMessageStore


class StandingStore:
    """Its dispatch stands still."""

    max_offset = 100
    reput_from_offset = 50

    def __init__(self) -> None:
        self.reput = self
        self.dispatched = Watermark(50)

    def request_flush(self) -> None:
        """Nothing comes of it."""


async def test_nothing_is_left_of_who_was_answered_or_has_gone(autojump_clock: MockClock) -> None:
    store = StandingStore()
    await wait_visible(cast("DefaultMessageStore", store))
    assert trio.current_time() == 0.5
    with trio.move_on_after(0.1):
        await wait_visible(cast("DefaultMessageStore", store))
    assert store.dispatched.waiting == 0


async def test_of_readers_without_end_few_are_kept_and_each_waits(autojump_clock: MockClock) -> None:
    """As one client that names another group with each pull."""
    seekers, kept = EndSeekers(), 0
    readers = [("10.9.9.9:1", f"group-{number}", "t", 0) for number in range(10_000)]
    for number, reader in enumerate(readers):
        assert seekers.waits(reader, at=5, given_out=6)
        if number % 1000 == 999:
            kept = max(kept, sum(one in seekers for one in readers))
    assert 0 < kept <= 4096
    assert not seekers.waits(readers[-1], at=6, given_out=9), "it has what there was when it came to the end"
