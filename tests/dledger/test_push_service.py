"""PushService: what happens while it looks is looked at, too."""

from collections.abc import Callable
from math import inf
from types import SimpleNamespace
from typing import Any

import trio
import trio.testing

from rmqha.dledger.dledger_entry_pusher import DLedgerEntryPusher
from rmqha.dledger.push_service import PushService
from tests.dledger.defaults import pusher_options
from tests.dledger.members import follower
from tests.sim.sim_disk import SimDisk


class Asker:
    """Waits for nothing; the first time that it looks it has something done."""

    due_at = inf

    def __init__(self) -> None:
        self.looked = 0
        self.act: Callable[[], None] = lambda: None

    def step(self, *, now: float) -> None:
        self.looked += 1
        if self.looked == 1:
            self.act()


async def test_what_a_look_brings_about_is_looked_at_at_once(autojump_clock: trio.testing.MockClock) -> None:
    """Such as an entry that is appended for a read: who looked before that would hear of it late."""
    pusher = DLedgerEntryPusher[Any](
        follower(SimDisk(latency_s=(0, 0)).mount()), frozenset({"n0", "n1"}), options=pusher_options(acks_flushed=True)
    )
    rpc: Any = SimpleNamespace(connected=frozenset(), answers=SimpleNamespace(send=lambda: None))
    early, late = Asker(), Asker()
    service = PushService(pusher, rpc, [early, late])
    late.act = service.wakeup
    async with trio.open_nursery() as nursery:
        nursery.start_soon(service.run)
        await trio.testing.wait_all_tasks_blocked()
        assert (early.looked, late.looked) == (2, 2)
        nursery.cancel_scope.cancel()
