"""Topics for which there is no room: an operator hears of them by log and status, not their senders alone."""

from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.broker.tables.refused_topics import RefusedTopics
from rmqha.cli.verdict import judge
from rmqha.codec.codes import ResponseCode
from tests.broker.machines import Machine, ask, send_request
from tests.broker.test_pair import status
from tests.sim.sim_net import SimNet


def test_each_minute_has_a_line_and_a_clock_that_is_set_back_silences_nothing() -> None:
    refused = RefusedTopics()
    assert refused.facts(now_ms=5) is None
    with capture_logs() as logs:
        for now_ms in (10_000, 10_500, 69_999, 70_000, 5_000):
            refused.note("t", "no room", now_ms=now_ms)
    assert [line["refused"] for line in logs] == [1, 4, 5]
    assert refused.facts(now_ms=8_000) == {"count": 5, "last_s_ago": 3, "reason": "no room"}


def test_the_log_says_what_helps() -> None:
    refused = RefusedTopics()
    with capture_logs() as logs:
        refused.note("t", "topic t is not made: more queues than maxQueues allows", now_ms=0)
        refused.note("t", "topic t is not made: the table of topics has 16777216 bytes", now_ms=60_000)
    assert [line["next"] for line in logs] == ["raise maxQueues", "delete topics that nobody needs"]


async def test_a_broker_that_makes_no_more_topics_says_so(autojump_clock: MockClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1", {"maxQueues": "8"})
    with capture_logs() as logs:
        async with machine.broker() as broker, machine.client() as client:
            sent = [await ask(client, send_request(b"x", topic=f"t{number}")) for number in range(4)]
            verdict = judge(await status(client))
            assert broker.topics.refused.count > 0
    assert {answer.code for answer in sent} == {ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR}
    assert verdict.level == "degraded"
    assert "is not made" in verdict.reasons[0]
    assert len([line for line in logs if line["event"] == "topic.not_made"]) == 1
