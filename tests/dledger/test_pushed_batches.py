"""Pushes with several entries: how many of them an answer counts for, and what a follower knows once it has them."""

import pytest

from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.entry_dispatcher import EntryDispatcher, PushOptions
from rmqha.dledger.entry_handler import EntryHandler
from rmqha.dledger.push_entry import PushEntryRequest, PushEntryResponse, PushType
from rmqha.dledger.quorum_ack_checker import QuorumAckChecker
from tests.dledger.defaults import default
from tests.dledger.members import LEADER, cut_to, follower, leader, put
from tests.sim.sim_disk import SimDisk

Code = DLedgerResponseCode


@pytest.mark.parametrize(("count", "counted"), [(1, 1), (2, 2), (3, 3), (4, 3)])
def test_an_answer_to_a_batch_counts_for_as_many_as_it_says(count: int, counted: int) -> None:
    """A follower may have taken a part of it: the rest would be committed, and nobody else has it."""
    store = leader(SimDisk().mount())
    checker = QuorumAckChecker(frozenset({"n0", "n1"}), inherited_index=-1, max_pending_requests_num=10)
    options = default(PushOptions, is_enable_batch_push=True, max_batch_push_size=1 << 20)
    dispatcher = EntryDispatcher("n1", store, checker, options=options)
    put(store, b"first")
    [compare] = dispatcher.poll(now=0)
    dispatcher.on_answer(compare, PushEntryResponse(Code.SUCCESS, 1, 0, 1, 0, 0), now=0)
    put(store, b"one", b"two", b"three")
    [batch] = dispatcher.poll(now=0)
    assert len(batch.entries) == 3
    dispatcher.on_answer(batch, PushEntryResponse(Code.SUCCESS, 1, 1, count, 0, counted), now=0)
    assert checker.water_mark("n1") == counted
    late = default(PushOptions).max_push_time_out_s
    kind = PushType.COMMIT if counted == 3 else PushType.COMPARE
    assert [request.type for request in dispatcher.poll(now=late)] == [kind], "what was not answered is compared"


def test_who_has_taken_a_batch_knows_at_once_how_much_of_it_is_committed() -> None:
    """Who catches up would else serve no reads of it until the leader has news again."""
    first, *others = put(leader(SimDisk().mount()), b"one", b"two", b"three", b"four")
    store = follower(SimDisk().mount(), acks_flushed=False)
    cut_to(store, first)
    handler = EntryHandler[int](store, acks_flushed=False)
    assert handler.step(now=0) == [], "it sees whom it follows"
    assert handler.handle_push(PushEntryRequest(PushType.APPEND, 1, LEADER, 2, tuple(others)), 7, now=0) is None
    assert [(token, answer.code) for token, answer in handler.step(now=0)] == [(7, Code.SUCCESS)]
    assert (store.ledger_end_index, store.committed_index) == (3, 2)
