"""RecentRecords. Hot path: what dispatch has to know of the records appended lately, so that it need not read them."""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Sequence
from itertools import repeat
from operator import attrgetter
from typing import Final, NamedTuple, cast

from rmqha.codec.record.dispatch import DispatchRequest
from rmqha.codec.record.prepared_batch import PreparedBatch
from rmqha.store.status import AppendResult

RECORDS_MAX: Final = 8192
"""If more than so many wait for dispatch it reads them from the log. They take some 2 MB."""
_BATCH_MAX: Final = 1024
"""Larger batches are read from the log, too: an append must not take longer for this."""
_ROUND_RECORDS: Final = 1024

_offset_of: Final = attrgetter("commit_log_offset")


class _Append(NamedTuple):
    start: int
    end: int
    requests: Sequence[DispatchRequest]


class RecentRecords:
    """Invariant: the appends that are kept follow each other, and each has all records from its start to its end.

    Whatever it does not know, or has forgotten, is read from the log.
    """

    def __init__(self) -> None:
        self._appends: deque[_Append] = deque()
        self._count = 0

    def note(self, start: int, end: int, requests: Sequence[DispatchRequest | None]) -> None:
        """These records, and behind them perhaps a blank, lie in ``[start, end)``; None stands for any others."""
        is_next = not self._appends or self._appends[-1].end == start
        if not is_next or self._count + len(requests) > RECORDS_MAX:
            self.forget()
        if None not in requests and len(requests) <= RECORDS_MAX:
            self._appends.append(_Append(start, end, cast("Sequence[DispatchRequest]", requests)))
            self._count += len(requests)

    def forget(self) -> None:
        """Other bytes may come to lie where these records did."""
        self._appends.clear()
        self._count = 0

    def between(self, start: int, end: int) -> tuple[list[DispatchRequest], int] | None:
        """As :meth:`Log.records`; None: read the log. What lies before ``start`` is forgotten."""
        appends = self._appends
        while appends and appends[0].end <= start:
            self._count -= len(appends.popleft().requests)
        if not appends or appends[0].start > start:
            return None
        found: list[DispatchRequest] = []
        at = start
        for append in appends:
            if append.end > end:
                rest = _between(append, at, end)
                return [*found, *rest], _end_of(rest[-1]) if rest else at
            found += append.requests if append.start == at else _between(append, at, end)
            at = append.end
            if len(found) >= _ROUND_RECORDS:
                break
        return found, at


def _between(append: _Append, start: int, end: int) -> Sequence[DispatchRequest]:
    requests = append.requests
    return requests[bisect_left(requests, start, key=_offset_of) : bisect_right(requests, end, key=_end_of)]


def _end_of(request: DispatchRequest) -> int:
    return request.commit_log_offset + request.msg_size


def requests_of_batch(batch: PreparedBatch, result: AppendResult) -> Sequence[DispatchRequest | None]:
    """A batch that was appended, as dispatch would read it."""
    if len(batch) > _BATCH_MAX or None in batch.tags_codes:
        return [None]
    first, new = result.queue_offset, tuple.__new__
    fields = zip(
        repeat(batch.topic),
        repeat(batch.queue_id),
        result.batch_offsets,
        batch.sizes,
        batch.tags_codes,
        repeat(result.store_timestamp_ms),
        range(first, first + len(batch)),
        repeat(batch.sys_flag),
        batch.uniq_keys,
        batch.keys,
        strict=False,
    )
    return [new(DispatchRequest, one) for one in fields]
