"""A start that is killed while it cuts and repairs: the next one finds what the first would have, refusing nothing."""

import pytest

from rmqha.codec.dledger_entry import INDEX_UNIT_SIZE
from tests.dledger.members import bodies_of, leader, opened, put
from tests.sim.journal import NodeDied
from tests.sim.sim_disk import SimDisk

SIZES = {"mapped_file_size_for_entry_data": 2048, "mapped_file_size_for_entry_index": 320}
KEPT = [b"kept", b"\xaa" * 1900]


async def torn(torn_at: int) -> SimDisk:
    """The last entry is the first of its file, and its data is durable; of its unit the disk took some bytes only."""
    disk = SimDisk(latency_s=(0, 0))
    store = leader(disk.mount(), **SIZES)
    put(store, *KEPT)
    assert await store.flush_in_thread()
    put(store, b"\xbb" * 1900)
    await store.data_file_list.flush_in_thread()
    unit = store.index.unit(2)
    assert unit is not None
    index_file = disk.files[min(path for path in disk.files if "/index/" in path)]
    index_file.write(unit[:torn_at], 2 * INDEX_UNIT_SIZE)
    disk.lose_power(lambda path, number, old, new: new)
    return disk


def killed_start(disk: SimDisk, *, at: int) -> bool:
    """Start, and die with the power in the middle of that call, if it is one that changes anything."""
    disk.crash_at = disk.calls + at
    try:
        opened(disk.mount(), **SIZES).close()
    except NodeDied:
        return True
    finally:
        disk.crash_at = None
    return False


@pytest.mark.parametrize("torn_at", [8, 20, 24, 28, 31])
async def test_an_entry_whose_unit_is_torn_goes_with_its_file(torn_at: int) -> None:
    """Without its last bytes a unit is one of another term, and says that there is a file which the start took away."""
    whole, killed = await torn(torn_at), 0
    before = whole.calls
    opened(whole.mount(), **SIZES).close()
    for at in range(1, whole.calls - before + 1):
        disk = await torn(torn_at)
        killed += killed_start(disk, at=at)
        again = opened(disk.mount(), **SIZES)
        assert bodies_of(again) == KEPT, f"killed at call {at}"
        again.close()
    assert killed > 5
