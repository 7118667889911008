"""`rmqha send`: after what ends the sending nothing more is read, nor sent, however much its source still has."""

import errno
import io
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import ExitStack, aclosing, asynccontextmanager
from typing import Any, Final, cast

import click
import pytest
import trio
from trio.testing import MockClock

from rmqha.cli import send_messages
from rmqha.cli.errors import CliError, UnreachableError
from rmqha.cli.main import run
from rmqha.cli.send import _open_source
from rmqha.cli.send_messages import AnswerLog, Plan, send_all
from rmqha.cli.send_report import SendReport
from rmqha.client import Message, MessageQueue, Producer, SendOutcome, SendResult, SendStatus
from rmqha.codec.codes import ResponseCode
from rmqha.errors import MQBrokerError, NoRouteError, RemotingConnectError, RmqhaError

OK: Final = SendResult(SendStatus.SEND_OK, "id", "oid", MessageQueue("t", "b", 3), 7)
GONE: Final = RemotingConnectError("h:1", "refused")
REFUSED: Final = MQBrokerError(ResponseCode.MESSAGE_ILLEGAL, "too large")
PLAN: Final = Plan("h:1", "t", None, (), {}, wait=True, window=2, timeout_s=1.0)
CHUNKS, CHUNK_SIZE = 50, 10


class Sender:
    """A producer, and each of its pipelines: the first messages are answered well, all others with ``then``."""

    def __init__(self, then: SendOutcome, *, good: int, no_route: RmqhaError | None = None) -> None:
        self.then, self.good = then, good
        self.no_route = no_route
        self.sent = 0

    async def queues(self, _topic: str) -> list[MessageQueue]:
        if self.no_route is not None:
            raise self.no_route
        return [OK.queue]

    def pipeline(self, *, window: int) -> "Sender":
        assert window == PLAN.window
        return self

    async def send(self, _message: Message) -> list[SendOutcome]:
        self.sent += 1
        return [OK if self.sent <= self.good else self.then]

    async def finish(self) -> list[SendOutcome]:
        return []


class Disk(io.StringIO):
    """Has room for some receipts."""

    def __init__(self, lines: int) -> None:
        super().__init__()
        self.lines_left = lines

    def write(self, text: str) -> int:
        self.lines_left -= 1
        if self.lines_left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(text)


@pytest.mark.parametrize(
    ("sender", "room", "chunks_read", "sent", "error"),
    [
        (Sender(OK, good=0), 10_000, CHUNKS, CHUNKS * CHUNK_SIZE, None),
        (Sender(REFUSED, good=5), 10_000, CHUNKS, CHUNKS * CHUNK_SIZE, None),
        (Sender(GONE, good=25), 10_000, 3, 26, UnreachableError),
        (Sender(OK, good=0), 25, 3, 26, CliError),
        (Sender(OK, good=0), 0, 1, 1, CliError),
        (Sender(OK, good=0, no_route=NoRouteError("none")), 10_000, 0, 0, CliError),
        (Sender(OK, good=0, no_route=REFUSED), 10_000, 0, 0, CliError),
        (Sender(OK, good=0, no_route=GONE), 10_000, 0, 0, UnreachableError),
    ],
    ids=["nothing", "refusals", "gone", "receipts", "first receipt", "no topic", "no right", "nobody"],
)
async def test_what_ends_the_sending_ends_the_reading(
    sender: Sender,
    room: int,
    chunks_read: int,
    sent: int,
    error: type[CliError] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = list[int]()

    async def source() -> AsyncGenerator[Iterable[bytes], None]:
        for number in range(CHUNKS):
            read.append(number)
            yield [b"x"] * CHUNK_SIZE

    monkeypatch.setattr(send_messages, "open_producer", opening(sender))
    report = SendReport()
    log = AnswerLog("t", report, Disk(room))
    async with aclosing(source()) as chunks:
        failure = await send_all(PLAN, chunks, log) or log.finish()
    assert (len(read), sender.sent, report.total) == (chunks_read, sent, sent)
    assert (failure is None) if error is None else type(failure) is error
    if isinstance(failure, UnreachableError):
        assert (failure.message, failure.why) == ("the broker at h:1 cannot be reached", str(GONE))


def opening(sender: Sender) -> Callable[..., Any]:
    @asynccontextmanager
    async def opened(*_: object, **__: object) -> AsyncIterator[Sender]:
        yield sender

    return opened


@pytest.mark.parametrize(
    ("topic", "told"), [("", "the topic is empty"), ("a b", "may only hold"), ("t" * 200, "longer")]
)
def test_a_topic_that_can_be_none_is_a_wrong_usage(topic: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An unset variable's, say: a broker was asked for it, and told to be the reason."""
    assert run(["send", topic, "--count", "1", "-b", "127.0.0.1:1"]) == 2
    assert told in capsys.readouterr().err


def test_without_a_standard_input_it_says_what_else_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under some daemons: it ended with a traceback."""
    monkeypatch.setattr(sys, "stdin", None)
    with ExitStack() as stack, pytest.raises(click.UsageError, match=r"no standard input.*--file.*--count"):
        _open_source(stack, None, count=None, size=1)


@pytest.mark.parametrize(
    ("error", "retries", "asked_at_least", "asked_at_most"),
    [(GONE, 1000, 5, 1000), (GONE, 2, 3, 3), (GONE, 0, 1, 1), (REFUSED, 1000, 1, 1)],
    ids=["for its time", "so often", "once", "no use"],
)
async def test_a_broker_that_is_away_is_asked_again_so_often_and_within_the_time(
    error: RmqhaError, retries: int, asked_at_least: int, asked_at_most: int, autojump_clock: MockClock
) -> None:
    asked_at = list[float]()

    class Away(Sender):
        async def queues(self, _topic: str) -> list[MessageQueue]:
            asked_at.append(trio.current_time())
            raise error

    plan, began_at = PLAN._replace(retries=retries, timeout_s=30.0), trio.current_time()
    with pytest.raises(type(error)):
        await send_messages._find_queues(cast("Producer", Away(OK, good=0)), plan)
    assert asked_at_least <= len(asked_at) <= asked_at_most
    assert asked_at[-1] == trio.current_time() <= began_at + plan.timeout_s
