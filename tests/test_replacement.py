"""A file that is replaced: durable before it takes a place, and like the one that was there."""

import os
import stat
from pathlib import Path

import pytest

from rmqha.replacement import replacement


def test_it_is_durable_before_it_takes_the_place_and_the_place_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, done = tmp_path / "a.conf", []
    path.write_bytes(b"old")
    really = os.fsync

    def fsync(descriptor: int) -> None:
        really(descriptor)
        is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        done.append(("directory" if is_directory else "file", path.read_bytes()))

    monkeypatch.setattr(os, "fsync", fsync)
    with replacement(path, b"new") as new:
        assert (new.read_bytes(), path.read_bytes()) == (b"new", b"old")
    assert done == [("file", b"old"), ("directory", b"new")]
    assert list(tmp_path.iterdir()) == [path]


def test_mode_and_owner_stay_and_its_time_is_new(tmp_path: Path) -> None:
    path = tmp_path / "a.conf"
    path.write_bytes(b"old")
    path.chmod(0o640)
    os.utime(path, (1, 1))
    before = path.stat()
    with replacement(path, b"new"):
        pass
    after = path.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)
    assert after.st_mtime > 1


@pytest.mark.parametrize(("uid", "gid"), [(-1, 12_345), (12_345, -1), (12_345, 23_456)])
def test_an_owner_and_a_group_that_are_not_those_of_who_replaces_it_stay(uid: int, gid: int, tmp_path: Path) -> None:
    """A file of root's that a broker reads by its group alone: without it no start succeeds."""
    path = tmp_path / "a.conf"
    path.write_bytes(b"old")
    path.chmod(0o640)
    try:
        os.chown(path, uid, gid)
    except PermissionError:
        pytest.skip("only root gives files away")
    before = path.stat()
    with replacement(path, b"new"):
        pass
    after = path.stat()
    assert (after.st_mode, after.st_uid, after.st_gid) == (before.st_mode, before.st_uid, before.st_gid)


def test_where_no_file_was_only_its_owner_may_read_it(tmp_path: Path) -> None:
    (tmp_path / "a.yml.new").write_bytes(b"left by a process that was killed")
    with replacement(tmp_path / "a.yml", b"secret") as new:
        assert stat.S_IMODE(new.stat().st_mode) == 0o600
    assert (tmp_path / "a.yml").read_bytes() == b"secret"
    assert stat.S_IMODE((tmp_path / "a.yml").stat().st_mode) == 0o600


def test_what_is_found_wrong_with_it_leaves_all_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "a.conf"
    path.write_bytes(b"old")

    def look_at(_new: Path) -> None:
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"), replacement(path, b"new") as new:
        look_at(new)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
