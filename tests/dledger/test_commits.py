"""How far a log is committed, and where that is: the two are told together."""

from tests.dledger.members import leader, put
from tests.sim.sim_disk import SimDisk


async def test_of_an_entry_that_cannot_be_placed_no_commit_is_noted() -> None:
    """A file of the index is not to be had at present; a broker waits for the place, and so the next look tells it."""
    store = leader(SimDisk(latency_s=(0, 0)).mount())
    entries = put(store, *(bytes([number]) for number in range(15)))
    assert await store.flush_in_thread()
    assert store.update_committed_index(1, 1)
    units = store.index_file_list.mapped_files
    away = units.pop(0)
    assert not store.update_committed_index(1, 4)
    assert (store.committed_index, store.committed_pos) == (1, entries[2].pos)
    units.insert(0, away)
    assert store.update_committed_index(1, 4)
    assert (store.committed_index, store.committed_pos) == (4, entries[5].pos)
