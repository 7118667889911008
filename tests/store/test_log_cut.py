"""cut_log: exactly what it said, for good, and a store that starts again."""

import json
import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from trio.testing import MockClock

from rmqha.cli.main import run
from rmqha.codec.checkpoint import Checkpoint, decode_checkpoint, encode_checkpoint
from rmqha.errors import CorruptLogError, StoreError, StoreLockedError
from rmqha.store.log_cut import LogCut, cut_log, plan_cut
from rmqha.store.log_reader import LogReader
from rmqha.store.os_disk import OsDisk
from tests import stores
from tests.memory_log import record
from tests.sim.journal import NodeDied
from tests.sim.sim_disk import SimDisk
from tests.store.golden import open_store, queues_of
from tests.store.helpers import ROOT, SEGMENT, message, put, running

OFFSETS = [message["physicalOffset"] for message in stores.expected_messages("rolled")]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return stores.unpack("rolled", tmp_path)


def cut(root: Path, offset: int) -> LogCut:
    return cut_log(OsDisk(), str(root), str(root / "commitlog"), offset=offset)


@pytest.mark.parametrize("number", [0, 1, 18, 19, 100, 199])
def test_what_is_before_stays_and_what_is_behind_is_gone(root: Path, number: int) -> None:
    offset = OFFSETS[number]
    plan = plan_cut(OsDisk(), str(root), str(root / "commitlog"), offset)
    assert (plan.records, plan.offset) == (200 - number, offset)
    assert cut(root, offset) == plan
    store = open_store(root, "rolled")
    store.load()
    assert store.max_offset == offset
    assert sum(len(queue["entries"]) for queue in queues_of(store).get("rolling", {}).values()) == number
    left = [message.physical_offset for message in LogReader(OsDisk(), str(root / "commitlog")).messages()]
    assert left == OFFSETS[:number]
    store.close()


def test_a_script_is_told_what_would_go_and_what_is_gone(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["log", "cut", str(root), "--at-offset", str(OFFSETS[100]), "--format", "json"]
    for more, done in (([], False), (["--yes"], True)):
        assert run([*command, *more]) == 0
        told = json.loads(capsys.readouterr().out)
        assert (told["cut"], told["atOffset"], told["records"]) == (done, OFFSETS[100], 100)


def test_a_record_is_not_halved(root: Path) -> None:
    for offset in (OFFSETS[7] + 1, OFFSETS[8] - 1):
        with pytest.raises(
            StoreError, match=rf"inside the record of {OFFSETS[7]}: cut there or at its end, {OFFSETS[8]}"
        ):
            cut(root, offset)
    with pytest.raises(StoreError, match="in no segment"):
        cut(root, 13 * 65536 + 1)
    assert not (root / "abort").exists()
    assert plan_cut(OsDisk(), str(root), str(root / "commitlog"), 789162) == LogCut(789162, 0, 0)


def damage_body(root: Path) -> None:
    path = root / "commitlog" / f"{720896:020d}"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)


def remove_segment(root: Path) -> None:
    (root / "commitlog" / f"{720896:020d}").unlink()


def remove_last_segments(root: Path) -> None:
    for offset in (720896, 786432):
        (root / "commitlog" / f"{offset:020d}").unlink()


def shorten_segment(root: Path) -> None:
    path = root / "commitlog" / f"{720896:020d}"
    path.write_bytes(path.read_bytes()[:1000])


def leave_nothing_of_segment(root: Path) -> None:
    (root / "commitlog" / f"{720896:020d}").write_bytes(b"")


def empty_segment(root: Path) -> None:
    (root / "commitlog" / f"{720896:020d}").write_bytes(bytes(65536))


@pytest.mark.parametrize(
    "damage",
    [damage_body, empty_segment, remove_segment, remove_last_segments, shorten_segment, leave_nothing_of_segment],
)
def test_a_refused_store_starts_after_the_cut(root: Path, damage: Callable[[Path], None]) -> None:
    """Cut at the very offset that the refusal names, also if its segment is not there; a short one at its begin."""
    offset = 720896
    checkpoint = root / "checkpoint"
    checkpoint.write_bytes(encode_checkpoint(Checkpoint(1, 2, 3, master_flushed_offset=789162)))
    damage(root)
    refused = open_store(root, "rolled")
    with pytest.raises(CorruptLogError) as caught:
        refused.load()
    refused.close()
    assert caught.value.offset == (offset + 1000 if damage is shorten_segment else offset)
    cut(root, offset)
    assert decode_checkpoint(checkpoint.read_bytes()) == Checkpoint(1, 2, 3, master_flushed_offset=offset)
    store = open_store(root, "rolled")
    store.load()
    assert store.max_offset == offset
    store.close()


@pytest.mark.parametrize("segment", [655360, 786432], ids=["middle", "last"])
@pytest.mark.parametrize("at_its_end", [False, True], ids=["in-it", "at-its-end"])
def test_what_a_shortened_segment_still_holds_may_be_kept(root: Path, segment: int, at_its_end: bool) -> None:
    """An interrupted copy, say. The store starts, and goes on, though the cut is not where the refusal said."""
    shown = [offset for offset in OFFSETS if segment < offset][:2]
    path = root / "commitlog" / f"{segment:020d}"
    path.write_bytes(path.read_bytes()[: shown[1] - segment + 20 * (not at_its_end)])
    cut(root, shown[1])
    store = open_store(root, "rolled")
    store.load()
    assert (store.max_offset, path.stat().st_size) == (shown[1], 65536)
    store.close()


@pytest.mark.parametrize("offset", [720896, OFFSETS[-1], 786432])
def test_what_was_added_to_a_segment_is_taken_away_first(root: Path, offset: int) -> None:
    """The cut made the segment before as long, with zeros, and the store was refused for that one then."""
    before, path = (root / "commitlog" / f"{begin:020d}" for begin in (720896, 786432))
    with path.open("ab") as file:
        file.write(bytes(range(100)))
    if offset >= 786432:
        with pytest.raises(StoreError, match=f"has 65636 bytes, but.*has 65536: .*truncate -s 65536 {path}"):
            cut(root, offset)
        os.truncate(path, 65536)
    cut(root, offset)
    assert before.stat().st_size == 65536
    store = open_store(root, "rolled")
    store.load()
    assert store.max_offset == offset
    store.close()


async def test_a_cut_that_a_power_cut_ends_leaves_no_hole_and_is_done_again(autojump_clock: MockClock) -> None:
    for crash_at in range(1, 100):
        device = SimDisk()
        async with running(device.mount(), crash=True) as store:
            await put(store, *[message(size=1800) for _ in range(8)])
            await store.flush_now(store.max_offset)
            offset = SEGMENT + 1800
        device.crash_at = device.calls + crash_at
        with suppress(NodeDied):
            cut_log(device.mount(), ROOT, f"{ROOT}/commitlog", offset=offset)
            if device.calls < device.crash_at:
                return
        async with running(device.mount()) as store:
            assert store.max_offset >= offset
        cut_log(device.mount(), ROOT, f"{ROOT}/commitlog", offset=offset)
        async with running(device.mount()) as store:
            assert store.max_offset == offset
    raise AssertionError("the cut never ended")


def test_a_store_in_use_is_not_cut(root: Path) -> None:
    store = open_store(root, "rolled")
    disk = OsDisk()
    lock = disk.lock(str(root / "lock"))
    with pytest.raises(StoreLockedError):
        cut_log(disk, str(root), str(root / "commitlog"), offset=0)
    lock.close()
    store.close()


def test_a_log_kept_elsewhere_is_cut_with_its_store(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The cut is noted in the store: otherwise the next start takes it for damage, and refuses."""
    log = root.parent / "elsewhere" / "log"
    log.parent.mkdir()
    (root / "commitlog").rename(log)
    (root / "checkpoint").write_bytes(encode_checkpoint(Checkpoint(1, 2, 3, master_flushed_offset=OFFSETS[195])))
    arguments = ["log", "cut", str(log), "--at-offset", str(OFFSETS[190]), "--yes"]
    assert run(arguments) == 1
    assert "name the store (storePathRootDir) with --root" in capsys.readouterr().err
    assert list(log.parent.iterdir()) == [log]
    assert run([*arguments, "--root", str(root)]) == 0
    assert decode_checkpoint((root / "checkpoint").read_bytes()).master_flushed_offset == OFFSETS[190]
    assert (root / "abort").exists()


def test_the_command_shows_before_it_does(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["log", "cut", str(root), "--at-offset", str(OFFSETS[190])]
    assert run(arguments) == 0
    assert capsys.readouterr().out.startswith("would go: 10 good records from offset 786,432 on, 0 whole files")
    assert not (root / "abort").exists()
    assert run([*arguments, "--yes"]) == 0
    assert capsys.readouterr().out == "gone: 10 good records from offset 786,432 on, 0 whole files\n"
    assert (root / "abort").exists()
    assert run(["log", "cut", str(root / "commitlog"), "--at-offset", "5", "--yes"]) == 1
    assert "inside the record of 0" in capsys.readouterr().err


@pytest.mark.parametrize("is_alone", [False, True])
def test_a_file_that_was_cut_short_is_made_whole_by_the_page(
    is_alone: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The start named the file's begin, and a cut there gave all of it up, and left it as short as it was."""
    root = stores.unpack("rolled", tmp_path)
    *others, path = sorted((root / "commitlog").iterdir())
    for other in others if is_alone else ():
        other.unlink()
    last, base, size = OFFSETS[-1], int(path.name), path.stat().st_size
    os.truncate(path, last - base + 20)
    with pytest.raises(CorruptLogError, match=rf"at physical offset {last + 20}: .*'A file that is too short'"):
        open_store(root, "rolled").load()
    command = ["log", "cut", str(root), "--at-offset", str(last), "--yes"]
    if is_alone:
        assert run(command) == 1
        assert "the file was longer. Say how long each file is to be" in capsys.readouterr().err
        command += ["--file-size", str(size)]
    assert run(command) == 0
    assert path.stat().st_size == size
    store = open_store(root, "rolled")
    store.load()
    assert store.max_offset == last
    store.close()


def test_a_file_that_lacks_much_is_made_just_as_long_as_the_others(tmp_path: Path) -> None:
    """It is filled piece by piece; one that is too long by then is refused at the next start."""
    path, data, file_size = tmp_path / "commitlog" / f"{0:020d}", record(0, b"kept"), (5 << 20) // 2
    path.parent.mkdir()
    path.write_bytes(data + bytes(100))
    cut_log(OsDisk(), str(tmp_path), str(path.parent), offset=len(data), file_size=file_size)
    assert path.read_bytes() == data.ljust(file_size, b"\0")


def test_a_file_alone_that_is_full_is_sound(root: Path) -> None:
    for path in sorted((root / "commitlog").iterdir())[1:]:
        path.unlink()
    (root / "checkpoint").unlink()
    shutil.rmtree(root / "consumequeue")
    last = max(offset for offset in OFFSETS if offset < 65536)
    assert plan_cut(OsDisk(), str(root), str(root / "commitlog"), last).records == 1


def test_a_file_alone_that_ends_within_a_record_was_longer_though_nothing_else_tells(root: Path) -> None:
    """It would have been cut, and left as short as it was."""
    first, *others = sorted((root / "commitlog").iterdir())
    for path in others:
        path.unlink()
    (root / "checkpoint").unlink()
    shutil.rmtree(root / "consumequeue")
    last = max(offset for offset in OFFSETS if offset < 65536)
    os.truncate(first, last + 20)
    with pytest.raises(StoreError, match="the file was longer"):
        plan_cut(OsDisk(), str(root), str(root / "commitlog"), last)


def test_a_full_file_whose_followers_were_removed_is_cut_at_its_end(root: Path) -> None:
    """Its start names that offset, and the page this command; it was told to have been longer."""
    for path in sorted((root / "commitlog").iterdir())[1:]:
        path.unlink()
    with pytest.raises(CorruptLogError, match="at physical offset 65536"):
        open_store(root, "rolled").load()
    assert cut(root, 65536) == LogCut(65536, 0, 0)
    store = open_store(root, "rolled")
    store.load()
    assert store.max_offset == 65536
    store.close()


def test_a_file_alone_that_is_longer_than_any_is_no_error_of_ours(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a wrong 'truncate -s': it ended in a traceback. Its zeros need not be read for that."""
    first, *others = sorted((root / "commitlog").iterdir())
    for path in others:
        path.unlink()
    os.truncate(first, 1 << 32)
    monkeypatch.setattr("rmqha.store.log_cut._last_end", lambda _segment: OFFSETS[5])
    monkeypatch.setattr("rmqha.store.log_cut._count", lambda *_: 5)
    assert plan_cut(OsDisk(), str(root), str(root / "commitlog"), OFFSETS[5]) == LogCut(OFFSETS[5], 5, 0)


@pytest.mark.parametrize("size", [32768, 1 << 20])
def test_files_that_are_there_tell_better_than_a_person_how_long_one_is(root: Path, size: int) -> None:
    with pytest.raises(StoreError, match="say 65536"):
        cut_log(OsDisk(), str(root), str(root / "commitlog"), offset=OFFSETS[-1], file_size=size)
