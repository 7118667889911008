"""PushService: the task that replicates, whenever there is something to do; it waits for nothing else.

In DLedger each follower's EntryDispatcher, the EntryHandler and the QuorumAckChecker are threads that look every
millisecond.
"""

from collections.abc import Sequence
from typing import Final, Protocol

import structlog
import trio

from rmqha.dledger.dledger_entry_pusher import DLedgerEntryPusher
from rmqha.dledger.dledger_rpc_service import DLedgerRpcService, Question
from rmqha.dledger.push_entry import PushEntryRequest, PushEntryResponse
from rmqha.log_limit import LogLimit

logger = structlog.get_logger()


class Waiting(Protocol):
    """What goes on when the log, what is committed, or the role has changed."""

    @property
    def due_at(self) -> float:
        """When it goes on all the same."""
        ...

    def step(self, *, now: float) -> None:
        """Look again."""
        ...


class PushService:
    """Carries out what ``pusher`` decides, and lets those look again who wait for what comes of it."""

    def __init__(
        self, pusher: DLedgerEntryPusher[Question], rpc: DLedgerRpcService, waiting: Sequence[Waiting]
    ) -> None:
        self._pusher: Final = pusher
        self._waiting: Final = waiting
        self._rpc: Final = rpc
        self._wakeup = trio.Event()
        self._has_told = self._has_told_misfit = False
        self._told_unreadable = dict[str, str]()
        """Why who gets nothing, as it was told last."""
        self._lines: Final = LogLimit(burst=3)
        self._diverged_lines: Final = LogLimit(burst=3)

    def wakeup(self) -> None:
        """Something was appended, pushed, answered, or made durable, or the role has changed."""
        self._wakeup.set()

    def on_push(self, request: PushEntryRequest, question: Question) -> None:
        """A leader's push; it is taken up with those that arrive together with it."""
        response = self._pusher.handler.handle_push(request, question, now=trio.current_time())
        if response is not None:
            question.answer_push(response)
        self.wakeup()

    def on_change(self, peer: str) -> None:
        """A peer is connected, or is not any more."""
        if peer in self._pusher.dispatchers and peer not in self._rpc.connected:
            self._pusher.dispatchers[peer].on_disconnected(now=trio.current_time())
        self.wakeup()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            self._wakeup = trio.Event()
            connected = self._step(trio.current_time())
            due_at = min([one.due_at for one in self._waiting])
            with trio.move_on_at(min(due_at, self._pusher.due_at(connected))):
                await self._wakeup.wait()

    def _step(self, now: float) -> frozenset[str]:
        """Do what can be done now; returns whom it was possible to push to."""
        pusher = self._pusher
        for question, response in pusher.handler.step(now=now):
            question.answer_push(response)
        self._tell_what_is_refused()
        pusher.advance(now=now)
        for one in self._waiting:
            one.step(now=now)
        self._rpc.answers.send()
        connected = self._rpc.connected
        for peer in connected & pusher.dispatchers.keys():
            for request in pusher.dispatchers[peer].poll(now=now):
                self._push(peer, request)
            self._tell_what_is_unreadable(peer, pusher.dispatchers[peer].unreadable)
        return connected

    def _tell_what_is_refused(self) -> None:
        handler = self._pusher.handler
        if (handler.diverged is not None) != self._has_told:
            self._has_told = handler.diverged is not None
            if handler.diverged is None:
                self._diverged_lines.log(logger.info, "dledger_follower.not_diverged")
            else:
                self._diverged_lines.log(logger.error, "dledger_follower.diverged", reason=str(handler.diverged))
        if handler.misfit and not self._has_told_misfit:
            self._lines.log(logger.warning, "dledger_follower.refuses", reason=handler.misfit, next="tried again")
        self._has_told_misfit = bool(handler.misfit)

    def _tell_what_is_unreadable(self, peer: str, reason: str) -> None:
        if reason and reason != self._told_unreadable.get(peer):
            self._lines.log(logger.error, "dledger_leader.cannot_read", peer=peer, reason=reason, next="tried again")
        self._told_unreadable[peer] = reason

    def _push(self, peer: str, request: PushEntryRequest) -> None:
        def on_answer(response: PushEntryResponse) -> None:
            self._pusher.on_answer(peer, request, response, now=trio.current_time())
            self.wakeup()

        self._rpc.push(peer, request, on_answer)
