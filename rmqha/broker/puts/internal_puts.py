"""InternalPuts: messages that the broker itself makes are put as those of its clients are, and awaited.

Each waits as long as a send does at most: until its topic is saved, for the log's next file, and, if that is asked
for, for disk and replicas. A service that puts waits for the results, so it holds no more than it has put together.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import trio

from rmqha.broker.puts.durability import Answer
from rmqha.broker.puts.put_service import Put, PutMessageService
from rmqha.codec.record.encoder import PreparedRecord
from rmqha.codec.usual.sends import Request
from rmqha.remoting.fence import Fence, Guard
from rmqha.store.status import AppendResult, PutMessageStatus


class PutMessageResult(NamedTuple):
    """What became of one message."""

    status: PutMessageStatus
    """As a producer would be told."""
    append: AppendResult
    """Where it lies, if it is in the log; else ``remark`` says why not."""

    @property
    def is_stored(self) -> bool:
        """Whether it is in the log, and stays there as far as this broker can tell, whatever disk and replicas did."""
        return self.append.status is PutMessageStatus.PUT_OK and self.status not in _IN_DOUBT


_IN_DOUBT: Final = frozenset({PutMessageStatus.UNKNOWN_ERROR, PutMessageStatus.OS_PAGECACHE_BUSY})
"""The log's tail was cut, or no majority of the group has confirmed it."""


class InternalPuts:
    """One object a broker."""

    def __init__(self, puts: PutMessageService, *, fence: Fence) -> None:
        """``fence`` counts the bugs that a message meets on its way: they cost that message alone."""
        self._puts: Final = puts
        self._fence: Final = fence

    @property
    def refusal(self) -> str:
        """Why no message may be put now; empty if one may."""
        return self._puts.refusal() or self._puts.store_refusal

    async def put(self, record: PreparedRecord, *, wait: bool = True) -> PutMessageResult:
        """As :meth:`put_all`, for one."""
        (result,) = await self.put_all([record], wait=wait)
        return result

    async def put_all(self, records: Sequence[PreparedRecord], *, wait: bool = True) -> list[PutMessageResult]:
        """Append ``records`` together, if that can be, and say what became of each; nothing is raised for a refusal.

        Args:
            records: in the order in which they are to lie in the log, few enough for one append.
            wait: until they are durable, as far as the roles of this broker promise; else only until they are in the
                log.
        """
        if refusal := self._puts.refusal():
            refused = AppendResult(PutMessageStatus.SERVICE_NOT_AVAILABLE, remark=refusal)
            return [PutMessageResult(refused.status, refused)] * len(records)
        caller = _Caller(self._fence, len(records))
        with caller.fenced():
            self._puts.put([Put(number, record, wait, False) for number, record in enumerate(records)], caller)
        return await caller.results()


class _Caller:
    """A :class:`~rmqha.broker.puts.put_service.PutCaller`; to the fence it is a peer like any other.

    Invariant: each message has at most one result; when all have one, who waits goes on.
    """

    peer = "this broker"

    def __init__(self, fence: Fence, count: int) -> None:
        self._fence: Final = fence
        self._results: Final = dict[int, PutMessageResult]()
        self._count: Final = count
        self._finished: Final = trio.Event()
        if not count:
            self._finished.set()

    async def results(self) -> list[PutMessageResult]:
        """In the order of the messages, once all of them are known."""
        await self._finished.wait()
        return [self._results[number] for number in range(self._count)]

    def _finish(self, number: int, result: PutMessageResult) -> None:
        self._results.setdefault(number, result)
        if len(self._results) == self._count:
            self._finished.set()

    # ---- what PutMessageService asks of a caller

    def fenced(self) -> Guard:
        return self._fence.guard(self, None)

    def refuse(self, asked: int, result: AppendResult) -> None:
        self._finish(asked, PutMessageResult(result.status, result))

    def finish_oneway(self, puts: list[int]) -> None:
        """None is put one-way."""

    def prepare_answers(self, stored: list[tuple[int, AppendResult]]) -> Answer:
        def finish(statuses: list[PutMessageStatus]) -> None:
            for (asked, append), status in zip(stored, statuses, strict=True):
                self._finish(asked, PutMessageResult(status, append))

        return finish

    # ---- what a fence asks of a peer

    def respond(self, request: Request, code: int, *, remark: str | None = None) -> None:
        """There are no requests."""

    def close(self, reason: str) -> None:
        """After a bug nobody knows what became of those without a result."""
        unknown = AppendResult(PutMessageStatus.UNKNOWN_ERROR, remark=reason)
        for number in range(self._count):
            self._finish(number, PutMessageResult(unknown.status, unknown))
