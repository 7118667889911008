"""A heartbeat that makes several groups is answered when name servers know the retry topics of all of them."""

import trio
from trio.testing import MockClock

from tests.broker.group_members import member_of
from tests.broker.test_awaited_name_servers import registered, slow_down
from tests.broker.test_name_servers import known_at
from tests.sim.sim_net import SimNet


async def test_of_groups_that_are_told_one_after_the_other_the_last_is_waited_for(autojump_clock: MockClock) -> None:
    """The first one was made by another member a moment before, and is told already when the second one is made."""
    net = SimNet()
    async with registered(net) as (machine, names), member_of(machine, "a") as a, member_of(machine, "b") as b:
        slow_down(net, 0.3)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(a.heartbeat, "g")
            await trio.sleep(0.1)
            await b.heartbeat("g", "h")
            assert {"%RETRY%g", "%RETRY%h"} <= set(known_at(names))
