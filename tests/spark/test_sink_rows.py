"""The sink without Spark: its options, how rows become messages, and how these are sent until they are safe."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")
from pyspark.sql.types import BinaryType, IntegerType, LongType, MapType, StringType, StructType, TimestampType

from rmqha.client import Message, MessageQueue, SendOutcome, SendResult, SendStatus
from rmqha.codec.codes import ResponseCode
from rmqha.errors import ConfigError, MQBrokerError, MQClientError, NoRouteError, RemotingConnectError, RmqhaError
from rmqha.spark.sink.options import SinkOptions, parse_sink_options
from rmqha.spark.sink.rows import ROW_ID, Row, check_columns, read_rows
from rmqha.spark.sink.sender import Sender

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("default")]
TEXT, BYTES = StringType(), BinaryType()


def test_options_are_found_in_any_case() -> None:
    given = {"ADDRESSES": "a:1;b:2", "Topic": "orders", "require": "stored", "retryforms": "5", "queryName": "q"}
    assert parse_sink_options(given) == SinkOptions("a:1;b:2", "orders", accept_stored=True, retry_for_ms=5)


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({}, "option addresses is missing: host:port of a broker or a name server"),
        ({"addresses": " "}, "must not be empty"),
        ({"addresses": "a:1", "topik": "x"}, "did you mean 'topic'"),
        ({"addresses": "a:1", "topic": "a b"}, "topic='a b': "),
        ({"addresses": "a:1", "topic": "SCHEDULE_TOPIC_XXXX"}, "to which nobody may send"),
        ({"addresses": "a:1", "path": "/x"}, "not to a directory"),
        ({"addresses": "a:1", "require": "all"}, "SEND_OK or stored"),
        ({"addresses": "a:1", "writeId": "a\x01"}, "printable"),
        ({"addresses": "a:1", "retryForMs": "-1"}, "from 0 on"),
        ({"addresses": "a:1", "tlsKey": "k"}, "tlsCert, which is missing"),
        ({"nameServer": "a:1"}, "the option is addresses"),
    ],
)
def test_a_wrong_option_is_refused(wrong: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        parse_sink_options(wrong)


@pytest.mark.parametrize(
    ("columns", "topic", "told"),
    [
        ({"topic": TEXT, "body": BYTES}, None, None),
        ({"value": TEXT, "key": BYTES, "flag": IntegerType()}, "t", None),
        ({"body": BYTES, "properties": MapType(TEXT, TEXT, valueContainsNull=False)}, "t", None),
        ({"body": BYTES}, None, "the option topic, or a column topic"),
        ({"topic": TEXT}, None, "no column body"),
        ({"body": BYTES, "queueId": IntegerType()}, "t", "queueId is no part of a message: select what is to be sent"),
        ({"body": TimestampType()}, "t", "column body is timestamp, not binary or string: cast it"),
        ({"body": BYTES, "flag": LongType()}, "t", "column flag is bigint, not int: cast it"),
        ({"body": BYTES, "value": BYTES}, "t", "two names of one thing"),
    ],
)
def test_columns_are_judged_before_anything_is_sent(columns: dict[str, Any], topic: str | None, told: str) -> None:
    schema = StructType()
    for name, kind in columns.items():
        schema.add(name, kind)
    if told is None:
        check_columns(schema, topic=topic)
        return
    with pytest.raises(ConfigError, match=told):
        check_columns(schema, topic=topic)


def rows_of(*rows: dict[str, Any], topic: str | None = "orders") -> list[Row]:
    kinds: dict[str, Any] = {"properties": pa.map_(pa.string(), pa.string())}
    columns = {name: pa.array([row[name] for row in rows], kinds.get(name)) for name in rows[0]}
    return list(read_rows(iter([pa.record_batch(columns)]), topic=topic, partition="w:3"))


def test_a_row_becomes_a_message_under_either_kind_of_names() -> None:
    ours = {"body": b"x", "keys": "k1 k2", "tags": "A", "properties": [("a", "1"), (ROW_ID, "old")], "flag": 7}
    theirs = {"value": "x", "key": b"k1 k2", "tags": "A", "headers": [{"key": "a", "value": b"1"}], "flag": 7}
    (one,), (other,) = rows_of(ours), rows_of(theirs)
    assert one.message == other.message
    message = one.message
    assert (message.topic, message.body, message.keys, message.tags, message.flag) == ("orders", b"x", "k1 k2", "A", 7)
    assert message.properties is not None
    assert message.properties["a"] == "1"
    assert message.properties[ROW_ID].startswith("w:3:0:")
    (bare,) = rows_of({"topic": "t", "body": b"x", "keys": None, "tags": None, "properties": None}, topic=None)
    assert (bare.message.topic, bare.message.keys, bare.message.tags) == ("t", (), None)


def ids(*rows: dict[str, Any]) -> list[str]:
    return [(row.message.properties or {})[ROW_ID] for row in rows_of(*rows, topic=rows[0].get("topic", "orders"))]


def test_an_id_is_one_row_s_in_one_place() -> None:
    """The same again if Spark repeats the task; another for another place or other contents."""
    rows = [{"body": b"a", "keys": "k"}, {"body": b"a", "keys": "k"}, {"body": b"b", "keys": "k"}]
    assert len(set(ids(*rows))) == 3
    assert ids(*rows) == ids(*rows)
    assert set(ids(*reversed(rows))).isdisjoint({ids(*rows)[0], ids(*rows)[2]})


def test_rows_that_differ_in_any_column_have_two_ids() -> None:
    """A reader that keeps the first of each id would lose one, where a partition is made anew in another order."""
    row: dict[str, Any] = {"topic": "t", "body": b"x", "keys": "k", "tags": "a", "properties": [("p", "1")], "flag": 1}
    others = {"topic": "u", "body": b"y", "keys": "l", "tags": "b", "properties": [("p", "2")], "flag": 2}
    for column, other in others.items():
        rows = row, row | {column: other}
        assert set(ids(*rows)).isdisjoint(ids(*reversed(rows))), column


def test_an_id_is_the_same_in_whatever_order_a_map_comes() -> None:
    pairs = [("a", "1"), ("b", "2")]
    assert ids({"body": b"x", "properties": pairs}) == ids({"body": b"x", "properties": pairs[::-1]})


@pytest.mark.parametrize("column", ["topic", "body", "keys", "tags"])
def test_a_text_that_is_not_utf_8_is_named_with_its_row(column: str) -> None:
    """Spark's strings may hold any bytes."""
    raw = pa.array([b"good", b"bad\xff"], pa.binary()).cast(pa.binary()).view(pa.string())
    columns = {"topic": pa.array(["t", "t"]), "body": pa.array(["x", "y"])} | {column: raw}
    batch = pa.RecordBatch.from_pydict(columns)
    rows = read_rows(iter([batch]), topic=None, partition="w:3")
    assert next(rows).number == 0
    with pytest.raises(MQClientError, match=f"row 1 of partition w:3 makes no message: its {column} is not UTF-8"):
        next(rows)


@pytest.mark.parametrize("size", [1, 255, 256, 257, 1000])
def test_rows_are_counted_through_all_batches_of_a_partition(size: int) -> None:
    """Equal rows, which only their number tells apart, have the ids that they have in one batch."""
    bodies = [b"same"] * 600
    parts = [bodies[begin : begin + size] for begin in range(0, len(bodies), size)]
    batches = [pa.record_batch({"body": pa.array(part, pa.binary())}) for part in ([], *parts, [])]
    found = list(read_rows(iter(batches), topic="orders", partition="w:3"))
    assert [row.number for row in found] == list(range(len(bodies)))
    ids = [(row.message.properties or {})[ROW_ID] for row in found]
    assert len(set(ids)) == len(bodies)
    assert ids == [(row.message.properties or {})[ROW_ID] for row in rows_of(*({"body": body} for body in bodies))]


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({"body": b"x", "headers": [None]}, "a header is null"),
        ({"body": b"x", "topic": "OFFSET_MOVED_EVENT"}, "to which nobody may send"),
        ({"body": None}, "row 0 of partition w:3 makes no message: its body is null or empty"),
        ({"body": b""}, "its body is null or empty"),
        ({"body": b"x", "topic": None}, "its topic is null or empty"),
        ({"body": b"x", "key": b"\xff"}, "its key is not UTF-8"),
        ({"body": b"x", "properties": [("a", None)]}, "property 'a' is null"),
        ({"body": b"x", "headers": [{"key": "a", "value": b"1"}, {"key": "a", "value": b"2"}]}, "'a' is there twice"),
    ],
)
def test_a_row_that_makes_no_message_is_named(row: dict[str, Any], told: str) -> None:
    with pytest.raises(MQClientError, match=told):
        rows_of(row, topic=None if "topic" in row else "orders")


class FakeProducer:
    """Answers as it is told, then SEND_OK; ``taken`` are the bodies in its log."""

    def __init__(self, *answers: SendStatus | RmqhaError) -> None:
        self.answers = list(answers)
        self.taken: list[bytes] = []
        self.runs: list[int] = []

    def send_many(self, messages: Iterable[Message], *, window: int) -> Iterator[SendOutcome]:
        messages = list(messages)
        self.runs.append(len(messages))
        assert len(messages) <= window
        return iter([self._outcome(message) for message in messages])

    def _outcome(self, message: Message) -> SendOutcome:
        answer = self.answers.pop(0) if self.answers else SendStatus.SEND_OK
        if isinstance(answer, RmqhaError):
            return answer
        self.taken.append(message.body)
        return SendResult(answer, "id", "offset id", MessageQueue("orders", "b", 0), 0)


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def sender(producer: FakeProducer, *, accept_stored: bool = False) -> tuple[Sender, Clock]:
    clock = Clock()
    return Sender(producer, accept_stored=accept_stored, retry_for_s=60, now=clock, sleep=clock.sleep), clock


def numbered(count: int, size: int = 1) -> list[Row]:
    return [Row(n, Message("orders", b"%0*d" % (size, n), properties={ROW_ID: f"w:3:{n}:d"})) for n in range(count)]


def test_what_may_pass_is_tried_again_and_what_is_not_safe_is_sent_again() -> None:
    busy = MQBrokerError(ResponseCode.SYSTEM_BUSY, "busy")
    gone = NoRouteError("", retryable=True)
    producer = FakeProducer(busy, SendStatus.FLUSH_SLAVE_TIMEOUT, SendStatus.SEND_OK, gone, SendStatus.SEND_OK, busy)
    sending, clock = sender(producer)
    sending.send(numbered(3))
    assert (sending.sent.rows, sending.sent.again) == (3, 4)
    assert producer.taken == [b"1", b"2", b"1", b"0"]
    assert producer.runs == [3, 2, 1, 1]
    assert 0 < clock.now < 60


class AwayProducer(FakeProducer):
    """Its brokers' slave is away until ``back_at``; ``gone`` are topics without a route."""

    def __init__(self, clock: "Clock", *, back_at: float) -> None:
        super().__init__()
        self.clock, self.back_at = clock, back_at
        self.gone: set[str] = set()

    def _outcome(self, message: Message) -> SendOutcome:
        if message.topic in self.gone:
            return NoRouteError("", retryable=True)
        is_away = self.clock() < self.back_at
        self.answers = [SendStatus.SLAVE_NOT_AVAILABLE if is_away else SendStatus.SEND_OK]
        return super()._outcome(message)


def test_while_a_slave_is_away_the_log_is_not_filled_with_copies() -> None:
    """Each row came once more every two seconds."""
    clock = Clock()
    producer = AwayProducer(clock, back_at=40)
    sending = Sender(producer, accept_stored=False, retry_for_s=60, now=clock, sleep=clock.sleep)
    sending.send(numbered(300))
    copies = Counter(producer.taken)
    assert len(copies) == 300
    assert sorted(copies.values())[-2:] == [2, copies[b"0"]]
    assert sending.sent.rows == 300
    assert sending.sent.again == len(producer.taken) - 300


@pytest.mark.parametrize("answer", [SendStatus.SLAVE_NOT_AVAILABLE, RemotingConnectError("10.0.0.1:10911", "refused")])
def test_one_broker_of_two_holds_up_nothing_for_long(answer: SendStatus | RmqhaError) -> None:
    """One row of a topic went from queue to queue, while all others waited for it: a minute was not enough."""

    class TwoBrokers(FakeProducer):
        turn = 0

        def _outcome(self, message: Message) -> SendOutcome:
            self.turn = (self.turn + 1) % 16
            self.answers = [answer if self.turn < 8 else SendStatus.SEND_OK]
            return super()._outcome(message)

    sending, clock = sender(TwoBrokers())
    sending.send(numbered(1000))
    assert clock.now < 30
    assert sending.sent.again <= 1001


def test_how_much_is_in_the_log_is_told_when_none_of_it_is_safe() -> None:
    clock = Clock()
    producer = AwayProducer(clock, back_at=1000)
    sending = Sender(producer, accept_stored=False, retry_for_s=60, now=clock, sleep=clock.sleep)
    with pytest.raises(MQClientError, match=r"row 0 of .* 299 other rows of it are in the log"):
        sending.send(numbered(300))


def test_a_topic_that_has_no_route_holds_no_other_one_up() -> None:
    clock = Clock()
    producer = AwayProducer(clock, back_at=5)
    producer.gone = {"other"}
    sending = Sender(producer, accept_stored=False, retry_for_s=60, now=clock, sleep=clock.sleep)
    rows = numbered(9)
    for row in rows[:3]:
        row.message = replace(row.message, topic="other")
    with pytest.raises(MQClientError, match=r"row 0 of .* was not sent to topic other.* 6 other rows of it are"):
        sending.send(rows)
    assert set(producer.taken) == {b"%d" % number for number in range(3, 9)}


def test_many_that_failed_wait_together() -> None:
    """A broker that is back after a second costs a run of sends a second or two, not one each."""
    sending, clock = sender(FakeProducer(*[NoRouteError("", retryable=True)] * 1000))
    sending.send(numbered(1000))
    assert clock.now < 1


def test_stored_is_enough_if_it_is_told_so() -> None:
    producer = FakeProducer(SendStatus.SLAVE_NOT_AVAILABLE)
    sending, _ = sender(producer, accept_stored=True)
    sending.send(numbered(2))
    assert producer.taken == [b"0", b"1"]


def test_what_cannot_pass_fails_at_once_and_tells_what_is_in_the_log() -> None:
    refused = MQBrokerError(ResponseCode.MESSAGE_ILLEGAL, "too large")
    sending, clock = sender(FakeProducer(SendStatus.SEND_OK, refused))
    told = r"row 1 of partition w:3 was not sent to topic orders: .*too large.* 2 other rows of it are in the log"
    with pytest.raises(MQClientError, match=told):
        sending.send(numbered(3))
    assert clock.now == 0


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (MQBrokerError(ResponseCode.SYSTEM_BUSY, "busy"), "row 0 of .*, tried for 60 s: .*busy"),
        (SendStatus.SLAVE_NOT_AVAILABLE, "tried for 60 s: .* answered SLAVE_NOT_AVAILABLE: .*require=stored"),
    ],
)
def test_after_its_time_a_row_has_failed(answer: SendStatus | RmqhaError, told: str) -> None:
    sending, clock = sender(FakeProducer(*[answer] * 1000))
    with pytest.raises(MQClientError, match=told):
        sending.send(numbered(1))
    assert 55 < clock.now <= 60


def test_few_messages_await_their_answers_at_once() -> None:
    producer = FakeProducer()
    sending, _ = sender(producer)
    sending.send(numbered(2500))
    sending.send(numbered(20, size=1 << 20))
    assert producer.runs == [1000, 1000, 500, 8, 8, 4]
