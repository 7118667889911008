"""Planted bugs: those that DLedger 0.3.1.2 has or had (spec: dledger §7.2, §7.3), and the usual ones of a Raft.

Each replaces attributes of real classes for as long as it is entered, and has to be found. See also
``replication_mutants.py``.
"""

from typing import Any, Final

import trio

from rmqha.codec.dledger_properties import TermVote, decode_term_vote
from rmqha.dledger import leader_elector, leadership_transfer, member_state, proven_reads, state_maintainer, term_file
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.vote import VoteResponse, VoteResult
from tests.sim.dledger import liveness_mutants, replication_mutants
from tests.sim.dledger.planted import PLANTED, planted
from tests.sim.mutant import nothing

__all__ = ["PLANTED"]

Elector = leader_elector.DLedgerLeaderElector
Reads = proven_reads.ProvenReads
Terms = term_file.TermFile
Maintainer = state_maintainer.StateMaintainer
State = member_state.MemberState
_Code = DLedgerResponseCode
_init: Final = Elector.__init__
_judge: Final = Elector._judge
_become_candidate: Final = Elector._become_candidate
_save_in_thread: Final = Terms.save_in_thread
_on_heart_beat_answer: Final = Elector.on_heart_beat_answer

# ---- term and vote


async def _save_term_alone(self: Any, state: TermVote) -> None:
    await _save_in_thread(self, TermVote(state.curr_term))


async def _replace_in_two_steps(self: Any, state: TermVote) -> None:
    if self._disk.exists(self._path):
        await self._disk.unlink_in_thread(self._path)
    await _save_in_thread(self, state)


def _load_what_is_there(self: Any, *, ledger_end_term: int) -> TermVote:
    found = decode_term_vote(self._disk.read_bytes(self._path)) if self._disk.exists(self._path) else None
    return found or TermVote(0)


async def _act_before_saving(self: Any) -> None:
    now = trio.current_time()
    outcomes = [work(now) for work in self._work]
    self._work.clear()
    questions = self._elector.tick(now=now)
    self._observer.on_role(is_durable=True)
    for act in outcomes:
        if act is not None:
            act()
    for question in questions:
        self._observer.send(question)
    await self._save()


def _reuses_its_term(self: Any, *args: Any, **kwargs: Any) -> None:
    _init(self, *args, **kwargs)
    self._needs_term = False


def _steps_down_and_keeps_its_term(self: Any, term: int, *, now: float, force: bool) -> None:
    needed = self._needs_term
    _become_candidate(self, term, now=now, force=force)
    self._needs_term = needed or force


def _votes_for_everybody(self: Any, request: Any, asker: object, *, now: float) -> VoteResponse:
    if request.term == self._state.curr_term:
        self._state.curr_vote_for = None
    return _judge(self, request, asker, now=now)


def _votes_again_for_that_id(self: Any, request: Any, asker: object, *, now: float) -> VoteResponse:
    if request.leader_id == self._state.curr_vote_for:
        self._voted_by = asker
    return _judge(self, request, asker, now=now)


def _votes_whatever_the_log(self: Any, request: Any, asker: object, *, now: float) -> VoteResponse:
    mine = self._state.ledger_end_index, self._state.ledger_end_term
    self._state.ledger_end_index, self._state.ledger_end_term = -1, -1
    response = _judge(self, request, asker, now=now)
    self._state.ledger_end_index, self._state.ledger_end_term = mine
    return response


def _votes_by_length(self: Any, request: Any, asker: object, *, now: float) -> VoteResponse:
    mine = self._state.ledger_end_index, self._state.ledger_end_term
    if request.ledger_end_index < mine[0]:
        return VoteResponse(VoteResult.REJECT_SMALL_LEDGER_END_INDEX, self._state.curr_term)
    return _votes_whatever_the_log(self, request, asker, now=now)


def _end_term_of_the_present(self: Any, index: int, term: int) -> None:
    self.ledger_end_index, self.ledger_end_term = index, max(term, self.curr_term) if index >= 0 else term


def _ignores_higher_terms(self: Any, peer: str, number: int, response: Any, *, now: float) -> None:
    if response is None or response.code != _Code.EXPIRED_TERM:
        _on_heart_beat_answer(self, peer, number, response, now=now)


def _leads_with_a_broken_disk(self: Any, *args: Any, **kwargs: Any) -> None:
    kwargs["may_lead"] = lambda: True
    _init(self, *args, **kwargs)


planted("a vote is not saved", "§1.15", (Terms, "save_in_thread", _save_term_alone))
planted(
    "the term's file is missing for a moment", "W3",
    (Terms, "save_in_thread", _replace_in_two_steps), (Terms, "load", _load_what_is_there),
)  # fmt: skip
planted("a vote is told before it is durable", "§1.15", (Maintainer, "_step", _act_before_saving))
planted(
    "who was restarted leads its old term again", "W4",
    (Elector, "__init__", _reuses_its_term), (Elector, "_judge", _votes_again_for_that_id),
)  # fmt: skip
planted(
    "who steps down keeps its term", "W4",
    (Elector, "_become_candidate", _steps_down_and_keeps_its_term), (Elector, "_judge", _votes_again_for_that_id),
)  # fmt: skip
planted("two votes a term", "Raft §5.2", (Elector, "_judge", _votes_for_everybody))
planted("half of the members are a majority", "Raft §5.2", (Elector, "quorum", property(lambda s: len(s._peers) // 2)))
planted("a vote for a shorter log", "§4.3 rows 3, 4", (Elector, "_judge", _votes_whatever_the_log))
planted("a vote for the longer log, of whatever term", "Raft §5.4.1", (Elector, "_judge", _votes_by_length))
planted(
    "the last entry's term is the present one", "#52", (State, "update_ledger_index_and_term", _end_term_of_the_present)
)
planted("a leader is deaf to higher terms", "#247", (Elector, "on_heart_beat_answer", _ignores_higher_terms))
planted("a leader stays whose disk has failed", "#287", (Elector, "__init__", _leads_with_a_broken_disk))

# ---- reads


def _no_beat_is_awaited(self: Any) -> int:
    return int(self.confirmed_beat)


def _the_last_beat_will_do(self: Any) -> int:
    self._is_proof_wanted = True
    return int(self._number)


def _reads_to_the_end(self: Any, index: int) -> Any:
    if index > self._store.ledger_end_index:
        return _Code.INDEX_OUT_OF_RANGE, None
    return _Code.SUCCESS, self._store.get(index)


class _Nobody:
    """In place of a checker: nothing was inherited."""

    inherited_index = -1


def _inherits_nothing(self: Any, *, now: float) -> None:
    if self._pusher.checker is None:
        _step(self, now=now)
        return
    pusher, self._pusher = self._pusher, type("", (), {"checker": _Nobody()})
    try:
        _step(self, now=now)
    finally:
        self._pusher = pusher


_step: Final = Reads.step

planted("a read waits for no heartbeat", "§5.6", (Elector, "prove", _no_beat_is_awaited))
planted("a heartbeat before the read proves it", "Raft §8", (Elector, "prove", _the_last_beat_will_do))
planted("what is not committed is read", "§5.6", (Reads, "_look_up", _reads_to_the_end))
planted("what was inherited is missing", "Raft §8", (Reads, "step", _inherits_nothing))

# ---- transfers, and the server


def _is_never_taken_back(self: Any, request: Any, answer: Any) -> None:
    _hand_over(self, request, answer if request.transferee_id == self._state.self_id else nothing)
    if self._state.transferee is not None:
        self._state = _Stuck(self._state)


_hand_over: Final = leadership_transfer.LeadershipTransfer._hand_over


class _Stuck:
    """A member's state whose transferee stays, while it leads."""

    def __init__(self, state: Any) -> None:
        object.__setattr__(self, "_state", state)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name != "transferee" or value is not None:
            setattr(self._state, name, value)


planted(
    "a transfer that fails is never over",
    "#85",
    (leadership_transfer.LeadershipTransfer, "_hand_over", _is_never_taken_back),
)

replication_mutants.plant()
liveness_mutants.plant()
