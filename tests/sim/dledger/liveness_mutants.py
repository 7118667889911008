"""Planted bugs of who leads: members that ask for votes without need, or late, and transfers that are never over."""

from math import inf
from typing import Any, Final

from rmqha.dledger import elector_options, leader_elector, leadership_transfer, multi_path_mmap_file_list
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.vote import VoteResult
from tests.sim.dledger.planted import planted

Elector: Final = leader_elector.DLedgerLeaderElector
Transfer: Final = leadership_transfer.LeadershipTransfer
Files: Final = multi_path_mmap_file_list.MultiPathMmapFileList

_SOURCE: Final = "liveness"
_handle_heart_beat: Final = Elector.handle_heart_beat
_vote_at: Final = Elector._vote_at
_look_at_answers: Final = Elector._look_at_answers
_look_at_taking: Final = Transfer._look_at_taking
_hand_over: Final = Transfer._hand_over
_LATE_S: Final = 12.0


def _hear_only_new_leaders(self: Any, request: Any, *, now: float) -> Any:
    heard_at, known = self._heard_at, self._state.leader_id
    answer = _handle_heart_beat(self, request, now=now)
    if known == request.leader_id:
        self._heard_at = heard_at
    return answer


def _vote_late(self: Any, now: float, extra_s: float = 0.0) -> None:
    _vote_at(self, now, extra_s + _LATE_S)


def _end_early(self: Any, *, now: float) -> None:
    results = [answer.result for answer in self._round.answers.values()]
    is_lost = self._round.answers[self._state.self_id].result is not VoteResult.ACCEPT
    if is_lost and len(results) - results.count(VoteResult.UNKNOWN) >= self.quorum:
        self._parse(now=now)
    else:
        _look_at_answers(self, now=now)


def _keep_taking(self: Any, taking: Any, *, now: float) -> None:
    if taking.answer is not _no_answer:
        _look_at_taking(self, taking, now=now)
        if self._taking is None:
            self._taking = taking
            taking.answer, taking.until = _no_answer, inf


def _no_answer(_code: int) -> None:
    """It was given."""


def _stay_handing_over(self: Any, request: Any, answer: Any) -> None:
    """The flag goes only if the transfer succeeds, as with a leader that asks once and waits."""
    ask = self._ask

    def ask_on(peer: str, question: Any, on_answer: Any) -> None:
        ask(peer, question, lambda code: on_answer(code) if code == DLedgerResponseCode.SUCCESS else answer(code))

    self._ask = ask_on
    try:
        _hand_over(self, request, answer)
    finally:
        self._ask = ask


def plant() -> None:
    """Register them all."""
    planted(
        "a member misses one heartbeat and asks for votes", _SOURCE,
        (elector_options.ElectorOptions, "leak_s", property(lambda self: 1.01 * self.heart_beat_time_interval_s)),
    )  # fmt: skip
    planted(
        "only the first heartbeat is a sign of life", _SOURCE, (Elector, "handle_heart_beat", _hear_only_new_leaders)
    )
    planted("a candidate waits for long", _SOURCE, (Elector, "_vote_at", _vote_late))
    planted("a lost round ends with any majority", _SOURCE, (Elector, "_look_at_answers", _end_early))
    planted("who has taken over once never does again", _SOURCE, (Transfer, "_look_at_taking", _keep_taking))
    planted("a leader that could not hand over refuses appends", "#85", (Transfer, "_hand_over", _stay_handing_over))
    planted(
        "data files are looked for in one directory", _SOURCE,
        (Files, "directories", property(lambda self: self._directories[:1])),
    )  # fmt: skip
