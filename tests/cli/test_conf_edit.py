"""A broker.conf that commands change: what stays, and what the copy of the former one is like."""

import os
from contextlib import suppress
from pathlib import Path

from rmqha.cli.conf_edit import replace_conf


def test_the_copy_of_the_former_file_is_whose_that_one_was(tmp_path: Path) -> None:
    """Changed by root, it was root's, with a mode by which the broker's user could not read it once it was put back."""
    path = tmp_path / "broker.conf"
    path.write_bytes(b"brokerName=a\n")
    path.chmod(0o640)
    with suppress(PermissionError):
        os.chown(path, 12345, 12346)
    os.utime(path, (1, 1))
    was = path.stat()
    copy, _ = replace_conf(path, b"brokerName=b\n", copy_suffix=".before")
    for one in (path, copy):
        assert (one.stat().st_mode, one.stat().st_uid, one.stat().st_gid) == (was.st_mode, was.st_uid, was.st_gid)
    assert (copy.read_bytes(), copy.stat().st_mtime) == (b"brokerName=a\n", 1)
