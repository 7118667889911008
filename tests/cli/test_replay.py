import json
import subprocess
import sys
from pathlib import Path

import pytest

from rmqha.cli.main import run
from tests.stores import expected_log, expected_messages, unpack

pytest.importorskip("pyarrow", reason="pyarrow is in the extra [spark]")

Output = pytest.CaptureFixture[str]


def test_a_store_is_replayed_and_the_next_run_finds_nothing_new(tmp_path: Path, capsys: Output) -> None:
    store, out = str(unpack("basic", tmp_path)), str(tmp_path / "out")
    arguments = ["replay", store, "--out", out, "--system-topics", "--engine", "local"]
    assert run(arguments) == 0
    head, *topics, summary, manifest = capsys.readouterr().out.splitlines()
    assert head.split() == ["topic", "messages", "body", "bytes"]
    assert len(topics) == len({message["topic"] for message in expected_messages("basic")})
    count, end = len(expected_messages("basic")), expected_log("basic")["maxOffset"]
    assert summary.startswith(f"{count} messages of [0, {end}), {count} records read")
    assert json.loads(Path(manifest.removeprefix("Manifest: ")).read_text())["messages"] == count
    assert run(arguments) == 0
    assert capsys.readouterr().out == f"Nothing new before offset {end}.\n"


def test_filters_and_json(tmp_path: Path) -> None:
    store, out = str(unpack("basic", tmp_path)), tmp_path / "out"
    filters = ["--topic", "order-events", "--tag", "TagA", "--columns", "physicalOffset,tags", "--format", "json"]
    assert run(["replay", store, "--out", str(out), *filters]) == 0
    lines = [json.loads(line) for line in "".join(map(Path.read_text, out.rglob("*.jsonl"))).splitlines()]
    wanted = [
        {"physicalOffset": message["physicalOffset"], "tags": "TagA"}
        for message in expected_messages("basic")
        if message["topic"] == "order-events" and (message["properties"] or {}).get("TAGS") == "TagA"
    ]
    assert lines == wanted != []


def test_damage_is_named_and_exits_with_1(tmp_path: Path, capsys: Output) -> None:
    store = unpack("bench", tmp_path)
    bad = expected_messages("bench")[7]["physicalOffset"]
    with (store / "commitlog" / ("0" * 20)).open("r+b") as file:
        file.seek(bad + 100)
        file.write(b"\xff\xff\xff\xff")
    out = str(tmp_path / "out")
    assert run(["replay", str(store), "--out", out]) == 1
    assert f"corrupt log at physical offset {bad}: 1 damaged range(s), nothing was written" in capsys.readouterr().err
    assert run(["replay", str(store), "--out", out, "--on-corrupt", "skip"]) == 0
    assert f"Left out: [{bad}, " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--columns", "payload"], 2, "unknown column 'payload'"),
        (["--since", "soon"], 2, "soon"),
        (["--from-offset", "5", "--to-offset", "4"], 2, "empty"),
        (["--since", "2026-11-21", "--until", "2026-11-20"], 2, "empty"),
        (["--columns", "topic, body,topic"], 2, "column 'topic' is there twice"),
        (["--columns", "topic"], 2, "the directory's name"),
        (["--topic-pattern", "("], 2, "pattern"),
        (["--topic-pattern", "a", "--topic", "b"], 2, "not both"),
        (["--engine", "local", "--master", "yarn"], 2, "yarn"),
        (["--out", ""], 2, "no name"),
        (["--out", "/dev/null"], 1, "'/dev/null/_rmqha'"),
    ],
)
def test_wrong_usage(arguments: list[str], code: int, message: str, tmp_path: Path, capsys: Output) -> None:
    store = str(unpack("bench", tmp_path))
    assert run(["replay", store, "--out", str(tmp_path / "out"), *arguments]) == code
    printed = capsys.readouterr().err
    assert message in printed
    assert "config reference" not in printed


def test_no_store_there(tmp_path: Path, capsys: Output) -> None:
    assert run(["replay", str(tmp_path / "none"), "--out", str(tmp_path / "out")]) == 1
    assert "no such directory" in capsys.readouterr().err


def test_a_report_that_cannot_be_printed_does_not_make_a_committed_run_a_failed_one(tmp_path: Path) -> None:
    store, out = str(unpack("bench", tmp_path)), tmp_path / "out"
    command = [sys.executable, "-m", "rmqha", "replay", store, "--out", str(out), "--engine", "local"]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0
    assert "The replay is done, up to offset" in done.stderr
    assert "the output cannot be written" in done.stderr
    assert list(out.rglob("*.parquet"))
