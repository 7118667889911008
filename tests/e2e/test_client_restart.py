"""rmqha's own clients and a real broker that goes away and comes back."""

import sys
from collections.abc import Awaitable, Callable
from functools import partial
from subprocess import PIPE

import pytest
import trio

from rmqha.client import (
    ConsumerOptions,
    Message,
    RemotingError,
    SyncConsumer,
    SyncProducer,
    open_consumer,
    open_producer,
)
from rmqha.codec import java_json
from tests.e2e.commands import rmqha
from tests.e2e.conftest import Pair
from tests.e2e.processes import CHECKOUT, RmqhaBroker

RESTART_S_MAX = 120.0
COUNT = 40
BODIES = [b"%d" % number for number in range(COUNT)]


def _send(address: str, bodies: list[bytes]) -> None:
    with SyncProducer(address) as producer:
        for body in bodies:
            producer.send(Message("orders", body))


def _read(consumer: SyncConsumer, count: int) -> list[bytes]:
    bodies: list[bytes] = []
    while len(bodies) < count:
        messages = consumer.poll(timeout_s=RESTART_S_MAX)
        assert messages, "nothing came"
        bodies += [message.body for message in messages]
    return bodies


async def test_a_send_with_retries_bridges_the_restart_of_a_killed_master(pair: Pair) -> None:
    await pair.master.start()
    addresses = f"{pair.master.address};{pair.slave.address}"
    async with open_producer(addresses) as producer, trio.open_nursery() as nursery:
        await producer.send(Message("orders", b"before"))
        await pair.slave.start()
        await pair.master.kill()

        async def restart() -> None:
            await trio.sleep(1)
            await pair.master.start()

        nursery.start_soon(restart)
        result = await producer.send(Message("orders", b"after"), retries=1000, timeout_s=RESTART_S_MAX)
        assert result.offset_msg_id


async def test_the_command_with_retries_begins_before_its_broker_and_goes_on_behind_a_restart(pair: Pair) -> None:
    """One that does not answer at first, and one that is killed in between, end it without."""
    pair.master.conf["brokerRole"] = "ASYNC_MASTER"
    arguments = ["send", "orders", "-b", pair.master.address, "--window", "1"]
    code, _, err = await rmqha(*arguments, "--count", "1")
    assert (code, "cannot be reached" in err) == (3, True)
    half = b"".join(b"%d\n" % number for number in range(1500))
    patient = ["--retries", "1000", "--timeout", str(RESTART_S_MAX), "--format", "json"]
    command = [sys.executable, "-m", "rmqha", *arguments, *patient]
    sending = await trio.lowlevel.open_process(command, stdin=PIPE, stdout=PIPE, stderr=PIPE, cwd=CHECKOUT)
    assert sending.stdin is not None
    assert sending.stdout is not None
    assert sending.stderr is not None
    try:
        with trio.fail_after(2 * RESTART_S_MAX):
            await sending.stdin.send_all(half)
            await trio.sleep(1)
            await pair.master.start()
            while not (pair.master.store / "consumequeue" / "orders").exists():  # noqa: ASYNC110 - another process
                await trio.sleep(0.05)
            await pair.master.kill()
            async with sending.stdin:
                await sending.stdin.send_all(half)
            await hang_up_once(pair.master.ports.listen)
            await pair.master.start()
            figures = java_json.loads(b"".join([some async for some in sending.stdout]))
            complaints = b"".join([some async for some in sending.stderr])
            code = await sending.wait()
    finally:
        sending.kill()
    assert (code, figures["statuses"], complaints) == (0, {"SEND_OK": 3000}, b"")
    assert figures["sentAgain"] > 0


async def hang_up_once(port: int) -> None:
    """Take one connection in the place of the broker that was killed, and end it: who came has to come again."""
    (listener,) = await trio.open_tcp_listeners(port, host="127.0.0.1")
    async with listener, await listener.accept():
        pass


def _saved(broker: RmqhaBroker) -> int:
    """How many messages the group has consumed, as the broker's file says."""
    table = broker.store / "config" / "consumerOffset.json"
    if not table.exists():
        return 0
    offsets: dict[int, int] = java_json.loads(table.read_bytes())["offsetTable"].get("orders@billing", {})
    return sum(offsets.values())


async def _wait_saved(broker: RmqhaBroker, is_saved: Callable[[int], bool]) -> None:
    """It is every flushConsumerOffsetInterval that the file is written."""
    with trio.fail_after(RESTART_S_MAX):
        while not is_saved(_saved(broker)):  # noqa: ASYNC110 - another process's file
            await trio.sleep(0.02)


async def _stop(broker: RmqhaBroker, _committed: int) -> None:
    await broker.stop()


async def _kill_after_a_flush(broker: RmqhaBroker, committed: int) -> None:
    await _wait_saved(broker, lambda saved: saved == committed)
    await broker.kill()


End = Callable[[RmqhaBroker, int], Awaitable[None]]


@pytest.mark.parametrize("end", [_stop, _kill_after_a_flush])
async def test_committed_offsets_outlive_the_broker(pair: Pair, end: End) -> None:
    """Forwards, and back again."""
    master = pair.master
    master.conf |= {"brokerRole": "ASYNC_MASTER", "flushConsumerOffsetInterval": 100}

    def consume(first: int, *, count: int, seek_to: int | None) -> None:
        with SyncConsumer(master.address, "orders", group="billing", options=ConsumerOptions(batch_size=5)) as consumer:
            queue = consumer.queues[0]
            assert consumer.position(queue) == first
            assert _read(consumer, count)
            if seek_to is not None:
                consumer.seek(queue, seek_to)
            consumer.commit()

    await master.start()
    async with open_producer(master.address) as producer:
        queue = (await producer.queues("orders"))[0]
        for body in BODIES:
            await producer.send(Message("orders", body), queue=queue)
    await trio.to_thread.run_sync(partial(consume, 0, count=20, seek_to=None))
    await end(master, 20)
    await master.start()
    await trio.to_thread.run_sync(partial(consume, 20, count=5, seek_to=7))
    await end(master, 7)
    await master.start()
    await trio.to_thread.run_sync(partial(consume, 7, count=5, seek_to=None))


async def test_auto_commit_loses_nothing_when_the_broker_is_killed_under_it(pair: Pair) -> None:
    master = pair.master
    master.conf |= {"brokerRole": "ASYNC_MASTER", "flushConsumerOffsetInterval": 100}
    await master.start()
    await trio.to_thread.run_sync(_send, master.address, BODIES)
    read: list[bytes] = []
    options = ConsumerOptions(batch_size=1, auto_commit_s=0.05)
    with trio.fail_after(2 * RESTART_S_MAX):
        async with open_consumer(master.address, "orders", group="billing", options=options) as consumer:
            while len(read) < COUNT // 2:
                read += [message.body for message in await consumer.poll()]
            handled = len(read) - 1  # the next poll tells of the last one
            await _wait_saved(master, lambda saved: saved >= handled)
            await master.kill()
            await master.start()
            for _ in range(2):
                try:
                    read += [message.body for message in await consumer.poll()]
                except RemotingError:
                    continue
        async with open_consumer(master.address, "orders", group="billing", options=options) as consumer:
            while set(read) != set(BODIES):
                read += [message.body for message in await consumer.poll()]
        assert len(read) < COUNT + 15, "the commits counted for something"


async def test_a_consumer_started_before_its_topic_reads_it(pair: Pair) -> None:
    master = pair.master
    master.conf |= {"brokerRole": "ASYNC_MASTER"}
    await master.start()

    def consume() -> None:
        with SyncConsumer(master.address, "orders", group="billing", start="last") as consumer:
            assert consumer.poll(timeout_s=0.2) == []
            _send(master.address, BODIES)
            assert sorted(_read(consumer, COUNT)) == sorted(BODIES)

    await trio.to_thread.run_sync(consume)


ASYNCIO_PROGRAM = """
import asyncio, sys
from rmqha.client import Message, SyncConsumer, SyncProducer

async def main(address):
    producer = await asyncio.to_thread(SyncProducer, address)
    await asyncio.gather(*(asyncio.to_thread(producer.send, Message("orders", b"%d" % n)) for n in range(20)))
    await asyncio.to_thread(producer.close)
    consumer = await asyncio.to_thread(SyncConsumer, address, "orders")
    consumer.seek(consumer.queues[0], 1000)
    while consumer.position(consumer.queues[0]) == 1000:
        await consumer.poll_in_asyncio(timeout_s=2)
    await asyncio.to_thread(consumer.close)

asyncio.run(main(sys.argv[1]))
"""


async def test_under_asyncio_the_plain_clients_work_and_warn_on_stderr(pair: Pair) -> None:
    pair.master.conf |= {"brokerRole": "ASYNC_MASTER"}
    await pair.master.start()
    program = [sys.executable, "-c", ASYNCIO_PROGRAM, pair.master.address]
    with trio.fail_after(RESTART_S_MAX):
        ended = await trio.run_process(program, capture_stdout=True, capture_stderr=True)
    assert ended.stdout == b""
    assert b"consumer.offset_moved: offset 1000" in ended.stderr
