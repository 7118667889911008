"""`rmqha doctor`: how what it found is shown and counted, and its exit code."""

import json

import pytest

from rmqha.cli import doctor
from rmqha.cli.finding import FAIL, OK, WARN, Finding, Level
from rmqha.cli.main import run

Output = pytest.CaptureFixture[str]
LEVELS: list[tuple[list[Level], int, str]] = [
    ([OK], 0, "0 failed, 0 warnings"),
    ([OK, WARN], 0, "0 failed, 1 warnings"),
    ([WARN, FAIL], 1, "1 failed, 1 warnings"),
    ([FAIL, OK, WARN, WARN, FAIL, FAIL], 1, "3 failed, 2 warnings"),
]


@pytest.mark.parametrize(("found", "code", "last"), LEVELS)
def test_each_finding_counts_the_last_one_too(
    found: list[Level], code: int, last: str, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    findings = [Finding(level, "disk", f"what {at}", f"step {at}") for at, level in enumerate(found)]
    monkeypatch.setattr(doctor, "_findings", lambda *_, **__: findings)
    assert run(["doctor"]) == code
    shown = capsys.readouterr().out
    assert shown.splitlines()[-1] == last
    nexts = [line.strip() for line in shown.splitlines() if "Next: step" in line]
    assert nexts[-len(found) :] == [f"Next: step {at}" for at in range(len(found))]
    told = [line.split() for line in shown.splitlines() if "what" in line][-len(found) :]
    assert told == [[level, "disk", "what", str(at)] for at, level in enumerate(found)]
    assert run(["doctor", "--format", "json"]) == code
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["level"] for line in lines][-len(found) :] == found
