"""One partition's messages sent: each is tried until it is safe, or its time is over."""

import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from rmqha.client import Message, SendOutcome, SendResult
from rmqha.errors import MQClientError, RmqhaError
from rmqha.replication.backoff import Backoff
from rmqha.spark.sink.rows import ROW_ID, Row

_UNANSWERED_MAX: Final = 1000
_UNANSWERED_BYTES_MAX: Final = 8 << 20
_FIRST_PAUSE_S: Final = 0.1
_PAUSE_S_MAX: Final = 2.0
_IN_A_ROW: Final = 32
"""More than a topic has queues, as a rule, on brokers that are away beside others that are not."""


_Problem = tuple[Row, RmqhaError]


class Sends(Protocol):
    """What is needed of a SyncProducer."""

    def send_many(self, messages: Iterable[Message], *, window: int) -> Iterator[SendOutcome]:
        """The outcome of each, in order."""


@dataclass
class Sent:
    """What a partition came to.

    Attributes:
        rows: that are in the brokers' logs, as safely as was asked for.
        again: sends that were repeated: so many messages may be there twice.
    """

    rows: int = 0
    again: int = 0


class Sender:
    """Sends rows by a producer; up to 1000 of them, or 8 MiB, await their answers."""

    def __init__(
        self,
        producer: Sends,
        *,
        accept_stored: bool,
        retry_for_s: float,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._producer = producer
        self._accept_stored = accept_stored
        self._retry_for_s = retry_for_s
        self._now = now
        self._sleep = sleep
        self.sent = Sent()
        self._unsafe: set[int] = set()
        """Rows that a broker stored at their last try, and did not call safe."""
        self._failed_in_a_row: dict[str, int] = {}
        """Sends of each topic since one got through."""

    def send(self, rows: Iterable[Row]) -> None:
        """All of them.

        Raises:
            MQClientError: a row cannot be sent, or was tried for too long. Others, behind it too, may be sent.
        """
        for run in _runs(rows):
            self._send_run(run)

    def _send_run(self, run: Sequence[Row]) -> None:
        """What failed, and may pass, is sent again together, after one pause for all of it.

        What a broker stored and did not call safe is in its log each time. So of a topic of which nothing gets through,
        as while a slave is away, one row is sent, and the others once that one got through.
        """
        backoff = Backoff(random.random, first_s=_FIRST_PAUSE_S, max_s=_PAUSE_S_MAX)
        problems = self._try_once(run)
        deadline = self._now() + self._retry_for_s
        while problems:
            pause_s = backoff.next_pause_s()
            is_late = self._now() + pause_s > deadline
            for row, problem in problems:
                if is_late or not problem.retryable:
                    raise self._error(row, problem) from problem
            self._sleep(pause_s)
            problems = self._try_again(problems)

    def _try_again(self, problems: list[_Problem]) -> list[_Problem]:
        met, first, later = set[str](), list[Row](), list[_Problem]()
        for row, problem in problems:
            topic = row.message.topic
            if topic in met and self._failed_in_a_row.get(topic, 0) >= _IN_A_ROW:
                later.append((row, problem))
            else:
                first.append(row)
            met.add(topic)
        failed = self._repeat(first)
        waiting = {row.message.topic for row, _ in failed}
        failed += [one for one in later if one[0].message.topic in waiting]
        failed += self._repeat([row for row, _ in later if row.message.topic not in waiting])
        return sorted(failed, key=lambda one: one[0].number)

    def _repeat(self, rows: Sequence[Row]) -> list[_Problem]:
        self.sent.again += len(rows)
        return self._try_once(rows) if rows else []

    def _try_once(self, rows: Sequence[Row]) -> list[_Problem]:
        """Those that do not count as sent, and why."""
        outcomes = list(self._producer.send_many([row.message for row in rows], window=_UNANSWERED_MAX))
        judged = [(row, self._problem(outcome)) for row, outcome in zip(rows, outcomes, strict=True)]
        for row, problem in judged:
            failed_before = self._failed_in_a_row.pop(row.message.topic, 0)
            if problem is not None:
                self._failed_in_a_row[row.message.topic] = failed_before + 1
            self._unsafe.discard(row.number)
            if isinstance(problem, _NotSafeError):
                self._unsafe.add(row.number)
        problems = [(row, problem) for row, problem in judged if problem is not None]
        self.sent.rows += len(rows) - len(problems)
        return problems

    def _problem(self, outcome: SendOutcome) -> RmqhaError | None:
        """Why this send does not count, yet."""
        if not isinstance(outcome, SendResult):
            return outcome
        if outcome.is_ok or self._accept_stored:
            return None
        return _NotSafeError(
            f"a broker stored it, but answered {outcome.status.name}: not as safe as it is told to make messages "
            "('rmqha status' says what it lacks; require=stored takes this for sent)"
        )

    def _error(self, row: Row, problem: RmqhaError) -> MQClientError:
        tried = f", tried for {self._retry_for_s:g} s" if problem.retryable else ""
        place = (row.message.properties or {}).get(ROW_ID, "").rpartition(":")[0].rpartition(":")[0]
        there = self.sent.rows + len(self._unsafe - {row.number})
        return MQClientError(
            f"row {row.number} of partition {place} was not sent to topic {row.message.topic}{tried}: {problem}. "
            f"{there} other rows of it are in the log and stay there; when they are written again, they come "
            f"once more, with the same property {ROW_ID} if it is the same write"
        )


class _NotSafeError(RmqhaError):
    """It is in the master's log, and may yet be lost with the master."""

    retryable = True


def _runs(rows: Iterable[Row]) -> Iterator[Sequence[Row]]:
    run: list[Row] = []
    size = 0
    for row in rows:
        run.append(row)
        size += len(row.message.body)
        if len(run) >= _UNANSWERED_MAX or size >= _UNANSWERED_BYTES_MAX:
            yield run
            run, size = [], 0
    if run:
        yield run
