"""The observability port of a name server, from before it serves to after its end."""

import pytest
import trio
from trio.testing import MockClock

from tests.namesrv.machines import NameServerMachine, register
from tests.sim.sim_net import SimNet

pytest.importorskip("h11", reason="h11 is in the extra [web]")
pytest.importorskip("prometheus_client", reason="prometheus-client is in the extra [web]")

from rmqha.metrics.observed import open_name_server_port
from tests.metrics.scrapes import Scraper, settings, value


async def test_it_is_ready_while_it_serves_and_lives_as_long_as_its_process(autojump_clock: MockClock) -> None:
    """Who goes by it sends nobody to one that has begun to stop."""
    net = SimNet()
    monitoring = Scraper(net, "10.8.8.1")
    names = NameServerMachine(net, settings=settings()).controller()
    async with open_name_server_port(names, network=net.host("10.8.8.1").mount()), trio.open_nursery() as nursery:
        assert await monitoring.readyz() == (503, "starting\n")
        assert value(await monitoring.scrape(), "rmqha_ready") == 0
        await nursery.start(names.run)
        await trio.sleep(2)
        assert await monitoring.readyz() == (200, "ready\n")
        assert value(await monitoring.scrape(), "rmqha_ready") == 1
        names.stop()
        for _ in range(2):
            assert await monitoring.readyz() == (503, "stopping\n")
            await trio.sleep(60)
            assert value(await monitoring.scrape(), "rmqha_ready") == 0
        assert (await monitoring.get("/livez")).status == 200


async def test_brokers_of_all_names_are_counted_and_topics_of_each(autojump_clock: MockClock) -> None:
    net = SimNet()
    monitoring = Scraper(net, "10.8.8.1")
    machine = NameServerMachine(net, settings=settings())
    async with machine.running() as names, open_name_server_port(names, network=net.host("10.8.8.1").mount()):
        async with machine.client() as client:
            await register(client, "t", "u", name="a", address="10.0.0.1:911")
            await register(client, "t", "u", name="a", broker_id=1, address="10.0.0.2:911")
            await register(client, "t", name="b", address="10.0.0.3:911")
            samples = await monitoring.scrape()
        told = [value(samples, f"rmqha_namesrv_{what}") for what in ("groups", "brokers", "topics")]
    assert told == [2, 3, 3]
