"""Stores of running brokers are replayed, run after run, while messages arrive: each message once, in both roles."""

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import trio

from tests.e2e.commands import rmqha
from tests.e2e.commitlog import wait_identical
from tests.e2e.conftest import Pair

pa = pytest.importorskip("pyarrow", reason="pyarrow is in the extra [spark]")
pytestmark = pytest.mark.filterwarnings("default")

BATCH = 1000
Place = tuple[int, int]


async def test_runs_over_growing_logs_leave_no_gap_and_no_duplicate(pair: Pair, tmp_path: Path) -> None:
    """Each run takes what is whole at its start; the files roll meanwhile; the brokers notice nothing."""
    pair.master.conf["slaveTimeout"] = 20_000
    await pair.start()
    await rmqha("status", "-b", pair.master.address, "--wait", "in-sync")
    receipts: list[Path] = []
    outs = {broker: tmp_path / f"lake-{broker.directory.name}" for broker in pair.brokers}
    sent = trio.Event()

    ends = set[int]()

    async def send() -> None:
        size = ["--count", str(BATCH), "--size", "700", "--window", "16"]
        while len(receipts) < 6 or len(ends) < 4:
            receipts.append(pair.master.directory / f"receipts-{len(receipts)}.jsonl")
            file = ["--receipts", str(receipts[-1])]
            code, _, err = await rmqha("send", "orders", "-b", pair.master.address, *size, *file)
            assert code == 0, err
        sent.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(send)
        while not sent.is_set():
            for broker, out in outs.items():
                ends.add(await _replay(broker.store, out))
    await wait_identical(*(broker.store / "commitlog" for broker in pair.brokers))
    acknowledged = sorted(_place(json.loads(line)) for path in receipts for line in path.read_text().splitlines())
    assert len(acknowledged) == BATCH * len(receipts)
    for broker, out in outs.items():
        await _replay(broker.store, out)
        assert sorted(_places(out)) == acknowledged
        assert broker.running.returncode is None


async def _replay(store: Path, out: Path) -> int:
    """One run, in this process; where it ended."""
    from rmqha.spark.replay import ReplayOptions, replay  # noqa: PLC0415 - an extra

    report = await trio.to_thread.run_sync(partial(replay, ReplayOptions(str(store), str(out))))
    return report.end


def _place(receipt: dict[str, int]) -> Place:
    return receipt["queueId"], receipt["queueOffset"]


def _places(out: Path) -> Iterator[Place]:
    import pyarrow.parquet as pq  # noqa: PLC0415 - an extra

    for path in out.glob("topic=orders/*.parquet"):
        rows = pq.read_table(path, columns=["queueId", "queueOffset"]).to_pylist()
        yield from (_place(row) for row in rows)
