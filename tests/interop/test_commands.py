"""What an operator's commands make of a real RocketMQ broker, and it of our configuration file."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from rmqha.config.java_properties import parse_properties
from tests.e2e.commands import rmqha
from tests.e2e.processes import CHECKOUT, reaping
from tests.interop.feature_table import BROKER
from tests.interop.peers import JavaBroker

pytestmark = pytest.mark.tries(BROKER, "start with conf/master.conf, tell rmqha status")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[JavaBroker]:
    """RocketMQ with conf/master.conf, but for its places: ports and directories."""
    properties, _ = parse_properties((CHECKOUT / "conf" / "master.conf").read_bytes())
    conf = {p.key: p.value for p in properties if not p.key.startswith("storePath") and p.key != "listenPort"}
    broker = JavaBroker(tmp_path / "java", conf)
    with reaping(broker):
        yield broker


async def test_rocketmq_starts_with_our_file_and_tells_its_status(broker: JavaBroker) -> None:
    await broker.start()
    with trio.fail_after(120):
        # It answers NoSuchElementException in its first seconds.
        while (await rmqha("status", "-b", broker.address))[0] == 1:  # noqa: ASYNC110 - another process
            await trio.sleep(0.5)
    code, out, err = await rmqha("status", "-b", broker.address)
    assert (code, err) == (0, "")
    assert out.startswith("ok: RocketMQ V4_9_7")
    code, out, _ = await rmqha("status", "-b", broker.address, "--format", "json")
    assert json.loads(out)["max_offset"] == 0
    code, _, err = await rmqha("status", "-b", broker.address, "--wait", "in-sync", "--timeout", "3")
    assert (code, "it tells nothing about its replicas" in err) == (1, True)
    code, out, _ = await rmqha("log", "verify", str(broker.store))
    assert (code, "good: 0 records" in out) == (0, True)
