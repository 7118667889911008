"""Brokers that a dashboard asks, by their documents, without threads or a network."""

import json
from collections.abc import Callable
from typing import Any

import trio

from rmqha.cli.named_brokers import NamedBroker
from rmqha.cli.top_samples import Sample, read_sample
from rmqha.cli.verdict import read_status
from rmqha.codec.codes import STATUS_KEY
from rmqha.codec.host import parse_host
from rmqha.codec.record.encoder import prepare
from rmqha.dashboard.broker_view import broker_view
from rmqha.dashboard.questions import Reading, Row, Wanted
from tests.cli.facts import connection, master, slave

A, B, C, D, NAMES = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911", "10.0.0.4:10911", "10.0.0.9:9876"
HOSTILE = "<script>document.title='gotcha'</script>"


def table(facts: dict[str, Any], *, put: str = "12.5 1.0 1.0") -> dict[str, str]:
    """What a broker answers to 28."""
    rates = {"putTps": put, "getTransferedTps": "4.0 1.0", "putLatency99": "1.75"}
    return {STATUS_KEY: json.dumps(facts), **rates}


def pair(**more: Any) -> dict[str, dict[str, str]]:
    """A master and its slave, in sync."""
    return {
        A: table(master(connection(name="a/1", lag_bytes=0), put_p99_ms=2.5, **more)),
        B: table(slave("transfer")),
    }


def record(body: bytes = b"body", *, topic: str = "orders", properties: str = "KEYS\x01k1 k2\x02TAGS\x01new") -> bytes:
    """A message as it is stored."""
    host = parse_host(A)
    return prepare(
        topic,
        body,
        properties_raw=properties.encode(),
        queue_id=1,
        flag=0,
        sys_flag=0,
        born_timestamp_ms=1_000_000,
        born_host_raw=host,
        store_host_raw=host,
    ).pack(queue_offset=3, physical_offset=300, store_timestamp_ms=1_000_001)


class FakeAsker:
    """Brokers by address: a table, or why there is none. ``delays`` are seconds before an answer.

    Attributes:
        asked: each question, with the time.
    """

    def __init__(self, tables: dict[str, dict[str, str] | Exception] | dict[str, dict[str, str]]) -> None:
        self.tables: dict[str, Any] = dict(tables)
        self.registered: dict[str, tuple[NamedBroker, ...] | Exception] = {}
        self.groups: dict[str, list[Row]] = {}
        self.topics: dict[str, list[Row]] = {}
        self.details: dict[str, Any] = {}
        self.delays: dict[str, float] = {}
        self.asked: list[tuple[str, str, float]] = []

    async def _answer(self, what: str, address: str, make: Callable[[], Any]) -> Any:
        self.asked.append((what, address, trio.current_time()))
        await trio.sleep(self.delays.get(address, 0) if what != "brokers" else 0)
        answer = make()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def brokers_at(self, address: str) -> tuple[NamedBroker, ...]:
        found: tuple[NamedBroker, ...] = await self._answer(
            "brokers", address, lambda: self.registered.get(address, (NamedBroker(address, address),))
        )
        return found

    async def read_broker(self, broker: NamedBroker, before: Sample | None, lags: dict[str, int] | None) -> Reading:
        try:
            found = await self._answer(
                "broker", broker.address, lambda: self.tables.get(broker.address, OSError("refused"))
            )
        except OSError as error:
            return Reading(Sample(broker=broker, at_s=trio.current_time(), trouble=str(error)), None)
        sample = read_sample(broker, found, lags, before=before, now_s=trio.current_time())
        return Reading(sample, broker_view(read_status(found)))

    async def read_groups(self, broker: NamedBroker) -> list[Row]:
        rows: list[Row] = await self._answer("groups", broker.address, lambda: self.groups.get(broker.address, []))
        return rows

    async def read_topics(self, broker: NamedBroker) -> list[Row]:
        rows: list[Row] = await self._answer("topics", broker.address, lambda: self.topics.get(broker.address, []))
        return rows

    async def read_topic(self, broker: NamedBroker, topic: str) -> Row:
        return await self._detail("topic", broker)

    async def read_group(self, broker: NamedBroker, group: str) -> Row:
        return await self._detail("group", broker)

    async def read_config(self, broker: NamedBroker) -> Row:
        return await self._detail("config", broker)

    async def read_messages(self, broker: NamedBroker, wanted: Wanted) -> Row:
        return await self._detail("messages", broker)

    async def _detail(self, what: str, broker: NamedBroker) -> Row:
        row: Row = await self._answer(what, broker.address, lambda: self.details.get(what, OSError("refused")))
        return row
