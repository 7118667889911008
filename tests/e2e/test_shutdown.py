"""SIGTERM lets what is due finish; a second one does not wait."""

import json
import os
import signal
from pathlib import Path

import trio

from rmqha.client import Message, open_producer
from rmqha.client.producer import ProducerOptions
from rmqha.exit_codes import EXIT_INTERRUPTED, EXIT_REPLICATION_ENDED
from tests.e2e.commands import rmqha, wait_status
from tests.e2e.commitlog import HeldMessages, wait_identical
from tests.e2e.conftest import Pair
from tests.e2e.load import FLUSH_SLAVE_TIMEOUT, LoadProducer, Sends, body_of_size, wait_in_sync
from tests.e2e.processes import IN_A_TERMINAL, Child, RmqhaBroker


async def test_a_stopped_pair_comes_back_complete(pair: Pair) -> None:
    """Exit code 0 under load, nothing acknowledged lost, and no recovery needed: the abort file is gone."""
    await pair.start()
    load = LoadProducer(pair.master.ports.listen, Sends("orders", body=body_of_size(500)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        await load.wait_acknowledged(500)
        assert await pair.master.stop() == 0
        nursery.cancel_scope.cancel()
    assert await pair.slave.stop() == 0
    for broker in pair.brokers:
        assert not (broker.store / "abort").exists()
        assert load.acknowledged <= HeldMessages(broker.store / "commitlog", "orders").read(torn=False)
    await pair.start()
    await wait_in_sync(pair.master.ports.listen)
    await wait_identical(*(broker.store / "commitlog" for broker in pair.brokers))


async def wait_stored(broker: RmqhaBroker, count: int) -> None:
    """Wait until the broker's log holds so many messages of the load, on other brokers or not."""
    while len(HeldMessages(broker.store / "commitlog", "orders").read(torn=True)) < count:  # noqa: ASYNC110 - files
        await trio.sleep(0.05)


async def _stop_at_once(child: Child) -> int:
    """SIGTERM until it ends: two that come before it looks are one."""
    with trio.fail_after(120):
        while child.returncode is None:
            child.signal(signal.SIGTERM)
            await trio.sleep(0.1)
    return await child.wait_exit()


async def _is_read(pipe: Path) -> int:
    """Wait until somebody reads a named pipe; returns a descriptor that keeps them waiting for the end of it."""
    with trio.fail_after(120):
        while True:
            try:
                return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
            except OSError:
                await trio.sleep(0.02)


async def test_a_stopping_master_answers_who_still_waits(pair: Pair) -> None:
    """The slave is frozen, so sends wait; SIGTERM to the master answers each one, honestly, before it ends."""
    pair.master.conf["slaveTimeout"] = 2_000
    await pair.start()
    await wait_in_sync(pair.master.ports.listen)
    pair.slave.running.signal(signal.SIGSTOP)
    load = LoadProducer(pair.master.ports.listen, Sends("orders", body=body_of_size(100)), window=10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        await wait_stored(pair.master, 10)
        assert await pair.master.stop() == 0
        with trio.move_on_after(60):
            while sum(load.codes.values()) < 10:  # noqa: ASYNC110 - they have come, and are read now
                await trio.sleep(0.02)
        nursery.cancel_scope.cancel()
    assert load.acknowledged == set()
    assert sum(load.codes.values()) >= 10, f"answers by code: {load.codes}"
    assert load.codes.get(FLUSH_SLAVE_TIMEOUT, 0) + load.codes.get(11, 0) >= 10
    pair.slave.running.signal(signal.SIGCONT)


async def test_a_slave_whose_log_diverged_does_not_end_as_if_all_were_well(pair: Pair) -> None:
    """Its log is that of another master; the reason is in its log, in its status, and in the exit code."""
    for body_size in (100, 200):
        await pair.master.start()
        load = LoadProducer(pair.master.ports.listen, Sends("orders", body=body_of_size(body_size)))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load.run)
            await load.wait_refused(body_size)
            nursery.cancel_scope.cancel()
        if body_size == 100:
            assert await pair.master.stop() == 0
            pair.master.store.rename(pair.slave.store)
    await pair.slave.start()
    await pair.slave.running.wait_output(r"ha_client\.stopped")
    await wait_status(pair.slave, 1, says="differs from the master's")
    assert await pair.slave.stop() == EXIT_REPLICATION_ENDED
    assert "broker.replication_ended" in pair.slave.running.output()
    assert await pair.master.stop() == 0


async def test_a_second_sigterm_ends_it_at_once(pair: Pair) -> None:
    """With minutes of waiting ahead, the second SIGTERM ends the process without it."""
    pair.master.conf |= {"slaveTimeout": 240_000, "haHousekeepingInterval": 240_000, "drainTimeout": 240_000}
    await pair.start()
    await wait_in_sync(pair.master.ports.listen)
    pair.slave.running.signal(signal.SIGSTOP)
    load = LoadProducer(pair.master.ports.listen, Sends("orders", body=body_of_size(100)), window=10)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        await wait_stored(pair.master, 10)
        pair.master.running.signal(signal.SIGTERM)
        await pair.master.running.wait_output(r"broker\.stopping")
        await trio.sleep(1)
        assert pair.master.running.returncode is None, "it did not drain"
        assert await _stop_at_once(pair.master.running) == EXIT_INTERRUPTED
        nursery.cancel_scope.cancel()
    assert load.acknowledged == set()
    pair.slave.running.signal(signal.SIGCONT)


async def test_a_second_sigterm_ends_a_start_at_once_too(pair: Pair) -> None:
    """A pipe as the table of topics stands for a recovery, which may leave the event loop no turn for minutes."""
    table = pair.master.store / "config" / "topics.json"
    table.parent.mkdir(parents=True)
    os.mkfifo(table)
    starting = pair.master.launch()
    pipe = await _is_read(table)
    starting.signal(signal.SIGTERM)
    await trio.sleep(0.5)
    assert starting.returncode is None, "it did not wait for its start to end in order"
    assert await _stop_at_once(starting) == EXIT_INTERRUPTED
    os.close(pipe)
    assert "broker.stopped_at_once" in starting.output()


async def test_the_first_sigterm_ends_a_recovery(pair: Pair) -> None:
    """A pipe as the checkpoint stands for a recovery that takes minutes; the next start makes up for it."""
    pair.master.conf["brokerRole"] = "ASYNC_MASTER"
    await pair.master.start()
    load = LoadProducer(pair.master.ports.listen, Sends("orders", body=body_of_size(500)))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(load.run)
        await load.wait_acknowledged(500)
        await pair.master.kill()
        nursery.cancel_scope.cancel()
    checkpoint = pair.master.store / "checkpoint"
    checkpoint.unlink(missing_ok=True)
    os.mkfifo(checkpoint)
    recovering = pair.master.launch()
    await recovering.wait_output(r"broker\.starting")
    assert await recovering.stop(timeout_s=60) == 0
    assert "broker.stopped" in recovering.output()
    checkpoint.unlink()
    await pair.master.start()
    assert load.acknowledged <= HeldMessages(pair.master.store / "commitlog", "orders").read(torn=True)


async def test_a_terminal_that_closes_stops_it_in_order_and_nohup_keeps_it(pair: Pair) -> None:
    pair.master.prefix = IN_A_TERMINAL
    await pair.master.start()
    pair.master.running.signal(signal.SIGHUP)
    assert await pair.master.running.wait_exit() == 0
    assert not (pair.master.store / "abort").exists()
    pair.master.prefix = [*IN_A_TERMINAL, "nohup"]
    await pair.master.start()
    pair.master.running.signal(signal.SIGHUP)
    code, out, _ = await rmqha("status", "-b", pair.master.address)
    assert (code, pair.master.running.returncode) == (1, None), out
    assert await pair.master.stop() == 0


async def test_killed_after_the_first_answer_it_still_knows_the_topic(pair: Pair) -> None:
    """One message is in one queue; the others are only known from topics.json."""
    await pair.master.start()
    async with open_producer(pair.master.address, options=ProducerOptions(default_topic_queue_nums=3)) as producer:
        for number in range(5):
            await producer.send(Message(f"topic-{number}", b"first"))
        await pair.master.kill()
    table = json.loads((pair.master.store / "config" / "topics.json").read_bytes())["topicConfigTable"]
    assert [table[f"topic-{number}"]["writeQueueNums"] for number in range(5)] == [3] * 5
