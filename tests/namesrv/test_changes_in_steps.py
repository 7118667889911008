"""What takes long is done in steps, between which topics and brokers come and go."""

from functools import partial
from typing import Any

import pytest
from trio.testing import MockClock

from rmqha.codec.codes import RequestCode
from rmqha.codec.register_broker import DataVersion
from rmqha.codec.route import QueueData
from rmqha.namesrv import route_processor
from rmqha.namesrv.route_info_manager import RouteInfoManager
from rmqha.namesrv.routes import Registration
from tests.namesrv.machines import NameServerMachine, ask, register
from tests.sim.sim_net import SimNet

MASTER = Registration("c", "a", 0, "10.0.0.1:10911", "10.0.0.1:10912", DataVersion(1, 1))


class Wire:
    peer = "10.0.0.1:5"

    def close(self, _reason: str) -> None:
        pass


@pytest.mark.parametrize("writable", [False, True])
async def test_topics_that_go_meanwhile_are_passed_over(*, writable: bool) -> None:
    names = RouteInfoManager()
    topics = {f"t{number}": QueueData("a", 4, 4, 4 if writable else 6) for number in range(1200)}
    names.register_broker(MASTER, topics, connection=Wire(), now=0.0)
    steps = names.change_write_perm("a", writable=writable)
    counts = [next(steps)]
    names.delete_topic("t1199", cluster=None)
    names.delete_topic("t0", cluster=None)
    counts += steps
    found = names.find("a")
    assert found is not None
    assert {queues.perm for _, queues in found.topics()} == {6 if writable else 4}
    assert counts == [500, 1000, 1199]
    assert len(list(found.topics())) == 1198, "what has gone does not come back"


async def test_a_long_route_is_that_of_the_moment_when_its_turn_comes(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what operators keep of its order; of a topic that has gone by then there is nobody to send to."""
    monkeypatch.setattr(route_processor, "_ADDRESSES_AT_ONCE", 0)
    machine = NameServerMachine(SimNet(), settings={"orderMessageEnable": "true"})
    entry: dict[str, Any] = {"namespace": "ORDER_TOPIC_CONFIG", "key": "t", "value": "a:4"}
    async with machine.running(), machine.client() as client, machine.client() as broker:
        await register(broker, "t", "u")
        await ask(client, RequestCode.PUT_KV_CONFIG, **entry)
        route = partial(ask, client, RequestCode.GET_ROUTEINFO_BY_TOPIC)
        assert b'"orderTopicConf":"a:4"' in (await route(topic="t")).body
        assert b"orderTopicConf" not in (await route(topic="u")).body
