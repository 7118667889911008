"""The systemd units: systemd reads them, they give away little, and what they forbid a broker does not need.

A systemd runs one in `test_units_run.py`.
"""

import re
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest
import trio

from tests.e2e.commands import rmqha
from tests.e2e.conftest import Pair
from tests.e2e.load import wait_in_sync
from tests.stores import unpack

SCRIPTS = Path(__file__).parents[2] / "scripts"
UNITS = sorted(SCRIPTS.glob("*.service"))
TIMERS = sorted(SCRIPTS.glob("*.timer"))
EXPOSURE_MAX = 3.0


def analyze(*arguments: str) -> str:
    assert which("systemd-analyze"), "install systemd"
    run = subprocess.run(["systemd-analyze", "--no-pager", *arguments], check=False, capture_output=True, text=True)
    return run.stdout + run.stderr


@pytest.mark.parametrize("unit", [*UNITS, *TIMERS], ids=lambda unit: unit.name)
def test_systemd_understands_all_of_it(unit: Path) -> None:
    complaints = [line for line in analyze("verify", str(unit)).splitlines() if unit.stem.rstrip("@") in line]
    assert [line for line in complaints if "is not executable" not in line] == [], "nothing is installed here"


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_little_is_exposed(unit: Path) -> None:
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+)", analyze("security", "--offline=true", str(unit)))
    assert found is not None
    assert float(found[1]) < EXPOSURE_MAX


def allowed_calls(unit: Path) -> set[str]:
    """Of its SystemCallFilter lines; the sets of systemd, and the sets in them."""
    allowed: set[str] = set()
    for inverted, names in re.findall(r"^SystemCallFilter=(~?)(.*)$", unit.read_text(), re.MULTILINE):
        calls = expanded({"@default"} if not inverted else set()) | expanded(set(names.split()))
        allowed = allowed - calls if inverted else allowed | calls
    return allowed


def expanded(names: set[str]) -> set[str]:
    """The calls that sets, and single names, stand for."""
    calls = {name for name in names if not name.startswith("@")}
    for name in names - calls:
        lines = analyze("syscall-filter", name).splitlines()[1:]
        calls |= expanded({line.strip() for line in lines if line.strip() and not line.strip().startswith("#")})
    return calls


async def test_a_pair_makes_no_call_that_its_unit_forbids(strace_pair: Pair, tmp_path: Path) -> None:
    """From its start to its end, sends, a save of its tables and a slave between them."""
    pair, summaries = strace_pair, []
    for broker in (pair.master, pair.slave):
        summaries.append(tmp_path / f"{broker.directory.name}.calls")
        broker.prefix = ["strace", "-D", "-f", "-c", "-o", str(summaries[-1])]
    pair.master.conf["slaveTimeout"] = 20_000  # each call is counted by a tracer
    await pair.start()
    await wait_in_sync(pair.master.ports.listen)
    code, _, err = await rmqha("send", "orders", "--count", "100", "-b", pair.master.address)
    assert code == 0, err
    for broker in (pair.slave, pair.master):
        assert await broker.stop() == 0
    with trio.fail_after(60):  # the tracer ends after what it traces
        while not all(path.exists() and " total\n" in path.read_text() for path in summaries):  # noqa: ASYNC110
            await trio.sleep(0.1)
    made = {call for path in summaries for call in calls_in(path)}
    assert {"fdatasync", "openat", "sendmsg"} & made, made
    assert made <= allowed_calls(SCRIPTS / "rmqha@.service")


def calls_in(summary: Path) -> set[str]:
    """What ``strace -c`` has counted."""
    return {line.split()[-1] for line in summary.read_text().splitlines()[2:-2]}


def test_nor_does_who_reads_a_store_for_damage(tmp_path: Path) -> None:
    summary = tmp_path / "calls"
    tracer = ["strace", "-f", "-c", "-o", str(summary)]
    command = [sys.executable, "-m", "rmqha", "log", "verify", str(unpack("rolled", tmp_path))]
    run = subprocess.run([*tracer, *command], check=False, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    made = calls_in(summary)
    assert "openat" in made
    assert made <= allowed_calls(SCRIPTS / "rmqha-verify@.service")
