"""Each number of a scrape is that of what it is named after: none is of another, none stays 0, none counts twice."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.broker_controller import BrokerController
from rmqha.codec.admin_headers import CreateTopicRequestHeader
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import encode_header
from rmqha.codec.remoting import RemotingCommand
from rmqha.remoting.client import RemotingClient
from rmqha.store.disk import DiskUsage
from tests.broker.group_members import member_of
from tests.broker.machines import Machine, ask, pull_request, send_request
from tests.sim.sim_net import SimNet

pytest.importorskip("h11", reason="h11 is in the extra [web]")
pytest.importorskip("prometheus_client", reason="prometheus-client is in the extra [web]")

from prometheus_client.metrics_core import Metric

from rmqha.metrics import broker_families, runtime_families
from tests.metrics.scrapes import Sample, Scraper, scraped, settings, value
from tests.metrics.test_broker_port import commit

LISTEN: Final = settings()
LOG_DISK: Final = DiskUsage(1000, 400, 61, read_only=False, free_inodes=31)
QUEUES_DISK: Final = DiskUsage(5000, 700, 83, read_only=False, free_inodes=37)
RATES: Final = ("putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferedTps")
DAYS: Final = [
    f"msg{what}Total{when}" for what in ("Put", "Get") for when in ("TodayNow", "TodayMorning", "YesterdayMorning")
]
NUMBERS: Final = (
    *("putMessageTimesTotal", "putMessageSizeTotal", "putMessageAverageSize", "putMessageEntireTimeMax"),
    *("getMessageEntireTimeMax", "putLatency99", "putLatency999"),
)


def told(families: Iterable[Metric]) -> dict[str, float]:
    """By name, and the labels' values behind it where these tell samples apart."""
    found = [sample for family in families for sample in family.samples]
    return {" ".join([one.name, *one.labels.values()]): one.value for one in found}


def a_broker(**more: Any) -> Any:
    """All of whose numbers differ."""
    table = {key: str(number) for number, key in enumerate((*NUMBERS, *DAYS), 101)}
    table |= {key: f"{number}.1 {number}.2 {number}.3" for number, key in enumerate(RATES, 201)}
    own = {key: table.pop(key) for key in DAYS}
    snapshots = {"BROKER_PUT_NUMS": 301.5, "BROKER_GET_NUMS": 302.5}
    stats = SimpleNamespace(
        runtime_info=lambda: own,
        find=lambda statistic, key: (snapshots[statistic], 0) if key == "c" else None,
        snapshot=lambda item, _span: SimpleNamespace(tps=item),
    )
    store = SimpleNamespace(
        stats=SimpleNamespace(runtime_info=lambda: table),
        min_offset=1_000,
        max_offset=90_000,
        flushed_offset=80_000,
        reput_from_offset=60_000,
        confirm_offset=lambda: 70_000,
        index=SimpleNamespace(position=55_000),
        options=SimpleNamespace(message_index_enable=True),
        cleaner=SimpleNamespace(log_disk=LOG_DISK, queues_disk=QUEUES_DISK),
    )
    config = SimpleNamespace(broker_cluster_name="c", broker_name="a", broker_ip1="h")
    return SimpleNamespace(store=store, stats=stats, config=config, address="h:1", **more)


def test_rocketmq_exporters_names_have_the_numbers_of_the_table_that_they_are_named_after() -> None:
    broker = a_broker()
    table: dict[str, str] = broker.store.stats.runtime_info() | broker.stats.runtime_info()
    wanted = {key.lower(): float(text) for key, text in table.items() if key not in RATES}
    for key in RATES:
        spans = zip(("10", "60", "600"), table[key].split(), strict=True)
        wanted |= {f"{key.lower()}{span}": float(rate) for span, rate in spans}
    wanted |= {
        "commitlogminoffset": 1_000, "commitlogmaxoffset": 90_000,
        "dispatchbehindbytes": 30_000, "remainhowmanydatatoflush": 10_000,
        "commitlogdiskratio": 0.61, "commitlogdircapacitytotal": 1000, "commitlogdircapacityfree": 400,
        "consumequeuediskratio": 0.83,
    }  # fmt: skip
    found = told(runtime_families.runtime(broker))
    rates = {name.split()[0]: found.pop(name) for name in [*found] if "brokeruntime" not in name}
    assert rates == {"rocketmq_broker_tps": 301.5, "rocketmq_broker_qps": 302.5}
    shown = {
        name.split()[0].removeprefix("rocketmq_brokeruntime_").replace("_", ""): number
        for name, number in found.items()
    }
    assert shown == wanted


def test_of_a_disk_that_could_not_be_looked_at_nothing_is_told_and_of_the_other_all() -> None:
    broker = a_broker()
    both = told(broker_families.disks(broker))
    assert both == {
        "rmqha_disk_used_ratio commitlog": 0.61, "rmqha_disk_used_ratio consumequeue": 0.83,
        "rmqha_disk_free_bytes commitlog": 400, "rmqha_disk_free_bytes consumequeue": 700,
        "rmqha_disk_total_bytes commitlog": 1000, "rmqha_disk_total_bytes consumequeue": 5000,
        "rmqha_disk_free_inodes commitlog": 31, "rmqha_disk_free_inodes consumequeue": 37,
    }  # fmt: skip
    runtime = told(runtime_families.runtime(broker))
    for key, words in (("log_disk", ("commitlog_disk", "commitlogdir")), ("queues_disk", ("consumequeue_disk",))):
        alone = a_broker()
        setattr(alone.store.cleaner, key, None)
        name = "commitlog" if key == "log_disk" else "consumequeue"
        assert told(broker_families.disks(alone)) == {one: both[one] for one in both if not one.endswith(name)}
        left = {one: number for one, number in runtime.items() if not any(word in one for word in words)}
        assert told(runtime_families.runtime(alone)) == left != runtime


def test_delayed_messages_that_wait_and_for_how_long_they_do_so_too_long() -> None:
    schedule = SimpleNamespace(waiting={1: 0, 3: 17}, overdue_s=2.5)
    assert told(broker_families.delayed(a_broker(schedule=schedule))) == {
        "rmqha_delayed_messages 1": 0,
        "rmqha_delayed_messages 3": 17,
        "rmqha_delayed_overdue_seconds": 2.5,
    }


def test_half_messages_that_wait_and_those_that_were_discarded() -> None:
    stats = SimpleNamespace(undecided_half_messages=17, discarded_halves=SimpleNamespace(count=23))
    assert told(broker_families.transactions(SimpleNamespace(store=SimpleNamespace(stats=stats)))) == {  # type: ignore[arg-type]
        "rmqha_undecided_half_messages": 17,
        "rmqha_discarded_half_messages_total": 23,
    }


def test_places_in_the_log_and_what_lies_between_them() -> None:
    assert told(broker_families.log(a_broker())) == {
        "rmqha_log_offset_bytes min": 1_000,
        "rmqha_log_offset_bytes max": 90_000,
        "rmqha_log_offset_bytes flushed": 80_000,
        "rmqha_log_offset_bytes confirmed": 70_000,
        "rmqha_log_offset_bytes dispatched": 60_000,
        "rmqha_flush_lag_bytes": 10_000,
        "rmqha_dispatch_lag_bytes": 30_000,
        "rmqha_index_lag_bytes": 5_000,
    }


def test_without_an_index_nothing_waits_for_it() -> None:
    broker = a_broker()
    broker.store.options.message_index_enable = False
    assert told(broker_families.log(broker))["rmqha_index_lag_bytes"] == 0
    broker.store.options.message_index_enable, broker.store.index.position = True, 60_001
    assert told(broker_families.log(broker))["rmqha_index_lag_bytes"] == 0, "it may be farther by a moment"


async def test_what_pop_consumers_asked_for_is_counted(autojump_clock: MockClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1", LISTEN)
    async with machine.broker() as broker, machine.client() as client, scraped(broker, machine.net) as monitoring:
        for code in (200050, 200051, 200099):
            await ask(client, RemotingCommand(code))
        assert value(await monitoring.scrape(), "rmqha_pops_refused_total") == 2


async def test_a_topic_and_a_group_have_all_their_numbers(autojump_clock: MockClock) -> None:
    """Ten messages of one size, of which the group has had seven, and committed four."""
    machine = Machine(SimNet(), "10.0.0.1", LISTEN)
    async with (
        machine.broker() as broker,
        machine.client() as client,
        scraped(broker, machine.net) as monitoring,
        member_of(machine, "one") as one,
        member_of(machine, "two") as two,
    ):
        for member in (one, two):
            await member.heartbeat("consumers")
        await trio.sleep(25)
        for _ in range(10):
            await ask(client, send_request(b"of one size"))
        size = broker.store.max_offset // 10
        assert (await ask(client, pull_request(0, suspend_ms=5000, max_num=7))).code == ResponseCode.SUCCESS
        await commit(client, 4, group="consumers", topic="t")
        await trio.sleep(15)
        samples = await monitoring.scrape()
    of_topic, of_group = by_name(samples, topic="t"), by_name(samples, topic="t", group="consumers")
    assert of_topic.pop("rocketmq_producer_offset") == 10
    assert of_topic.pop("rmqha_topic_messages_total") == 10
    assert of_topic.pop("rmqha_topic_bytes_total") == 10 * size
    per_s = of_topic.pop("rocketmq_producer_tps")
    assert of_topic == {"rocketmq_producer_message_size": pytest.approx(per_s * size)}
    got_per_s = of_group.pop("rocketmq_consumer_tps")
    assert per_s > 0
    assert got_per_s == pytest.approx(per_s * 7 / 10)
    assert of_group == {
        "rocketmq_consumer_message_size": pytest.approx(got_per_s * size),
        "rocketmq_consumer_offset": 10,
        "rocketmq_group_consume_total_offset": 4,
        "rocketmq_group_diff": 6,
        "rmqha_group_members": 2,
    }


@pytest.mark.parametrize("write_queues", [1, 4, 8])
async def test_a_group_lacks_what_is_in_all_queues_that_are_read(write_queues: int, autojump_clock: MockClock) -> None:
    """Fewer are written while a topic is made smaller: what is left in the others has yet to be consumed."""
    machine = Machine(SimNet(), "10.0.0.1", LISTEN)
    async with machine.broker() as broker, machine.client() as client, scraped(broker, machine.net) as monitoring:
        await change_topic(client, read_queues=4, write_queues=4)
        for queue_id, messages in enumerate((2, 0, 3, 4)):
            for _ in range(messages):
                await ask(client, send_request(b"x", queue_id=queue_id))
        for queue_id in (0, 3):
            await commit(client, 1, group="g", topic="t", queue_id=queue_id)
        await change_topic(client, read_queues=4, write_queues=write_queues)
        await trio.sleep(15)
        samples = await monitoring.scrape()
    assert value(samples, "rocketmq_group_diff", topic="t", group="g") == 7
    assert value(samples, "rocketmq_consumer_offset", topic="t", group="g") == 9


@pytest.mark.parametrize(("read_queues", "write_queues"), [(4, 1), (1, 4), (4, 8), (8, 4)])
async def test_a_topics_end_is_that_of_all_its_queues(
    read_queues: int, write_queues: int, autojump_clock: MockClock
) -> None:
    """It fell when a topic was made smaller, though nothing had gone: a rate of it told of no end of messages."""
    machine = Machine(SimNet(), "10.0.0.1", LISTEN)
    async with machine.broker() as broker, machine.client() as client, scraped(broker, machine.net) as monitoring:
        await change_topic(client, read_queues=4, write_queues=4)
        for queue_id in (0, 1, 3, 3):
            await ask(client, send_request(b"x", queue_id=queue_id))
        await change_topic(client, read_queues=read_queues, write_queues=write_queues)
        await trio.sleep(15)
        assert value(await monitoring.scrape(), "rocketmq_producer_offset", topic="t") == 4


async def change_topic(client: RemotingClient, *, read_queues: int, write_queues: int) -> None:
    header = CreateTopicRequestHeader("t", read_queues, write_queues, 6, "SINGLE_TAG", 0)
    fields = encode_header(header) | {"defaultTopic": "TBW102", "order": "false"}
    answer = await ask(client, RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, ext_fields=fields))
    assert answer.code == ResponseCode.SUCCESS


def by_name(samples: dict[Sample, float], **labels: str) -> dict[str, float]:
    """Those that tell of these, and of no more."""
    of = {*labels.items()}
    return {
        name: number
        for (name, has), number in samples.items()
        if {one for one in has if one[0] in {"topic", "group"}} == of
    }


@asynccontextmanager
async def refusing(machine: Machine, why: str) -> AsyncIterator[BrokerController]:
    """A broker that refuses all sends, or those of one kind."""
    role = {"brokerRole": "SLAVE", "brokerId": "1", "haMasterAddress": "10.0.0.9:10912"} if why == "slave" else {}
    async with machine.broker(**role) as broker:
        machine.disk.faults.crowded = why == "crowded"
        machine.disk.faults.root_full = why == "topic"
        await trio.sleep(15)
        yield broker
        machine.disk.faults.heal()


REFUSALS: Final[dict[str, Callable[[], Any]]] = {
    "queue": lambda: send_request(b"x", queue_id=99),
    "delay": lambda: send_request(b"x", properties="DELAY\x01x\x02"),
    "flag": lambda: send_request(b"x", f="8"),
    "name": lambda: send_request(b"x", topic="a b"),
    "slave": lambda: send_request(b"x"),
    "crowded": lambda: send_request(b"x"),
    "topic": lambda: send_request(b"x", topic="new"),
}


async def refused_of(monitoring: Scraper) -> dict[str, float]:
    await trio.sleep(15)
    samples = await monitoring.scrape()
    names = ("rmqha_put_messages_total", "rmqha_send_latency_seconds_count")
    sends = {status: value(samples, "rmqha_sends_total", status=status) for status in ("SEND_OK", "REFUSED")}
    return sends | {name: value(samples, name) for name in names}


@pytest.mark.parametrize("why", REFUSALS)
async def test_a_send_that_is_refused_counts_once_whoever_refuses_it(why: str, autojump_clock: MockClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1", LISTEN)
    async with refusing(machine, why) as broker, machine.client() as client, scraped(broker, machine.net) as monitoring:
        before = await refused_of(monitoring)
        await refuse_three(client, REFUSALS[why])
        assert await refused_of(monitoring) == before | {"REFUSED": before["REFUSED"] + 3}


async def refuse_three(client: RemotingClient, make: Callable[[], Any]) -> None:
    for _ in range(3):
        assert (await ask(client, make())).code != ResponseCode.SUCCESS
