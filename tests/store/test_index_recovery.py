"""Whatever a start finds of the index: it is used if it is sound, else built again; the answers are always right."""

from collections.abc import Callable
from typing import Any

import pytest
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.codec.index_file import ENTRY, HEADER_SIZE, IndexHeader, IndexLayout, decode_index_header
from tests.sim.sim_disk import SimDisk, SimMount
from tests.store.helpers import put, running
from tests.store.indexing import entries_of, indexed, keyed, offsets_of

LAYOUT = IndexLayout(100, 16)


async def filled(device: SimDisk, count: int = 50, *, crash: bool = False) -> list[int]:
    """A store with four index files, the last with room."""
    async with running(device.mount(), crash=crash, max_index_num=LAYOUT.entries) as store:
        offsets = [
            result.wrote_offset for number in range(count) for result in await put(store, keyed(number, keys="k"))
        ]
        await indexed(store)
        return offsets


async def reopened(device: SimDisk, offsets: list[int], **changes: Any) -> list[str]:
    """Open it, look whether all is found, once each; returns why files were left out."""
    with capture_logs() as logs:
        async with running(device.mount(), **{"max_index_num": LAYOUT.entries, **changes}) as store:
            await indexed(store)
            assert entries_of(store) == [offset for offset in offsets for _ in range(2)]
            assert await offsets_of(store, "k") == offsets[-64:]
            assert store.index.describe() == ""
    return [log["reason"] for log in logs if log["event"] == "index_service.left_out"]


def path_of(disk: SimMount, place: int) -> str:
    return f"/store/index/{disk.listdir('/store/index')[place]}"


def overwrite(disk: SimMount, place: int, at: int, data: bytes) -> None:
    disk.open(path_of(disk, place), writable=True).pwrite([data], at)


def header_of(disk: SimMount, place: int) -> IndexHeader:
    return decode_index_header(disk.read_bytes(path_of(disk, place)))


async def test_until_it_is_read_nobody_is_told_that_there_is_no_such_message(autojump_clock: MockClock) -> None:
    """A file of 20,000,000 entries takes a minute after a crash: queries found nothing, as if nothing was missing."""
    device = SimDisk()
    offsets = await filled(device)
    async with running(device.mount(), max_index_num=LAYOUT.entries) as store:
        assert await offsets_of(store, "k") == []
        assert "is being read" in store.index.describe()
        await indexed(store)
        assert store.index.describe() == ""
        assert await offsets_of(store, "k") == offsets


async def test_a_sound_index_is_used_as_it_is(autojump_clock: MockClock) -> None:
    device = SimDisk()
    offsets = await filled(device)
    disk = device.mount()
    before = [disk.read_bytes(path_of(disk, place)) for place in range(7)]
    assert await reopened(device, offsets) == []
    disk = device.mount()
    assert [disk.read_bytes(path_of(disk, place)) for place in range(7)] == before


@pytest.mark.parametrize("place", [0, 3, 6])
async def test_missing_files_are_built_again(autojump_clock: MockClock, place: int) -> None:
    device = SimDisk()
    offsets = await filled(device)
    disk = device.mount()
    disk.unlink(path_of(disk, place))
    reasons = await reopened(device, offsets)
    assert len(reasons) == (place < 6)
    assert await reopened(device, offsets) == []


async def test_a_missing_index_is_built_again(autojump_clock: MockClock) -> None:
    device = SimDisk()
    offsets = await filled(device)
    disk = device.mount()
    for name in disk.listdir("/store/index"):
        disk.unlink(f"/store/index/{name}")
    assert await reopened(device, offsets) == []


def _change_header(**changes: int) -> Callable[[SimMount, int], None]:
    def change(disk: SimMount, place: int) -> None:
        overwrite(disk, place, 0, header_of(disk, place)._replace(**changes).encode())

    return change


DAMAGES: dict[str, Callable[[SimMount, int], None]] = {
    "zeros": lambda disk, place: overwrite(disk, place, 0, bytes(LAYOUT.file_size)),
    "noise": lambda disk, place: overwrite(disk, place, 0, b"\xa5" * LAYOUT.file_size),
    "too many entries": _change_header(index_count=17),
    "begins nowhere": _change_header(begin_phy_offset=-1),
    "ends elsewhere": _change_header(end_phy_offset=1 << 40),
    "last entry of another log": lambda disk, place: overwrite(
        disk, place, LAYOUT.entry_at(header_of(disk, place).index_count - 1), ENTRY.pack(1, 0, 0, 0)
    ),
    "slots not written": _change_header(slot_count=0),
}


@pytest.mark.parametrize("place", [0, 3, 6])
@pytest.mark.parametrize("damage", DAMAGES)
async def test_damaged_files_are_left_out_and_built_again(autojump_clock: MockClock, damage: str, place: int) -> None:
    device = SimDisk()
    offsets = await filled(device)
    DAMAGES[damage](device.mount(), place)
    await reopened(device, offsets)
    assert await reopened(device, offsets) == []


@pytest.mark.parametrize("end", [None, 0, 1 << 62])
async def test_an_only_file_that_says_it_has_no_entries_is_not_believed_where_it_ends(
    autojump_clock: MockClock, end: int | None
) -> None:
    """Its header alone would say that all before, of which it has nothing, is in the index."""
    device = SimDisk()
    offsets = await filled(device, 5)
    disk = device.mount()
    assert len(disk.listdir("/store/index")) == 1
    _change_header(index_count=1, **({} if end is None else {"end_phy_offset": end}))(disk, 0)
    await reopened(device, offsets)
    assert await reopened(device, offsets) == []


@pytest.mark.parametrize("first", [1, 2, 9])
async def test_of_a_file_that_nobody_vouches_for_the_sound_entries_are_kept(
    autojump_clock: MockClock, first: int
) -> None:
    """As a power cut leaves one: the header is there, a page of entries is not."""
    device = SimDisk()
    offsets = await filled(device)
    disk = device.mount()
    _change_header(slot_count=0)(disk, 6)
    count = header_of(disk, 6).index_count
    overwrite(disk, 6, LAYOUT.entry_at(first), bytes(LAYOUT.entry_at(count) - LAYOUT.entry_at(first)))
    await reopened(device, offsets)


async def test_files_of_another_size_are_built_again(autojump_clock: MockClock) -> None:
    device = SimDisk()
    offsets = await filled(device)
    (reason,) = await reopened(device, offsets, max_index_num=20)
    assert "maxIndexNum" in reason
    assert len(await reopened(device, offsets, max_index_num=20, max_hash_slot_num=7)) == 1


async def test_the_index_of_another_log_is_not_used(autojump_clock: MockClock) -> None:
    device, other = SimDisk(), SimDisk()
    offsets = await filled(device)
    await filled(other)
    async with running(other.mount(), max_index_num=LAYOUT.entries) as store:
        await put(store, keyed(7, topic="Other"))
        await indexed(store)
    there, here = other.mount(), device.mount()
    for name in here.listdir("/store/index"):
        here.unlink(f"/store/index/{name}")
    for name in there.listdir("/store/index"):
        file = here.create(f"/store/index/{name}", LAYOUT.file_size, sparse=True)
        file.pwrite([there.read_bytes(f"/store/index/{name}")], 0)
    await reopened(device, offsets)


async def test_damaged_links_never_make_a_query_endless_or_wrong(autojump_clock: MockClock) -> None:
    device = SimDisk()
    offsets = await filled(device)
    async with running(device.mount(), max_index_num=LAYOUT.entries) as store:
        await indexed(store)
        disk = SimMount(device, device.epoch)
        for number in range(1, 16):  # each leads to itself, and to a message that has another key
            overwrite(disk, 2, LAYOUT.entry_at(number), ENTRY.pack(107, offsets[0] + number, 0, number))
        overwrite(disk, 2, HEADER_SIZE, b"\x7f" * 400)
        assert set(await offsets_of(store, "k")) < set(offsets)
        assert await offsets_of(store, "nobody's") == []


async def test_other_names_are_left_alone(autojump_clock: MockClock) -> None:
    device = SimDisk()
    disk = device.mount()
    disk.create("/store/index/notes", 3, sparse=True)
    offsets = await filled(device)
    assert await reopened(device, offsets) == []
    assert device.mount().exists("/store/index/notes")


async def test_what_lay_behind_a_cut_of_the_log_is_not_in_the_index(autojump_clock: MockClock) -> None:
    """A power cut took messages that only the index had made durable, and others came in their place."""
    device = SimDisk()
    async with running(device.mount(), crash=True, max_index_num=1000, flush_interval_commit_log_s=1000.0) as store:
        first = (await put(store, keyed(1, keys="k")))[0].wrote_offset
        await store.flush_now(store.max_offset)
        await put(store, *[keyed(number, keys="k") for number in range(2, 9)])
        await indexed(store)
        await store.index.files[-1].commit()
    device.lose_power(lambda _path, _number, old, _new: old)
    async with running(device.mount(), max_index_num=1000) as store:
        assert store.max_offset < 400
        more = [result.wrote_offset for number in range(20, 24) for result in await put(store, keyed(number, keys="n"))]
        await indexed(store)
        assert (await offsets_of(store, "k"), await offsets_of(store, "n")) == ([first], more)
        assert entries_of(store) == [offset for offset in [first, *more] for _ in range(2)]
