"""ReputMessageService: hot path: what may be seen of the log is dispatched, to the consume queues first of all.

Read in bulk, a round at a time, for all builders. Nothing beyond the confirm offset is dispatched, as consumers must
not see what could still vanish. What cannot be read stops it and is flagged; a record that has no place in its queue
stops that queue alone (spec: commitlog §8.2, §9).
"""

from collections.abc import Awaitable, Callable, Sequence
from math import inf
from typing import Final, NamedTuple

import trio

from rmqha.codec.record.dispatch import DispatchRequest
from rmqha.errors import CorruptLogError, StoreError
from rmqha.replication.watermark import Watermark
from rmqha.store.commit_log_dispatcher import CommitLogDispatcher, Plan
from rmqha.store.log import Log
from rmqha.store.passing import may_pass
from rmqha.store.running_flags import RunningFlags

_GATHER_S: Final = 0.005
"""While nobody waits for messages, what comes within this time is dispatched together."""

_TRY_AGAIN_S: Final = 1.0

_SHARE_WHEN_BEHIND: Final = 4
"""While the log itself is far behind, dispatch takes one part in this many of the time."""


class _Round(NamedTuple):
    plans: list[Plan]
    end: int
    """Where the next round begins."""
    store_timestamp_ms: int


class ReputMessageService:
    """Dispatches the log's records to ``builders``, in this order.

    Invariants: every record before ``reput_from_offset`` is in all that they build, unless that is lost; that offset
    was within the confirm offset when it was moved.
    """

    def __init__(
        self,
        log: Log,
        builders: Sequence[CommitLogDispatcher],
        *,
        flags: RunningFlags,
        confirm_offset: Callable[[], int],
    ) -> None:
        self._log: Final = log
        self._builders: Final = builders
        self._flags = flags
        self._confirm_offset = confirm_offset
        self._wakeup = trio.Event()
        self._has_started = False
        self._finish_start: Callable[[], Awaitable[None]] | None = None
        """What the start has left to do after dispatch, if it could not dispatch all that it had to."""
        self._is_awaited: Callable[[], bool] = lambda: False
        self._is_far_behind: Callable[[], bool] = lambda: False
        self.reput_from_offset = 0
        """Where dispatch goes on."""
        self.dispatched: Final = Watermark()
        """The same, for those who wait until they see more."""
        self.dispatched_timestamp_ms = 0
        """Store time of the last record dispatched; 0 if there is none."""
        self._mark = (0, -inf)
        """How far the log could be seen at a time; dispatch is not there yet, or has not been looked at since."""

    def begin_at(self, offset: int) -> None:
        """Every record before ``offset`` is dispatched, says who opens the store: go on there."""
        self.reput_from_offset, self._mark = offset, (0, -inf)
        if offset < self.dispatched.value:
            self.dispatched.cut(offset)
        self.dispatched.advance(offset)

    def hurry_while(self, is_awaited: Callable[[], bool]) -> None:
        """Gather nothing while somebody waits for what is dispatched next."""
        self._is_awaited = is_awaited

    def give_way_while(self, is_far_behind: Callable[[], bool]) -> None:
        """Go slowly while this log catches up with another's: first the messages must be safe, then visible."""
        self._is_far_behind = is_far_behind

    def hold_from_start(self, error: StoreError, *, finish: Callable[[], Awaitable[None]]) -> None:
        """The start could not dispatch all, for a reason that may pass: :meth:`run` goes on, then does ``finish``."""
        self._finish_start = finish
        self._flags.hold_dispatch(error)

    def wakeup(self) -> None:
        """The log may have grown, or the confirm offset may have moved."""
        self._wakeup.set()

    async def run(self) -> None:
        """Dispatch whatever may be seen, as it comes, until cancelled.

        What lacks space, descriptors or a file is tried again; any other error ends it and is flagged.
        """
        self._has_started = self._finish_start is None
        while self._flags.dispatch_error is None:
            await self._wakeup.wait()
            if not self._is_awaited():
                await trio.sleep(_GATHER_S)
            self._wakeup = trio.Event()
            try:
                await self._dispatch()
                if self._finish_start is not None:
                    await self._finish_start()
                    self._finish_start, self._has_started = None, True
                    self._flags.release_dispatch()
            except StoreError as error:
                if self._put_aside(misfits=True):
                    self._wakeup.set()
                elif may_pass(error):
                    self._flags.hold_dispatch(error)
                    self._wakeup.set()
                    await trio.sleep(_TRY_AGAIN_S)
                else:
                    self._flags.fail_dispatch(error)

    def behind_s(self, now: float) -> float:
        """For how long at least something that may be seen has not been dispatched."""
        offset, since = self._mark
        return now - since if self.reput_from_offset < offset else 0.0

    def _set_mark(self) -> None:
        if self.reput_from_offset >= self._mark[0]:
            self._mark = self._confirm_offset(), trio.current_time()

    async def _dispatch(self) -> None:
        self._set_mark()
        await self._put_all_aside()
        begun_at = trio.current_time()
        while (this := self._next_round()) is not None:
            for plan in this.plans:
                await plan.write()
            self._finish(this)
            self._set_mark()
            if self._finish_start is None:
                self._flags.release_dispatch()
            await self._put_all_aside()
            if this.end >= self._confirm_offset():
                break
            took_s = trio.current_time() - begun_at
            await trio.sleep((_SHARE_WHEN_BEHIND - 1) * took_s if self._is_far_behind() else 0)
            begun_at = trio.current_time()

    def catch_up(self) -> None:
        """Dispatch all that may be seen, here and now: for starting.

        Raises:
            CorruptLogError: the log cannot be read on, or a record has no place in its queue.
            StoreWriteError: what is built cannot be written.
        """
        while (this := self._next_round()) is not None:
            try:
                for plan in this.plans:
                    plan.write_here()
            except StoreError:
                if not self._put_aside():
                    raise
            else:
                self._finish(this)

    async def finish_within(self, limit_s: float) -> None:
        """Dispatch all that may be seen, for a stop, as far as that is possible in time: the next start does the rest.

        Raises:
            StoreError: as :meth:`catch_up`.
        """
        with trio.move_on_after(limit_s):
            while (this := self._next_round()) is not None:
                try:
                    for plan in this.plans:
                        await plan.write()
                except StoreError:
                    if not self._put_aside():
                        raise
                else:
                    self._finish(this)
                await trio.lowlevel.checkpoint()

    async def _put_all_aside(self) -> None:
        while self._put_aside():
            await trio.lowlevel.checkpoint()

    def _put_aside(self, *, misfits: bool = False) -> bool:
        """Whether a builder has put aside some of what lost its files, or with ``misfits`` does not fit.

        All else can go on.
        """
        taken = [builder.put_aside(misfits=misfits) for builder in self._builders]
        return any(taken)

    def _next_round(self) -> _Round | None:
        """Read what comes next and find its places; None if nothing more may be seen now."""
        self.reput_from_offset = max(self.reput_from_offset, self._log.min_offset)
        if self.reput_from_offset > self._log.max_offset:
            raise CorruptLogError(
                self.reput_from_offset,
                f"consumers may have seen all before, but the log was cut at {self._log.max_offset}: what is confirmed "
                "must never be",
            )
        requests, end = self._log.records(self.reput_from_offset, self._confirm_offset())
        if end == self.reput_from_offset:
            return None
        try:
            plans = self._plan(requests)
        except CorruptLogError as error:  # first all that is before it; the next round then begins there
            end, requests = error.offset, [one for one in requests if one.commit_log_offset < error.offset]
            if not requests:
                raise
            plans = self._plan(requests)
        timestamp_ms = requests[-1].store_timestamp_ms if requests else self.dispatched_timestamp_ms
        return _Round(plans, end, timestamp_ms)

    def _plan(self, requests: Sequence[DispatchRequest]) -> list[Plan]:
        return [builder.plan(requests, at_start=not self._has_started) for builder in self._builders]

    def _finish(self, this: _Round) -> None:
        self.reput_from_offset = this.end
        self.dispatched_timestamp_ms = this.store_timestamp_ms
        self._log.note_records(this.end, this.store_timestamp_ms)
        for plan in this.plans:
            plan.announce()
        self.dispatched.advance(this.end)
