"""Each broker opens the store that the other wrote, and serves every message of it."""

import shutil
from pathlib import Path

import pytest
import trio

from tests.e2e.commitlog import first_difference
from tests.e2e.load import LoadProducer, Sends, body_of_size
from tests.e2e.processes import Broker, reaping
from tests.e2e.pulling import assert_serves_its_log
from tests.interop.feature_table import BROKER
from tests.interop.test_live_pairs import KINDS, SIZES

pytestmark = pytest.mark.tries(BROKER, "serve the other's store")

CONF = {"brokerRole": "ASYNC_MASTER", "mappedFileSizeCommitLog": 6 << 20, "mappedFileSizeConsumeQueue": 2_000}


async def _fill(broker: Broker) -> None:
    """Single messages of all sizes, and batches."""
    for topic, size, batch, count in (("orders", SIZES, 1, 100), ("batches", (300,), 20, 20)):
        load = LoadProducer(broker.ports.listen, Sends(topic, body=body_of_size(*size), batch=batch), window=4)
        await load.send(count)
        assert load.unexpected == []


async def _wait_topics_saved(broker: Broker) -> None:
    """A RocketMQ broker knows no topic but the saved ones; ours are saved at once, but the answer does not wait."""
    topics = broker.store / "config" / "topics.json"
    with trio.fail_after(120):
        while not (topics.exists() and '"batches"' in topics.read_text()):  # noqa: ASYNC110 - another process's file
            await trio.sleep(0.02)


async def fill_and_end(broker: Broker, ending: str) -> None:
    """With messages in its store it is stopped in order, or killed."""
    await _fill(broker)
    await _wait_topics_saved(broker)
    await (broker.stop() if ending == "stopped" else broker.kill())


async def assert_serves_it_all(first: Broker, second: Broker) -> None:
    """The second one, which opened a copy of the first one's store."""
    log = first.store / "commitlog"
    assert await assert_serves_its_log(second.ports.listen, log, topics={"orders", "batches"}) >= 500


@pytest.mark.parametrize("ending", ["stopped", "killed"])
@pytest.mark.parametrize(("writer", "reader"), [("rmqha", "java"), ("java", "rmqha")])
async def test_a_store_is_served_whole_by_the_other_broker(
    tmp_path: Path, writer: str, reader: str, ending: str
) -> None:
    """After a clean stop and after kill -9; nothing of the log is changed by opening it."""
    first = KINDS[writer](tmp_path / "first", CONF)
    second = KINDS[reader](tmp_path / "second", CONF)
    with reaping(first, second):
        await first.start()
        await fill_and_end(first, ending)
        shutil.copytree(first.store, second.store)
        await second.start()
        await assert_serves_it_all(first, second)
        await second.stop()
        assert first_difference(first.store / "commitlog", second.store / "commitlog") is None
