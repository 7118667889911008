"""Scrapes of simulated brokers, as numbers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from rmqha.broker.broker_controller import BrokerController
from rmqha.metrics.observed import open_broker_port
from tests.metrics.ports import PORT, Reply, get
from tests.sim.sim_net import SimNet

Sample = tuple[str, frozenset[tuple[str, str]]]


def samples_of(text: str) -> dict[Sample, float]:
    """Each line of a page; one that says the same twice would not be read by Prometheus."""
    samples: dict[Sample, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            assert key not in samples, f"{key} is told twice"
            samples[key] = sample.value
    return samples


@dataclass
class Scraper:
    """Monitoring of one broker."""

    net: SimNet
    host: str

    async def get(self, path: str) -> Reply:
        return await get(self.net, path, to=self.host, host="10.9.9.8")

    async def scrape(self) -> dict[Sample, float]:
        reply = await self.get("/metrics")
        assert reply.status == 200
        assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
        return samples_of(reply.text)

    async def readyz(self) -> tuple[int, str]:
        reply = await self.get("/readyz")
        return reply.status, reply.text


@asynccontextmanager
async def scraped(broker: BrokerController, net: SimNet, *, number: int = 1) -> AsyncIterator[Scraper]:
    """The port of ``broker``, which need not run yet."""
    host = f"10.8.8.{number}"
    async with open_broker_port(broker, network=net.host(host).mount()):
        yield Scraper(net, host)


def value(samples: dict[Sample, float], name: str, **labels: str) -> float:
    """The one sample of that name that has these labels, and perhaps others."""
    found = [number for (one, has), number in samples.items() if one == name and has >= labels.items()]
    assert len(found) == 1, f"{name} {labels}: {found}"
    return found[0]


def settings() -> dict[str, str]:
    return {"metricsListen": f"10.8.8.1:{PORT}"}
