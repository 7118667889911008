"""A unit of the index that is damaged is made again of its entry, wherever in the log that is."""

import pytest

from rmqha.codec.dledger_entry import INDEX_UNIT_SIZE
from tests.dledger.ledgers import INDEX
from tests.dledger.members import INDEX_SIZE, all_of, leader, opened, put
from tests.sim.sim_disk import SimDisk


@pytest.mark.parametrize("index", [0, 1, 4])
@pytest.mark.parametrize("damage", [b"\x55" * INDEX_UNIT_SIZE, bytes(INDEX_UNIT_SIZE)], ids=["other", "zeros"])
async def test_a_damaged_unit_before_a_good_one_is_made_again(index: int, damage: bytes) -> None:
    """The entry was durable before any later unit was written: the member starts, and lacks nothing."""
    disk = SimDisk(latency_s=(0, 0))
    store = leader(disk.mount())
    put(store, *(bytes([number]) for number in range(6)))
    entries = all_of(store)
    await store.shutdown()
    position = index * INDEX_UNIT_SIZE
    file = disk.mount().open(f"{INDEX}/{position // INDEX_SIZE * INDEX_SIZE:020d}", writable=True)
    file.pwrite([damage], position % INDEX_SIZE)
    file.sync()
    again = opened(disk.mount())
    assert (again.ledger_begin_index, all_of(again)) == (0, entries)
