"""`rmqha dledger dump` prints what DLedger 0.3.1.2 itself reads in a store that it has written."""

import json
import random
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rmqha.cli.main import run
from tests.interop.peers import JAVA_OPTIONS, rocketmq_libs

SIZES = [5, 0, 1, 2, 100, 8136, 8135, 8088, 40, 1000, *range(200, 3000, 150)]
Entry = tuple[int, int, int, str]


def java(base: Path, *script: str) -> list[Entry]:
    """What DLedger holds in a store after the script: index, term, position, body."""
    argv = ["java", *JAVA_OPTIONS, "-cp", f"{rocketmq_libs()}/*", str(Path(__file__).parent / "Ledger.java")]
    argv += ["8192", "2048", str(base)]
    done = subprocess.run(argv, input="\n".join(script), capture_output=True, text=True, timeout=120, check=False)
    assert f"ends {base}" in done.stdout, done.stdout[-3000:] + done.stderr[-3000:]
    lines = [[*line.split(), ""] for line in done.stdout.splitlines() if line.startswith("entry ")]
    return [(int(index), int(term), int(pos), body) for _, index, term, pos, body, *_ in lines]


def appends(bodies: Sequence[bytes]) -> list[str]:
    return [f"append {body.hex()}".strip() for body in bodies]


def dumped(base: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert run(["dledger", "dump", str(base)]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [line for line in lines if "blank" not in line]


def test_every_entry_at_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bodies that leave 8 bytes of a file, or just do not; and a change of term."""
    chance = random.Random(0)
    bodies = [chance.randbytes(size) for size in SIZES * 2]
    held = java(tmp_path, "lead 1", *appends(bodies[:30]), "lead 4", *appends(bodies[30:]))
    assert [bytes.fromhex(body) for *_, body in held] == bodies
    lines = dumped(tmp_path, capsys)
    assert [(line["index"], line["term"], line["pos"]) for line in lines] == [entry[:3] for entry in held]
    assert [line["bodyLength"] for line in lines] == [len(body) for body in bodies]


def test_what_was_cut_shows_again_in_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bodies = [bytes([number]) * 50 for number in range(81)]
    assert len(java(tmp_path, "lead 1", *appends(bodies), "follow 2", "truncate 50")) == 51
    assert len(dumped(tmp_path, capsys)) == 81
    assert len(java(tmp_path)) == 81
