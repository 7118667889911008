"""`rmqha dledger dump` on the stores that a group of DLedger 0.3.1.2 wrote, compared with what that read in them."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from rmqha.cli.main import run
from tests.dledger.ledgers import entry, expected_lines, unpack

Output = pytest.CaptureFixture[str]
Line = dict[str, Any]


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("group"))


def dump(capsys: Output, *arguments: object) -> list[Line]:
    assert run(["dledger", "dump", *map(str, arguments)]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def entries_of(lines: list[Line]) -> list[Line]:
    return [line for line in lines if "blank" not in line]


@pytest.mark.parametrize("member", ["n0", "n1", "n2"])
def test_every_entry_with_every_key(group: Path, member: str, capsys: Output) -> None:
    assert dump(capsys, group / f"dledger-{member}") == expected_lines()


def test_the_help_names_every_key_in_order(group: Path, capsys: Output) -> None:
    keys = list(dump(capsys, group / "dledger-n0", "--limit", 1)[0])
    assert run(["dledger", "dump", "--help"]) == 0
    assert "The keys are: " + " ".join(keys) + "." in " ".join(capsys.readouterr().out.split())


def test_some_entries(group: Path, capsys: Output) -> None:
    expected = expected_lines()
    assert entries_of(dump(capsys, group / "dledger-n0", "--index", 50)) == entries_of(expected)[50:]
    assert dump(capsys, group / "dledger-n0", "--index", 4, "--limit", 2) == expected[4:7]
    assert dump(capsys, group / "dledger-n0", "--limit", 1) == expected[:1]


def test_bodies_as_text_or_else_base64(tmp_path: Path, capsys: Output) -> None:
    data = tmp_path / "dledger-n0" / "data"
    data.mkdir(parents=True)
    raw = entry(0, pos=0, body="grüß".encode()) + entry(1, pos=54, body=b"\xff\x00")
    (data / ("0" * 20)).write_bytes(raw.ljust(256, b"\0"))
    text, binary = dump(capsys, tmp_path, "--body")
    assert (text["body"], "bodyIsBase64" in text) == ("grüß", False)
    assert (binary["body"], binary["bodyIsBase64"]) == ("/wA=", True)


def test_the_directory_above_will_do_if_there_is_one_member(group: Path, tmp_path: Path, capsys: Output) -> None:
    shutil.copytree(group / "dledger-n1", tmp_path / "dledger-n1")
    assert dump(capsys, tmp_path) == expected_lines()
    assert run(["dledger", "dump", str(group)]) == 1
    assert "there are 3 members in" in capsys.readouterr().err


def test_data_files_in_other_directories(group: Path, tmp_path: Path, capsys: Output) -> None:
    store = tmp_path / "dledger-n0"
    shutil.copytree(group / "dledger-n0", store)
    others = [tmp_path / "disk1", tmp_path / "disk2"]
    for directory in others:
        directory.mkdir()
    for number, file in enumerate(sorted((store / "data").iterdir())):
        file.rename(others[number % 2] / file.name)
    assert dump(capsys, store, "--data-store-path", f"{others[0]},{others[1]}") == expected_lines()
    (store / "data").rmdir()
    assert run(["dledger", "dump", str(store)]) == 1
    assert "name those of dataStorePath with --data-store-path" in capsys.readouterr().err


def test_nothing_is_written(group: Path, tmp_path: Path, capsys: Output) -> None:
    store = tmp_path / "dledger-n0"
    shutil.copytree(group / "dledger-n0", store)
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in store.rglob("*") if path.is_file()}
    for path in [store, *store.rglob("*")]:
        path.chmod(0o500 if path.is_dir() else 0o400)
    try:
        assert dump(capsys, store) == expected_lines()
    finally:
        for path in [store, *store.rglob("*")]:
            path.chmod(0o700 if path.is_dir() else 0o600)
    after = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in store.rglob("*") if path.is_file()}
    assert after == before


def test_what_cannot_be_is_said(group: Path, tmp_path: Path, capsys: Output) -> None:
    assert run(["dledger", "dump", str(tmp_path / "nothing")]) == 1
    assert "is no directory" in capsys.readouterr().err
    assert run(["dledger", "dump", str(group / "dledger-n0"), "--index", "55"]) == 1
    assert "the last is 54" in capsys.readouterr().err
    assert run(["dledger", "dump", str(group / "dledger-n0"), "--index", "-1"]) == 2


def test_damage_is_an_error_and_what_came_before_is_printed(group: Path, tmp_path: Path, capsys: Output) -> None:
    store = tmp_path / "dledger-n0"
    shutil.copytree(group / "dledger-n0", store)
    bad = entries_of(expected_lines())[30]
    path = store / "data" / f"{bad['pos'] // 8192 * 8192:020d}"
    with path.open("r+b") as file:
        file.seek(bad["pos"] % 8192 + 8)
        file.write(b"\xff")
    assert run(["dledger", "dump", str(store)]) == 1
    captured = capsys.readouterr()
    assert len(entries_of([json.loads(line) for line in captured.out.splitlines()])) == 30
    assert f"corrupt log at physical offset {bad['pos']}" in captured.err
    assert f"({path}, position {bad['pos'] % 8192})" in captured.err


def test_what_dledger_cut_shows_again_as_it_does_there(tmp_path: Path, capsys: Output) -> None:
    """The checkpoint says 50 for both of its indexes, and so did the store when it was stopped."""
    lines = dump(capsys, unpack(tmp_path, "cut"), "--body")
    assert [line["index"] for line in lines] == list(range(81))
    assert [line["body"] for line in lines] == [chr(number) * 50 for number in range(81)]


def test_leftovers_of_a_truncate_are_noted(tmp_path: Path, capsys: Output) -> None:
    data = tmp_path / "dledger-n0" / "data"
    data.mkdir(parents=True)
    (data / ("0" * 20)).write_bytes((entry(0, pos=0) + b"\x07" * 60).ljust(256, b"\0"))
    assert run(["dledger", "dump", str(tmp_path)]) == 0
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 1
    assert "Note: the log ends before bytes that do not continue it: an entry's pos would be" in captured.err


@pytest.mark.parametrize("name", ["checkpoint", "data/" + "0" * 20])
def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(name: str, tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "data").mkdir()
    os.mkfifo(tmp_path / name)
    run(["dledger", "dump", str(tmp_path)])
    assert name in capsys.readouterr().err


def test_of_an_endless_checkpoint_only_the_beginning_is_read(group: Path, tmp_path: Path, capsys: Output) -> None:
    shutil.copytree(group / "dledger-n0" / "data", tmp_path / "data")
    with (tmp_path / "checkpoint").open("w") as file:
        file.write("endIndex=54\ncommittedIndex=54\n")
        file.truncate(1 << 40)
    assert dump(capsys, tmp_path) == expected_lines()
