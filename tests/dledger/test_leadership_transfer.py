"""LeadershipTransfer without servers: when a member begins to take over, and when it does not any more."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rmqha.codec.dledger_entry import DLedgerEntry
from rmqha.codec.dledger_wire import LeadershipTransferRequest
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.leadership_transfer import Answer, LeadershipTransfer, TransferOptions
from rmqha.dledger.quorum_ack_checker import QuorumAckChecker
from tests.dledger.defaults import default
from tests.dledger.members import LEADER, follow, follower, lead, leader, put, take
from tests.sim.sim_disk import SimDisk

Code = DLedgerResponseCode


class Transferee:
    """A follower of term 1 that has the first of its leader's two entries, and is to take over."""

    def __init__(self) -> None:
        self.first, self.second = put(leader(SimDisk(latency_s=(0, 0)).mount()), b"first", b"second")
        self.store = follower(SimDisk(latency_s=(0, 0)).mount())
        take(self.store, self.first)
        self.elections: list[Callable[[], None]] = []
        self.codes: list[int] = []
        pusher: Any = SimpleNamespace(checker=None)
        self.transfer = LeadershipTransfer(
            self.store,
            pusher,
            frozenset({"n0", LEADER}),
            options=default(TransferOptions),
            ask=lambda _peer, _request, _answer: None,
            elect=self.elections.append,
            answering=lambda: frozenset({LEADER}),
            may_take_over=lambda: True,
        )
        request = LeadershipTransferRequest(1, LEADER, "n0", self.second.index)
        self.transfer.handle(request, self.codes.append, now=0.0)

    def take(self, entry: DLedgerEntry) -> None:
        take(self.store, entry)
        self.transfer.step(now=0.1)


@pytest.fixture
def transferee() -> Transferee:
    return Transferee()


def test_who_lacks_its_leader_s_last_entry_asks_for_no_votes_yet(transferee: Transferee) -> None:
    """Nobody would vote for it, and meanwhile nobody would lead."""
    transferee.transfer.step(now=0.05)
    assert transferee.elections == []
    transferee.take(transferee.second)
    assert len(transferee.elections) == 1


def test_who_follows_another_leader_by_now_does_not_take_over_from_it(transferee: Transferee) -> None:
    """It was to take over from the one before; its entries come all the same."""
    follow(transferee.store, 2)
    transferee.take(transferee.second)
    assert transferee.elections == []
    assert transferee.codes == [Code.INCONSISTENT_TERM]


def test_who_is_being_stopped_takes_over_from_nobody(transferee: Transferee) -> None:
    """Its leader would hand over to one who is gone the moment after, and nobody would lead."""
    transferee.take(transferee.second)
    follow(transferee.store, 2)
    transferee.transfer.step(now=0.2)
    assert transferee.codes == [Code.INCONSISTENT_TERM], "what came before is settled"
    transferee.transfer.leave(lambda _code: None)
    transferee.transfer.handle(
        LeadershipTransferRequest(2, LEADER, "n0", transferee.second.index), transferee.codes.append, now=0.3
    )
    assert transferee.codes[1:] == [Code.TAKE_LEADERSHIP_FAILED]
    assert len(transferee.elections) == 1


def test_who_had_to_wait_for_entries_has_all_the_time_for_its_election(transferee: Transferee) -> None:
    """Its leader would hear of a failure while the votes are on their way, and ask the next one, too."""
    begun_at = default(TransferOptions).leadership_transfer_wait_timeout_s - 0.1
    take(transferee.store, transferee.second)
    transferee.transfer.step(now=begun_at)
    transferee.store.member_state.curr_term = 2
    transferee.store.member_state.change_to_candidate()
    [on_begun] = transferee.elections
    on_begun()
    transferee.transfer.step(now=begun_at + 1.9)
    assert transferee.codes == []
    transferee.transfer.step(now=begun_at + 2.0)
    assert transferee.codes == [Code.TAKE_LEADERSHIP_FAILED]


def test_the_answer_to_a_leader_of_a_former_term_does_not_end_the_present_transfer() -> None:
    """It is the same member that was asked: appends would be taken while that one takes over."""
    store, peers = leader(SimDisk(latency_s=(0, 0)).mount()), frozenset({"n0", LEADER})
    checker = QuorumAckChecker(peers, inherited_index=-1, max_pending_requests_num=10)
    pusher: Any = SimpleNamespace(checker=checker)
    answers, codes = list[Answer](), list[int]()
    asked = list[LeadershipTransferRequest]()

    def ask(_peer: str, request: LeadershipTransferRequest, answer: Answer) -> None:
        asked.append(request)
        answers.append(answer)

    transfer = LeadershipTransfer(
        store,
        pusher,
        peers,
        options=default(TransferOptions),
        ask=ask,
        elect=lambda _on_begun: None,
        answering=lambda: peers,
        may_take_over=lambda: True,
    )
    put(store, b"one", b"two")
    transfer.hand_over_to(LEADER, codes.append)
    store.member_state.change_to_candidate()
    lead(store, 3)
    put(store, b"three")
    transfer.hand_over_to(LEADER, codes.append)
    assert [(one.term, one.take_leadership_ledger_index) for one in asked] == [(1, 1), (3, 2)], "not only the committed"
    former, present = answers
    former(Code.NETWORK_ERROR)
    assert (store.member_state.transferee, codes) == (LEADER, [Code.NETWORK_ERROR])
    present(Code.TAKE_LEADERSHIP_FAILED)
    assert (store.member_state.transferee, codes[1:]) == (None, [Code.TAKE_LEADERSHIP_FAILED])
