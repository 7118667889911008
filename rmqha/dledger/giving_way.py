"""GivingWay: a leader that has no room for appends lets a member lead that has. Knows no socket and no clock.

DLedger's leader stays, and the group takes nothing (spec: dledger §1.14, §7.3 row 18).
"""

from collections.abc import Callable
from typing import Any, Final

import structlog

from rmqha.codec.dledger_wire import MetadataResponse
from rmqha.dledger.dledger_entry_pusher import DLedgerEntryPusher
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.leadership_transfer import LeadershipTransfer
from rmqha.dledger.member_lists import AskMetadata
from rmqha.log_limit import LogLimit

logger = structlog.get_logger()

_REASON_SIZE_MAX: Final = 300
_Code = DLedgerResponseCode
_LOOK_INTERVAL_S: Final = 1.0
_HAS_ROOM_FOR_S: Final = 10.0
"""Who has had room for less does not take over: a disk at its limit would have the leadership go round and round."""


class GivingWay:
    """Of one member. The leadership goes only where it helps: to a member with room, if a majority has some.

    Where no majority could store an entry, a leader that refuses it tells more than one that takes it in vain.
    """

    def __init__(
        self,
        store: DLedgerMmapFileStore,
        pusher: DLedgerEntryPusher[Any],
        transfer: LeadershipTransfer,
        *,
        quorum: int,
        refusal: Callable[[], str],
        ask: AskMetadata,
        connected: Callable[[], frozenset[str]],
    ) -> None:
        """It looks at its first step.

        Args:
            store: this member's.
            pusher: knows whether this member leads.
            transfer: hands the leadership over.
            quorum: so many members have to store an entry.
            refusal: why this member would append nothing at present; empty if it would.
            ask: asks another member.
            connected: those who can be asked.
        """
        self._room: Final = store.room
        self._state: Final = store.member_state
        self._pusher: Final = pusher
        self._transfer: Final = transfer
        self._quorum: Final = quorum
        self._refusal = refusal
        self._ask = ask
        self._connected = connected
        self._looks_at = 0.0
        self._has_room_since = 0.0
        self._waits_for: set[str] = set()
        """Who has not answered yet."""
        self._why_not: dict[str, str] = {}
        """Why other members cannot lead either, as they say; empty: they can."""
        self._is_told = False
        self._lines: Final = LogLimit(burst=3)

    @property
    def due_at(self) -> float:
        """See :class:`~rmqha.dledger.push_service.Waiting`."""
        return self._looks_at

    def may_take_over(self, *, now: float) -> bool:
        """Whether this member has room, and has had it for some time."""
        return not self._refusal() and now >= self._has_room_since

    def step(self, *, now: float) -> None:
        """Look once a second."""
        if now < self._looks_at:
            return
        self._looks_at = now + _LOOK_INTERVAL_S
        self._room.look()
        if self._refusal():
            self._has_room_since = now + _HAS_ROOM_FOR_S
        if not self._is_in_the_way:
            self._is_told = False
        elif not self._waits_for and self._state.transferee is None:
            self._ask_all()

    @property
    def _is_in_the_way(self) -> bool:
        return self._pusher.checker is not None and bool(self._refusal())

    def _ask_all(self) -> None:
        self._why_not = dict.fromkeys(self._pusher.dispatchers, "it cannot be reached")
        self._waits_for = set(self._why_not) & self._connected()
        if not self._waits_for:
            self._stay()
        for peer in sorted(self._waits_for):
            self._ask_one(peer, self._state.curr_term)

    def _ask_one(self, peer: str, term: int) -> None:
        def on_answer(response: MetadataResponse | None) -> None:
            self._waits_for.discard(peer)
            self._why_not[peer] = _why_not(response)
            if not self._waits_for and self._is_in_the_way and self._state.curr_term == term:
                self._choose()

        self._ask(peer, on_answer)

    def _choose(self) -> None:
        able = [peer for peer, why_not in self._why_not.items() if not why_not]
        if len(able) < self._quorum:  # this member's own room does not count: it has none
            self._stay()
        else:
            self._hand_over(sorted(able, key=self._transfer.lag))

    def _hand_over(self, able: list[str]) -> None:
        """To the first that takes it."""
        peer, reason = able[0], self._refusal()

        def on_answer(code: int) -> None:
            if code == _Code.SUCCESS:
                self._lines.log(logger.warning, "dledger.gave_way", to=peer, reason=reason)
                return
            self._why_not[peer] = f"it did not take over: code {code}"
            if not self._is_in_the_way or self._state.transferee is not None:
                return
            if able[1:]:
                self._hand_over(able[1:])
            else:
                self._stay()

        self._transfer.hand_over_to(peer, on_answer)

    def _stay(self) -> None:
        if not self._is_told:
            self._is_told = True
            others = {peer: why_not or "it has room" for peer, why_not in self._why_not.items()}
            self._lines.log(
                logger.warning,
                "dledger.no_room",
                reason=self._refusal(),
                others=others,
                next="this leader refuses appends, and hands over once a majority of the others has room",
            )


def _why_not(response: MetadataResponse | None) -> str:
    if response is None:
        return "it does not answer"
    if response.code != _Code.SUCCESS:
        return f"it answers code {response.code}"
    status = response.rmqha_status  # one of Java's tells nothing: then it may have room
    return "" if status is None or status.write_error is None else status.write_error[:_REASON_SIZE_MAX]
