"""TransactionalMessageService: goes through the half messages, and has producers asked about those that nobody ended.

Each round goes on where the last one ended, and does what that one could not. A half message that was ended is passed;
about any other that is old enough its producer is asked, after it was written again at the end of the queue, so that
the queue can be passed in order; one that is asked about for too long is put aside. RocketMQ's rules, apart from three:
an offset is saved only when what was written again is safe, a half message stays until it really lies where it was put
aside, and what has ended is known at once (:class:`~rmqha.broker.transaction.fates.Fates`).

Source: spec: remoting §2.8 (39); rocketmq-all-4.9.8 TransactionalMessageServiceImpl.java.
"""

from collections.abc import Callable
from typing import Final

import structlog
import trio

from rmqha.broker.puts.internal_puts import InternalPuts
from rmqha.broker.transaction.check_listener import DefaultTransactionalMessageCheckListener
from rmqha.broker.transaction.fates import KEPT_MAX, Fates
from rmqha.broker.transaction.half_message import (
    CHECK_IMMUNITY_TIME,
    HALF_TOPIC,
    OP_TOPIC,
    PREPARED_QUEUE_OFFSET,
    check_times,
    checked_once_more,
    discarded,
    first_place,
    moved,
    number_property,
    put_off,
    removal_mark,
    without_first_place,
)
from rmqha.broker.transaction.marks import Damage, MarkSearch, learn_commits, learn_marks
from rmqha.broker.transaction.places import EarlierPlaces, learn_places
from rmqha.broker.transaction.rules import TransactionRules
from rmqha.broker.transaction.transactional_message_bridge import NextHalf, TransactionalMessageBridge
from rmqha.codec.record.encoder import PreparedRecord
from rmqha.codec.record.message import StoredMessage
from rmqha.errors import LocalProtocolError, ProtocolError, StoreError
from rmqha.log_limit import LogLimit
from rmqha.replication.role import Role
from rmqha.replication.watermark import Complete, Watermark
from rmqha.store.status import PutMessageStatus
from rmqha.waiting import DeadlineService

logger = structlog.get_logger()

_TOLD_AT_ONCE: Final = 32
"""Each of them may store something."""
_TRIES_AGAIN_S: Final = 1.0
_TAKES_MORE_S: Final = 0.1
_NOT_MARKED_NEXT: Final = (
    "tried again every second; if this broker ends before it is stored, the same end may be taken once more afterwards"
)
_UNDECIDED: Final = "a mark that may be its own is damaged: whether it was committed or rolled back is not known"
_SAFE_S: Final = 10.0
"""A round waits so long for what is written to be safe; otherwise the next one saves how far both are."""


class _Mastership:
    """How far the rounds of one mastership are."""

    def __init__(self, number: int, term: int, *, taken_to: int, half_offset: int, op_offset: int) -> None:
        self.number: Final = number
        self.term: Final = term
        self.taken_to: Final = taken_to
        """Where the log ended that other brokers gave; what comes later has to be learned, too."""
        self.half_offset = half_offset
        """Every half message before it is done with, or written again behind it."""
        self.op_offset = op_offset
        """The next mark to be read."""
        self.marks = dict[int, int]()
        """The marks read of half messages from ``half_offset`` on: place of the half message to that of the mark."""
        self.fates: Final = Fates()
        self.earlier: Final = EarlierPlaces(half_offset)
        self.undecided = 0
        self.has_learned = False
        """What masters before have ended, and written again, is known, as far as the log tells it."""

    @property
    def op_offset_done(self) -> int:
        """All marks before it are of half messages that are passed. Marks are read, and so kept, in order."""
        return next(iter(self.marks.values()), self.op_offset)

    def skip_to(self, half_offset: int) -> None:
        """The half messages before cannot be read any more: the log's first files have gone, or they are damaged."""
        self.half_offset = half_offset
        self.marks = {place: mark for place, mark in self.marks.items() if place >= half_offset}


class TransactionalMessageService:
    """Rounds over the half messages, and the memory of what became of them."""

    def __init__(
        self,
        bridge: TransactionalMessageBridge,
        listener: DefaultTransactionalMessageCheckListener,
        *,
        puts: InternalPuts,
        role: Role,
        rules: TransactionRules,
        now_ms: Callable[[], int],
    ) -> None:
        self._bridge: Final = bridge
        self._listener: Final = listener
        self._puts: Final = puts
        self._role: Final = role
        self._rules: Final = rules
        self._store_host: Final = rules.store_host
        self._now_ms: Final = now_ms
        self._mastership: _Mastership | None = None
        self._masterships = 0
        self._learned: Final = Watermark()
        """The number of the last mastership that knows what there was to know when it began."""
        self._search: Final = MarkSearch(bridge, on_found=self._note_found)
        self._unmarked = dict[int, None]()
        """Places of what has ended here, and whose mark could not be stored yet; in order."""
        self._has_unmarked = trio.Event()
        self._role_changed = trio.Event()
        role.subscribe(self._on_role)
        self._lines: Final = LogLimit()

    @property
    def fates(self) -> Fates:
        """Of the half messages since this broker became master."""
        return self._present().fates

    def when_learned(self, deadline: float, complete: Complete) -> None:
        """Be told when this master knows what those before it have ended, or that it does not by ``deadline``."""
        self._learned.add(self._present().number, deadline, complete)

    def is_in_doubt(self, half: StoredMessage) -> bool:
        """Whether nothing but a mark in the log, which is not read, might tell that a half message has ended."""
        mastership = self._present()
        mastership.earlier.join(half, mastership.fates)
        return not mastership.fates.is_known(half.queue_offset)

    def look_for_mark(self, half: StoredMessage, complete: Callable[[str], None]) -> None:
        """Of one that is in doubt: ``complete(problem)`` is called when it is none any more, or why it still is."""
        self._search.look_for(half, complete)

    def _note_found(self, place: int) -> None:
        if self._role.is_master:
            self.fates.end(place)

    def half_message_at(self, offset: int) -> StoredMessage | None:
        """The half message at a place of its queue; None if it is not there any more, or not there yet.

        Raises:
            StoreReadError: nothing can be read at present.
        """
        half = self._next_half_message(offset, self.fates).half
        return half if half is not None and half.queue_offset == offset else None

    def _next_half_message(self, offset: int, fates: Fates) -> NextHalf:
        """As :meth:`TransactionalMessageBridge.next_half_message`.

        Of a place that has gone nobody knows what lay there, but that is what its mark told of: if the mark lies before
        this half message, it is of another one. No broker writes again what has ended.
        """
        half, next_offset = self._bridge.next_half_message(offset)
        if half is not None and (first := first_place(half)) < half.queue_offset and fates.has_ended(first):
            marks_before = self._bridge.first_behind(OP_TOPIC, half.physical_offset)
            if fates.had_ended(first, before=marks_before) and self._bridge.is_gone(HALF_TOPIC, first):
                half = without_first_place(half)
        return NextHalf(half, next_offset)

    def begin_end(self, half: StoredMessage) -> list[int]:
        """As :meth:`Fates.begin_end`, also of one that a former master wrote again, by the place before."""
        mastership = self._present()
        mastership.earlier.join(half, mastership.fates)
        return mastership.fates.begin_end(half.queue_offset)

    def _present(self) -> _Mastership:
        """What another master did in between is in the log, and in the saved offsets."""
        now = self._role.term, self._bridge.taken_to
        if self._mastership is None or now != (self._mastership.term, self._mastership.taken_to):
            half_offset, op_offset = map(self._bridge.fetch_consume_offset, (HALF_TOPIC, OP_TOPIC))
            self._masterships += 1
            self._mastership = _Mastership(
                self._masterships, now[0], taken_to=now[1], half_offset=half_offset, op_offset=op_offset
            )
            self._role_changed.set()
        return self._mastership

    def _on_role(self) -> None:
        self._role_changed.set()

    async def run(self) -> None:
        """Learn, whenever this broker becomes master, what it has to know before a transaction is ended."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(DeadlineService(self._learned.deadlines).run)
            nursery.start_soon(self._search.run)
            nursery.start_soon(self._mark_unmarked)
            while True:
                self._role_changed = trio.Event()
                while self._role.is_master and not (mastership := self._present()).has_learned:
                    await self._learn(mastership)
                await self._role_changed.wait()

    async def _learn(self, mastership: _Mastership) -> None:
        if self._bridge.takes_more:
            await trio.sleep(_TAKES_MORE_S)
            return
        try:
            await self._bridge.wait_dispatched(while_so=lambda: self._is_present(mastership))
            fates, begin = mastership.fates, mastership.half_offset
            marked = await learn_marks(self._bridge, fates)
            later = await learn_places(self._bridge, fates, begin=begin, earlier=mastership.earlier)  # marks may go
            unmarked = await learn_commits(self._bridge, fates, earlier=mastership.earlier)
            if not self._is_present(mastership):
                return
            for place in dict.fromkeys([*later, *unmarked]):
                if fates.has_ended(place) and place not in marked:
                    await self._mark(place)
        except (StoreError, ProtocolError) as error:
            self._lines.log(logger.warning, "transaction.not_learned", reason=str(error), next="tried again")
            self._mastership = None
            await trio.sleep(_TRIES_AGAIN_S)
            return
        mastership.has_learned = True
        self._learned.advance(mastership.number, at_most=_TOLD_AT_ONCE)
        while self._learned.answer(_TOLD_AT_ONCE):
            await trio.lowlevel.checkpoint()

    async def check(self) -> int:
        """One round, if this broker is master; returns how many that are older than transactionTimeOut wait on."""
        if not self._role.is_master or not (mastership := self._present()).has_learned:
            return 0
        mastership.undecided = 0
        end = self._bridge.end_of(HALF_TOPIC)
        try:
            await self._read_marks(mastership)
            while self._is_present(mastership) and await self._pass_next(mastership, end):
                await trio.lowlevel.checkpoint()
            await self._save(mastership)
        except (StoreError, ProtocolError) as error:
            self._lines.log(logger.warning, "transaction.round_failed", reason=str(error))
        return mastership.undecided

    def _is_present(self, mastership: _Mastership) -> bool:
        now = self._role.term, self._bridge.taken_to
        return self._role.is_master and now == (mastership.term, mastership.taken_to)

    async def _read_marks(self, mastership: _Mastership) -> None:
        """All that are there, so that nobody is asked about what has ended."""
        damage = Damage(self._bridge, mastership.fates)
        while self._is_present(mastership):
            marks, next_offset = self._bridge.read_marks(mastership.op_offset)
            for mark in marks:
                if mark.queue_offset <= mastership.fates.marks_begin:
                    damage.note(mark)
                for half_offset in mark.half_offsets:
                    mastership.fates.end(half_offset, mark=mark.queue_offset)
                    if half_offset >= mastership.half_offset:
                        mastership.marks.setdefault(half_offset, mark.queue_offset)
            if next_offset == mastership.op_offset:
                return
            mastership.op_offset = next_offset
            await trio.lowlevel.checkpoint()

    async def _pass_next(self, mastership: _Mastership, end: int) -> bool:
        """Deal with one half message; False ends the round: it, and so each after it, has to wait.

        So does what was stored since the round began, when the queue ended at ``end``. RocketMQ goes by the time when
        it was stored: behind one that a clock stored which has been set back since, all would wait for that hour.
        """
        offset = mastership.half_offset
        if offset >= end:
            return False
        if mastership.marks.pop(offset, None) is None and not mastership.fates.is_left(offset):
            half, next_offset = self._next_half_message(offset, mastership.fates)
            if half is None and next_offset == offset:
                return False
            if half is None or half.queue_offset > offset:
                behind = next_offset if half is None else half.queue_offset
                if not self._bridge.is_gone(HALF_TOPIC, offset):
                    self._bridge.damaged.note_all(range(offset, behind), mastership.fates)
                mastership.skip_to(behind)
                return True
            if not await self._resolve(half, mastership) or mastership.fates.is_ending(offset):
                return False
        mastership.half_offset = offset + 1
        return True

    async def _resolve(self, half: StoredMessage, mastership: _Mastership) -> bool:
        """Deal with one that is not known to have ended; False if that is not yet to be done, or cannot be."""
        first_offset = number_property(half, PREPARED_QUEUE_OFFSET)
        if first_offset is not None and mastership.fates.has_ended(first_offset):
            return True
        if mastership.fates.is_ending(half.queue_offset, first_offset):
            return False
        if mastership.fates.is_undecided(half.queue_offset):
            return await self._discard(half, _UNDECIDED)
        age_s = (self._now_ms() - half.born_timestamp_ms) / 1000
        if reason := self._discard_reason(half, age_s):
            return await self._discard(half, reason)
        immunity_s, immunity_max_s = number_property(half, CHECK_IMMUNITY_TIME), self._rules.immunity_max_s
        if immunity_s is None and 0 <= age_s < self._rules.transaction_time_out_s:
            return False
        is_immune = immunity_s is not None and -immunity_max_s <= age_s < min(immunity_s, immunity_max_s)
        is_immune = is_immune or (0 <= age_s < immunity_max_s and not self._listener.takes_question(half))
        return await self._renew(half, mastership, asks=not is_immune)

    def _discard_reason(self, half: StoredMessage, age_s: float) -> str:
        if check_times(half) >= self._rules.transaction_check_max:
            return f"its producer was asked {self._rules.transaction_check_max} times (transactionCheckMax)"
        if age_s > self._rules.file_reserved_time_s:
            return "it is older than fileReservedTime"
        return ""

    async def _discard(self, half: StoredMessage, reason: str) -> bool:
        try:
            record = discarded(half, store_host=self._store_host, queue_for=self._bridge.queue_for)
        except LocalProtocolError as error:  # RocketMQ stores what no record of ours can hold
            self._listener.tell_discarded(half, reason=reason, not_kept=str(error))
            return True
        result = await self._puts.put(record, wait=False)
        is_done = result.is_stored or result.status is PutMessageStatus.MESSAGE_ILLEGAL
        if is_done:
            self._listener.tell_discarded(half, reason=reason, not_kept=result.append.remark)
        else:
            facts = {"half_offset": half.queue_offset, "status": result.status.value, "reason": result.append.remark}
            self._lines.log(logger.warning, "transaction.not_put_aside", **facts, next="those behind it wait, too")
        return is_done

    async def _renew(self, half: StoredMessage, mastership: _Mastership, *, asks: bool) -> bool:
        """Write it again, so that the queue can be passed, and ask about it if it is time to."""
        try:
            again = await self._write_again(half, checked_once_more if asks else put_off, mastership)
        except LocalProtocolError as error:
            return await self._discard(half, f"it cannot be written again: {error}")
        if again is not None and not mastership.fates.is_left(again.queue_offset):
            mastership.undecided += 1
            if asks and not mastership.fates.is_ending(again.queue_offset):
                self._listener.resolve_half_msg(again)
        return again is not None

    async def _write_again(
        self, half: StoredMessage, copy: Callable[..., PreparedRecord], mastership: _Mastership
    ) -> StoredMessage | None:
        """The half message at its new place, where an answer is to find it; None if it cannot be stored now.

        Raises:
            LocalProtocolError: it can never be.
        """
        record = copy(half, store_host=self._store_host)
        result = await self._puts.put(record, wait=False)
        append = result.append
        if result.status is PutMessageStatus.MESSAGE_ILLEGAL:
            raise LocalProtocolError(append.remark)
        if not result.is_stored:
            facts = {"half_offset": half.queue_offset, "status": result.status.value, "reason": append.remark}
            self._lines.log(logger.warning, "transaction.not_written_again", **facts)
            return None
        if not mastership.fates.note_renewed(half.queue_offset, append.queue_offset):
            await self._mark(append.queue_offset)
        return moved(half, record, append)

    async def _mark(self, place: int) -> None:
        """Of a half message that was ended at an earlier place, before this one was known."""
        if remark := await self._try_to_mark(place):
            self.mark_later(place, remark)

    async def _try_to_mark(self, place: int) -> str:
        """Why the mark could not be stored; else empty."""
        mark = removal_mark(place, store_host=self._store_host, born_timestamp_ms=self._now_ms())
        result = await self._puts.put(mark, wait=False)
        return "" if result.is_stored else result.append.remark or result.status.value

    def mark_later(self, place: int, remark: str) -> None:
        """A half message has ended, and its mark was refused: without it a start would have it ended once more."""
        facts = {"half_offset": place, "reason": remark}
        self._lines.log(logger.warning, "transaction.not_marked", **facts, next=_NOT_MARKED_NEXT)
        if len(self._unmarked) < KEPT_MAX:
            self._unmarked[place] = None
            self._has_unmarked.set()

    async def _mark_unmarked(self) -> None:
        """Try again while this broker is master; another one goes by what is in the log."""
        while True:
            await self._has_unmarked.wait()
            place = next(iter(self._unmarked), None)
            if place is None or not self._role.is_master:
                self._unmarked.clear()
                self._has_unmarked = trio.Event()
            elif await self._try_to_mark(place):
                await trio.sleep(_TRIES_AGAIN_S)
            else:
                self._unmarked.pop(place, None)

    async def _save(self, mastership: _Mastership) -> None:
        """Others may go on from here, once no crash can take away what ended half messages, or was written again."""
        if not await self._bridge.wait_safe(timeout_s=_SAFE_S) or not self._is_present(mastership):
            return
        self._bridge.update_consume_offset(HALF_TOPIC, mastership.half_offset)
        self._bridge.update_consume_offset(OP_TOPIC, mastership.op_offset_done)
