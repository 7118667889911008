"""until=confirmed on a real pair: what the slave lacks is not read, and comes when the slave has it."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.e2e.commands import rmqha
from tests.e2e.conftest import Pair

pytest.importorskip("pyspark", reason="pyspark is in the extra [spark]")

from tests.spark.in_process import in_process

pytestmark = pytest.mark.filterwarnings("default")


class Stream:
    """A stream's reader, called as Spark calls it; no JVM."""

    def __init__(self, store: Path, master: str) -> None:
        from rmqha.spark.limited_stream import RmqhaStreamReader  # noqa: PLC0415
        from rmqha.spark.source_options import parse_options  # noqa: PLC0415 - an extra

        options = {"path": str(store), "until": "confirmed", "addresses": master}
        self._reader = RmqhaStreamReader(parse_options(options), ("physicalOffset",))
        self._at: Any = None
        self.seen: list[int] = []

    async def batch(self) -> int:
        """Read one; how many messages have been read by now."""
        await trio.to_thread.run_sync(self._batch)
        return len(self.seen)

    def _batch(self) -> None:
        reader = self._reader
        start = reader.initialOffset() if self._at is None else self._at
        self._at = json.loads(json.dumps(reader.latestOffset(start, reader.getDefaultReadLimit())))
        for partition in reader.partitions(start, self._at):
            for batch in reader.read(partition):
                self.seen += batch.column(0).to_pylist()


def places(store: Path) -> list[int]:
    """Where the messages of a store's whole log lie."""
    from rmqha.spark import ReadOptions, iter_batches  # noqa: PLC0415 - an extra

    options = ReadOptions(columns=("physicalOffset",))
    return [at for batch in iter_batches(str(store), options) for at in batch.column(0).to_pylist()]


async def replayed(store: Path, out: Path, master: str) -> tuple[int, str]:
    """Messages of one run without a JVM, and why it ended where it did."""
    from rmqha.spark.confirmed import Masters  # noqa: PLC0415 - an extra
    from rmqha.spark.replay import ReplayOptions, replay  # noqa: PLC0415

    options = ReplayOptions(str(store), str(out), masters=Masters((master,)))
    report = await trio.to_thread.run_sync(partial(replay, options, start=in_process))
    return report.messages, report.unfinished


@pytest.mark.parametrize("role", ["SYNC_MASTER", "ASYNC_MASTER"])
async def test_what_a_slave_lacks_is_read_when_it_has_it(pair: Pair, role: str, tmp_path: Path) -> None:
    """Here, however the log is read; a failover meanwhile would cut what was sent to the master alone."""
    pair.master.conf["brokerRole"] = role
    await pair.start()
    master, store, out = pair.master.address, pair.master.store, tmp_path / "lake"
    send = ["send", "orders", "-b", master, "--no-wait", "--size", "300", "--count"]
    replay = ["replay", str(store), "--out", str(out), "--confirmed-by", master]
    assert (await rmqha("status", "-b", master, "--wait", "in-sync"))[0] == 0
    assert (await rmqha(*send, "200"))[0] == 0
    stream = Stream(store, master)
    with trio.fail_after(120):
        while await stream.batch() < 200:  # noqa: ASYNC110 - a log offers nothing to wait on
            await trio.sleep(0.05)
    await pair.slave.running.stop()
    assert (await rmqha(*send, "100"))[0] == 0
    assert (await stream.batch(), len(places(store))) == (200, 300)
    assert await replayed(store, out, master) == (200, "what follows is not known to be held by replicas")
    assert places(pair.slave.store) == stream.seen == places(store)[:200]

    await pair.master.running.stop()
    await pair.master.start()
    assert await stream.batch() == 200, "no slave has shown anything to this master: nothing new is known"
    code, _, err = await rmqha(*replay)
    assert (code, "knows of no slave that has taken anything since it started" in err) == (1, True)

    await pair.slave.start()
    with trio.fail_after(120):
        while await stream.batch() < 300:  # noqa: ASYNC110 - as above
            await trio.sleep(0.05)
    assert await replayed(store, out, master) == (100, "")
    assert stream.seen == places(store)
    code, _, err = await rmqha(*replay[:-1], pair.slave.address)
    assert (code, f"{pair.slave.address} is a slave" in err) == (1, True)
    await pair.master.running.stop()
    code, _, err = await rmqha(*replay)
    assert (code, f"{master} does not answer: Connection refused" in err) == (1, True)
