"""PutMessageService. Hot path: messages that came together become one append, and are answered when they are durable.

Every processor that stores messages does so here. What cannot be appended yet is held back: messages to a topic that
is not saved yet, or of which name servers are still to be told, and those that wait for the log's next segment; all
within one account of bytes. Where many clients send a little each, what comes in one pass of the event loop is held
back till its end, and becomes one append, one frame to each slave and one wait. What becomes of what is appended
:class:`~rmqha.broker.puts.durability.Durability` tells.

Source: spec: commitlog §5; rocketmq-all-4.9.8 CommitLog.java, AllocateMappedFileService.java.
"""

from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from math import inf
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import trio

from rmqha.broker.puts.durability import Answer, Durability
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.broker.transaction.half_message import HALF_TOPIC
from rmqha.codec.delayed_message import real_topic
from rmqha.codec.record.encoder import PreparedRecord
from rmqha.codec.record.layout import SCHEDULE_TOPIC
from rmqha.remoting.turns import PASS_S
from rmqha.store.log import PutRequest
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.status import AppendResult, PutMessageStatus

_PUT_OK: Final = PutMessageStatus.PUT_OK  # hot: looking a member up in its enumeration takes longer than comparing it
_SEGMENT_MADE_S: Final = 5.0
"""Puts wait so long for the next segment. Source: AllocateMappedFileService.java, waitTimeOut."""
_NO_SEGMENT: Final = AppendResult(
    PutMessageStatus.CREATE_MAPEDFILE_FAILED,
    remark=f"the log's next file is not there after {_SEGMENT_MADE_S:g} s: nothing is stored. Does the disk hang?",
)
BACKLOG_BYTES_MAX: Final = 256 * 1024 * 1024
"""Records of all callers that are held back, also of clients that have left meanwhile."""
_NO_ROOM: Final = AppendResult(
    PutMessageStatus.CREATE_MAPEDFILE_FAILED,
    remark="too many bytes wait for the log's next file or for topics.json already: this is not stored. "
    "Does the disk hang?",
)
_TOPICS_BEFORE_THEIRS: Final = frozenset({SCHEDULE_TOPIC, HALF_TOPIC})
_TOPIC_SAVED_S: Final = 2.0
"""A put to a new topic waits so long for topics.json at most: less than clients wait for the answer, by far, as after
that it may wait for name servers (:data:`~rmqha.broker.awaited_name_servers.LIMIT_S`)."""
_DELETED: Final = "was deleted meanwhile: nothing is stored"
_LATE: Final = f"is new and was not saved to topics.json within {_TOPIC_SAVED_S:g} s: nothing is stored, try again"
_NOT_SAVED: Final = "is new and could not be saved to topics.json: nothing is stored"

_BUSY_PUTS: Final = 8
_BUSY_S: Final = 0.002
_BUSY_PEERS_MIN: Final = 4
"""When the last so many puts came within so long, from so many, others are on their way in this pass of the loop."""
_STAYS_BUSY_S: Final = 0.05
"""So long after an append for as many, others are still on their way: the passes of a busy loop take their time."""
_FEW: Final = 32
"""As many puts as these together are worth an append of their own."""
_PASS_S: Final = 2 * PASS_S
"""As long at most what was held back is appended in one pass, of which requests take half as much."""
_AT_ONCE_MAX: Final = 256
_AT_ONCE_BYTES_MAX: Final = 512 * 1024
"""What is appended at once, of several callers."""

Asked = TypeVar("Asked")


class Put(NamedTuple, Generic[Asked]):
    """A message, or a batch, that goes into the log."""

    asked: Asked
    """What its answer needs; all that is kept once it is appended."""
    request: PutRequest
    wait: bool
    """It is answered when it is durable, and not when it is appended."""
    oneway: bool
    """Nobody is told what becomes of it."""


class PutCaller(Protocol[Asked]):
    """Who puts messages that came together, and answers them: a processor, on behalf of one client."""

    @property
    def peer(self) -> str:
        """The client's ``host:port``, or who else it is."""
        ...

    def fenced(self) -> AbstractContextManager[object]:
        """Keep what goes wrong in a block with this caller; see :meth:`Connection.fenced`."""
        ...

    def refuse(self, asked: Asked, result: AppendResult) -> None:
        """Answer what is not stored."""
        ...

    def finish_oneway(self, puts: list[Asked]) -> None:
        """These one-way messages are appended: nothing of them is held any more."""
        ...

    def prepare_answers(self, stored: list[tuple[Asked, AppendResult]]) -> Answer:
        """Prepare the answers to what is appended, one-way messages among it.

        Returns:
            What is called once, with a status for each, when that is known; the caller's fence is its own affair.
        """
        ...


_Held = tuple[list[Put[Any]], PutCaller[Any]]


class PutMessageService:
    """Appends, holds back what must wait, and has everything answered once.

    Attributes:
        refusal: empty, or why no message may be stored now (too few replicas); to be asked before a request is
            looked at.
    """

    def __init__(
        self,
        store: DefaultMessageStore,
        topics: TopicConfigManager,
        durability: Durability,
        *,
        refusal: Callable[[], str],
    ) -> None:
        self._store = store
        self._topics: Final = topics
        self._untold: Final = topics.untold
        self._durability = durability
        self.refusal: Final = refusal
        self._backlog: deque[_Held] = deque()
        self._alone = 0
        """So many of the backlog's first are to be appended one by one."""
        self._last_puts: Final = deque([(-inf, "")] * _BUSY_PUTS, maxlen=_BUSY_PUTS)
        """When, and for whom."""
        self._busy_until = -inf
        self._held_bytes = 0
        self._backlog_grew = trio.Event()

    @property
    def store_refusal(self) -> str:
        """Why nothing may be stored here by anybody: this is no master, or the disk is full; empty if it may."""
        return self._store.refusal()

    def note_refused(self, requests: int) -> None:
        """Count requests that were refused before anything of them was put."""
        self._store.stats.sends_refused += requests

    def put(self, puts: list[Put[Asked]], caller: PutCaller[Asked]) -> None:
        """Append ``puts`` now, or those that must wait as soon as that can be; ``caller`` answers each once."""
        if self._untold.numbers:
            puts = self._hold_back(puts, caller)
        if puts:
            self._append(puts, caller)

    def _hold_back(self, puts: list[Put[Asked]], caller: PutCaller[Asked]) -> list[Put[Asked]]:
        """Put those with a new topic when that is saved and told, or refuse them; returns the others.

        RocketMQ, too, saves a topic, and tells name servers of it, before it stores the message that made it. Nobody is
        told of a one-way message.
        """
        untold, held, others = self._untold.numbers, dict[str, list[Put[Asked]]](), list[Put[Asked]]()
        for put in puts:
            topic = _topic_of(put.request)
            some = held.setdefault(topic, []) if topic in untold and not put.oneway else others
            some.append(put)
        for topic, some in held.items():
            if self._has_room(some):
                self._held_bytes += _size_of(some)
                until = trio.current_time() + _TOPIC_SAVED_S
                self._untold.when_told(topic, until, partial(self._append_held, topic, some, caller, until))
            else:
                self._answer(some, [_NO_ROOM] * len(some), caller)
        return others

    def _has_room(self, puts: list[Put[Asked]]) -> bool:
        return self._held_bytes + _size_of(puts) <= BACKLOG_BYTES_MAX

    def _append_held(
        self, topic: str, puts: list[Put[Asked]], caller: PutCaller[Asked], until: float, saved: bool, _count: int
    ) -> None:
        """Have them appended in turns: a thousand connections may have waited for one topic."""
        self._held_bytes -= _size_of(puts)
        with caller.fenced():
            if saved and self._topics.select(topic) is not None:
                self._put_off(puts, caller)
                return
            what = _DELETED if saved else _LATE if trio.current_time() >= until else _NOT_SAVED
            result = AppendResult(PutMessageStatus.UNKNOWN_ERROR, remark=f"topic {topic} {what}")
            self._answer(puts, [result] * len(puts), caller)

    def _append(self, puts: list[Put[Asked]], caller: PutCaller[Asked]) -> None:
        """Append what can be appended now; the rest is left to :meth:`run`, and everything after it too."""
        if self._backlog or (self._is_busy(caller.peer) and len(puts) < _FEW):
            self._put_off(puts, caller)
            return
        results = self._store.put_messages([put.request for put in puts])
        if len(results) < len(puts):
            self._put_off(puts[len(results) :], caller)
        self._answer(puts, results, caller)

    def _is_busy(self, peer: str) -> bool:
        """Whether it is better to wait for what else comes in this pass of the event loop."""
        last, now = self._last_puts, trio.current_time()
        if now < self._busy_until:
            return True
        since = last[0][0]
        last.append((now, peer))
        return now - since < _BUSY_S and len({peer for _, peer in last}) >= _BUSY_PEERS_MIN

    def _put_off(self, puts: list[Put[Asked]], caller: PutCaller[Asked]) -> None:
        """Keep what came together for :meth:`run`, as far as there is room; the first anyhow: it may be begun."""
        if self._backlog and not self._has_room(puts):
            self._answer(puts, [_NO_ROOM] * len(puts), caller)
            return
        self._backlog.append((puts, caller))
        self._held_bytes += _size_of(puts)
        self._backlog_grew.set()

    async def run(self) -> None:
        """Append, in order, what had to wait: to the end of a pass, or for the next segment; until cancelled.

        If a segment takes too long everything that waits is refused, so nobody waits longer.
        """
        while True:
            await self._backlog_grew.wait()
            self._backlog_grew = trio.Event()
            while self._backlog:
                if not self._append_some() and not await self._is_segment_made():
                    await self._refuse_backlog()
                await trio.lowlevel.checkpoint()

    def _append_some(self) -> bool:
        """Append, in one pass, more than clients can bring in it; False if the next segment is still not there."""
        ends_at = trio.current_time() + _PASS_S
        while self._append_first():
            if not self._backlog or trio.current_time() >= ends_at:
                return True
        return False

    def _append_first(self) -> bool:
        """Append what has waited longest; False if the next segment is still not there."""
        held = self._take_first()
        if len(held) == 1:
            return self._append_alone(*held[0])
        try:
            results = self._store.put_messages([put.request for puts, _ in held for put in puts])
        except Exception:  # noqa: BLE001 - a bug, and nothing was appended: alone it costs only who brought it
            self._alone = len(held)
            self._give_back(held)
            return True
        if len({caller.peer for _, caller in held}) >= _BUSY_PEERS_MIN:
            self._busy_until = trio.current_time() + _STAYS_BUSY_S
        self._answer_all(held, results)
        return bool(results)

    def _append_alone(self, puts: list[Put[Any]], caller: PutCaller[Any]) -> bool:
        with caller.fenced():
            results = self._store.put_messages([put.request for put in puts])
            if rest := puts[len(results) :]:
                self._give_back([(rest, caller)])
            self._answer(puts, results, caller)
            return bool(results)
        return True

    def _take_first(self) -> list[_Held]:
        """What is appended next, and together."""
        held: list[_Held] = []
        count = size = 0
        while self._backlog and not (held and (self._alone or count >= _AT_ONCE_MAX or size >= _AT_ONCE_BYTES_MAX)):
            held.append(self._backlog.popleft())
            count += len(held[-1][0])
            size += _size_of(held[-1][0])
        self._held_bytes -= size
        self._alone = max(0, self._alone - len(held))
        return held

    def _give_back(self, held: list[_Held]) -> None:
        """It is first again."""
        self._backlog.extendleft(reversed(held))
        self._held_bytes += sum([_size_of(puts) for puts, _ in held])

    async def _refuse_backlog(self) -> None:
        for _ in range(len(self._backlog)):
            puts, caller = self._backlog.popleft()
            self._held_bytes -= _size_of(puts)
            with caller.fenced():
                self._answer(puts, [_NO_SEGMENT] * len(puts), caller)
            await trio.lowlevel.checkpoint()

    async def _is_segment_made(self) -> bool:
        with trio.move_on_after(_SEGMENT_MADE_S) as patience:
            await self._store.wait_allocated()
        return not patience.cancelled_caught

    def _answer(self, puts: list[Put[Asked]], results: list[AppendResult], caller: PutCaller[Asked]) -> None:
        """Have those answered that have a result, now or when they are durable; the messages themselves are let go."""
        waiting = self._settle(puts, results, caller)
        if waiting is not None:
            self._durability.answer_when_durable(waiting.begin, waiting.ends, waiting.answer)

    def _answer_all(self, held: list[_Held], results: list[AppendResult]) -> None:
        """As :meth:`_answer`, for callers whose messages were appended together: they wait as one, too."""
        waiting: list[_Waiting] = []
        done = 0
        for number, (puts, caller) in enumerate(held):
            if len(results) < done + len(puts):  # given back before anybody is told, who may put something: it is begun
                self._give_back([(puts[len(results) - done :], caller), *held[number + 1 :]])
                held = [*held[:number], (puts[: len(results) - done], caller)]
                break
            done += len(puts)
        done = 0
        for puts, caller in held:
            of_this, done = results[done : done + len(puts)], done + len(puts)
            with caller.fenced():
                settled = self._settle(puts, of_this, caller)
                if settled is not None:
                    waiting.append(settled)
        if waiting:
            ends = [end for one in waiting for end in one.ends]
            self._durability.answer_when_durable(waiting[0].begin, ends, partial(_answer_each, waiting))

    def _settle(
        self, puts: list[Put[Asked]], results: list[AppendResult], caller: PutCaller[Asked]
    ) -> "_Waiting | None":
        """Answer what need not wait; returns what does."""
        waiting: list[tuple[Asked, AppendResult]] = []
        at_once: list[tuple[Asked, AppendResult]] = []
        ends: list[int] = []
        oneways: list[Asked] = []
        for (asked, _, wait, oneway), result in zip(puts, results, strict=False):
            status, offset, size, _, _, _, _ = result
            if status is not _PUT_OK:
                self._store.stats.put_message_failed_times += 1
                caller.refuse(asked, result)
                continue
            if oneway:
                oneways.append(asked)
            if wait:
                waiting.append((asked, result))
                ends.append(offset + size)
            else:
                at_once.append((asked, result))
        if oneways:
            caller.finish_oneway(oneways)
        if at_once:
            self._store.stats.put_times.add(0, len(at_once))
            failed = self._store.write_error is not None
            known = [PutMessageStatus.FLUSH_DISK_TIMEOUT if failed else _PUT_OK] * len(at_once)
            if failed:
                self._store.stats.note_unsafe(known)
            caller.prepare_answers(at_once)(known)
        if not waiting:
            return None
        return _Waiting(
            waiting[0][1].wrote_offset, ends, caller.prepare_answers(waiting)
        )  # while disk and replicas act


class _Waiting(NamedTuple):
    """Messages of one caller that are answered when they are durable."""

    begin: int
    ends: list[int]
    answer: Answer


def _answer_each(waiting: list[_Waiting], statuses: list[PutMessageStatus]) -> None:
    done = 0
    for one in waiting:
        one.answer(statuses[done : done + len(one.ends)])
        done += len(one.ends)


def _size_of(puts: list[Put[Any]]) -> int:
    if len(puts) == 1:  # hot: each of many clients has one
        return puts[0][1].size
    return sum([request.size for _, request, _, _ in puts])


def _topic_of(request: PutRequest) -> str:
    """The topic for whose sake it may have to wait: of a delayed or half message the one in which it will be seen."""
    if isinstance(request, PreparedRecord) and request.topic in _TOPICS_BEFORE_THEIRS:
        return real_topic(request.tail)
    return request.topic
