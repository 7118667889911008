"""What the page of the documentation, the alerts and the dashboard name is in a scrape, and the other way round."""

import json
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.tables.topic_config import TopicConfig
from rmqha.certificates import Certificates
from rmqha.config.load_namesrv import load_namesrv
from rmqha.namesrv.namesrv_controller import NamesrvController
from tests.broker.machines import ask, pull_request, send_request
from tests.broker.test_dledger_broker import group_of
from tests.broker.test_pair import Pair
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_net import SimNet
from tests.test_tls import Pki

pytest.importorskip("h11", reason="h11 is in the extra [web]")
pytest.importorskip("prometheus_client", reason="prometheus-client is in the extra [web]")

from rmqha.metrics.observed import open_name_server_port
from tests.metrics.scrapes import Sample, Scraper, scraped, settings
from tests.metrics.test_broker_port import commit

ROOT = Path(__file__).resolve().parents[2]
NAME = re.compile(r"\b(?:rmqha|rocketmq|process)_[a-z0-9_]+\b")
SPANS = re.compile(r"_brokeruntime_(?:getfound|getmiss|gettotal|gettransfered)_tps(?:10|60|600)$")
"""The page names those of put_tps, and says that there are more of that kind."""
KINDS = re.compile(r"(?<=send_latency_seconds)_(?:bucket|count|sum)$")


def names_of(samples: Iterable[Sample]) -> set[str]:
    return {KINDS.sub("", name) for name, _ in samples}


async def all_names(directory: Path) -> set[str]:
    """What pairs, groups and name servers tell, in a process with a certificate."""
    names: set[str] = set()
    shown = Certificates(Pki(directory).options("a"))
    pair = Pair()
    for machine in (pair.master, pair.slave):
        machine.settings |= settings()
    async with pair.running() as (master, slave), pair.master.client() as client:
        await ask(client, send_request(b"x"))
        await commit(client, 0, group="g", topic="t")
        for own in ("%RETRY%g", "%DLQ%g"):
            master.topics.update_topic_config(TopicConfig(own, 1, 1))
        await commit(client, 0, group="g", topic="%RETRY%g")
        await ask(client, pull_request(0))
        stranger = await pair.net.host("10.7.7.7").mount().connect("10.0.0.1", 10911, timeout_s=5)
        await stranger.send_all(b"nonsense" * 9)
        await trio.sleep(15)
        async with scraped(master, pair.net) as one, scraped(slave, pair.net, number=2) as other:
            names |= names_of(await one.scrape()) | names_of(await other.scrape())
    async with (
        group_of(metricsListen="10.8.8.1:9100") as group,
        scraped((await group.wait_master()).running, group.net) as one,
    ):
        names |= names_of(await one.scrape())
    del shown
    return names | await names_of_a_name_server()


async def names_of_a_name_server() -> set[str]:
    net = SimNet()
    config = load_namesrv(None, {"kvConfigPath": "/kv.json", "allowInsecure": "true", **settings()})
    names = NamesrvController(config, disk=SimDisk().mount(), network=net.host("10.0.0.1").mount())
    async with trio.open_nursery() as nursery, open_name_server_port(names, network=net.host("10.8.8.1").mount()):
        await nursery.start(names.run)
        told = names_of(await Scraper(net, "10.8.8.1").scrape())
        names.stop()
    return told


async def test_the_page_names_what_there_is_and_nothing_else(autojump_clock: MockClock, tmp_path: Path) -> None:
    told = await all_names(tmp_path)
    page = set(NAME.findall((ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")))
    assert sorted({name for name in told if not SPANS.search(name)} - page) == [], "not in the page"
    assert sorted(page - told - {"rocketmq_brokeruntime_"}) == [], "not told"


async def test_alerts_and_dashboard_ask_for_what_there_is(autojump_clock: MockClock, tmp_path: Path) -> None:
    told = await all_names(tmp_path)
    for path in (ROOT / "conf/prometheus/rmqha.rules.yml", ROOT / "conf/grafana/rmqha.json"):
        asked = {KINDS.sub("", name) for name in NAME.findall(path.read_text(encoding="utf-8"))}
        assert len(asked) > 10
        assert sorted(asked - told) == [], path.name


def test_the_dashboard_can_be_imported() -> None:
    dashboard = json.loads((ROOT / "conf/grafana/rmqha.json").read_text(encoding="utf-8"))
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels) > 20
    for panel in panels:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
        assert panel["type"] == "row" or all(target["expr"] for target in panel["targets"])
