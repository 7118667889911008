"""What the client library asks of the program it runs in: little, and in clear words."""

import asyncio
import logging
import os
import signal
import subprocess
import sys
import threading
from typing import Any

import pytest
import trio

import rmqha.client
from rmqha import errors
from rmqha.client import Message, MQClientError, SyncConsumer, SyncProducer, open_consumer, open_producer
from rmqha.client.environment import check_timeout

REFUSED = "127.0.0.1:1"


def test_importing_it_loads_no_logging_library_and_no_other_event_loop() -> None:
    code = (
        "import sys, rmqha.client; "
        "print(sorted({name.partition('.')[0] for name in sys.modules} & {'structlog', 'asyncio', 'click'}))"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert loaded.stdout.strip() == "[]"


def test_under_asyncio_the_class_to_use_is_named() -> None:
    async def produce() -> None:
        async with open_producer(REFUSED):
            pass

    async def consume() -> None:
        async with open_consumer(REFUSED, "T"):
            pass

    with pytest.raises(MQClientError, match=r"under asyncio.* use SyncProducer"):
        asyncio.run(produce())
    with pytest.raises(MQClientError, match=r"under asyncio.* use SyncConsumer"):
        asyncio.run(consume())


async def test_under_trio_plain_clients_name_the_function_to_use() -> None:
    with pytest.raises(MQClientError, match="use open_producer"):
        SyncProducer(REFUSED)
    with pytest.raises(MQClientError, match="use open_consumer"):
        SyncConsumer(REFUSED, "T")


@pytest.mark.parametrize("group", ["", "bad group!", "g" * 256, "a@b", "gr\u00fcn"])
def test_a_group_that_rocketmq_would_refuse_is_refused_when_the_client_opens(group: str) -> None:
    for open_client in (lambda: SyncConsumer(REFUSED, "T", group=group), lambda: SyncProducer(REFUSED, group=group)):
        with pytest.raises(MQClientError, match="the group's name"):
            open_client()


async def test_a_plain_client_taken_to_trio_says_so() -> None:
    import trio  # noqa: PLC0415 - the other tests run without it

    producer = await trio.to_thread.run_sync(SyncProducer, REFUSED)
    with pytest.raises(MQClientError, match="use open_producer"):
        producer.queues("T")
    await trio.to_thread.run_sync(producer.close)


def test_every_error_it_raises_is_exported() -> None:
    raised = (
        errors.RmqhaError, errors.ConfigError, errors.LocalProtocolError, errors.RemoteProtocolError,
        errors.RemotingError, errors.RemotingConnectError, errors.RemotingSendRequestError,
        errors.UnreadableAnswerError, errors.RemotingTimeoutError, errors.MQBrokerError, errors.MQClientError,
        errors.NoRouteError,
    )  # fmt: skip
    for error in raised:
        assert getattr(rmqha.client, error.__name__) is error
        assert error.__name__ in rmqha.client.__all__


def test_its_warnings_go_where_the_program_says() -> None:
    assert logging.getLogger("rmqha.client").propagate
    assert not logging.getLogger("rmqha.client").handlers


@pytest.mark.parametrize("addresses", ["nohost", "127.0.0.1:99999", "127.0.0.1:1;b", "", None])
def test_addresses_that_can_be_none_are_refused_at_opening(addresses: Any) -> None:
    """A program that goes by ``retryable`` tried for ever."""
    for make in (lambda: SyncProducer(addresses), lambda: SyncConsumer(addresses, "T")):
        with pytest.raises(MQClientError) as raised:
            make()
        assert not raised.value.retryable


def test_a_topic_that_can_be_none_is_not_waited_for() -> None:
    with pytest.raises(MQClientError, match="may only hold"):
        SyncConsumer(REFUSED, "a b", group="g")


@pytest.mark.parametrize("timeout_s", [float("nan"), -1.0])
async def test_a_timeout_that_is_no_time_is_refused_in_words(timeout_s: float) -> None:
    async with open_producer(REFUSED) as producer:
        with pytest.raises(MQClientError, match="is no time"):
            await producer.send(Message("T", b"x"), timeout_s=timeout_s)
        with pytest.raises(MQClientError, match="is no time"):
            producer.pipeline(timeout_s=timeout_s)
    with pytest.raises(MQClientError, match="is no time"):
        check_timeout(timeout_s)


@pytest.mark.parametrize("is_closing", [True, False])
def test_a_call_that_meets_the_close_is_told_that_the_client_is_closed(*, is_closing: bool) -> None:
    """It ended with RuntimeError: what it would have begun in the background had no nursery any more."""
    with SyncProducer(REFUSED) as producer:
        loop = producer._loop

        async def too_late(*_: object, **__: object) -> None:
            async with trio.open_nursery() as nursery:
                pass
            if is_closing:
                loop._stop.set()
            nursery.start_soon(trio.sleep, 0)

        loop.client.send = too_late  # type: ignore[method-assign, assignment]
        with pytest.raises(MQClientError if is_closing else RuntimeError, match="closed"):
            producer.send(Message("T", b"x"))


def test_a_call_that_is_interrupted_is_cancelled_whatever_the_interrupt_raises() -> None:
    """A send went on, retries and all, when a handler of signals raised RuntimeError in the thread that waited."""
    is_waiting, is_cancelled = threading.Event(), threading.Event()

    def interrupt(*_: object) -> None:
        raise RuntimeError("out of time")

    async def send(*_: object, **__: object) -> None:
        is_waiting.set()
        try:
            await trio.sleep_forever()
        finally:
            is_cancelled.set()

    def interrupt_soon() -> None:
        is_waiting.wait(60)
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with SyncProducer(REFUSED) as producer:
            producer._loop.client.send = send  # type: ignore[method-assign, assignment]
            thread = threading.Thread(target=interrupt_soon)
            thread.start()
            with pytest.raises(RuntimeError, match="out of time"):
                producer.send(Message("T", b"x"))
            assert is_cancelled.wait(10)
            thread.join()
    finally:
        signal.signal(signal.SIGUSR1, before)
