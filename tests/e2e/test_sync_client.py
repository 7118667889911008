"""SyncProducer and SyncConsumer over real sockets on the loopback interface."""

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import trio

from rmqha.client import Message, SendResult, SyncConsumer, SyncProducer
from rmqha.errors import MQClientError, NoRouteError, RemotingConnectError
from tests.client.fake_broker import FakeBroker
from tests.client.on_loopback import broker_on_loopback


@pytest.fixture
def broker() -> Iterator[FakeBroker]:
    with broker_on_loopback() as broker:
        yield broker


def test_plain_code_sends_and_receives(broker: FakeBroker) -> None:
    with SyncProducer(broker.address) as producer:
        assert producer.send(Message("T", b"one", tags="A")).is_ok
        assert producer.send_batch([Message("T", b"two"), Message("T", b"three")]).is_ok
        producer.send_oneway(Message("T", b"four"))
        outcomes = list(producer.send_many((Message("T", b"%d" % n) for n in range(2000)), window=100))
        assert sum(isinstance(outcome, SendResult) for outcome in outcomes) == 2000
        assert len(producer.queues("T")) == 4
        with pytest.raises(MQClientError):
            producer.send(Message("T", b""))
    with SyncConsumer(broker.address, "T") as consumer:
        bodies: list[bytes] = []
        while len(bodies) < 2004:
            bodies += [message.body for message in consumer.poll(timeout_s=60)]
        assert sorted(bodies) == sorted([b"one", b"two", b"three", b"four", *(b"%d" % n for n in range(2000))])
        consumer.seek_to_end()
        assert consumer.poll(timeout_s=0.1) == []
        consumer.seek_to_begin()
        consumer.seek_to_time(0, consumer.queues[:1])
        consumer.seek(consumer.queues[0], 5)
        assert consumer.position(consumer.queues[0]) == 5


def test_errors_come_out_as_themselves(broker: FakeBroker) -> None:
    broker.auto_create = False
    with SyncProducer(broker.address) as sender, pytest.raises(NoRouteError):
        sender.send(Message("unknown", b"x"))
    with pytest.raises(RemotingConnectError):
        SyncConsumer("127.0.0.1:1", "T")
    with pytest.raises(MQClientError, match="no broker address"):
        SyncProducer(" ; ")
    producer = SyncProducer("127.0.0.1:1")
    with pytest.raises(RemotingConnectError):
        producer.send(Message("T", b"x"))
    producer.close()
    producer.close()


def test_an_interrupted_poll_takes_no_message_from_those_after_it(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    run = trio.from_thread.run

    def soon_interrupted(*args: Any, **options: Any) -> Any:
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        return run(*args, **options)

    with SyncProducer(broker.address) as producer:
        producer.send(Message("T", b"first"))
        with SyncConsumer(broker.address, "T") as consumer:
            assert [message.body for message in consumer.poll(timeout_s=60)] == [b"first"]
            before = signal.signal(signal.SIGUSR1, interrupt)
            try:
                with monkeypatch.context() as patch:
                    patch.setattr(trio.from_thread, "run", soon_interrupted)
                    with pytest.raises(KeyboardInterrupt):
                        consumer.poll(timeout_s=60)
            finally:
                signal.signal(signal.SIGUSR1, before)
            producer.send(Message("T", b"second"))
            assert [message.body for message in consumer.poll(timeout_s=60)] == [b"second"]


def test_what_an_interrupted_poll_took_is_handed_out_by_the_next(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The messages have left the consumer, and the ctrl-c comes before they have reached the caller."""
    run = trio.from_thread.run

    def interrupted(*args: Any, **options: Any) -> Any:
        assert run(*args, **options)
        raise KeyboardInterrupt

    with SyncProducer(broker.address) as producer:
        producer.send(Message("T", b"first"))
    with SyncConsumer(broker.address, "T") as consumer:
        with monkeypatch.context() as patch:
            patch.setattr(trio.from_thread, "run", interrupted)
            with pytest.raises(KeyboardInterrupt):
                consumer.poll(timeout_s=60)
        assert all(consumer.position(queue) == 0 for queue in consumer.queues)
        assert [message.body for message in consumer.poll(timeout_s=60)] == [b"first"]


def test_a_cancelled_poll_of_asyncio_takes_no_message_from_those_after_it(broker: FakeBroker) -> None:
    async def poll_twice(consumer: SyncConsumer, producer: SyncProducer) -> list[bytes]:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(consumer.poll_in_asyncio(timeout_s=60), 0.2)
        producer.send(Message("T", b"second"))
        return [message.body for message in await consumer.poll_in_asyncio(timeout_s=60)]

    with SyncProducer(broker.address) as producer, SyncConsumer(broker.address, "T") as consumer:
        producer.send(Message("T", b"first"))
        assert [message.body for message in consumer.poll(timeout_s=60)] == [b"first"]
        assert asyncio.run(poll_twice(consumer, producer)) == [b"second"]


def test_what_a_cancelled_poll_of_asyncio_took_is_handed_out_by_the_next(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The messages have left the consumer, and its task is cancelled before it has them."""
    run, has_polled, is_cancelled = trio.from_thread.run, threading.Event(), threading.Event()

    def slowly(*args: Any, **options: Any) -> Any:
        result = run(*args, **options)
        has_polled.set()
        assert is_cancelled.wait(60)
        return result

    async def poll_twice(consumer: SyncConsumer) -> list[bytes]:
        with monkeypatch.context() as patch:
            patch.setattr(trio.from_thread, "run", slowly)
            polling = asyncio.create_task(consumer.poll_in_asyncio(timeout_s=60))
            await asyncio.to_thread(has_polled.wait, 60)
        polling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await polling
        is_cancelled.set()
        assert all(consumer.position(queue) == 0 for queue in consumer.queues)
        return [message.body for message in await consumer.poll_in_asyncio(timeout_s=60)]

    with SyncProducer(broker.address) as producer:
        producer.send(Message("T", b"first"))
    with SyncConsumer(broker.address, "T") as consumer:
        assert asyncio.run(poll_twice(consumer)) == [b"first"]


def test_a_ctrl_c_that_meets_the_look_whether_the_thread_lives_does_not_end_the_client(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``Thread.is_alive`` says no for ever after that."""
    with SyncProducer(broker.address) as producer:
        monkeypatch.setattr(threading.Thread, "is_alive", lambda _thread: False)
        assert producer.send(Message("T", b"x")).is_ok


def test_a_closed_client_says_so_to_who_waits_and_to_who_comes_later(broker: FakeBroker) -> None:
    with SyncProducer(broker.address) as producer:
        producer.send(Message("T", b"x"))
    with pytest.raises(MQClientError, match="closed"):
        producer.send(Message("T", b"x"))
    with pytest.raises(MQClientError, match="closed"):
        next(iter(producer.send_many([Message("T", b"x")])))
    consumer = SyncConsumer(broker.address, "T")
    consumer.poll()
    closing = threading.Timer(0.2, consumer.close)
    closing.start()
    with pytest.raises(MQClientError, match="closed"):
        consumer.poll(timeout_s=60)
    closing.join()


def test_a_forked_process_is_told_to_open_its_own(broker: FakeBroker) -> None:
    with SyncProducer(broker.address) as producer:
        child = os.fork()
        if child == 0:
            signal.alarm(60)
            try:
                producer.send(Message("T", b"x"))
            except MQClientError:
                os._exit(17)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 17
        assert producer.send(Message("T", b"x")).is_ok
