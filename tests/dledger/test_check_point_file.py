"""CheckPointFile: what it says is what its file says, also after a write that failed."""

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from rmqha.codec.dledger_properties import LedgerCheckpoint
from rmqha.dledger.check_point_file import CheckPointFile
from rmqha.dledger.dledger_exception import DLedgerException, DLedgerResponseCode
from rmqha.errors import StoreWriteError
from tests.sim.sim_disk import SimDisk

NEW = LedgerCheckpoint(9, 7)


@pytest.fixture
def sim() -> SimDisk:
    disk = SimDisk(latency_s=(0, 0))
    disk.mount().makedirs("/store")
    return disk


async def test_one_that_could_not_be_written_is_tried_again(sim: SimDisk) -> None:
    disk = sim.mount()
    file = CheckPointFile(disk, "/store")
    sim.faults.full = True
    with pytest.raises(StoreWriteError):
        await file.persist_in_thread(NEW)
    with pytest.raises(StoreWriteError):
        file.persist(NEW)
    sim.faults.full = False
    await file.persist_in_thread(NEW)
    assert CheckPointFile(disk, "/store").load() == NEW


async def test_a_write_that_failed_in_a_thread_is_over(sim: SimDisk) -> None:
    """A follower far behind that had too little space for a moment begins anew once there is some."""
    file = CheckPointFile(sim.mount(), "/store")
    sim.faults.full = True
    with pytest.raises(StoreWriteError):
        await file.persist_in_thread(NEW)
    sim.faults.full = False
    file.forget_log((2, 9), index_proves=True)
    assert file.durable.vote_floor == (2, 9)


def test_only_a_lack_of_space_lets_a_log_be_dropped_later(sim: SimDisk) -> None:
    file = CheckPointFile(sim.mount(), "/store")
    file.persist(NEW)
    sim.faults.full = True
    with pytest.raises(DLedgerException, match="not dropped yet") as raised:
        file.forget_log((2, 9), index_proves=True)
    assert raised.value.code is DLedgerResponseCode.DISK_FULL
    sim.faults.full, sim.faults.read_only = False, True
    with pytest.raises(StoreWriteError):
        file.forget_log((2, 9), index_proves=True)
    assert file.durable == NEW
    sim.faults.read_only = False
    file.forget_log((2, 9), index_proves=True)
    forgotten = LedgerCheckpoint(index_proves=True, vote_floor=(2, 9), cut_from=0)
    assert CheckPointFile(sim.mount(), "/store").load() == forgotten


async def test_what_is_forgotten_is_not_put_back_by_a_thread_that_writes(
    sim: SimDisk, autojump_clock: MockClock
) -> None:
    """Both have one temporary file, too: where they met, a healthy disk was taken for a failed one."""
    file = CheckPointFile(sim.mount(), "/store")
    sim.faults.hung_until = trio.current_time() + 4
    async with trio.open_nursery() as nursery:
        nursery.start_soon(file.persist_in_thread, NEW)
        await wait_all_tasks_blocked()
        with pytest.raises(DLedgerException, match="not dropped yet") as raised:
            file.forget_log((2, 9), index_proves=True)
        assert raised.value.code is DLedgerResponseCode.DISK_FULL
    assert file.durable == NEW
    file.forget_log((2, 9), index_proves=True)
    assert CheckPointFile(sim.mount(), "/store").load().vote_floor == (2, 9)
