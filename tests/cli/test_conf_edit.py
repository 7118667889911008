"""Other values in a broker.conf: what is taken away is gone, what stays, and what the copy of the former is like."""

import os
from contextlib import suppress
from pathlib import Path

import pytest

from rmqha.cli.conf_edit import edited, replace_conf
from rmqha.config.java_properties import parse_properties

CHANGES = {"brokerRole": "ASYNC_MASTER", "haMasterAddress": None, "masterAddress": None}


@pytest.mark.parametrize(
    "text",
    [
        "haMasterAddress=10.0.0.1:10912\nhaMasterAddress=10.0.0.5:10912\n",
        "haMasterAddress=10.0.0.1:10912\nbrokerName=a\nhaMasterAddress = 10.0.0.5:10912\nhaMasterAddress:x\n",
        "brokerRole=SLAVE\nmasterAddress=a:1\nbrokerRole=SLAVE\nmasterAddress\\\n=b:1\nmasterAddress c:1\n",
        "haMasterAddress=\\\n  10.0.0.1:10912\nhaMasterAddress=10.0.0.5\\\n:10912\nbrokerRole=SLAVE\n",
        "# haMasterAddress=10.0.0.1:10912\n!brokerRole=SLAVE\n",
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_key_that_is_set_more_than_once_is_changed_each_time(text: str, end: str) -> None:
    """One line of an old master's address was left: the new master's file named whom to follow."""
    changed = edited(text.replace("\n", end).encode(), CHANGES, note="changed")
    properties, malformed = parse_properties(changed)
    told = [(one.key, one.value) for one in properties if one.key != "brokerName"]
    assert (told, malformed) == ([("brokerRole", "ASYNC_MASTER")], [])
    former = [line.removeprefix("#").strip() for line in changed.decode().split(end)]
    assert former[: text.count("\n")] == [line.removeprefix("#").strip() for line in text.splitlines()]


@pytest.mark.parametrize("backslashes", range(6))
@pytest.mark.parametrize("key", ["haMasterAddress", "brokerRole"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_what_is_not_changed_stays_whatever_the_value_before_it_ends_in(key: str, backslashes: int, end: str) -> None:
    """Two backslashes are one that belongs to the value: the next line is a key of its own, and stays in effect."""
    text = end.join([f"{key}=C:" + "\\" * backslashes, "brokerName=a", "haListenPort=1", ""]).encode()
    former, _ = parse_properties(text)
    kept = [(one.key, one.value) for one in former if one.key not in CHANGES]
    changed, _ = parse_properties(edited(text, CHANGES, note="changed"))
    assert [(one.key, one.value) for one in changed] == [*kept, ("brokerRole", "ASYNC_MASTER")]
    assert ("haListenPort", "1") in kept


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("is_ended", [True, False])
def test_what_is_added_begins_on_a_line_of_its_own_below_one_empty_line(end: str, times: int, is_ended: bool) -> None:
    text = end.join(["brokerName=a", "", "haListenPort=1"]) + (end if is_ended else "")
    lines = ["brokerName=a", "", "haListenPort=1"]
    for at in range(times):
        text = edited(text.encode(), {f"k{at}": "v"}, note=f"note {at}").decode()
        lines += ["", f"# note {at}", f"k{at}=v"]
    assert text == "".join(line + end for line in lines)


def test_an_empty_file_gets_what_is_added_alone() -> None:
    assert edited(b"", {"brokerName": "a", "gone": None}, note="note") == b"\n# note\nbrokerName=a\n"


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


@pytest.mark.parametrize("target", ["absolute", "relative", "link to a link"])
def test_a_file_that_a_symbolic_link_leads_to_is_changed_where_it_lies(target: str, tmp_path: Path) -> None:
    """What manages the configuration links to its own copy: that one is what the next start has to read."""
    real, link = tmp_path / "managed" / "slave.conf", tmp_path / "broker.conf"
    real.parent.mkdir()
    real.write_bytes(b"brokerName=a\n")
    ways = {"absolute": real, "relative": Path("managed/slave.conf"), "link to a link": tmp_path / "current"}
    (tmp_path / "current").symlink_to(real)
    link.symlink_to(ways[target])
    copy, config = replace_conf(link, b"brokerName=b\n", copy_suffix=".before")
    assert (link.is_symlink(), real.is_symlink(), link.samefile(real)) == (True, False, True)
    assert (real.read_bytes(), config.broker_name) == (b"brokerName=b\n", "b")
    assert (copy, copy.read_bytes()) == (real.with_name("slave.conf.before"), b"brokerName=a\n")
