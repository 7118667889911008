"""`rmqha top` and `rmqha status --warn-lag` see a slave come and go."""

import json
from typing import Any

import pytest
import trio

from tests.e2e.commands import rmqha
from tests.e2e.conftest import Pair

pytestmark = pytest.mark.e2e


async def test_a_slave_is_seen_while_it_follows_and_counts_as_lag_when_it_has_left(pair: Pair) -> None:
    pair.master.conf["brokerRole"] = "ASYNC_MASTER"
    await pair.start()
    master = ["-b", pair.master.address]
    limits = ["--warn-lag", "1s", "--crit-lag", "4s"]
    with trio.fail_after(60):
        while "replica " not in (await rmqha("status", *master))[1]:  # noqa: ASYNC110 - another process
            await trio.sleep(0.2)
    assert (await rmqha("status", *master, "--wait", "in-sync"))[0] == 0
    assert (await rmqha("send", "orders", *master, "--count", "500"))[0] == 0
    first, second = await watched(master)
    assert (first["bytesPerSecond"], second["bytesPerSecond"]) == (None, 0.0)
    assert second["maxOffset"] > 500 * 1024
    with trio.fail_after(120):
        while not second["putTps"]:  # counted once a second, and told for ten, which a slow machine takes to ask
            assert (await rmqha("send", "orders", *master, "--count", "1"))[0] == 0
            _, second = await watched(master)
    assert second["replicaLagSeconds"] is not None
    code, out, err = await rmqha("top", *master, "--count", "1")
    assert (code, err, out.splitlines()[1].split()[1:3]) == (0, "", ["pair", "ASYNC_MASTER"])

    await pair.slave.stop()
    with trio.fail_after(60):
        while (found := await rmqha("status", *master, *limits))[0] != 2:  # noqa: ASYNC110 - another process
            await trio.sleep(0.2)
    assert found[1].startswith("failed: ASYNC_MASTER")
    assert "which left, lags behind by" in found[1]
    assert "more than --crit-lag 4 s" in found[1]
    assert (await rmqha("status", *master))[0] == 0


async def watched(master: list[str]) -> list[dict[str, Any]]:
    """Two samples."""
    code, out, err = await rmqha("top", *master, "--count", "2", "--interval", "1500ms", "--format", "json")
    assert (code, err) == (0, "")
    first, second = map(json.loads, out.splitlines())
    return [first, second]
