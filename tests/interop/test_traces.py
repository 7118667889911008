"""Message traces of RocketMQ's clients, on a broker that makes no topic by itself."""

from pathlib import Path

import pytest

from tests.e2e.processes import RmqhaBroker, reaping
from tests.interop.feature_table import JAVA_CLIENT
from tests.interop.programs import Program, programs
from tests.interop.test_other_clients import make_topic

pytestmark = pytest.mark.timeout(600)


@pytest.mark.tries(JAVA_CLIENT, "message trace")
@pytest.mark.parametrize("topic", ["RMQ_SYS_TRACE_TOPIC", "traces"])
async def test_what_java_clients_trace_is_there_to_be_read(topic: str, tmp_path: Path) -> None:
    conf = {"autoCreateTopicEnable": "false", "traceTopicEnable": "true", "msgTraceTopicName": topic}
    broker = RmqhaBroker(tmp_path / "broker", {"brokerRole": "ASYNC_MASTER"} | conf)
    with reaping(broker):
        await broker.start()
        await make_topic(broker, "orders")
        program = Program("Traces.java", tmp_path, "traces", broker.address, "orders", topic, 3)
        with programs(program):
            for _ in range(3):
                await program.running.wait_output("sent SEND_OK")
            for word in ("consumed message-2", "traced Pub", "traced SubBefore", "traced SubAfter"):
                await program.running.wait_output(word)
