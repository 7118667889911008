"""What a TRUNCATE keeps: all that is committed, and all that leads to the leader's entry."""

import pytest

from rmqha.dledger.dledger_exception import DLedgerException
from tests.dledger.ledgers import DATA
from tests.dledger.members import DATA_SIZE, all_of, cut_to, follower, leader, put, take
from tests.sim.sim_disk import SimDisk

ENTRIES = put(leader(SimDisk(latency_s=(0, 0)).mount()), *(bytes([number]) * 150 for number in range(9)))


@pytest.mark.parametrize("here", [1, 2, 3])
def test_a_leader_whose_log_begins_right_behind_this_one_s_end_goes_on_with_it(here: int) -> None:
    """It has deleted what it has committed, and asks for its first entry, of the term of the last one here."""
    store = follower(SimDisk(latency_s=(0, 0)).mount())
    cut_to(store, ENTRIES[0])
    for entry in ENTRIES[1:here]:
        take(store, entry)
    store.update_committed_index(1, here - 1)
    assert cut_to(store, ENTRIES[here]) == here
    assert all_of(store) == ENTRIES[: here + 1]
    assert (store.ledger_begin_index, store.committed_index) == (0, here - 1)


def test_who_begins_anew_and_fails_has_nothing() -> None:
    """What it had is gone: it answers for none of it, and votes by what it had all the same."""
    mount = SimDisk(latency_s=(0, 0)).mount()
    store = follower(mount)
    cut_to(store, ENTRIES[0])
    for entry in ENTRIES[1:3]:
        take(store, entry)
    store.update_committed_index(1, 1)
    first = ENTRIES[6]
    mount.create(f"{DATA}/{first.pos // DATA_SIZE * DATA_SIZE:020d}", DATA_SIZE, sparse=True)
    with pytest.raises(DLedgerException, match="create failed"):
        cut_to(store, first)
    state = store.member_state
    ends = (store.ledger_begin_index, store.ledger_end_index, store.ledger_end_term, store.committed_index)
    assert ends == (-1, -1, -1, -1)
    assert (store.committed_pos, store.flushed_index) == (-1, -1)
    assert (state.ledger_end_index, state.ledger_end_term, state.vote_floor) == (-1, -1, (1, 2))
