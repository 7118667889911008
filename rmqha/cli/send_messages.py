"""The sending itself: a pipeline of messages, and what became of each."""

import hashlib
import json
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import IO, Any, Final, NamedTuple

import trio

from rmqha.cli.credentials import client_credentials, sign_in_hint
from rmqha.cli.errors import CliError, UnreachableError, unreadable
from rmqha.cli.send_report import SendReport
from rmqha.cli.tls import client_network
from rmqha.client import Message, Producer, ProducerOptions, SendOutcome, SendResult, open_producer
from rmqha.codec.codes import ResponseCode
from rmqha.codec.message_id import decode_message_id
from rmqha.errors import (
    MQBrokerError,
    NoRouteError,
    RemoteProtocolError,
    RemotingConnectError,
    RemotingError,
    RmqhaError,
    UnreadableAnswerError,
)
from rmqha.replication.backoff import Backoff

_FIRST_PAUSE_S: Final = 0.1
_LAST_PAUSE_S: Final = 1.0


class Plan(NamedTuple):
    """What all messages of one call have in common."""

    address: str
    topic: str
    tag: str | None
    keys: tuple[str, ...]
    properties: dict[str, str]
    wait: bool
    window: int
    timeout_s: float
    retries: int = 0


class AnswerLog:
    """Matches answers, which come in the order of sending, to what was sent; counts them, writes receipts."""

    def __init__(self, topic: str, report: SendReport, receipts: IO[str] | None) -> None:
        self._topic = topic
        self._report = report
        self._receipts = receipts
        self.advance: Callable[[int], None] | None = None
        """Told how many more were answered."""
        self._sent: deque[tuple[float, bytes]] = deque()
        self.examples: dict[str, str] = {}
        """The first error's text for each kind of error."""
        self.gone: RemotingConnectError | None = None
        """Why nothing more can be sent: the broker is gone."""
        self.unwritten: str = ""
        """Why receipts are lacking: nothing more is sent whose receipt nobody would have."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be sent."""
        return bool(self.gone or self.unwritten)

    def sent(self, body: bytes) -> None:
        """Note one message on its way."""
        self._sent.append((time.perf_counter(), body))

    @property
    def next_body(self) -> bytes:
        """What was sent in the message whose answer comes next."""
        return self._sent[0][1]

    def sent_again(self) -> None:
        """Note a message that is tried once more."""
        self._report.sent_again += 1

    def answered(self, outcomes: list[SendOutcome]) -> None:
        """Note what became of the oldest messages on their way."""
        now = time.perf_counter()
        for outcome in outcomes:
            sent_at, body = self._sent.popleft()
            status = _status_of(outcome)
            self._report.add(status, latency_s=now - sent_at, body_size=len(body), broker=_broker_of(outcome))
            if self._receipts is not None and not self.unwritten:
                receipt = _receipt(self._topic, outcome, status, body=body, latency_s=now - sent_at)
                self._write(self._receipts, json.dumps(receipt) + "\n")
            if not isinstance(outcome, SendResult):
                self.examples.setdefault(status, str(outcome))
            if isinstance(outcome, RemotingConnectError):
                self.gone = outcome
        if self.advance is not None:
            self.advance(len(outcomes))

    def finish(self) -> CliError | None:
        """Write what is left of the receipts; returns why they are not all there."""
        if self._receipts is not None and not self.unwritten:
            self._write(self._receipts, "")
        if not self.unwritten:
            return None
        return CliError(
            "the receipts are not complete",
            why=self.unwritten,
            hint="all messages that were sent are counted above; make room, and send the others",
        )

    def _write(self, receipts: IO[str], line: str) -> None:
        try:
            receipts.write(line)
            if not line:
                receipts.flush()
        except OSError as error:
            self.unwritten = error.strerror or str(error)


_NOTHING_SENT: Final = (
    "'rmqha status' at this address says whether it is a master; 'rmqha topics describe' shows what may be done with a "
    "topic, and 'rmqha topics update --perm rw' changes it"
)


async def send_all(plan: Plan, source: AsyncIterator[Iterable[bytes]], log: AnswerLog) -> CliError | None:
    """Send everything; returns why it ended early."""
    async with open_producer(
        plan.address,
        options=ProducerOptions(timeout_s=plan.timeout_s),
        network=client_network(),
        credentials=client_credentials(),
    ) as producer:
        try:
            await _find_queues(producer, plan)
        except NoRouteError as error:
            return CliError(f"nothing can be sent to {plan.topic}", why=str(error), hint=_NOTHING_SENT)
        except MQBrokerError as error:
            hint = sign_in_hint(error.remark, otherwise="it serves, but not this: ask it by 'rmqha status'")
            return CliError(f"nothing can be sent to {plan.topic}", why=str(error), hint=hint)
        except RmqhaError as error:
            return unreachable(plan, error)
        async for bodies in source:
            await send_chunk(producer, plan, bodies, log)
            if log.gone:
                return unreachable(plan, log.gone)
            if log.unwritten:
                break
    return None


def unreachable(plan: Plan, error: RmqhaError) -> CliError:
    """Say which broker it was, the one that was asked names others; or that one answers what cannot be read."""
    if isinstance(error, UnreadableAnswerError):
        return unreadable(error.address, str(error))
    named = error.address if isinstance(error, RemotingError) and ":" in error.address else ""
    return UnreachableError(plan.address, str(error), broker=named)


async def _find_queues(producer: Producer, plan: Plan) -> None:
    """Find out where the topic is; a broker that is being restarted is asked again, if that is wished.

    Raises:
        RmqhaError: as :meth:`Producer.queues`.
    """
    pause = Backoff(lambda: 0.0, first_s=_FIRST_PAUSE_S, max_s=_LAST_PAUSE_S)
    deadline = trio.current_time() + plan.timeout_s
    for number in range(plan.retries + 1):
        try:
            await producer.queues(plan.topic)
        except RmqhaError as error:
            pause_s = pause.next_pause_s()
            if not error.retryable or number == plan.retries or trio.current_time() + pause_s > deadline:
                raise
            await trio.sleep(pause_s)
        else:
            return


async def send_chunk(producer: Producer, plan: Plan, bodies: Iterable[bytes], log: AnswerLog) -> None:
    """Send ``bodies`` and wait for all answers, or until the broker is gone."""
    pipeline = producer.pipeline(window=plan.window)
    for body in bodies:
        log.sent(body)
        await _settle(producer, plan, await pipeline.send(_message(plan, body)), log)
        if log.is_over:
            break
    await _settle(producer, plan, await pipeline.finish(), log)


async def _settle(producer: Producer, plan: Plan, outcomes: list[SendOutcome], log: AnswerLog) -> None:
    """Log each outcome as soon as it is known; what failed, and may succeed later, is tried again before the next."""
    for outcome in outcomes:
        if isinstance(outcome, RmqhaError) and outcome.retryable and plan.retries and not log.is_over:
            log.sent_again()
            log.answered([await _again(producer, plan, log.next_body)])
        else:
            log.answered([outcome])


async def _again(producer: Producer, plan: Plan, body: bytes) -> SendOutcome:
    try:
        return await producer.send(_message(plan, body), retries=plan.retries - 1, timeout_s=plan.timeout_s)
    except RmqhaError as error:
        return error


def _message(plan: Plan, body: bytes) -> Message:
    return Message(
        plan.topic,
        body,
        tags=plan.tag,
        keys=plan.keys,
        properties=plan.properties or None,
        wait_store_msg_ok=plan.wait,
    )


def _status_of(outcome: SendOutcome) -> str:
    """Name what became of a message: a SendStatus, the broker's refusal, or the kind of error."""
    if isinstance(outcome, SendResult):
        return outcome.status.name
    if isinstance(outcome, MQBrokerError) and isinstance(outcome.code, ResponseCode):
        return outcome.code.name
    return type(outcome).__name__.removesuffix("Error")


def _broker_of(outcome: SendOutcome) -> str:
    """Where it runs that stored the message; empty if nobody has, or it does not say."""
    try:
        return decode_message_id(outcome.offset_msg_id)[0] if isinstance(outcome, SendResult) else ""
    except RemoteProtocolError:
        return ""


def _receipt(topic: str, outcome: SendOutcome, status: str, *, body: bytes, latency_s: float) -> dict[str, Any]:
    receipt = {
        "topic": topic,
        "status": status,
        "latencyMs": round(latency_s * 1000, 3),
        "bodyLength": len(body),
        "bodySha256": hashlib.sha256(body).hexdigest(),
    }
    if not isinstance(outcome, SendResult):
        return receipt | {"error": str(outcome)}
    return receipt | {
        "msgId": outcome.msg_id,
        "offsetMsgId": outcome.offset_msg_id,
        "brokerName": outcome.queue.broker_name,
        "queueId": outcome.queue.queue_id,
        "queueOffset": outcome.queue_offset,
    }
