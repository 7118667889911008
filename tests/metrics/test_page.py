"""The page for Prometheus: made once a second at most, in turns, and whole as far as it can be."""

from collections.abc import Iterator
from functools import partial

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

pytest.importorskip("prometheus_client", reason="prometheus-client is in the extra [web]")

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from rmqha.broker.tables.topic_config import TopicConfig
from rmqha.metrics.families import gauge, histogram, one_of
from rmqha.metrics.page import FRESH_S, MetricsPage, Source
from tests.broker.machines import Machine
from tests.broker.test_longest_step import STEPS_A_TURN, LongestStep
from tests.codec.test_linear_time import seconds_of_a_turn
from tests.metrics.scrapes import scraped, settings
from tests.sim.sim_net import SimNet


async def nothing() -> None:
    await trio.lowlevel.checkpoint()


def read(text: bytes) -> dict[str, float]:
    return {
        f"{sample.name}{sorted(sample.labels.values())}": sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


class Sources:
    made = 0

    def __call__(self) -> list[Source]:
        return [self.good, self.broken, self.last]

    def good(self) -> Iterator[Metric]:
        self.made += 1
        yield gauge("made", "How often.", self.made)

    def broken(self) -> Iterator[Metric]:
        yield gauge("before", "Told.", 1)
        raise RuntimeError("a bug")

    def last(self) -> Iterator[Metric]:
        yield one_of("state", "Which.", "state", ["a", "b"], present="b")
        yield histogram("h", "Times.", [(0.001, 1), (float("inf"), 3)], 0.5)


async def test_however_many_ask_it_is_made_once_a_second(autojump_clock: MockClock) -> None:
    sources = Sources()
    page = MetricsPage(sources, prepare=nothing)
    with capture_logs():
        async with trio.open_nursery() as nursery:
            for _ in range(100):
                nursery.start_soon(page.text)
        assert sources.made == 1
        await trio.sleep(FRESH_S)
        assert read(await page.text())["made[]"] == sources.made == 2


async def test_who_waited_for_a_page_gets_it_however_long_it_took(autojump_clock: MockClock) -> None:
    """A large broker's takes seconds: each who waited would have it made once more, one after the other."""
    sources = Sources()
    page = MetricsPage(sources, prepare=partial(trio.sleep, 5 * FRESH_S))
    with capture_logs():
        async with trio.open_nursery() as nursery:
            for _ in range(10):
                nursery.start_soon(page.text)
        assert sources.made == 1
        await trio.sleep(FRESH_S / 2)
        assert read(await page.text())["made[]"] == 1, "it is fresh from its end on"


async def test_a_bug_costs_one_source(autojump_clock: MockClock) -> None:
    with capture_logs() as logs:
        told = read(await MetricsPage(Sources(), prepare=nothing).text())
    assert [line["event"] for line in logs] == ["metrics.broken"]
    assert (told["made[]"], told["before[]"], told["rmqha_metrics_broken_total[]"]) == (1, 1, 1)
    assert (told["state['a']"], told["state['b']"]) == (0, 1)
    assert (told["h_bucket['0.001']"], told["h_bucket['+Inf']"], told["h_count[]"], told["h_sum[]"]) == (1, 3, 3, 0.5)


async def test_a_bug_before_the_sources_costs_none_of_them_and_is_told(autojump_clock: MockClock) -> None:
    """As one of a source: it is in the log, and counted each time."""

    async def fail() -> None:
        raise RuntimeError("a bug")

    def good() -> Iterator[Metric]:
        yield gauge("good", "Told.", 7)

    page = MetricsPage(lambda: [good], prepare=fail)
    for number in (1, 2):
        with capture_logs() as logs:
            told = read(await page.text())
        assert [line["event"] for line in logs] == ["metrics.broken"]
        assert (told["good[]"], told["rmqha_metrics_broken_total[]"]) == (7, number)
        await trio.sleep(FRESH_S)


async def test_others_have_their_turns_between_families(autojump_clock: MockClock) -> None:
    turns, told_at = 0, list[int]()

    def many() -> Iterator[Metric]:
        for number in range(10):
            told_at.append(turns)
            yield gauge(f"g{number}", "One.", 0)

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        await MetricsPage(lambda: [many], prepare=nothing).text()
        nursery.cancel_scope.cancel()
    assert len(set(told_at)) >= 5, "trio draws who of those that can go on is first"


async def test_a_page_of_a_large_broker_holds_up_nobody(autojump_clock: MockClock) -> None:
    """As many topics and groups as may have their own metrics, and four times as many."""
    machine = Machine(SimNet(), "10.0.0.1", settings() | {"metricsTopicsMax": "2000"})
    async with machine.broker() as broker, scraped(broker, machine.net) as monitoring:
        for number in range(8000):
            broker.topics.update_topic_config(TopicConfig(f"topic-{number}", 4, 4))
            broker.offsets.commit_offset(f"group-{number % 10}", f"topic-{number}", 0, offset=0)
        took = []
        for _ in range(4):  # the least of some counts: caches are shared with whatever else runs on the machine
            with LongestStep() as step:
                reply = await monitoring.get("/metrics")
            took.append(step.s)
            await trio.sleep(60)
        assert reply.text.count("\nrocketmq_group_diff{") == 2001
        assert min(took) < seconds_of_a_turn() / STEPS_A_TURN, took
