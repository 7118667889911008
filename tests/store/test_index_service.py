"""The index in life: every key of every message, once; nothing else of the broker ever waits for it."""

import errno
from random import Random

import pytest
import trio
from trio.testing import MockClock

from rmqha.codec.hashing import key_hash
from rmqha.codec.index_file import decode_index_header
from rmqha.codec.record.dispatch import DispatchRequest
from rmqha.codec.record.layout import SysFlag
from rmqha.errors import StoreWriteError
from rmqha.store import index_file
from rmqha.store.index_keys import gather_keys, has_key
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import Clock, message, put, running
from tests.store.indexing import entries_of, headers_of, indexed, keyed, offsets_of, uniq_key


async def test_messages_are_found_by_each_of_their_keys(autojump_clock: MockClock) -> None:
    async with running(SimDisk().mount()) as store:
        first, second = [
            result.wrote_offset for result in await put(store, keyed(1, keys="a  b"), keyed(2, keys="b a"))
        ]
        other = (await put(store, keyed(3, topic="Other", keys="a")))[0].wrote_offset
        await indexed(store)
        assert await offsets_of(store, "a") == await offsets_of(store, "b") == [first, second]
        assert await offsets_of(store, uniq_key(2)) == [second]
        assert await offsets_of(store, "a", topic="Other") == [other]
        assert await offsets_of(store, "") == await offsets_of(store, "c") == []
        assert entries_of(store) == [first] * 3 + [second] * 3 + [other] * 2


async def test_prepared_is_indexed_and_rollback_is_not(autojump_clock: MockClock) -> None:
    flags = (SysFlag.TRANSACTION_PREPARED, SysFlag.TRANSACTION_ROLLBACK, SysFlag.TRANSACTION_COMMIT)
    async with running(SimDisk().mount()) as store:
        prepared, _, commit = [
            result.wrote_offset for result in await put(store, *[keyed(1, sys_flag=flag) for flag in flags])
        ]
        await indexed(store)
        assert entries_of(store) == [prepared, commit]


async def test_messages_without_keys_make_no_file(autojump_clock: MockClock) -> None:
    disk = SimDisk().mount()
    async with running(disk) as store:
        await put(store, *[message()] * 20)
        await indexed(store)
    assert disk.listdir("/store/index") == []


async def test_without_message_index_enable_nothing_is_built(autojump_clock: MockClock) -> None:
    disk = SimDisk().mount()
    async with running(disk, message_index_enable=False) as store:
        await put(store, keyed(1))
        await trio.sleep(60)
        assert await offsets_of(store, uniq_key(1)) == []
    assert disk.listdir("/store/index") == []


async def test_a_full_file_is_followed_by_another(autojump_clock: MockClock) -> None:
    """As RocketMQ's: one entry fewer than maxIndexNum, and the next begins where the last ends."""
    device = SimDisk()
    async with running(device.mount(), max_index_num=8) as store:
        offsets = [result.wrote_offset for number in range(20) for result in await put(store, keyed(number, keys="k"))]
        await indexed(store)
        assert [header.index_count for header in headers_of(store)] == [8, 8, 8, 8, 8, 6]
        assert entries_of(store) == [offset for offset in offsets for _ in range(2)]
        assert await offsets_of(store, "k") == offsets
        assert await offsets_of(store, "k", max_num=3) == offsets[-3:]
    disk = device.mount()
    names = disk.listdir("/store/index")
    assert names == sorted(set(names))
    first = decode_index_header(disk.read_bytes(f"/store/index/{names[0]}"))
    assert (first.index_count, first.slot_count > 0, first.begin_phy_offset) == (8, True, offsets[0])


async def test_slots_that_are_written_and_read_in_pieces_are_where_they_belong(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a full file those in the file are used, and of one that is not, after a stop, those that were read of it."""
    monkeypatch.setattr(index_file, "_SLOTS_AT_ONCE", 7)
    device = SimDisk()
    async with running(device.mount(), max_hash_slot_num=40, max_index_num=16) as store:
        offsets = [result.wrote_offset for number in range(25) for result in await put(store, keyed(number))]
        await indexed(store)
        assert [await offsets_of(store, uniq_key(number)) for number in range(25)] == [[offset] for offset in offsets]
    async with running(device.mount(), max_hash_slot_num=40, max_index_num=16) as store:
        await indexed(store)
        assert [header.index_count for header in headers_of(store)] == [16, 11]
        assert [await offsets_of(store, uniq_key(number)) for number in range(25)] == [[offset] for offset in offsets]


async def test_a_query_takes_the_newest_and_heeds_the_times(autojump_clock: MockClock) -> None:
    clock = Clock()
    begun_ms = clock.now_ms
    async with running(SimDisk().mount(), now_ms=clock, max_index_num=16) as store:
        offsets = []
        for number in range(100):
            clock.now_ms = begun_ms + 100 * number
            offsets.append((await put(store, keyed(number, keys="k")))[0].wrote_offset)
        await indexed(store)
        assert await offsets_of(store, "k") == offsets[-64:]
        assert await offsets_of(store, "k", max_num=1000) == offsets[-64:]
        assert await offsets_of(store, "k", max_num=0) == await offsets_of(store, "k", max_num=-1) == []
        times = (begun_ms + 1050, begun_ms + 1500)
        assert await offsets_of(store, "k", times=times) == offsets[11:16]
        assert await offsets_of(store, "k", times=(begun_ms + 9900, begun_ms + 9900)) == offsets[-1:]
        assert await offsets_of(store, "k", times=(begun_ms, begun_ms)) == offsets[:1]
        assert await offsets_of(store, "k", times=(begun_ms + 9901, 1 << 62)) == []


async def test_keys_of_one_hash_are_told_apart(autojump_clock: MockClock) -> None:
    assert key_hash("TopicTest", "Aa") == key_hash("TopicTest", "BB")
    async with running(SimDisk().mount()) as store:
        first, second = [result.wrote_offset for result in await put(store, keyed(1, keys="Aa"), keyed(2, keys="BB"))]
        await indexed(store)
        assert (await offsets_of(store, "Aa"), await offsets_of(store, "BB")) == ([first], [second])


async def test_long_keys_and_many_are_indexed_too(autojump_clock: MockClock) -> None:
    many = " ".join(f"key-{number}" for number in range(400))
    async with running(SimDisk().mount(), mapped_file_size_commit_log=1 << 16, max_index_num=4000) as store:
        (result,) = await put(store, keyed(1, keys=many))
        russian = (await put(store, keyed(2, keys="ключ " + "x" * 300)))[0].wrote_offset
        await indexed(store)
        assert len(entries_of(store)) == 401 + 3
        assert await offsets_of(store, "key-399") == [result.wrote_offset]
        assert await offsets_of(store, "ключ") == await offsets_of(store, "x" * 300) == [russian]


async def test_it_goes_on_after_a_clean_stop_and_after_a_kill(autojump_clock: MockClock) -> None:
    """Each key once, whatever is dispatched again."""
    device, offsets = SimDisk(), list[int]()
    for number in range(12):
        async with running(device.mount(), crash=number % 3 > 0, max_index_num=64) as store:
            for place in range(7):
                offsets += [result.wrote_offset for result in await put(store, keyed(10 * number + place, keys="k"))]
            await indexed(store)
            assert entries_of(store) == [offset for offset in offsets for _ in range(2)]
            assert await offsets_of(store, "k") == offsets[-64:]
            if number % 3 == 1:
                await trio.sleep(30)  # a part of it is durable


@pytest.mark.parametrize("seed", range(30))
async def test_after_a_power_cut_everything_is_found_again(autojump_clock: MockClock, seed: int) -> None:
    device = SimDisk(Random(seed))
    async with running(device.mount(), crash=True, max_index_num=32) as store:
        for number in range(40):
            await put(store, keyed(number, keys="k"))
            await trio.sleep(device.random.choice((0.0, 0.3, 12.0)))
    device.power_cut()
    async with running(device.mount(), max_index_num=32) as store:
        more = (await put(store, keyed(1000, keys="k")))[0].wrote_offset
        await indexed(store)
        there = list(dict.fromkeys(entries_of(store)))
        assert entries_of(store) == [offset for offset in there for _ in range(2)]
        assert there[-1] == more
        assert len(there) == sum(store.get_max_offset_in_queue("TopicTest", queue_id) for queue_id in range(8))
        assert await offsets_of(store, "k") == there[-64:]


async def test_files_go_when_the_log_has_none_of_their_messages(autojump_clock: MockClock) -> None:
    disk = SimDisk().mount()
    async with running(disk, max_index_num=8) as store:
        for number in range(200):
            await put(store, keyed(number))
        await indexed(store)
        before = len(store.index.files)
        for _ in range(4):
            await store.commit_log.files.delete_first_in_thread()
        await trio.sleep(30)
        assert 1 < len(store.index.files) < before - 3
        assert headers_of(store)[0].end_phy_offset >= store.min_offset
        assert len(disk.listdir("/store/index")) == len(store.index.files)
        assert await offsets_of(store, uniq_key(0)) == []
        assert len(await offsets_of(store, uniq_key(199))) == 1


async def test_a_file_stays_for_those_of_its_messages_that_the_log_has(autojump_clock: MockClock) -> None:
    """A segment goes in the midst of what is in one file: the rest of its messages was not found by their keys."""
    async with running(SimDisk().mount(), max_index_num=11) as store:
        written = [(await put(store, keyed(number)))[0].wrote_offset for number in range(60)]
        await indexed(store)
        await store.commit_log.files.delete_first_in_thread()
        await trio.sleep(30)
        first = headers_of(store)[0]
        assert first.begin_phy_offset < store.min_offset <= first.end_phy_offset
        for number, offset in enumerate(written):
            if offset >= store.min_offset:
                assert await offsets_of(store, uniq_key(number)) == [offset]


async def test_a_file_that_is_read_while_it_is_deleted_does_not_stay_open(autojump_clock: MockClock) -> None:
    """Nobody else would close it: what it takes of the disk would be gone until the broker stops."""
    async with running(SimDisk().mount(), max_index_num=8) as store:
        await put(store, *[keyed(number) for number in range(20)])
        await indexed(store)
        file = store.index.files[0]
        async with trio.open_nursery() as nursery:
            nursery.start_soon(file.remove)
            await trio.testing.wait_all_tasks_blocked()
            assert next(file.last_entries())[1] > 0
        assert (file.held, store.disk.exists(file.path)) == (None, False)
        del store.index.files[0]


async def test_a_file_stays_while_the_log_has_its_last_message(autojump_clock: MockClock) -> None:
    """Each message has a file of its own here, also the first one that the log still has."""
    async with running(SimDisk().mount(), max_index_num=2) as store:
        written = [(await put(store, keyed(number)))[0].wrote_offset for number in range(60)]
        await indexed(store)
        await store.commit_log.files.delete_first_in_thread()
        assert store.min_offset in written
        await trio.sleep(30)
        assert headers_of(store)[0].end_phy_offset == store.min_offset
        for number, offset in enumerate(written):
            assert await offsets_of(store, uniq_key(number)) == [offset] * (offset >= store.min_offset)


async def test_a_full_disk_holds_up_the_index_alone(autojump_clock: MockClock) -> None:
    disk = SimDisk().mount()
    async with running(disk) as store:
        await put(store, keyed(1))
        await indexed(store)
        really_append = type(store.index.files[-1]).append
        refused = StoreWriteError(OSError(errno.ENOSPC, "full"), operation="pwrite", path="index")

        def refuse(*_: object) -> int:
            raise refused

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(type(store.index.files[-1]), "append", refuse)
            second = (await put(store, keyed(2)))[0].wrote_offset
            await trio.sleep(5)
            assert "tries again" in store.index.describe()
            assert (store.running_flags.dispatch_error, store.get_max_offset_in_queue("TopicTest", 0)) == (None, 2)
        assert really_append is type(store.index.files[-1]).append
        await indexed(store)
        assert await offsets_of(store, uniq_key(2)) == [second]
        assert store.index.describe() == ""


async def test_a_disk_that_is_full_behind_some_of_a_message_s_keys_has_none_indexed_twice(
    autojump_clock: MockClock,
) -> None:
    """Its keys lie in several files: all that have been written count, not those of the last file alone."""
    keys = " ".join(f"key-{number}" for number in range(20))
    async with running(SimDisk().mount(), max_index_num=8) as store:
        seal = index_file.IndexFile.seal

        async def seal_the_first(file: index_file.IndexFile) -> None:
            if len(store.index.files) > 1:
                raise StoreWriteError(OSError(errno.ENOSPC, "full"), operation="pwrite", path="index")
            await seal(file)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(index_file.IndexFile, "seal", seal_the_first)
            (result,) = await put(store, keyed(1, keys=keys))
            await trio.sleep(5)
            assert [header.index_count for header in headers_of(store)] == [8, 8]
            assert "tries again" in store.index.describe()
        await indexed(store)
        assert entries_of(store) == [result.wrote_offset] * 21
        assert await offsets_of(store, "key-0") == await offsets_of(store, "key-19") == [result.wrote_offset]


async def test_a_broken_disk_ends_the_index_and_nothing_else(autojump_clock: MockClock) -> None:
    device = SimDisk()
    async with running(device.mount()) as store:
        await put(store, keyed(1))
        await indexed(store)
        with pytest.MonkeyPatch.context() as patched:
            broken = StoreWriteError(OSError(errno.EIO, "broken"), operation="fdatasync", path="index")

            async def refuse(*_: object) -> None:
                raise broken

            patched.setattr(type(store.index.files[-1]), "commit", refuse)
            await put(store, keyed(2))
            await trio.sleep(30)
        assert "not built any more" in store.index.describe()
        await put(store, keyed(3))
        assert store.running_flags.dispatch_error is None
        assert len(await offsets_of(store, uniq_key(1))) == 1
    async with running(device.mount()) as store:
        await indexed(store)
        assert len(entries_of(store)) == 3


async def test_rounds_that_come_too_fast_are_read_from_the_log(autojump_clock: MockClock) -> None:
    async with running(SimDisk().mount(), max_index_num=100_000) as store:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr("rmqha.store.index_service._QUEUED_MAX", 3)
            offsets = [result.wrote_offset for number in range(50) for result in await put(store, keyed(number))]
            await indexed(store)
        assert entries_of(store) == offsets


async def test_a_log_that_begins_anew_has_an_index_of_its_own(autojump_clock: MockClock) -> None:
    async with running(SimDisk().mount(), is_slave=True) as store:
        store.start_at(8192)
        await indexed(store)
        assert (store.index.files, store.index.position) == ([], 8192)


def test_keys_come_a_millisecond_s_work_at_a_time() -> None:
    """A client's message may have 16,000 keys, or one of 32 KB, and a round a thousand such messages."""
    many = _request(100, keys=b" ".join([b"k"] * 16_000))
    long = [_request(200 + number, uniq_key=b"k" * 32_000) for number in range(5)]
    pieces = list(gather_keys([many, *long], after=100, skip=7))
    assert sum(len(piece.keys) for piece in pieces) == 16_000 - 7 + 5
    assert max(len(piece.keys) for piece in pieces) == 1024
    assert max(sum(map(len, piece.keys)) for piece in pieces) < 16_384 + 32_000


def _request(offset: int, *, uniq_key: bytes = b"", keys: bytes = b"") -> DispatchRequest:
    return DispatchRequest("T", 0, offset, 100, 0, 1, 0, 0, uniq_key, keys)


@pytest.mark.parametrize(
    ("keys", "asked", "has"),
    [
        ("a b", "b", True),
        ("ab", "b", False),
        ("a b", "a b", False),
        ("a", "", False),
        ("", "U", True),
        ("ключ", "ключ", True),
    ],
)
def test_a_key_is_a_whole_word(keys: str, asked: str, has: bool) -> None:
    assert has_key(_request(0, uniq_key=b"U", keys=keys.encode()), asked) is has


@pytest.mark.parametrize("keys", ["Aa", "Aa BB", "BB Aa"])
async def test_a_write_that_failed_cuts_no_chain(autojump_clock: MockClock, keys: str) -> None:
    """The slots change before the entries are written: left so, the next entry would lead to itself.

    So it would if several entries of one slot were taken back in another order than the last one first.
    """
    async with running(SimDisk().mount()) as store:
        first = (await put(store, keyed(1, keys="Aa")))[0].wrote_offset
        await indexed(store)

        def refuse(_fields: list[int]) -> bytes:
            raise StoreWriteError(OSError(errno.ENOSPC, "full"), operation="pwrite", path="index")

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(index_file, "pack_entries", refuse)
            second = (await put(store, keyed(2, keys=keys)))[0].wrote_offset
            await trio.sleep(5)
            assert await offsets_of(store, "Aa") == [first]
        await indexed(store)
        assert await offsets_of(store, "Aa") == [first, second]


async def test_the_checkpoint_vouches_for_no_file_without_its_slots(autojump_clock: MockClock) -> None:
    """A RocketMQ broker that goes on after a crash believes it, and would find nothing in such a file."""
    clock = Clock()
    async with running(SimDisk().mount(), now_ms=clock, max_index_num=11) as store:
        for number in range(25):
            clock.now_ms += 1000
            await put(store, keyed(number))
        await indexed(store)
        await trio.sleep(60)
        ends_ms = [header.end_timestamp_ms for header in headers_of(store)]
        assert [file.is_sealed for file in store.index.files] == [True, True, False]
        assert ends_ms[1] < ends_ms[2]
        assert store.index.durable_timestamp_ms == ends_ms[1]
