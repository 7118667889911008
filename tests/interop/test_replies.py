"""RocketMQ's request and reply through our broker."""

from pathlib import Path

import pytest

from tests.e2e.processes import RmqhaBroker, reaping
from tests.interop.feature_table import JAVA_CLIENT
from tests.interop.programs import Program, programs
from tests.interop.test_other_clients import make_topic

pytestmark = pytest.mark.timeout(600)


@pytest.mark.tries(JAVA_CLIENT, "request and reply")
async def test_a_java_producer_gets_the_replies_of_a_java_consumer(tmp_path: Path) -> None:
    broker = RmqhaBroker(tmp_path / "broker", {"brokerRole": "ASYNC_MASTER"})
    with reaping(broker):
        await broker.start()
        await make_topic(broker, "questions")  # a consumer of a topic that is not there looks again after 20 s
        answering = Program("Replies.java", tmp_path, "answer", broker.address, "questions", "answer", 0)
        with programs(answering):
            await answering.running.wait_output("ready")
            asking = Program("Replies.java", tmp_path, "ask", broker.address, "questions", "ask", 5)
            with programs(asking):
                await asking.running.wait_output("ready")
                assert [f"got reply to question-{number}" for number in range(5)] == [
                    line for line in asking.running.output().splitlines() if line.startswith("got ")
                ]
                await answering.running.wait_output("replied question-4 SEND_OK")
                assert "failed" not in answering.running.output()
