"""`rmqha dledger dump` prints what DLedger 0.3.1.2 itself reads in a store that it has written."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from rmqha.cli.main import run
from tests.interop.feature_table import DLEDGER
from tests.interop.ledgers import SIZES, java, script_of

pytestmark = pytest.mark.tries(DLEDGER, "have entries shown by rmqha dledger dump")


def dumped(base: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    assert run(["dledger", "dump", str(base)]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    return [line for line in lines if "blank" not in line]


def test_every_entry_at_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Bodies that leave 8 bytes of a file, or just do not; and a change of term."""
    chance = random.Random(0)
    bodies = [chance.randbytes(size) for size in SIZES * 2]
    held, _ends = java(tmp_path, script=[*script_of(1, bodies[:30]), *script_of(4, bodies[30:])])[tmp_path]
    assert [body for *_, body in held] == bodies
    lines = dumped(tmp_path, capsys)
    assert [(line["index"], line["term"], line["pos"]) for line in lines] == [entry[:3] for entry in held]
    assert [line["bodyLength"] for line in lines] == [len(body) for body in bodies]


def test_what_was_cut_shows_again_in_both(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bodies = [bytes([number]) * 50 for number in range(81)]
    held, _ends = java(tmp_path, script=[*script_of(1, bodies), "follow 2", "truncate 50"])[tmp_path]
    assert len(held) == 51
    assert len(dumped(tmp_path, capsys)) == 81
    assert len(java(tmp_path)[tmp_path][0]) == 81
