"""What the sink's writers call a row, by the place that Spark says it has: without Spark, to a broker on loopback."""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
from pyspark import TaskContext
from pyspark.sql.types import BinaryType, StructType

from rmqha.errors import StoreError
from rmqha.spark.sink import writer as sink_writer
from rmqha.spark.sink.options import parse_sink_options
from rmqha.spark.sink.rows import ROW_ID
from rmqha.spark.sink.writer import RmqhaStreamWriter, RmqhaWriter
from tests.client.fake_broker import FakeBroker
from tests.client.on_loopback import broker_on_loopback

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("default")]
SCHEMA = StructType().add("body", BinaryType())


@dataclass(frozen=True)
class Task:
    """Stands for Spark's TaskContext: which query's which batch, and its part."""

    query: str
    batch: int
    part: int

    def partitionId(self) -> int:  # noqa: N802 - Spark's names
        return self.part

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802
        return {"sql.streaming.queryId": self.query, "streaming.sql.batchId": str(self.batch)}.get(name)


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with broker_on_loopback() as broker:
        yield broker


def ids_of_ticks(
    writer: RmqhaWriter | RmqhaStreamWriter, broker: FakeBroker, task: Task, monkeypatch: pytest.MonkeyPatch
) -> set[str]:
    """Of two rows of one content that are written there."""
    before = {queue: len(broker.messages("ticks", queue)) for queue in range(8)}
    monkeypatch.setattr(TaskContext, "_taskContext", task)
    written = writer.write(iter([pa.record_batch({"body": pa.array([b"tick", b"tick"])})]))
    assert written.sent.rows == 2
    new = [message for queue in range(8) for message in broker.messages("ticks", queue)[before[queue] :]]
    assert [message.body for message in new] == [b"tick", b"tick"]
    return {message.properties[ROW_ID] for message in new}


def test_a_stream_s_equal_rows_are_told_apart_wherever_they_are(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another query's, another batch's, another part's: who leaves out copies would lose them. A repeat is a copy."""
    options = parse_sink_options({"addresses": broker.address, "topic": "ticks"})
    writer = RmqhaStreamWriter(options, SCHEMA, overwrite=False)
    places = [("one", 0, 0), ("one", 0, 1), ("one", 1, 0), ("one", 1, 1), ("two", 0, 0)]
    first = [ids_of_ticks(writer, broker, Task(*place), monkeypatch) for place in places]
    assert len(set().union(*first)) == 2 * len(places)
    assert [ids_of_ticks(writer, broker, Task(*place), monkeypatch) for place in places] == first
    named = parse_sink_options({"addresses": broker.address, "topic": "ticks", "writeId": "nightly"})
    writer = RmqhaStreamWriter(named, SCHEMA, overwrite=False)
    again = [ids_of_ticks(writer, broker, Task(*place), monkeypatch) for place in places]
    assert len(set().union(*first, *again)) == 2 * (len(places) + len(places[:4])), "the name stands for the query's"


def test_a_table_s_equal_rows_are_told_apart_wherever_they_are(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = parse_sink_options({"addresses": broker.address, "topic": "ticks"})
    one, other = (RmqhaWriter(options, SCHEMA, overwrite=False) for _ in range(2))
    found = [
        ids_of_ticks(writer, broker, Task("", 0, part), monkeypatch) for writer in (one, other) for part in range(3)
    ]
    assert len(set().union(*found)) == 2 * 6
    assert ids_of_ticks(one, broker, Task("", 0, 2), monkeypatch) == found[2]


def test_executors_with_other_packages_send_nothing(broker: FakeBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    options = parse_sink_options({"addresses": broker.address, "topic": "ticks"})
    monkeypatch.setattr(sink_writer, "packages", lambda: {"rmqha": "9.9"})
    writers = [kind(options, SCHEMA, overwrite=False) for kind in (RmqhaWriter, RmqhaStreamWriter)]
    for writer in writers:
        with pytest.raises(StoreError, match=r"rmqha is .*, not 9\.9"):
            ids_of_ticks(writer, broker, Task("one", 0, 0), monkeypatch)
    assert not any(broker.messages("ticks", queue) for queue in range(8))
