"""When a slave tells a group that it has no offset: that group begins at the end, and passes over what there is."""

import pytest
import trio
from trio.testing import MockClock

from rmqha.errors import RemoteProtocolError
from tests.broker.machines import Machine, ask, send_request
from tests.broker.test_pair import SLAVE
from tests.broker.test_taken_tables import MASTER, lose_config
from tests.sim.sim_net import SimNet


@pytest.mark.parametrize("are_lost", [False, True])
async def test_a_slave_whose_master_is_away_says_who_has_no_offset_at_once_if_it_has_the_table(
    autojump_clock: MockClock, *, are_lost: bool
) -> None:
    """One without waits a minute for the master. One with it would have new groups wait for nothing."""
    net = SimNet()
    master, slave = Machine(net, "10.0.0.1", MASTER), Machine(net, "10.0.0.2", SLAVE)
    async with master.broker() as broker, slave.broker(), master.client() as client:
        for _ in range(3):
            await ask(client, send_request(b"x"))
        broker.offsets.commit_offset("group", "t", 0, offset=3)
        await trio.sleep(30)
    if are_lost:
        lose_config(slave)
    async with slave.broker() as broker:
        if are_lost:
            await trio.sleep(50)
            with pytest.raises(RemoteProtocolError, match="has yet to be told them by its master"):
                broker.offsets.check_known()
            await trio.sleep(20)
        broker.offsets.check_known()
        broker.offsets.commit_offset("new", "t", 0, offset=0, peer="10.9.9.9:1")
        assert broker.offsets.query_offset("group", "t", 0) == (None if are_lost else 3)
