"""Servers have a port for observation if they are told to, and only then."""

import pytest
import trio
from trio.testing import MockClock

from rmqha.config import load_config
from rmqha.config.load_namesrv import load_namesrv
from rmqha.metrics.start import observe_broker, observe_name_server
from tests.broker.machines import Machine
from tests.sim.sim_net import SimNet

pytest.importorskip("h11", reason="h11 is in the extra [web]")
pytest.importorskip("prometheus_client", reason="prometheus-client is in the extra [web]")

from tests.metrics.scrapes import Scraper, scraped, settings, value

ALLOWED = {"allowInsecure": "true"}


@pytest.mark.parametrize(
    ("keys", "is_observed"), [({}, False), ({"metricsListen": ""}, False), ({"metricsListen": "127.0.0.1:0"}, True)]
)
def test_only_the_key_opens_one(keys: dict[str, str], is_observed: bool) -> None:
    observers = (
        observe_broker(load_config(None, keys)),
        observe_name_server(load_namesrv(None, ALLOWED | keys)),
    )
    assert [one is not None for one in observers] == [is_observed, is_observed]


async def of_the_broker(monitoring: Scraper) -> set[str]:
    """What is told of it, beside its process, on a page that is whole."""
    samples = await monitoring.scrape()
    assert value(samples, "rmqha_metrics_broken_total") == 0
    return {name for name, _ in samples if name.startswith(("rmqha_", "rocketmq_"))} - {"rmqha_metrics_broken_total"}


async def test_of_a_store_that_is_being_recovered_or_closed_nothing_is_told(autojump_clock: MockClock) -> None:
    """It may hold anything then: what is told is that the broker starts, or stops, and how far it is."""
    machine = Machine(SimNet(), "10.0.0.1", settings())
    broker = machine.controller()
    async with scraped(broker, machine.net) as monitoring, trio.open_nursery() as nursery:
        before = await of_the_broker(monitoring)
        await nursery.start(broker.run)
        await trio.sleep(2)
        while_it_serves = await of_the_broker(monitoring)
        broker.stop()
        await trio.sleep(2)
        after = await of_the_broker(monitoring)
    assert before == after == {
        "rmqha_broker_info", "rmqha_ready", "rmqha_recovering", "rmqha_recovered_bytes", "rmqha_to_recover_bytes",
    }  # fmt: skip
    assert before < while_it_serves
