"""MmapFileList and MultiPathMmapFileList: files of one length, in one directory or in several."""

import errno
import os
from collections.abc import Set as AbstractSet

import pytest
import trio
import trio.testing

from rmqha.dledger.mmap_file_list import MmapFileList
from rmqha.dledger.multi_path_mmap_file_list import MultiPathMmapFileList
from rmqha.errors import CorruptLogError, StoreWriteError
from rmqha.store.open_files import OpenFiles
from tests.dledger.ledgers import blank, put_file
from tests.sim.sim_disk import SimDataFile, SimDisk, SimMount

SIZE = 256


class LackingMount(SimMount):
    """Below one directory no file can be made."""

    lacking: str | tuple[str, ...] = "/none"
    error = errno.ENOSPC

    def create(self, path: str, size: int, *, sparse: bool = False) -> SimDataFile:
        if path.startswith(self.lacking):
            raise StoreWriteError(OSError(self.error, os.strerror(self.error)), operation="create", path=path)
        return super().create(path, size, sparse=sparse)


DIRECTORY = "/data"


@pytest.fixture
def sim() -> SimDisk:
    return SimDisk(latency_s=(0, 0))


@pytest.fixture
def mount(sim: SimDisk) -> SimMount:
    return sim.mount()


def list_of(mount: SimMount) -> MmapFileList:
    return MmapFileList(mount, DIRECTORY, mapped_file_size=SIZE, open_files=OpenFiles(), size_key="theSize")


def filled(mount: SimMount, *sizes: int) -> MmapFileList:
    files = list_of(mount)
    for size in sizes:
        files.append(b"\x11" * size)
    return files


def offsets_of(files: MmapFileList) -> list[int]:
    return [file.file_from_offset for file in files.mapped_files]


class TestAppend:
    """Seed checklist: preAppend(len, useBlank), append(), wrotePosition, the offset returned (spec: dledger §2.5)."""

    def test_one_behind_the_other(self, mount: SimMount) -> None:
        files = list_of(mount)
        assert [files.append(b"x" * 100), files.append(b"y" * 100)] == [0, 100]
        assert (files.max_wrote_position, files.min_offset) == (200, 0)
        assert bytes(files.get_data(90, 20) or b"") == b"x" * 10 + b"y" * 10

    async def test_what_is_appended_is_read_before_it_is_durable(self, sim: SimDisk, mount: SimMount) -> None:
        """Seed checklist: appendMessage(data, offset, length), mapped buffer, page cache (spec: dledger §1.5)."""
        files = filled(mount, 100)
        file = files.mapped_files[0]
        file.append_message(memoryview(b"--yes--")[2:5])
        assert (file.wrote_position, bytes(file.view()[100:104])) == (103, b"yes\0")
        inode = sim.files[file.path]
        assert (bytes(inode.durable[100:103]), files.flushed_where) == (bytes(3), 0)
        await files.flush_in_thread()
        assert (bytes(inode.durable[100:103]), files.flushed_where) == (b"yes", 103)

    @pytest.mark.parametrize(("size", "at"), [(148, 100), (149, 256), (248, 256)])
    def test_at_least_a_blank_remains(self, mount: SimMount, size: int, at: int) -> None:
        files = filled(mount, 100)
        assert files.next_position(size) == at
        assert files.pre_append(size) == at
        assert files.append(b"z" * size) == at

    def test_the_rest_of_a_file_is_a_blank(self, mount: SimMount) -> None:
        files = filled(mount, 100, 200)
        first, second = files.mapped_files
        assert bytes(first.view()[100:]) == blank(156).ljust(156, b"\0")
        assert (first.is_full, second.wrote_position) == (True, 200)

    def test_without_blanks_a_file_is_filled(self, mount: SimMount) -> None:
        files = list_of(mount)
        places = [files.append(b"u" * 32, use_blank=False) for _ in range(10)]
        assert places == [32 * number for number in range(10)]
        assert offsets_of(files) == [0, 256]

    def test_a_file_that_cannot_be_made_leaves_the_list_as_it_was(self, sim: SimDisk, mount: SimMount) -> None:
        files = filled(mount, 200)
        sim.faults.full = True
        for _ in range(2):
            with pytest.raises(StoreWriteError):
                files.append(b"x" * 100)
            assert files.max_wrote_position == 200
        sim.faults.full = False
        assert files.append(b"x" * 100) == 256

    def test_get_data_gives_only_what_is_written(self, mount: SimMount) -> None:
        files = filled(mount, 100)
        assert files.get_data(90, 11) is None
        assert files.get_data(-1, 1) is None
        assert files.get_data(256, 1) is None
        assert len(files.get_data(90, 10) or b"") == 10


class TestLoad:
    def test_files_are_taken_as_full(self, mount: SimMount) -> None:
        filled(mount, 200, 200, 200)
        files = list_of(mount)
        files.load()
        files.check_self()
        assert offsets_of(files) == [0, 256, 512]
        assert files.max_wrote_position == 768

    def test_a_foreign_file_a_wrong_length_and_a_gap_stop_the_start(self, mount: SimMount) -> None:
        """Seed checklist: load failure exits (spec: dledger §1.1, §1.7)."""
        put_file(mount, 0, b"x", directory=DIRECTORY, size=100)
        with pytest.raises(CorruptLogError, match=r"100 bytes, but 256 are configured \(theSize\)"):
            list_of(mount).load()
        mount.unlink(f"{DIRECTORY}/{0:020d}")
        put_file(mount, 0, b"", directory=DIRECTORY, size=SIZE)
        put_file(mount, 512, b"", directory=DIRECTORY, size=SIZE)
        files = list_of(mount)
        files.load()
        with pytest.raises(CorruptLogError, match="0256 is missing between"):
            files.check_self()
        mount.create(f"{DIRECTORY}/notes", 3)
        with pytest.raises(CorruptLogError, match="move it out"):
            list_of(mount).load()

    def test_a_last_file_that_was_being_made_is_removed(self, mount: SimMount) -> None:
        filled(mount, 200)
        put_file(mount, 256, b"", directory=DIRECTORY, size=10)
        files = list_of(mount)
        files.load()
        assert offsets_of(files) == [0]
        assert not mount.exists(f"{DIRECTORY}/{256:020d}")


class TestCut:
    def test_truncate_deletes_what_is_behind_and_erases_the_rest(self, sim: SimDisk, mount: SimMount) -> None:
        files = filled(mount, 200, 200, 200)
        files.truncate_offset(300)
        assert (offsets_of(files), files.max_wrote_position) == ([0, 256], 300)
        inode = sim.files[f"{DIRECTORY}/{256:020d}"]
        assert inode.durable == inode.cache == b"\x11" * 44 + bytes(212)

    def test_truncate_to_a_file_s_beginning_keeps_it(self, mount: SimMount) -> None:
        files = filled(mount, 200, 200)
        files.truncate_offset(256)
        assert (offsets_of(files), files.append(b"x")) == ([0, 256], 256)

    def test_flushed_where_falls_with_a_cut(self, mount: SimMount) -> None:
        """Seed checklist: revised flushedWhere (spec: dledger §1.10)."""
        files = filled(mount, 200, 200)
        files.sync(0)
        assert files.flushed_where == files.max_wrote_position == 456
        files.truncate_offset(100)
        assert files.flushed_where == 100
        files.append(b"x" * 50)
        assert (files.flushed_where, files.max_wrote_position) == (100, 150)

    async def test_a_flush_that_a_cut_overtakes_counts_for_nothing(self, mount: SimMount) -> None:
        files = filled(mount, 200)
        file = files.mapped_files[0]
        sync = file.file().sync_in_thread

        async def cut_meanwhile() -> None:
            await sync()
            files.truncate_offset(100)
            files.append(b"x" * 100)

        file.file().sync_in_thread = cut_meanwhile  # type: ignore[method-assign]
        await files.flush_in_thread()
        assert files.flushed_where == 0

    def test_reset_deletes_what_ends_before(self, mount: SimMount) -> None:
        files = filled(mount, 200, 200, 200)
        files.reset_offset(512)
        assert (offsets_of(files), files.min_offset) == ([512], 512)
        files.reset_offset(600)
        assert files.min_offset == 600
        files.reset_offset(10_000)
        assert offsets_of(files) == [512]

    def test_rebuild_begins_in_the_middle_behind_a_blank(self, mount: SimMount) -> None:
        files = filled(mount, 200, 200)
        files.rebuild_with_pos(1000)
        assert (offsets_of(files), files.min_offset, files.max_wrote_position) == ([768], 1000, 1000)
        assert bytes(files.mapped_files[0].view()[:240]) == blank(232).ljust(240, b"\0")
        assert files.get_data(768, 8) is None


class TestExpired:
    async def test_the_oldest_go_but_never_the_last(self, mount: SimMount) -> None:
        """Seed checklist: deleteExpiredFileByTime (spec: dledger §1.5)."""
        files = filled(mount, *[200] * 14)
        assert await files.delete_expired_file_by_time(lambda path: True, kept_from=10_000) == 10
        assert await files.delete_expired_file_by_time(lambda path: True, kept_from=10_000) == 3
        assert offsets_of(files) == [13 * 256]

    async def test_up_to_the_first_that_stays(self, mount: SimMount) -> None:
        files = filled(mount, *[200] * 5)
        young = files.mapped_files[2].path
        assert await files.delete_expired_file_by_time(lambda path: path != young, kept_from=10_000) == 2
        assert await files.delete_expired_file_by_time(lambda path: True, kept_from=3 * 256 + 1) == 1
        assert offsets_of(files) == [3 * 256, 4 * 256]

    async def test_one_that_cannot_be_deleted_is_tried_again(self, sim: SimDisk, mount: SimMount) -> None:
        """Seed checklist: retryDeleteFirstFile; no intervalForcibly: no reader keeps a file (spec: dledger §1.5)."""
        files = filled(mount, 200, 200)
        window = files.get_data(0, 4)
        sim.faults.read_only = True
        with pytest.raises(StoreWriteError):
            await files.delete_expired_file_by_time(lambda path: True, kept_from=10_000)
        assert offsets_of(files) == [0, 256]
        sim.faults.read_only = False
        assert await files.delete_expired_file_by_time(lambda path: True, kept_from=10_000) == 1
        assert bytes(window or b"") == b"\x11" * 4, "who reads it goes on reading"

    async def test_all_may_go_while_one_is_being_deleted(self, sim: SimDisk, nursery: trio.Nursery) -> None:
        """A follower far behind cleans its full disk, and is told to begin anew meanwhile."""

        class Slow(SimMount):
            async def unlink_in_thread(self, path: str) -> None:
                self.unlink(path)
                await trio.sleep_forever()

        files = filled(Slow(sim, sim.epoch), *[200] * 5)

        async def clean() -> None:
            await files.delete_expired_file_by_time(lambda _path: True, kept_from=10_000)

        nursery.start_soon(clean)
        await trio.testing.wait_all_tasks_blocked()
        files.rebuild_with_pos(20 * 256)
        assert offsets_of(files) == [20 * 256]

    async def test_one_that_went_with_all_others_is_no_error(self, sim: SimDisk, nursery: trio.Nursery) -> None:
        """It would end the member."""
        told, may_end = list[int](), trio.Event()

        class Slow(SimMount):
            async def unlink_in_thread(self, path: str) -> None:
                self.unlink(path)
                await may_end.wait()

        files = filled(Slow(sim, sim.epoch), 200, 200)

        async def clean() -> None:
            told.append(await files.delete_expired_file_by_time(lambda _path: True, kept_from=10_000))

        nursery.start_soon(clean)
        await trio.testing.wait_all_tasks_blocked()
        files.rebuild_with_pos(20 * 256)
        may_end.set()
        await trio.testing.wait_all_tasks_blocked()
        assert (told, offsets_of(files)) == ([1], [20 * 256])


class TestMultiPath:
    """Seed checklist: MULTI_PATH_SPLITTER, single and multi-path lists, fullStorePaths (spec: dledger §1.6)."""

    def list_of(
        self, mount: SimMount, *paths: str, read_only: tuple[str, ...] = (), full: AbstractSet[str] = frozenset()
    ) -> MultiPathMmapFileList:
        return MultiPathMmapFileList(
            mount,
            paths,
            read_only_paths=read_only,
            full_store_paths=lambda: full,
            mapped_file_size=SIZE,
            open_files=OpenFiles(),
            size_key="theSize",
        )

    def places(self, files: MmapFileList) -> list[str]:
        return [file.path.split("/")[1] for file in files.mapped_files]

    def test_new_files_go_to_the_sorted_directories_in_turn(self, mount: SimMount) -> None:
        files = self.list_of(mount, "/c", "/a", "/b")
        for _ in range(5):
            files.append(bytes(200))
        assert self.places(files) == ["a", "b", "c", "a", "b"]
        again = self.list_of(mount, "/c", "/a", "/b")
        again.load()
        again.check_self()
        assert (self.places(again), offsets_of(again)) == (self.places(files), offsets_of(files))

    def test_not_to_full_ones_unless_all_are(self, mount: SimMount) -> None:
        full = {"/b"}
        files = self.list_of(mount, "/a", "/b", "/c", full=full)
        for _ in range(3):
            files.append(bytes(200))
        assert self.places(files) == ["a", "c", "a"]
        full |= {"/a", "/c"}
        for _ in range(3):
            files.append(bytes(200))
        assert self.places(files)[3:] == ["a", "b", "c"]

    def test_a_read_only_one_gets_no_file_though_all_others_are_full(self, mount: SimMount) -> None:
        """Nothing is ever written there: the disk may not take it."""
        files = self.list_of(mount, "/a", "/c", read_only=("/b",), full={"/a", "/c"})
        for _ in range(3):
            files.append(bytes(200))
        assert self.places(files) == ["a", "c", "a"]

    def test_one_without_space_gets_no_file_though_it_is_not_full_yet(self, sim: SimDisk) -> None:
        """A disk of a few files is full at once, and so is a quota: the others go on."""
        mount = LackingMount(sim, sim.mount().epoch)
        files = self.list_of(mount, "/a", "/b", "/c")
        files.append(bytes(200))
        mount.lacking = "/b"
        for _ in range(3):
            files.append(bytes(200))
        assert self.places(files) == ["a", "c", "c", "a"]
        assert files.could_make_next()
        mount.lacking = "/"
        with pytest.raises(StoreWriteError, match="/b/"):
            files.append(bytes(200))
        with pytest.raises(StoreWriteError, match="/b/"):
            files.could_make_next()
        mount.lacking, mount.error = "/b", errno.EIO
        with pytest.raises(StoreWriteError, match="Input/output"):
            files.append(bytes(200))
        assert self.places(files) == ["a", "c", "c", "a"]

    @pytest.mark.parametrize("full", [frozenset[str](), frozenset({"/b"})])
    @pytest.mark.parametrize("roomy", ["/a", "/b", "/c"])
    def test_the_only_one_with_space_is_found_whoever_has_the_turn(
        self, sim: SimDisk, roomy: str, full: frozenset[str]
    ) -> None:
        """The search begins anywhere in the list, and ends where it began."""
        mount = LackingMount(sim, sim.mount().epoch)
        files = self.list_of(mount, "/a", "/b", "/c", full=full)
        mount.lacking = tuple({"/a", "/b", "/c"} - {roomy})
        for _ in range(6):
            assert files.could_make_next()
            files.append(bytes(200))
        assert self.places(files) == [roomy[1:]] * 6

    def test_a_full_one_is_taken_before_the_log_ends_for_lack_of_space_elsewhere(self, sim: SimDisk) -> None:
        """Full is a matter of a ratio: there may be room for a file where the others have none."""
        mount = LackingMount(sim, sim.mount().epoch)
        files = self.list_of(mount, "/a", "/b", full={"/b"})
        files.append(bytes(200))
        mount.lacking = "/a"
        files.append(bytes(200))
        assert self.places(files) == ["a", "b"]

    @pytest.mark.parametrize("half_made", [0, 100])
    @pytest.mark.parametrize("place", ["/a", "/c"])
    def test_what_is_left_of_one_that_had_no_room_is_removed(self, mount: SimMount, place: str, half_made: int) -> None:
        files = self.list_of(mount, "/a", "/b", "/c")
        for _ in range(3):
            files.append(bytes([7]) * 200)
        left = f"{place}/{SIZE:020d}"
        mount.create(left, half_made)
        again = self.list_of(mount, "/a", "/b", "/c")
        again.load()
        assert (self.places(again), mount.exists(left)) == (["a", "b", "c"], False)
        mount.create(left, SIZE)
        with pytest.raises(CorruptLogError, match="the file is there twice"):
            self.list_of(mount, "/a", "/b", "/c").load()

    def test_read_only_ones_are_read(self, mount: SimMount) -> None:
        files = self.list_of(mount, "/old", "/new")
        for _ in range(4):
            files.append(bytes(200))
        files = self.list_of(mount, "/new", read_only=("/old",))
        files.load()
        files.check_self()
        assert self.places(files) == ["new", "old", "new", "old"]
        for _ in range(2):
            files.append(bytes(200))
        assert self.places(files)[4:] == ["new", "new"]
