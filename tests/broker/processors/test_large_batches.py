"""However small a batch is on the wire: by what its records take in memory it is prepared, held and appended."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from typing import Any

from rmqha.broker.processors.send_message_processor import LARGE_BATCHES_MAX, SendMessageProcessor
from rmqha.broker.puts.put_service import Put, PutCaller
from rmqha.broker.puts.sent_records import SendRules
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.codec.batch import BatchEntry, encode_batch
from tests.broker.machines import Sender, retry_topics, send_request
from tests.settings import topic_rules

MESSAGE_SIZE_MAX = 4 << 20
BODY = encode_batch([BatchEntry(0, b"x", b"k\x01v")] * 500)
ALL_HAVE = "K\x01" + "v" * 32_000
"""With it 13 KB on the wire become 16 MB."""


class Puts:
    """A PutMessageService that notes how much it gets at once."""

    store_refusal = ""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.refusal = str

    def put(self, puts: list[Put[Any]], _caller: PutCaller[Any]) -> None:
        self.sizes.append(sum(record.size for put in puts for record in put.request))  # type: ignore[union-attr, misc]


class PatientSender(Sender):
    """Keeps what is to be done in steps."""

    steps: Iterator[bool]

    def work(self, steps: Iterator[bool]) -> None:
        self.steps = steps


def processor(puts: Puts) -> SendMessageProcessor:
    topics = TopicConfigManager(topic_rules("cluster", "broker"), now_ms=lambda: 0)
    rules = SendRules("cluster", bytes(8), MESSAGE_SIZE_MAX)
    return SendMessageProcessor(puts, topics, retry_topics(topics), rules=rules)  # type: ignore[arg-type]


def test_batches_that_came_together_are_appended_one_by_one() -> None:
    """Five in a packet of 230 KB were 80 MB, in one append; and so were those of each other client at the same time."""
    puts = Puts()
    requests = [send_request(BODY, batch=True, properties=ALL_HAVE) for _ in range(5)]
    processor(puts).process(Sender(), requests)  # type: ignore[arg-type]
    assert len(puts.sizes) == 5
    assert max(puts.sizes) < 4 * MESSAGE_SIZE_MAX


def test_small_batches_that_came_together_are_appended_together() -> None:
    puts, body = Puts(), encode_batch([BatchEntry(0, bytes(100), b"k\x01v")] * 10)
    processor(puts).process(Sender(), [send_request(body, batch=True) for _ in range(5)])  # type: ignore[arg-type]
    assert len(puts.sizes) == 1


def test_small_batches_are_prepared_at_once() -> None:
    """In steps, 3,900 clients had a quarter of a megabyte each prepared at one time: 1 GB, of 25 MB on the wire."""
    puts, sender = Puts(), PatientSender()
    body = encode_batch([BatchEntry(0, b"", b"")] * 255)
    processor(puts).process(sender, [send_request(body, batch=True, properties="K\x01" + "v" * 600)])  # type: ignore[arg-type]
    assert list(sender.steps) == []
    assert len(puts.sizes) == 1


def test_nothing_that_is_prepared_waits_behind_a_large_batch() -> None:
    puts, sender = Puts(), PatientSender()
    small, large = encode_batch([BatchEntry(0, b"", b"")]), BODY
    requests = [send_request(small, batch=True), send_request(large, batch=True, properties=ALL_HAVE)]
    processor(puts).process(sender, requests)  # type: ignore[arg-type]
    assert next(sender.steps) is False
    assert len(puts.sizes) == 1


def test_what_came_before_a_large_batch_is_put_once() -> None:
    """Whatever comes behind that: each message that is answered once is stored once."""
    puts, small = Puts(), encode_batch([BatchEntry(0, b"", b"")])
    requests = [send_request(small, batch=True), send_request(BODY, batch=True, properties=ALL_HAVE)]
    for request in requests:
        processor(puts).process(Sender(), [request])  # type: ignore[arg-type]
    alone, puts.sizes = puts.sizes, []
    processor(puts).process(Sender(), [*requests, *requests, requests[0]])  # type: ignore[arg-type]
    assert puts.sizes == [*alone, *alone, alone[0]]


def test_what_a_large_batch_does_not_wait_for_is_put_once_whatever_becomes_of_it() -> None:
    class BrokenPuts(Puts):
        def put(self, puts: list[Put[Any]], caller: PutCaller[Any]) -> None:
            super().put(puts, caller)
            if len(self.sizes) == 1:
                raise RuntimeError("a bug")

    class FencedSender(Sender):
        def fenced(self) -> AbstractContextManager[None]:
            return suppress(RuntimeError)

    puts, small = BrokenPuts(), encode_batch([BatchEntry(0, b"", b"")])
    requests = [send_request(small, batch=True), send_request(BODY, batch=True, properties=ALL_HAVE)]
    processor(puts).process(FencedSender(), requests)  # type: ignore[arg-type]
    assert len(puts.sizes) == 2
    assert puts.sizes[1] > 100 * puts.sizes[0]


def test_only_a_few_batches_that_grow_are_prepared_at_one_time() -> None:
    puts = Puts()
    sends, senders = processor(puts), [PatientSender() for _ in range(LARGE_BATCHES_MAX + 1)]
    for sender in senders:
        sends.process(sender, [send_request(BODY, batch=True, properties=ALL_HAVE)])  # type: ignore[arg-type]
    waits = [next(sender.steps) for sender in senders]
    assert waits == [False] * LARGE_BATCHES_MAX + [True]
    for sender in senders:
        assert not any(sender.steps)
    assert len(puts.sizes) == LARGE_BATCHES_MAX + 1
