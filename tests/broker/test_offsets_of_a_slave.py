"""When a slave tells a group that it has no offset: that group begins at the end, and passes over what there is."""

from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.classic.followed_tables import FollowedTables
from rmqha.broker.tables.consumer_offset_manager import ConsumerOffsetManager
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


@pytest.mark.parametrize("is_joined", [True, False])
def test_offsets_beyond_the_log_are_in_doubt_where_it_does_not_go_on_like_the_masters(*, is_joined: bool) -> None:
    """Where it does they are ahead of the log for a moment, as the tables come by another way."""
    offsets, asks = ConsumerOffsetManager(), list[str]()
    offsets.commit_offset("group", "t", 0, offset=5)
    metadata: Any = SimpleNamespace(offsets=offsets, queue_ends=SimpleNamespace(), save_soon=bool)
    store: Any = SimpleNamespace(end_of_queue=lambda *_queue: 3)
    synchronize: Any = SimpleNamespace(look=lambda: asks.append("look"))
    ends_client: Any = None
    followed = FollowedTables(synchronize, store, metadata, master_address=str, queue_ends_client=ends_client)
    client: Any = SimpleNamespace(is_joined=is_joined)
    followed.on_link(client)
    assert (offsets.to_json()["offsetTable"], asks) == ({"t@group": {0: 5 if is_joined else 3}}, ["look"])
