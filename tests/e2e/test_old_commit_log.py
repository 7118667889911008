"""A classic broker becomes a group of three that go on behind its commitlog, as processes."""

import json
import shutil
from pathlib import Path

import pytest
import trio

from rmqha.client.consumer import open_consumer
from rmqha.client.message import Message
from rmqha.client.producer import ProducerOptions, open_producer
from rmqha.spark import ReadOptions, iter_batches
from tests.e2e.commands import rmqha
from tests.e2e.dledger_brokers import BrokerGroup, Reader
from tests.e2e.processes import RmqhaBroker, reaping

TOPIC = "orders"
OLD, NEW = 1000, 200
PADDING = b" " * 1500
pytestmark = pytest.mark.timeout(300)


async def send(addresses: str, numbers: range) -> None:
    """Each until it is acknowledged."""
    async with open_producer(addresses, options=ProducerOptions(timeout_s=60)) as producer:
        for number in numbers:
            result = await producer.send(Message(TOPIC, b"%d" % number + PADDING), retries=1000)
            assert result.status.name == "SEND_OK"


async def became_a_group(classic: RmqhaBroker, group: BrokerGroup, *, how: str) -> None:
    """It gets its messages, ends, and each member a copy of its store."""
    await classic.start()
    await send(classic.address, range(OLD))
    await (classic.kill() if how == "kill" else classic.stop())
    assert len([path for path in classic.segments().values() if any(path.read_bytes())]) == 2
    for broker in group.brokers.values():
        shutil.copytree(classic.store, broker.store)
    await group.start()


async def read(reader: Reader, count: int) -> None:
    with trio.fail_after(120):
        while len(reader.numbers) < count:  # noqa: ASYNC110 - it tells nobody
            await trio.sleep(0.05)


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_three_copies_of_a_store_become_a_group(tmp_path: Path, group: BrokerGroup, how: str) -> None:
    conf = {"brokerName": "raft", "mappedFileSizeCommitLog": 1 << 20, "brokerRole": "ASYNC_MASTER"}
    classic = RmqhaBroker(tmp_path / "classic", conf)
    with reaping(classic):
        await became_a_group(classic, group, how=how)
    await send(group.addresses, range(OLD, OLD + NEW))
    async with open_consumer(group.addresses, TOPIC, start="first") as consumer, trio.open_nursery() as nursery:
        reader = Reader(consumer)
        nursery.start_soon(reader.run)
        await read(reader, OLD + NEW)
        leader = await group.master()
        await group.brokers[leader].kill()
        await send(group.addresses, range(OLD + NEW, OLD + 2 * NEW))
        await read(reader, OLD + 2 * NEW)
        await group.brokers[leader].start()
        nursery.cancel_scope.cancel()
    assert reader.numbers == set(range(OLD + 2 * NEW))
    for queue_id, offsets in reader.seen.items():
        assert offsets == list(range(len(offsets))), f"queue {queue_id}"
    await group.healthy()
    assert await group.stop() == [0, 0, 0]
    first, *others = [group.data_files(name) for name in group.brokers]
    assert others == [first, first]
    await look_into(group.brokers["n0"].store)


async def look_into(store: Path) -> None:
    """What commands say of such a store."""
    code, out, _ = await rmqha("log", "verify", str(store), "--format", "json")
    found = json.loads(out)
    assert (code, found["records"]) == (0, OLD + found["entries"]["entries"]), out
    assert found["queues"]["units"] >= OLD + 2 * NEW
    code, out, err = await rmqha("log", "dump", str(store))
    assert (code, len(out.splitlines())) == (0, OLD)
    assert "only the old commitlog" in err
    code, _, err = await rmqha("log", "cut", str(store), "--at-offset", "0", "--yes")
    assert (code, "member of a DLedger group" in err) == (1, True), err
    rows = [row for batch in iter_batches(str(store), ReadOptions(topics=(TOPIC,))) for row in batch.to_pylist()]
    assert {int(row["body"]) for row in rows} == {*range(OLD + 2 * NEW)}  # one may have been sent twice
    assert len({(row["queueId"], row["queueOffset"]) for row in rows}) == len(rows)
    assert [row["physicalOffset"] for row in rows] == sorted(row["physicalOffset"] for row in rows)
