"""`rmqha log dump` on a store that RocketMQ wrote, compared with what RocketMQ itself read in it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqha.cli.main import run
from tests.stores import expected_messages, needs_compression, unpack

Output = pytest.CaptureFixture[str]
Line = dict[str, Any]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack("basic", tmp_path_factory.mktemp("basic"))


def dump(capsys: Output, store: Path, *arguments: str) -> list[Line]:
    assert run(["log", "dump", str(store), *arguments]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@needs_compression
def test_every_message_with_every_key(store: Path, capsys: Output) -> None:
    assert dump(capsys, store) == expected_messages("basic")


def test_the_help_names_every_key_in_order(store: Path, capsys: Output) -> None:
    keys = list(dump(capsys, store, "-n", "1")[0])
    assert run(["log", "dump", "--help"]) == 0
    assert "The keys are: " + " ".join(keys) in " ".join(capsys.readouterr().out.split())


def test_the_commitlog_directory_itself_will_do(store: Path, capsys: Output) -> None:
    assert len(dump(capsys, store / "commitlog", "-n", "3")) == 3


@needs_compression
@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (["--topic", "TopicTest"], lambda line: line["topic"] == "TopicTest"),
        (["--queue", "1", "--queue", "2"], lambda line: line["queueId"] in (1, 2)),
        (["--tag", "TagA"], lambda line: (line["properties"] or {}).get("TAGS") == "TagA"),
        (["--key", "first"], lambda line: "first" in (line["properties"] or {}).get("KEYS", "").split(" ")),
        (["--from-offset", "200"], lambda line: line["physicalOffset"] >= 200),
        (["--to-offset", "5000"], lambda line: line["physicalOffset"] < 5000),
        (["--since", "@1795174285000"], lambda line: line["storeTimestamp"] >= 1795174285000),
        (["--until", "1795174285000"], lambda line: line["storeTimestamp"] < 1795174285000),
    ],
)
def test_filters(arguments: list[str], wanted: Callable[[Line], bool], store: Path, capsys: Output) -> None:
    expected = [line for line in expected_messages("basic") if wanted(line)]
    assert 0 < len(expected) < len(expected_messages("basic"))
    assert dump(capsys, store, *arguments) == expected


@pytest.mark.parametrize("option", ["--key", "--tag"])
def test_an_empty_word_is_no_filter(option: str, store: Path, capsys: Output) -> None:
    """As of an unset variable: with ``--key ""`` the messages without a key were shown."""
    assert run(["log", "dump", str(store), option, ""]) == 2
    assert "is empty, as an unset variable is" in capsys.readouterr().err
    if option == "--tag":
        assert run(["tail", "orders", option, ""]) == 2


def test_bodies_on_request_are_inflated_and_readable_where_they_are_text(store: Path, capsys: Output) -> None:
    for line in dump(capsys, store, "--body"):
        assert ("body" in line) != ("bodyBase64" in line)
        if "body" in line:
            assert len(line["body"].encode()) == line["plainLength"]


def test_a_corrupt_log_is_dumped_up_to_the_bad_record_and_can_be_continued(tmp_path: Path, capsys: Output) -> None:
    store = unpack("basic", tmp_path)
    messages = expected_messages("basic")
    bad = messages[5]
    with (store / "commitlog" / ("0" * 20)).open("r+b") as file:
        file.seek(bad["physicalOffset"] + 90)
        file.write(b"\xff\xff\xff\xff")
    assert run(["log", "dump", str(store)]) == 1
    captured = capsys.readouterr()
    assert len(captured.out.splitlines()) == 5
    assert f"corrupt log at physical offset {bad['physicalOffset']}" in captured.err
    advised = captured.err.rpartition("--from-offset ")[2].split()[0]
    assert int(advised) == bad["physicalOffset"] + 1, "where it was it would fail again"
    rest = dump(capsys, store, "--from-offset", advised)
    assert [line["physicalOffset"] for line in rest] == [message["physicalOffset"] for message in messages[6:]]


def test_a_directory_without_a_log_is_said(tmp_path: Path, capsys: Output) -> None:
    assert run(["log", "dump", str(tmp_path)]) == 1
    assert "there is no commitlog in" in capsys.readouterr().err
    assert run(["log", "dump", str(tmp_path / "nothing")]) == 1
    assert "is no directory" in capsys.readouterr().err


@needs_compression
def test_what_is_missing_to_inflate_bodies_is_said_with_how_many(
    store: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "lz4.frame", None)
    assert run(["log", "dump", str(store)]) == 0
    captured = capsys.readouterr()
    lines = [json.loads(line) for line in captured.out.splitlines()]
    frames = [line for line in lines if line["sysFlag"] & 0x701 == 0x101]
    assert frames
    for line in frames:
        assert line["plainLength"] is None
        assert line["msgId"] == line["properties"]["UNIQ_KEY"]
    (note,) = [line for line in captured.err.splitlines() if "LZ4" in line]
    assert note.startswith(
        f"Note: {len(frames)} bodies were not inflated (plainLength is null): the body is an LZ4 frame"
    )
    assert "pip install 'rmqha[compression]'" in note


def test_an_output_that_takes_ascii_only_gets_the_same_lines(store: Path, tmp_path: Path) -> None:
    def printed(encoding: str) -> list[Line]:
        command = [sys.executable, "-m", "rmqha", "log", "dump", str(store), "--body"]
        environment = os.environ | {"PYTHONIOENCODING": encoding}
        done = subprocess.run(command, env=environment, capture_output=True, check=True)
        return [json.loads(line) for line in done.stdout.decode(encoding).splitlines()]

    assert printed("ascii") == printed("utf-8")


def test_a_topic_that_no_message_has_is_an_error_that_names_those_there_are(store: Path, capsys: Output) -> None:
    assert run(["log", "dump", str(store), "--topic", "TopicTset"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "no message of topic 'TopicTset' is in what was read of this log" in captured.err
    assert "TopicTest" in captured.err
    assert run(["log", "dump", str(store), "--topic", "TopicTset", "--topic", "TopicTest", "-n", "1"]) == 0


def test_an_offset_inside_a_record_is_said_to_be_none(store: Path, capsys: Output) -> None:
    """What lies before the next record is left out, and an operator may have meant it."""
    first, second = dump(capsys, store)[:2]
    for asked in (first["physicalOffset"], second["physicalOffset"]):
        assert run(["log", "dump", str(store), "--from-offset", str(asked)]) == 0
        assert "no message begins" not in capsys.readouterr().err
    inside = second["physicalOffset"] - 1
    assert run(["log", "dump", str(store), "--from-offset", str(inside)]) == 0
    told = capsys.readouterr().err
    assert f"no message begins at {inside}; the first that was read begins at {second['physicalOffset']}" in told
    beyond = 10**12
    assert run(["log", "dump", str(store), "--from-offset", str(beyond)]) == 0
    assert f"no message begins at {beyond} or behind" in capsys.readouterr().err
