"""What a leader's pusher knows of its waiting, and what a push may have."""

from dataclasses import replace
from math import inf

import pytest

from rmqha.dledger.dledger_entry_pusher import DLedgerEntryPusher
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.push_entry import PushEntryRequest, PushType
from rmqha.dledger.push_wire import decode_push, encode_push
from rmqha.errors import DivergedLogError, RemoteProtocolError
from tests.dledger.defaults import pusher_options
from tests.dledger.members import lead, leader, put
from tests.sim.sim_disk import SimDisk


def test_a_leader_waits_since_anything_was_committed_last() -> None:
    """Else one that is busy all the time looks like one that has no majority."""
    store = leader(SimDisk(latency_s=(0, 0)).mount())
    pusher = DLedgerEntryPusher[int](
        store, frozenset({"n0", "n1", "n2"}), options=pusher_options(acks_flushed=False, max_wait_ack_time_s=60.0)
    )
    assert pusher.begin_leading()
    assert pusher.checker is not None
    for now, body in enumerate((b"one", b"two")):
        pusher.append(body, lambda _entry, _code: None, now=now)
        pusher.advance(now=now)
    assert pusher.waits_since == 0
    pusher.checker.update_peer_water_mark("n1", 0)
    assert pusher.advance(now=5)
    assert (store.committed_index, pusher.waits_since) == (0, 5)


def test_who_leads_no_more_waits_for_no_majority() -> None:
    """Status would tell of a follower that what was sent waits, and of its next leadership that it does so since."""
    store = leader(SimDisk(latency_s=(0, 0)).mount())
    pusher = DLedgerEntryPusher[int](store, frozenset({"n0", "n1", "n2"}), options=pusher_options(acks_flushed=False))
    for now, term in ((0, 1), (9, 2)):
        lead(store, term)
        assert pusher.begin_leading()
        pusher.append(b"one", lambda _entry, _code: None, now=now)
        pusher.advance(now=now)
        assert pusher.waits_since == now
        store.member_state.change_to_candidate()
        assert pusher.end_leading()
        assert pusher.waits_since == inf


def test_what_is_committed_by_the_time_that_its_waiting_ends_has_succeeded() -> None:
    """A client that is told of a timeout may append it once more."""
    store = leader(SimDisk(latency_s=(0, 0)).mount())
    pusher = DLedgerEntryPusher[int](
        store, frozenset({"n0", "n1", "n2"}), options=pusher_options(acks_flushed=False, max_wait_ack_time_s=2.0)
    )
    assert pusher.begin_leading()
    assert pusher.checker is not None
    told: list[DLedgerResponseCode] = []
    for body in (b"one", b"two"):
        pusher.append(body, lambda _entry, code: told.append(code), now=0)
    pusher.checker.update_peer_water_mark("n1", 0)
    pusher.advance(now=2)
    assert told == [DLedgerResponseCode.SUCCESS, DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT]


@pytest.mark.parametrize(("count", "is_taken"), [(1 << 15, True), ((1 << 15) + 1, False)])
def test_a_push_has_so_many_entries_at_most(count: int, *, is_taken: bool) -> None:
    """More would hold everybody else up."""
    [one] = put(leader(SimDisk(latency_s=(0, 0)).mount()), b"")
    entries = tuple([replace(one, index=index) for index in range(count)])
    body = encode_push(PushEntryRequest(PushType.APPEND, 1, "n0", -1, entries), group="g", remote_id="n1")
    if is_taken:
        assert len(decode_push(body)[1].entries) == count
    else:
        with pytest.raises(RemoteProtocolError, match="a batch of more than"):
            decode_push(body)


def test_the_log_of_who_leads_is_the_group_s_once_a_majority_has_it() -> None:
    """Not before: another group's log is elected where it is longer, and so many may refuse it that it is stuck."""
    store = leader(SimDisk(latency_s=(0, 0)).mount())
    put(store, b"one", b"two")
    pusher = DLedgerEntryPusher[int](store, frozenset({"n0", "n1", "n2"}), options=pusher_options(acks_flushed=False))
    pusher.handler.diverged = error = DivergedLogError(0, "another leader's differs")
    lead(store, 2)
    assert pusher.begin_leading()
    assert pusher.checker is not None
    pusher.handler.step(now=0)
    pusher.advance(now=0)
    pusher.checker.update_peer_water_mark("n1", 0)
    pusher.advance(now=0)
    assert pusher.handler.diverged is error
    pusher.checker.update_peer_water_mark("n1", 1)
    pusher.advance(now=0)
    assert pusher.handler.diverged is None


def test_whether_all_have_nearly_all_that_is_committed() -> None:
    """Who reads from any of the others would be sent back, and here again, by one that lacks what it reads."""
    store = leader(SimDisk(latency_s=(0, 0)).mount())
    pusher = DLedgerEntryPusher[int](store, frozenset({"n0", "n1", "n2"}), options=pusher_options(acks_flushed=False))
    assert not pusher.have_all_nearly_all, "it does not lead"
    put(store, *[b"x"] * 1500)
    lead(store, 2)
    assert pusher.begin_leading()
    assert pusher.checker is not None
    store.update_committed_index(2, 1400)
    pusher.checker.update_peer_water_mark("n1", 1499)
    assert not pusher.have_all_nearly_all
    pusher.checker.update_peer_water_mark("n2", 399)
    assert not pusher.have_all_nearly_all
    pusher.checker.update_peer_water_mark("n2", 400)
    assert pusher.have_all_nearly_all
