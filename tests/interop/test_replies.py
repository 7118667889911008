"""RocketMQ's request and reply through our broker."""

from pathlib import Path

import pytest

from tests.e2e.processes import Child, RmqhaBroker, reaping
from tests.interop.dledger_groups import java_argv
from tests.interop.feature_table import JAVA_CLIENT

pytestmark = pytest.mark.timeout(300)


@pytest.mark.tries(JAVA_CLIENT, "request and reply")
async def test_a_java_producer_gets_the_replies_of_a_java_consumer(tmp_path: Path) -> None:
    broker = RmqhaBroker(tmp_path / "broker", {"brokerRole": "ASYNC_MASTER"})
    with reaping(broker):
        await broker.start()
        for name in ("answer", "ask"):
            (tmp_path / name).mkdir()
        argv = java_argv("Replies.java", broker.address, "questions", "ask", 5, directory=tmp_path / "ask")
        asking = Child(argv, log=tmp_path / "ask.log")
        argv = java_argv("Replies.java", broker.address, "questions", "answer", 0, directory=tmp_path / "answer")
        answering = Child(argv, log=tmp_path / "answer.log")
        try:
            await asking.wait_output("ready")
            assert [f"got reply to question-{number}" for number in range(5)] == [
                line for line in asking.output().splitlines() if line.startswith("got ")
            ]
            await answering.wait_output("replied question-4 SEND_OK")
            assert "failed" not in answering.output()
        finally:
            asking.reap()
            answering.reap()
