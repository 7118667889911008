"""What a RocketMQ broker with enableDLegerCommitLog stored is read by rmqha's readers of whole logs."""

from pathlib import Path
from typing import Any

import pytest

from rmqha.spark import ReadOptions, ReadReport, iter_batches
from rmqha.spark.commit_log import open_log
from tests.e2e.load import LoadProducer, Sends, body_of_size
from tests.e2e.processes import free_ports, give_back, reaping
from tests.interop.feature_table import BROKER
from tests.interop.test_live_pairs import KINDS

pytestmark = pytest.mark.tries(BROKER, "have messages of a DLedger member read by Spark")

DATA_SIZE = 256 * 1024


async def _fill(port: int) -> int:
    """Single messages and batches; how many were acknowledged."""
    acknowledged = 0
    for topic, sizes, batch, count in (("orders", (0, 300, 4000), 1, 200), ("batches", (300,), 20, 20)):
        await LoadProducer(port, Sends(topic, body=body_of_size(*sizes), batch=batch), window=4).send(count)
        acknowledged += count * batch
    return acknowledged


async def test_messages_in_entries_are_rows(tmp_path: Path) -> None:
    ports = free_ports()
    conf: dict[str, Any] = {
        "enableDLegerCommitLog": "true",
        "dLegerGroup": "g",
        "dLegerSelfId": "n0",
        "dLegerPeers": f"n0-127.0.0.1:{ports.listen}",
        "mappedFileSizeCommitLog": DATA_SIZE,
    }
    broker = KINDS["java"](tmp_path / "java", conf)
    with reaping(broker):
        await broker.start()
        acknowledged = await _fill(broker.ports.listen)
        await broker.stop()
    give_back(ports)
    report = ReadReport()
    rows = [row for batch in iter_batches(str(broker.store), ReadOptions(), report=report) for row in batch.to_pylist()]
    assert len(rows) >= acknowledged
    assert {row["topic"] for row in rows} == {"orders", "batches"}
    log = open_log(str(broker.store))
    assert (report.next, report.corrupt, log.unfinished) == (log.end, [], "")
    assert len(log.segments) > 1
    for topic in ("orders", "batches"):
        queues: dict[int, list[int]] = {}
        for row in rows:
            if row["topic"] == topic:
                queues.setdefault(row["queueId"], []).append(row["queueOffset"])
        assert all(offsets == list(range(len(offsets))) for offsets in queues.values())
