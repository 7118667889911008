"""What a TRUNCATE keeps: all that is committed, and all that leads to the leader's entry."""

import pytest

from tests.dledger.members import all_of, cut_to, follower, leader, put, take
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
