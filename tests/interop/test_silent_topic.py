"""A store of a former slave whose queue begins where its master's ended, opened by RocketMQ itself."""

from pathlib import Path

import pytest
import trio

from rmqha.codec.codes import ResponseCode
from rmqha.codec.record.message import decode_message
from tests.broker.machines import pull_request, send_request
from tests.e2e.processes import RmqhaBroker, reaping
from tests.interop.feature_table import BROKER
from tests.interop.peers import JavaBroker
from tests.interop.test_tables import COMMON, ask, wait_end

pytestmark = pytest.mark.tries(BROKER, "go on in a queue that begins where it ended elsewhere")

SILENT = "silent"


async def test_rocketmq_goes_on_in_a_queue_that_begins_where_it_ended_elsewhere(tmp_path: Path) -> None:
    ours = RmqhaBroker(tmp_path / "ours", {"brokerRole": "ASYNC_MASTER", **COMMON})
    config = ours.store / "config"
    config.mkdir(parents=True)
    (config / "queueEnds.json").write_text('{"queueEnds":{"silent":{0:300123}}}')
    java = JavaBroker(tmp_path / "java", {"brokerRole": "ASYNC_MASTER", **COMMON})
    java.move_store(ours.store)
    with reaping(ours, java):
        await ours.start()
        await ask(ours, send_request(b"busy", topic="busy"))
        assert (await ask(ours, send_request(b"ours", topic=SILENT))).code == ResponseCode.SUCCESS
        await ours.stop()
        await java.start()
        with trio.fail_after(120):
            while (await ask(java, send_request(b"java", topic=SILENT))).code != ResponseCode.SUCCESS:  # noqa: ASYNC110
                await trio.sleep(0.2)
        await wait_end(java, SILENT, 300_125)
        answer = await ask(java, pull_request(300_123, topic=SILENT))
        first = decode_message(answer.body)
        assert (first.body, first.queue_offset) == (b"ours", 300_123)
