"""CatchUpService: keeps a master from taking sends in the places of messages that only a peer still holds.

It asks the peers of ``haPeers`` at the start, takes back what they hold beyond the local end, and goes on asking for
the life of the broker: a peer that was away may return with more. What is known and what follows from it is
:class:`~rmqha.replication.catch_up_plan.CatchUpPlan`'s; this is its clock, its log and its network.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, Final

import structlog
import trio

from rmqha.errors import RemoteProtocolError, StoreError, StoreReadError, StoreWriteError
from rmqha.ha.catch_up import PeerAsker, TakeTables
from rmqha.ha.catch_up_reasons import LEFT_OUT, SLAVE_AHEAD, why_unheard
from rmqha.ha.ha_client import MasterAddress, Meet, ProbeMaster, trust_anybody
from rmqha.ha.ha_service import HAService
from rmqha.ha.log_beginning import LogBeginning
from rmqha.ha.longer_peers import LongerPeers
from rmqha.ha.options import HAClientOptions
from rmqha.ha.replicated_log import ReplicatedLog
from rmqha.ha.unchecked_slaves import UncheckedSlaves
from rmqha.replication.catch_up_plan import UNKNOWN_RANGE, CatchUpPlan
from rmqha.replication.master_session import LogRange
from rmqha.replication.peer_knowledge import PATIENCE_S, PeerAnswer, PeerKnowledge, PeerState
from rmqha.store.store_note import StoreNote
from rmqha.transport import Network

logger = structlog.get_logger()

_PROGRESS_S: Final = 5.0
_WAITING_S: Final = 60.0
_READ_AGAIN_S: Final = 5.0
_NOTE_AGAIN_S: Final = 5.0
_HINT_S: Final = 1.0
"""Of all reports of being ahead, which anybody can send, one in this time has the peers asked."""
_NUMBERS: Final = re.compile(r"\d+")
"""Of a reason. Where this log ends changes all the time, and is no news."""
_SLAVE_AHEAD_S: Final = 30.0
"""One that is turned away comes again sooner."""


@dataclass(frozen=True, slots=True)
class CatchUpHooks:
    """What the store is told.

    Attributes:
        refuse_puts: refuse them for this reason from now on; accept them if it is empty.
        on_taken: bytes were appended, and puts are about to be accepted; StoreReadError: not yet.
        on_open: puts are about to be accepted, for the first time or after they were refused: the log ends here.
        take_tables: see :class:`~rmqha.ha.catch_up.TakeTables`.
        tables_from: peers whose tables are taken, and not saved yet together with all of the log.
        do_peers_follow: whether as many slaves follow as there are peers, so that those unheard are among them.
    """

    refuse_puts: Callable[[str], None]
    on_taken: Callable[[], Awaitable[None]]
    on_open: Callable[[], None]
    take_tables: TakeTables
    tables_from: Callable[[], Collection[str]] = tuple
    do_peers_follow: Callable[[], bool] = bool


class CatchUpService:
    """One master's catch-up. Start: run :meth:`run` in a nursery. Stop: cancel it; what was taken is kept.

    Attributes:
        opened: sends are accepted, or were.
        slave_ahead_at: when a slave last said that it holds more than this log, in trio's time.
    """

    def __init__(
        self,
        log: ReplicatedLog,
        network: Network,
        peers: Sequence[MasterAddress],
        *,
        answers_needed: int,
        options: HAClientOptions,
        probe_peer: ProbeMaster,
        chance: Callable[[], float],
        why_apart: Meet = trust_anybody,
        hooks: CatchUpHooks,
        began_empty: StoreNote,
        longer_peers: LongerPeers,
    ) -> None:
        """Nothing is asked yet.

        Args:
            log: the local one.
            network: the door to the peers.
            peers: their HA addresses; none: sends are accepted at once.
            answers_needed: see :class:`CatchUpPlan`.
            options: as for following a master.
            probe_peer: asks by remoting where a peer's log begins and ends.
            chance: a random number in [0, 1), for pauses between questions.
            why_apart: says whether a peer is of another group.
            hooks: what the store is told.
            began_empty: is there while this log, which began empty, may lack what some peer holds, from before the
                first send on, so that a later start knows. A start with nobody to ask removes it: so its operator
                has decided.
            longer_peers: the same, of peers that are known to hold more, from before anything of theirs is taken.
        """
        self._log: Final = log
        self._addresses: Final = {str(peer): peer for peer in peers}
        make_asker = partial(
            PeerAsker,
            log,
            network,
            options=options,
            probe_peer=probe_peer,
            why_apart=why_apart,
            before_taking=self._before_taking,
            take_tables=self._take_tables,
        )
        self._asker: Final = make_asker()
        self._plan: Final = CatchUpPlan.of(list(self._addresses), answers_needed=answers_needed, chance=chance)
        self._slaves: Final = UncheckedSlaves(make_asker(), peers, self._plan)
        self._hooks: Final = hooks
        self._began_empty: Final = began_empty
        self._longer_peers: Final = longer_peers
        self._probe_peer: Final = probe_peer
        self._asking: PeerKnowledge | None = None
        self._untold_since: Final[dict[str, float]] = {}
        self._has_taken = False
        self._beginning: Final = LogBeginning(log)
        self._may_tables_be_ahead = False
        self._hinted = trio.Event()
        self._hinted_at = -inf
        self.slave_ahead_at = -inf
        self.opened: Final = trio.Event()
        if self._plan.refusal:
            hooks.refuse_puts(self._plan.refusal)

    @property
    def refusal(self) -> str:
        """Why sends are refused; empty if they are accepted."""
        return self._plan.refusal or self._why_slave_ahead()

    def _why_slave_ahead(self) -> str:
        """A report is no proof for a log that has begun, as anybody may report anything.

        For one that began empty, while nobody has shown what it holds, it is the only sign, and mostly right: haPeers
        names that slave wrongly.
        """
        if trio.current_time() >= self.slave_ahead_at + _SLAVE_AHEAD_S or self._hooks.do_peers_follow():
            return ""
        is_all_unknown = len(self.unheard) == len(self._addresses) > 0
        return SLAVE_AHEAD if is_all_unknown or (self._is_empty and self.unheard) else ""

    @property
    def unheard(self) -> list[str]:
        """As :attr:`CatchUpPlan.unheard`."""
        return self._plan.unheard

    def settled(self) -> list[MasterAddress]:
        """Peers that have shown that they hold nothing beyond this log."""
        return [self._addresses[peer.peer] for peer in self._plan.peers if peer.state is PeerState.SETTLED]

    def peer_ids(self) -> list[int | None]:
        """Each peer's brokerId; None of one that never said so."""
        return [peer.broker_id for peer in self._plan.peers]

    def silent_peers(self) -> list[str]:
        """Which peers have not shown for more than a minute what they hold, and why, a sentence each."""
        return [
            f"{peer.peer} of haPeers does not show what it holds: {peer.reason or 'no answer'}. As many slaves "
            "follow as there are peers: is it the HA port of one? What a crash takes here could not be had from it"
            for peer in self._plan.long_unknown(now=trio.current_time())
        ]

    @property
    def _is_empty(self) -> bool:
        return self._log.min_offset == self._log.max_offset

    async def run(self) -> None:
        """Ask the peers until cancelled; ends at once if there is none.

        Raises:
            DivergedLogError: before the first send: a peer holds other bytes.
            StoreError: before the first send: a peer's log does not continue the local one, or the local store failed.
        """
        was_noted, longer = self._began_empty.look(), self._longer_peers.look()
        if self._plan.is_open:
            await self._longer_peers.try_to_note({})
            await self._note_doubt()
            await self._open()
            return
        self._tell_left_out(longer)
        for peer, there in longer.items():  # all of its log may be here, and not yet what it tells beside it
            longer[peer] = UNKNOWN_RANGE if there.max_offset <= self._log.max_offset else there
        self._plan.remember_longer(longer, own_end=self._log.max_offset)
        self._hooks.refuse_puts(self._plan.refusal)
        self._plan.began_empty = self._is_empty or was_noted
        self._beginning.on_start()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._report_progress)
            try:
                await self._ask_peers()
            except StoreError as error:
                if not self._plan.is_open:
                    raise
                logger.error("catch_up.failed", reason=str(error))  # puts are refused by now: the store has failed
            nursery.cancel_scope.cancel()

    def _tell_left_out(self, longer: dict[str, LogRange]) -> None:
        """Who takes a peer out of haPeers gives up what it holds; who gives it another name there may not know that."""
        for peer in sorted(longer.keys() - self._addresses.keys() - {""}):
            if (end := longer[peer].max_offset) > self._log.max_offset or end < 0:
                known = {"peer": peer, "end": end, "max_offset": self._log.max_offset}
                logger.warning("catch_up.left_out", **known, reason=LEFT_OUT)

    def watch_slaves(self, service: HAService) -> None:
        """Be told of the slaves that come to ``service``."""
        service.on_slave_ahead = self.on_slave_ahead
        service.before_sending = self._slaves.meet
        for peer in self._addresses.values():
            service.know_host(peer.host)

    def on_slave_ahead(self) -> None:
        """A slave says that it holds more than this log: it may be a peer that has changed since it was asked.

        A report proves nothing; what peers answer does. They are asked at once, or sends might take the places of what
        the slave holds.
        """
        self.slave_ahead_at = now = trio.current_time()
        if reason := self._why_slave_ahead():
            self._hooks.refuse_puts(reason)
        if now >= self._hinted_at + _HINT_S:
            self._hinted_at = now
            self._plan.ask_at_once(now=now)
            self._hinted.set()

    async def _next_question(self) -> PeerKnowledge:
        """Return when the next peer is to be asked."""
        while True:
            self._hinted = trio.Event()
            peer = self._plan.next_question(is_empty=self._is_empty, now=trio.current_time())
            with trio.move_on_at(peer.ask_at) as pause:
                await self._hinted.wait()
            if pause.cancelled_caught:
                return peer

    async def _ask_peers(self) -> None:
        while True:
            peer = await self._next_question()
            own_end = self._log.max_offset
            self._asking, asked_at = peer, trio.current_time()
            takes = self._plan.takes_from(peer, is_empty=self._is_empty, own_end=own_end, now=asked_at)
            known = PeerState.LONGER if peer.is_longer(own_end) else peer.state
            answer = await self._asker.ask(
                self._addresses[peer.peer],
                known=known,
                takes=takes,
                are_sends_refused=bool(self._plan.refusal),
            )
            self._asking = None
            await self._on_answer(peer, answer, asked_at)

    async def _on_answer(self, peer: PeerKnowledge, answer: PeerAnswer, asked_at: float) -> None:
        plan, before, was_open = self._plan, (peer.state, _NUMBERS.sub("", peer.reason)), self._plan.is_open
        self._has_taken = self._has_taken or answer.taken_bytes > 0
        answer = plan.beside_others(peer, answer, own_end=self._log.max_offset)
        is_empty, own_end, now = self._is_empty, self._log.max_offset, trio.current_time()
        plan.on_answer(peer, answer, is_empty=is_empty, own_end=own_end, asked_at=asked_at, now=now)
        self._may_tables_be_ahead = self._may_tables_be_ahead or self._has_taken or bool(plan.refusal)
        if plan.refusal:  # at once: the disk may be slow to note it
            self._hooks.refuse_puts(plan.refusal)
        await self._longer_peers.try_to_note(self._longer_logs())
        if answer.taken_bytes or before != (peer.state, _NUMBERS.sub("", peer.reason)):
            self._log_answer(peer, answer)
        self._beginning.on_answer(peer, answer, plan.peers)
        if answer.error is not None and not was_open:
            raise answer.error
        if not plan.refusal:
            await self._note_doubt()
            await self._open()
        self._hooks.refuse_puts(self.refusal)

    async def _before_taking(self, peer: MasterAddress, there: LogRange | None) -> None:
        """What is only half taken by the end of this process has to be known to be half."""
        told = UNKNOWN_RANGE if there is None else LogRange(there.min_offset, there.max_offset)
        try:
            await self._longer_peers.note(self._longer_logs() | {str(peer): told})
        except (StoreWriteError, StoreReadError) as error:
            raise RemoteProtocolError(f"that it holds more cannot be noted here: {error}") from error

    async def _take_tables(self, peer: MasterAddress, there: LogRange | None, *, is_longer: bool) -> None:
        """Who begins first need not have tables, as one that was copied half: if who holds as much tells its own.

        They would wait for each other: that one has its tables of this broker. Once this log has begun the other one's
        is compared with it first, and its tables come with that.
        """
        try:
            await self._hooks.take_tables(peer, there, is_longer=is_longer)
            self._untold_since.pop(str(peer), None)
        except RemoteProtocolError as error:
            since = self._untold_since.setdefault(str(peer), trio.current_time())
            if there is None or not self._is_empty or trio.current_time() < since + PATIENCE_S:
                raise
            for other in self._plan.no_shorter(str(peer), there):
                if await self._has_told_tables(other, there.max_offset):
                    logger.warning("catch_up.tables_not_taken", peer=str(peer), reason=str(error), taken_from=other)
                    return
            raise

    async def _has_told_tables(self, peer: str, end: int) -> bool:
        """Take its tables, if its log still reaches to ``end``: who has lost it since may have lost them, too."""
        with suppress(RemoteProtocolError):
            there = await self._probe_peer(address := self._addresses[peer])
            if there is not None and there.max_offset >= end:
                await self._hooks.take_tables(address, there, is_longer=True)
                return True
        return False

    def _longer_logs(self) -> dict[str, LogRange]:
        """Of peers that the next start has to wait for."""
        tables_from = dict.fromkeys(self._hooks.tables_from(), UNKNOWN_RANGE)
        return tables_from | self._plan.longer_logs(self._log.max_offset)

    async def on_tables_saved(self) -> None:
        """The next start need not wait for who told them. Raises StoreWriteError, StoreReadError: it still would."""
        await self._longer_peers.note(self._longer_logs())

    async def _note_doubt(self) -> None:
        """Let the store say, durably, whether a start after this one has to doubt; no send comes before it does."""
        try:
            if not self._plan.is_doubtful:
                await self._began_empty.remove_in_thread()
        except StoreWriteError as error:  # it says more than is true, and is removed after a later answer
            logger.warning("catch_up.not_noted", reason=str(error))
        while self.unheard and not self._began_empty.is_there:
            self._hooks.refuse_puts("it is being noted that this log began empty")
            try:
                await self._began_empty.make_in_thread()
            except StoreWriteError as error:
                logger.warning("catch_up.not_noted", reason=str(error))
                self._hooks.refuse_puts(f"that this log began empty cannot be noted, and is tried again: {error}")
                await trio.sleep(_NOTE_AGAIN_S)

    async def _open(self) -> None:
        while self._has_taken:
            try:
                await self._hooks.on_taken()
                self._has_taken = False
            except StoreReadError as error:
                logger.warning("catch_up.not_read", reason=str(error))
                self._hooks.refuse_puts(f"what was fetched from a peer cannot be read, and is tried again: {error}")
                await trio.sleep(_READ_AGAIN_S)
        if self._may_tables_be_ahead or not self.opened.is_set():
            self._hooks.on_open()
            self._may_tables_be_ahead = False
        if not self.opened.is_set():
            self.opened.set()
            if self.unheard:
                logger.warning("catch_up.began_empty", reason=why_unheard(self.unheard))

    def _log_answer(self, peer: PeerKnowledge, answer: PeerAnswer) -> None:
        levels = {PeerState.SETTLED: logger.info, PeerState.UNFIT: logger.error}
        log = levels.get(peer.state, logger.warning)
        log(
            "catch_up.answered",
            peer=peer.peer,
            state=peer.state.value,
            taken_bytes=answer.taken_bytes,
            max_offset=self._log.max_offset,
            sends_refused=bool(self.refusal),
            reason=peer.reason or None,
        )

    async def _report_progress(self) -> None:
        """While sends are refused: what came in the last seconds; or, now and then, what is waited for."""
        end, told, told_at = self._log.max_offset, "", 0.0
        while True:
            await trio.sleep(_PROGRESS_S)
            now, refusal, asking = trio.current_time(), self.refusal, self._asking
            taken_bytes, end = self._log.max_offset - end, self._log.max_offset
            if not refusal:
                told = ""
            elif taken_bytes and asking is not None:
                of = asking.end if asking.end > end else None
                logger.info("catch_up.progressed", peer=asking.peer, offset=end, of=of, taken_bytes=taken_bytes)
            elif refusal != told or now >= told_at + _WAITING_S:
                logger.warning("catch_up.waiting", reason=refusal)
                told, told_at = refusal, now

    def info(self) -> list[dict[str, Any]]:
        """Each peer as an operator sees it."""
        return [
            {"peer": peer.peer, "state": peer.state.value, "begin": peer.begin, "end": peer.end, "reason": peer.reason}
            for peer in self._plan.peers
        ]
