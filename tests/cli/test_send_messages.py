import errno
import hashlib
import io
import json
from collections.abc import Iterable
from typing import Any, cast

import pytest

from rmqha.cli.send_messages import AnswerLog, Plan, send_chunk, unreachable
from rmqha.cli.send_report import SendReport
from rmqha.client import Message, MessageQueue, Producer, SendOutcome, SendResult, SendStatus
from rmqha.codec.codes import ResponseCode
from rmqha.codec.message_id import encode_message_id
from rmqha.errors import MQBrokerError, RemotingConnectError, RemotingTimeoutError, UnreadableAnswerError
from tests.cli.test_send_ends import Disk
from tests.store.helpers import HOST

QUEUE = MessageQueue("t", "b", 3)
OK = SendResult(SendStatus.SEND_OK, "id", "oid", QUEUE, 7)
PLAN = Plan("h:1", "t", "tag", ("k",), {"a": "b"}, wait=True, window=2, timeout_s=1.0)


class FakePipeline:
    """Answers two messages late, with the outcomes it was given."""

    def __init__(self, outcomes: list[SendOutcome]) -> None:
        self.outcomes = outcomes
        self.sent: list[Message] = []

    async def send(self, message: Message) -> list[SendOutcome]:
        self.sent.append(message)
        return [self.outcomes.pop(0)] if len(self.sent) > 2 else []

    async def finish(self) -> list[SendOutcome]:
        return [self.outcomes.pop(0) for _ in range(min(2, len(self.sent)))]


class FakeProducer:
    """``later`` are the outcomes of what is sent outside the pipeline."""

    def __init__(self, outcomes: list[SendOutcome], later: list[SendOutcome] | None = None) -> None:
        self.made = FakePipeline(outcomes)
        self.later = later or []
        self.again: list[tuple[bytes, int, float]] = []

    async def send(self, message: Message, *, retries: int, timeout_s: float) -> SendResult:
        self.again.append((message.body, retries, timeout_s))
        outcome = self.later.pop(0)
        if isinstance(outcome, SendResult):
            return outcome
        raise outcome

    def pipeline(self, *, window: int) -> FakePipeline:
        assert window == PLAN.window
        return self.made


async def run(outcomes: list[SendOutcome], bodies: Iterable[bytes]) -> tuple[AnswerLog, SendReport, list[Any]]:
    report, receipts = SendReport(), io.StringIO()
    log = AnswerLog("t", report, receipts)
    producer = FakeProducer(outcomes)
    await send_chunk(cast("Producer", producer), PLAN, bodies, log)
    assert all((m.tags, m.keys, m.properties) == ("tag", ("k",), {"a": "b"}) for m in producer.made.sent)
    return log, report, [json.loads(line) for line in receipts.getvalue().splitlines()]


async def test_each_answer_is_counted_and_written_with_its_own_body() -> None:
    bodies = [b"%d" % number for number in range(5)]
    _, report, receipts = await run([OK] * 5, bodies)
    assert (report.total, report.all_ok, report.bytes_sent) == (5, True, 5)
    assert [receipt["bodySha256"] for receipt in receipts] == [hashlib.sha256(body).hexdigest() for body in bodies]
    assert (receipts[0]["status"], receipts[0]["queueId"], receipts[0]["queueOffset"]) == ("SEND_OK", 3, 7)


async def test_a_refused_message_is_named_and_the_next_one_is_sent() -> None:
    refused = MQBrokerError(ResponseCode.MESSAGE_ILLEGAL, "too large")
    log, report, receipts = await run([OK, refused, RemotingTimeoutError("h:1", "late"), OK], [b"x"] * 4)
    assert report.counts == {"SEND_OK": 2, "MESSAGE_ILLEGAL": 1, "RemotingTimeout": 1}
    assert "too large" in log.examples["MESSAGE_ILLEGAL"]
    assert "too large" in receipts[1]["error"]
    assert not log.gone


async def test_when_the_broker_is_gone_nothing_more_is_sent() -> None:
    gone = RemotingConnectError("h:1", "refused")
    log, report, _ = await run([OK, gone, gone, OK], [b"x"] * 100)
    assert log.gone
    assert report.total < 10


def test_the_broker_that_is_gone_is_named_not_the_one_that_named_it() -> None:
    assert unreachable(PLAN, RemotingConnectError("h:1", "refused")).message == "the broker at h:1 cannot be reached"
    assert unreachable(PLAN, RemotingConnectError("t", "no route")).message == "the broker at h:1 cannot be reached"
    expired = "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: certificate has expired (_ssl.c:1006)"
    error = unreachable(PLAN, RemotingConnectError("h:1", expired))
    assert (error.message, error.exit_code) == ("the broker at h:1 runs, and TLS with it fails", 3)
    assert "docs/security.md" in error.hint
    named = unreachable(PLAN, RemotingTimeoutError("m:2", "no answer"))
    assert named.message == "the broker at m:2, which h:1 named, cannot be reached"
    assert "'rmqha status -b m:2'" in (named.hint or "")


def test_who_answers_what_cannot_be_read_is_not_told_as_out_of_reach() -> None:
    """A script that takes 3 for a broker that is down would start one."""
    told = UnreadableAnswerError("h:1", "it does not say where topic t is: JSON is not UTF-8")
    error = unreachable(PLAN, told)
    assert (error.message, error.exit_code) == ("the answer of the broker at h:1 cannot be read", 1)
    assert (error.why, "no broker at all" in error.hint) == (str(told), True)


async def test_what_may_pass_is_tried_again_if_it_is_wished_and_answers_stay_in_order() -> None:
    gone = RemotingConnectError("h:1", "refused")
    refused = MQBrokerError(ResponseCode.MESSAGE_ILLEGAL, "too large")
    report, receipts = SendReport(), io.StringIO()
    log = AnswerLog("t", report, receipts)
    producer = FakeProducer([OK, gone, gone, refused, OK], [OK, RemotingTimeoutError("h:1", "late")])
    plan = PLAN._replace(retries=16, timeout_s=6.0)
    await send_chunk(cast("Producer", producer), plan, [b"%d" % number for number in range(5)], log)
    assert producer.again == [(b"1", 15, 6.0), (b"2", 15, 6.0)]
    assert report.counts == {"SEND_OK": 3, "RemotingTimeout": 1, "MESSAGE_ILLEGAL": 1}
    bodies = [json.loads(line)["bodySha256"] for line in receipts.getvalue().splitlines()]
    assert bodies == [hashlib.sha256(b"%d" % number).hexdigest() for number in range(5)]
    assert (report.sent_again, log.gone) == (2, None)
    assert "2 were sent again" in report.as_text(elapsed_s=1.0)
    assert report.as_dict(elapsed_s=1.0)["sentAgain"] == 2


async def test_when_the_broker_stays_away_one_message_finds_out_and_what_was_answered_counts_at_once() -> None:
    """Each of the window's messages was tried for its whole time, one behind the other, and nothing counted before."""
    gone = RemotingConnectError("h:1", "refused")
    report = SendReport()
    log = AnswerLog("t", report, None)
    counted = list[int]()

    class Watching(FakeProducer):
        async def send(self, message: Message, *, retries: int, timeout_s: float) -> SendResult:
            counted.append(report.total)
            return await super().send(message, retries=retries, timeout_s=timeout_s)

    producer = Watching([OK, OK, gone, gone, gone], [OK, gone])
    await send_chunk(cast("Producer", producer), PLAN._replace(retries=16), [b"x"] * 5, log)
    assert counted == [2, 3]
    assert (report.counts, report.sent_again, log.is_over) == ({"SEND_OK": 3, "RemotingConnect": 2}, 2, True)


class FullDisk(Disk):
    """Takes some lines into its buffer; there is no room for them."""

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(("lines", "sent_max"), [(3, 10), (1000, 100)])
async def test_receipts_that_cannot_be_written_end_the_sending_and_what_was_sent_is_counted(
    lines: int, sent_max: int
) -> None:
    report = SendReport()
    log = AnswerLog("t", report, FullDisk(lines))
    await send_chunk(cast("Producer", FakeProducer([OK] * 100)), PLAN, [b"x"] * 100, log)
    incomplete = log.finish()
    assert incomplete is not None
    assert "No space left" in incomplete.why
    assert (0 < report.total <= sent_max, report.all_ok) == (True, True)


async def test_advice_names_the_broker_that_answered_and_not_the_name_server() -> None:
    """A name server cannot say why a send was not as safe as SEND_OK promises."""
    late = OK._replace(status=SendStatus.FLUSH_DISK_TIMEOUT, offset_msg_id=encode_message_id(HOST, 7))
    _, report, _ = await run([late, OK], [b"a", b"b"])
    assert "'rmqha status -b 127.0.0.1:10911' says why" in report.advice(("nameserver:9876",))
