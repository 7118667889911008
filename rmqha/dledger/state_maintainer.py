"""StateMaintainer: the task that runs a member's elector; term and vote are durable before anybody hears of them.

Source: dledger-all-0.3.1.2 DLedgerLeaderElector.java StateMaintainer.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

import structlog
import trio

from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.leader_elector import DLedgerLeaderElector
from rmqha.dledger.term_file import TermFile
from rmqha.dledger.vote import Outgoing
from rmqha.errors import StoreWriteError
from rmqha.log_limit import RepeatLimit
from rmqha.store.passing import is_lack

logger = structlog.get_logger()

_TRIES_AGAIN_S: Final = 1.0
"""To save a term for which there was no space."""
_SLOW_S: Final = 0.3
_SLOW_NEXT: Final = (
    "until a leader is found members wait for such a disk several times: move the store to a faster one, or see what "
    "else writes there"
)

Work = Callable[[float], Callable[[], None] | None]
"""Gets the time, and asks the elector; returns what to do, such as to answer, once term and vote are durable."""


class Observer(Protocol):
    """Who acts on what was decided."""

    def on_role(self, *, is_durable: bool) -> None:
        """The role may be another; if not ``is_durable``, a leadership may only end."""
        ...

    def send(self, outgoing: Outgoing) -> None:
        """Ask another member."""
        ...


class StateMaintainer:
    """All that concerns the election happens in this one task, in the order in which it came."""

    def __init__(
        self, elector: DLedgerLeaderElector, terms: TermFile, store: DLedgerMmapFileStore, observer: Observer
    ) -> None:
        self._elector: Final = elector
        self._terms: Final = terms
        self._store: Final = store
        self._observer: Final = observer
        self._work: Final[deque[Work]] = deque()
        self._wakeup = trio.Event()
        self._limit: Final = RepeatLimit()
        self.refusal = ""
        """Why term and vote cannot be saved, if they cannot: meanwhile this member takes no part in elections."""

    @property
    def is_mute(self) -> bool:
        """Whether this member takes no part in elections: until there is space, or for good."""
        return bool(self.refusal)

    def do(self, work: Work) -> None:
        """Have it done soon; nothing comes of it any more once this member is mute."""
        if not self.is_mute:
            self._work.append(work)
            self._wakeup.set()

    def wakeup(self) -> None:
        """Look what is due: something has changed."""
        self._wakeup.set()

    async def run(self) -> None:
        """Until cancelled, or until term and vote cannot be saved."""
        while not self.is_mute:
            with trio.move_on_at(self._elector.due_at):
                await self._wakeup.wait()
            self._wakeup = trio.Event()
            await self._step()

    async def _step(self) -> None:
        now = trio.current_time()
        outcomes = [work(now) for work in self._work]
        self._work.clear()
        questions = self._elector.tick(now=now)
        self._observer.on_role(is_durable=False)
        if not await self._save():
            return
        self._observer.on_role(is_durable=True)
        for act in outcomes:
            if act is not None:
                act()
        for question in questions:
            self._observer.send(question)

    async def _save(self) -> bool:
        """Make term and vote durable, with what came of all that was taken up at once. False: that is impossible."""
        state, self._elector.unsaved = self._elector.unsaved, None
        if state is None:
            return True
        self._store.member_state.is_saved = False
        while True:
            begun_at = trio.current_time()
            try:
                await self._terms.save_in_thread(state)
            except StoreWriteError as error:
                self._mute(error, term=state.curr_term)
                if not is_lack(error):
                    self._store.fail(error)
                    self._elector.tick(now=trio.current_time())
                    self._observer.on_role(is_durable=False)
                    return False
                await trio.sleep(_TRIES_AGAIN_S)
            else:
                self._unmute(term=state.curr_term)
                self._store.member_state.is_saved = True
                self._note_saved(trio.current_time() - begun_at, term=state.curr_term)
                return True

    def _note_saved(self, took_s: float, *, term: int) -> None:
        self._elector.on_saved(took_s)
        if took_s >= _SLOW_S:
            known = {"took_s": round(took_s, 1), "term": term, "next": _SLOW_NEXT}
            self._limit.log(logger.warning, "dledger_elector.slow_save", key="", **known)

    def _mute(self, error: StoreWriteError, *, term: int) -> None:
        if not self.is_mute:
            logger.error("dledger_elector.muted", reason=str(error), term=term)
        self.refusal = f"term and vote cannot be saved: {error}"
        self._work.clear()

    def _unmute(self, *, term: int) -> None:
        if self.is_mute:
            logger.info("dledger_elector.goes_on", term=term)
        self.refusal = ""
