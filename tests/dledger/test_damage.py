"""Whatever bytes lie in a store: a start finds at least what was committed, or refuses and changes nothing."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.errors import CorruptLogError
from tests.dledger.ledgers import blank
from tests.dledger.members import INDEX_SIZE, all_of, cut_to, follow, leader, opened, put
from tests.sim.journal import NodeDied
from tests.sim.sim_disk import SimDisk

ENTRIES = 14
DATA = "/store/dledger-n0/data"


async def made(*, committed: int) -> SimDisk:
    """14 entries, two in a data file, all durable; the process was killed."""
    disk = SimDisk(latency_s=(0, 0))
    store = leader(disk.mount())
    put(store, *(bytes([number + 1]) * 180 for number in range(ENTRIES)))
    assert await store.flush_in_thread()
    store.update_committed_index(1, committed)
    await store.persist_check_point_in_thread()
    disk.kill()
    return disk


def contents(disk: SimDisk) -> dict[str, bytes]:
    return {path: bytes(inode.cache) for path, inode in disk.files.items() if not path.endswith("/lock")}


def reopened(disk: SimDisk) -> DLedgerMmapFileStore | CorruptLogError:
    before = contents(disk)
    try:
        return opened(disk.mount())
    except CorruptLogError as error:
        assert contents(disk) == before, "it refuses, and has changed something"
        return error


@pytest.mark.parametrize("committed", [-1, 9, 13])
@pytest.mark.parametrize("at", [0, 4, 8, 15, 24, 44])
@pytest.mark.parametrize("index", [8, 9, 10, 13])
async def test_a_damaged_header(committed: int, index: int, at: int) -> None:
    disk = await made(committed=committed)
    inode = disk.files[f"{DATA}/{index // 2 * 512:020d}"]
    inode.write(b"\x7f", index % 2 * 228 + at)
    result = reopened(disk)
    assert isinstance(result, CorruptLogError)
    assert f"{DATA}/{index // 2 * 512:020d}, position {index % 2 * 228}" in str(result)
    assert "move the whole directory of this member away" in str(result)


@pytest.mark.parametrize("index", [10, 13])
async def test_an_entry_that_the_index_knows_and_no_data_file_has(index: int) -> None:
    """It was cut with all behind it: this member was elected, and what it and another had acknowledged was lost."""
    disk = await made(committed=4)
    disk.files[f"{DATA}/{index // 2 * 512:020d}"].write(bytes(228), index % 2 * 228)
    result = reopened(disk)
    assert isinstance(result, CorruptLogError)
    assert f"the index says that entry {index} is there, and was durable" in str(result)


async def test_a_damaged_header_without_a_unit() -> None:
    """Nobody had counted on it."""
    disk = await made(committed=4)
    disk.files[f"{DATA}/{5 * 512:020d}"].write(b"\x7f", 0)
    for index in range(10, ENTRIES):
        at = index * 32
        disk.files[f"/store/dledger-n0/index/{at // INDEX_SIZE * INDEX_SIZE:020d}"].write(bytes(32), at % INDEX_SIZE)
    result = reopened(disk)
    assert isinstance(result, DLedgerMmapFileStore)
    assert result.ledger_end_index == 9


@pytest.mark.parametrize("at", [0, 3, 4, 8, 15, 23, 24])
async def test_a_first_file_that_does_not_begin_with_what_the_index_has_there(at: int) -> None:
    """It is not scanned. A leader whose log had no beginning had the others drop what they had."""
    disk = await made(committed=13)
    disk.files[f"{DATA}/{0:020d}"].write(b"\x03", at)
    result = reopened(disk)
    assert isinstance(result, CorruptLogError)
    assert f"{DATA}/{0:020d}" in str(result)
    assert "the log goes on up to index 13" in str(result)
    assert "move the whole directory of this member away" in str(result)


async def test_a_file_that_becomes_the_first_and_does_not_begin_so() -> None:
    """The log begins where it did, until one is found that does."""
    disk = await made(committed=13)
    disk.files[f"{DATA}/{512:020d}"].write(bytes(8), 0)
    store = opened(disk.mount())
    assert await store.data_file_list.delete_expired_file_by_time(lambda _path: True, kept_from=512) == 1
    with pytest.raises(CorruptLogError):
        store.revise_ledger_begin_index()
    assert store.ledger_begin_index == 0
    assert await store.data_file_list.delete_expired_file_by_time(lambda _path: True, kept_from=1024) == 1
    store.revise_ledger_begin_index()
    assert store.ledger_begin_index == 4


async def test_an_entry_that_became_a_blank() -> None:
    """DLedger goes on in the next file, finds that the chain is broken, and cuts."""
    disk = await made(committed=13)
    disk.files[f"{DATA}/{5 * 512:020d}"].write(blank(300), 228)
    result = reopened(disk)
    assert isinstance(result, CorruptLogError)
    assert "an entry's index is 12, behind one of index 10" in str(result)


async def test_a_missing_data_file() -> None:
    disk = await made(committed=13)
    del disk.files[f"{DATA}/{5 * 512:020d}"]
    result = reopened(disk)
    assert isinstance(result, CorruptLogError)
    assert "00000000000000002560 is missing between" in str(result)
    for path in [path for path in disk.files if path.startswith(DATA)]:
        del disk.files[path]
    result = reopened(disk)
    assert isinstance(result, CorruptLogError)
    assert f"there is no data file in {DATA}, but the checkpoint says that index 13 was committed" in str(result)


@pytest.mark.parametrize("lost", ["all", "last"])
async def test_a_lost_index_is_made_again(lost: str) -> None:
    """All of it; or its last file, with the unit of the last entry that was committed."""
    disk = await made(committed=13)
    before = contents(disk)
    first = ENTRIES * 32 // INDEX_SIZE * INDEX_SIZE if lost == "last" else 0
    for offset in range(first, ENTRIES * 32, INDEX_SIZE):
        del disk.files[f"/store/dledger-n0/index/{offset:020d}"]
    store = reopened(disk)
    assert isinstance(store, DLedgerMmapFileStore)
    assert store.ledger_end_index == 13
    assert [entry.index for entry in all_of(store)][-4:] == [10, 11, 12, 13]
    after = contents(disk)
    for path, data in before.items():
        if "/index/" in path and int(path.rpartition("/")[2]) >= INDEX_SIZE:
            assert after[path] == data


@pytest.mark.parametrize("damage", [bytes(32), b"\xff" * 32, bytes(7) + b"\x01"])
@pytest.mark.parametrize("units", [[10], [10, 11, 12], [8, 11]])
async def test_a_damaged_unit_behind_the_checkpoint_costs_no_entry(units: list[int], damage: bytes) -> None:
    """A later one proves that the data was durable: it cut all that was behind it, acknowledged or not."""
    disk = await made(committed=4)
    before = contents(disk)
    for index in units:
        at = index * 32
        disk.files[f"/store/dledger-n0/index/{at // INDEX_SIZE * INDEX_SIZE:020d}"].write(damage, at % INDEX_SIZE)
    store = reopened(disk)
    assert isinstance(store, DLedgerMmapFileStore)
    assert (store.ledger_end_index, store.flushed_index) == (13, 13)
    store.close()
    after = contents(disk)
    assert {path: data for path, data in after.items() if "/index/" in path} == {
        path: data for path, data in before.items() if "/index/" in path
    }


@pytest.mark.parametrize("size", [0, 1, 12, 24, 31])
async def test_a_unit_that_was_written_in_part_proves_nothing(size: int) -> None:
    """The write failed, and so the entry was acknowledged by nobody: of the term alone its last byte was missing."""
    disk = await made(committed=4)
    inode = disk.files[f"/store/dledger-n0/index/{13 * 32 // INDEX_SIZE * INDEX_SIZE:020d}"]
    inode.write(bytes(32 - size), 13 * 32 % INDEX_SIZE + size)
    store = reopened(disk)
    assert isinstance(store, DLedgerMmapFileStore)
    assert store.ledger_end_index == 12


async def test_without_a_unit_behind_it_nothing_proves_an_entry() -> None:
    """Its body may be torn."""
    disk = await made(committed=4)
    for index in (9, 11, 12, 13):
        at = index * 32
        disk.files[f"/store/dledger-n0/index/{at // INDEX_SIZE * INDEX_SIZE:020d}"].write(bytes(32), at % INDEX_SIZE)
    store = reopened(disk)
    assert isinstance(store, DLedgerMmapFileStore)
    assert store.ledger_end_index == 10


@given(st.integers(0, 2**32), st.sampled_from([-1, 6, 13]))
async def test_any_damage(seed: int, committed: int) -> None:
    chance = random.Random(seed)
    disk = await made(committed=committed)
    for _ in range(chance.randrange(1, 6)):
        path = chance.choice([path for path in disk.files if not path.endswith("/lock")])
        inode = disk.files[path]
        at = chance.randrange(inode.size)
        data = chance.choice([chance.randbytes(8), bytes(64), b"\xff" * 8, blank(chance.randrange(-9, 600))])
        if "checkpoint" not in path:
            inode.write(data[: inode.size - at], at)
    store = reopened(disk)
    if isinstance(store, DLedgerMmapFileStore):
        assert store.ledger_end_index >= committed
        store.close()


@pytest.mark.parametrize("committed", [-1, 9, 11])
async def test_a_last_data_file_that_is_missing(committed: int) -> None:
    """The checkpoint is older than its entries, which were durable, and acknowledged: their units tell of them."""
    disk = await made(committed=committed)
    del disk.files[f"{DATA}/{12 // 2 * 512:020d}"]
    result = reopened(disk)
    assert isinstance(result, CorruptLogError)
    assert f"{3072:020d} is missing behind {DATA}/{2560:020d}, and the index says that entry 12 is there" in str(result)


async def test_data_files_that_were_cut_are_not_missing() -> None:
    """Whatever call of the cut was the last one before the power went."""
    for calls in range(1, 60):
        disk = await made(committed=5)
        store = opened(disk.mount(), term=2)
        entry = store.get(6)
        follow(store, 2)
        disk.crash_at = disk.calls + calls
        try:
            cut_to(store, entry)
        except NodeDied:
            disk.power_cut()
            result = reopened(disk)
            assert isinstance(result, DLedgerMmapFileStore), f"killed at call {calls}: {result}"
            assert result.ledger_end_index >= 6
        else:
            assert calls > 10, "nothing was tried"
            return
    raise AssertionError("the cut takes more calls than that")
