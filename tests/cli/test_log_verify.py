import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rmqha.cli.main import run
from rmqha.codec.checkpoint import decode_checkpoint, encode_checkpoint
from tests.stores import expected_log, expected_messages, unpack

Output = pytest.CaptureFixture[str]


@pytest.mark.parametrize("name", ["basic", "rolled", "trimmed", "v6", "empty", "odd"])
def test_stores_that_rocketmq_stopped_cleanly_are_good(name: str, tmp_path: Path, capsys: Output) -> None:
    store = unpack(name, tmp_path)
    assert run(["log", "verify", str(store), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["good"], found["problems"]) == (True, [])
    assert found["records"] == len(expected_messages(name))
    assert found["end_offset"] == expected_log(name)["maxOffset"]


def test_the_first_bad_byte_is_named(tmp_path: Path, capsys: Output) -> None:
    store = unpack("basic", tmp_path)
    bad = expected_messages("basic")[5]["physicalOffset"]
    path = store / "commitlog" / ("0" * 20)
    with path.open("r+b") as file:
        file.seek(bad + 90)
        file.write(b"\xff\xff\xff\xff")
    assert run(["log", "verify", str(store)]) == 1
    first, *_, verdict = capsys.readouterr().out.splitlines()
    assert first.startswith(f"bad: {path}, position {bad} (offset {bad}): ")
    assert verdict.startswith(f"bad: {len(expected_messages('basic')) - 1:,} records")


def test_a_log_that_ends_before_its_checkpoint_is_bad(tmp_path: Path, capsys: Output) -> None:
    store = unpack("basic", tmp_path)
    checkpoint = decode_checkpoint((store / "checkpoint").read_bytes())
    end = expected_log("basic")["maxOffset"]
    for durable, code in ((end, 0), (end + 1, 1)):
        (store / "checkpoint").write_bytes(encode_checkpoint(replace(checkpoint, master_flushed_offset=durable)))
        assert run(["log", "verify", str(store)]) == code
    assert f"the checkpoint says that it was durable up to {end + 1}" in capsys.readouterr().out


def damage_the_last_record(store: Path) -> int:
    last: int = expected_messages("bench")[-1]["physicalOffset"]
    path = max((store / "commitlog").iterdir(), key=lambda p: (int(p.name) <= last, p.name))
    with path.open("r+b") as file:
        file.seek(last - int(path.name) + 120)
        file.write(b"\xff\xff\xff\xff")
    return last


def test_a_bad_last_record_is_bad_unless_a_broker_may_be_writing_it(tmp_path: Path, capsys: Output) -> None:
    store = unpack("bench", tmp_path)
    last = damage_the_last_record(store)
    assert run(["log", "verify", str(store), "--no-queues"]) == 1
    assert f"(offset {last})" in capsys.readouterr().out.splitlines()[0]

    hold = "import fcntl, sys; f = open(sys.argv[1], 'r+'); fcntl.lockf(f, fcntl.LOCK_EX, 1, 0); print(); input()"
    broker = subprocess.Popen(
        [sys.executable, "-c", hold, str(store / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with broker:
        assert broker.stdout is not None
        broker.stdout.readline()
        assert run(["log", "verify", str(store), "--no-queues"]) == 0
        assert f"(offset {last})" in capsys.readouterr().out.splitlines()[-1]


def test_a_store_without_queues_says_so_when_they_are_to_be_compared(tmp_path: Path, capsys: Output) -> None:
    store = unpack("basic", tmp_path)
    assert run(["log", "verify", str(store / "commitlog"), "--queues"]) == 1
    assert "there are no consume queues" in capsys.readouterr().err


def test_queues_are_compared_unless_told_otherwise(tmp_path: Path, capsys: Output) -> None:
    store = unpack("basic", tmp_path)
    unit = next(path for path in (store / "consumequeue").rglob("0" * 20) if any(path.read_bytes()[:20]))
    with unit.open("r+b") as file:
        file.seek(12)
        file.write(b"\xff" * 8)  # the tag's hash
    assert run(["log", "verify", str(store)]) == 1
    assert "the unit is" in capsys.readouterr().out
    for arguments in ([str(store), "--no-queues"], [str(store / "commitlog")]):
        assert run(["log", "verify", *arguments]) == 0
        assert capsys.readouterr().out.splitlines()[-2] == "queues: not compared"


def test_the_help_says_what_no_checksum_covers(capsys: Output) -> None:
    assert run(["log", "verify", "--help"]) == 0
    assert "A record's CRC covers its body." in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(("crashed", "code"), [(False, 0), (True, 1)], ids=["clean", "crashed"])
def test_what_a_start_would_cut_as_torn_is_bad(tmp_path: Path, capsys: Output, crashed: bool, code: int) -> None:
    """No checksum covers properties, but the zeros that a torn write leaves show."""
    store = unpack("rolled", tmp_path)
    last = expected_messages("rolled")[-1]
    end = last["physicalOffset"] + last["storeSize"]
    with (store / "commitlog" / f"{end // 65536 * 65536:020d}").open("r+b") as file:
        file.seek(end % 65536 - 1)
        file.write(b"\0")
    if crashed:
        (store / "abort").touch()
    assert run(["log", "verify", str(store), "--no-queues"]) == code
    told = capsys.readouterr().out
    assert (f"(offset {last['physicalOffset']}): its properties were torn" in told) == crashed
    assert f"{len(expected_messages('rolled')) - crashed:,} records" in told
