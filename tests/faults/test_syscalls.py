"""Every system call fails, with every error: syscall x errno x n-th call, by strace, in a pair under load.

The short form takes the first error of each call, once; RMQHA_SYSCALLS=full the whole table of sweep.py, and
RMQHA_SYSCALLS=<regex> those whose name, as slave-running-pwrite64-EIO-5, it matches. ``pytest -s`` shows the result.
A case whose call does not come in time has met nothing: it is counted as that, and not as passed.
"""

import os
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import pytest
import trio

from rmqha.errors import errors_in
from tests.e2e.conftest import Pair
from tests.e2e.processes import reaping
from tests.faults.sweep import DishonestError, Injection, injections
from tests.faults.unprotected import alone
from tests.faults.victim import NOT_MET, Side, Victim

WANTED: Final = os.environ.get("RMQHA_SYSCALLS", "")
LANES: Final = 4
"""So many pairs at a time."""
CASES_OF_A_PAIR: Final = 16
CASE_S: Final = 400
pytestmark = pytest.mark.timeout(1_800 if not WANTED else 0)
_UNHEALTHY: Final = (AssertionError, OSError, trio.TooSlowError)


class Batch(NamedTuple):
    """Cases that one pair meets, one after another."""

    side: Side
    cases: list[Injection]


class Result(NamedTuple):
    """What came of a case."""

    side: Side
    case: Injection
    outcome: str

    @property
    def has_failed(self) -> bool:
        """Whether the broker was dishonest."""
        return self.outcome.startswith("FAILED")

    def __str__(self) -> str:
        return f"{self.side}-{self.case}: {self.outcome}"


def batches() -> list[Batch]:
    """What is wanted, in parts that take about the same time."""
    found = []
    sides: tuple[Side, ...] = ("master", "slave")
    for side in sides:
        cases = injections(side, full=bool(WANTED))
        if WANTED not in ("", "full"):
            cases = [case for case in cases if re.search(WANTED, f"{side}-{case}")]
        parts = -(-len(cases) // CASES_OF_A_PAIR)
        found += [Batch(side, cases[part::parts]) for part in range(parts)]
    return found


async def lane(todo: Iterator[tuple[int, Batch]], results: list[Result], *, directory: Path) -> None:
    """Take one batch after another."""
    for number, batch in todo:
        victim = Victim(directory / str(number), batch.side)
        with reaping(*victim.pair.brokers):
            try:
                await sweep(victim, batch, results, log=directory / "results.txt")
            except (*_UNHEALTHY, BaseExceptionGroup) as raised:
                errors = errors_in(raised, *_UNHEALTHY)
                results.append(Result(batch.side, batch.cases[-1], f"FAILED after its batch: {errors}"))


async def sweep(victim: Victim, batch: Batch, results: list[Result], *, log: Path) -> None:
    """Let the victim meet all cases of a batch."""
    await victim.pair.start()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(victim.load.run)
        await victim.heal()
        for case in batch.cases:
            result = Result(batch.side, case, await outcome(victim, case))
            results.append(result)
            with log.open("a") as results_file:  # to see how it goes
                results_file.write(f"{result}\n")
        nursery.cancel_scope.cancel()
    await victim.all_there()


async def outcome(victim: Victim, case: Injection) -> str:
    """What came of it: the fault, and afterwards health."""
    try:
        with trio.fail_after(CASE_S):
            found = await victim.meet(case)
            await victim.heal()
            return found
    except _UNHEALTHY as error:
        victim.broker.reap()
        await victim.heal()
        return f"FAILED {error}"


def summary(results: list[Result]) -> str:
    """Cases, how many met their fault, and what came of these, by call."""
    lines = [f"{'call':14}{'cases':>8}{'met':>8}{'passed':>8}  absorbed, refused, ended"]
    for call in [*sorted({result.case.call for result in results}), ""]:
        some = [result for result in results if call in ("", result.case.call)]
        met = [result for result in some if result.outcome != NOT_MET]
        counts = Counter(result.outcome for result in met if not result.has_failed)
        ends = ", ".join(str(counts[end]) for end in ("absorbed", "refused", "ended"))
        lines.append(f"{call or 'all':14}{len(some):8}{len(met):8}{counts.total():8}  {ends}")
    return "\n".join(lines)


async def test_no_failing_call_makes_a_broker_dishonest(tmp_path: Path) -> None:
    """Absorbed, refused or ended with a reason; nothing acknowledged is lost, and in the end the logs are equal."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    results: list[Result] = []
    todo = iter(list(enumerate(batches())))
    async with trio.open_nursery() as nursery:
        for _ in range(LANES):
            nursery.start_soon(lambda: lane(todo, results, directory=tmp_path))
    not_met = [f"{result.side}-{result.case}" for result in results if result.outcome == NOT_MET]
    print(f"\n{summary(results)}\nnot met: {' '.join(not_met) or 'none'}")  # noqa: T201
    assert not [str(result) for result in results if result.has_failed]
    assert len(not_met) <= len(results) // 5, "too many calls never came"


@pytest.mark.parametrize("call", ["pwrite64", "fdatasync"])
async def test_control_a_failed_call_that_is_forgotten_is_found(tmp_path: Path, call: str) -> None:
    """The judge sees what a broker without the protection does. Without this, the sweep shows nothing."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    with alone(tmp_path) as broker:
        broker.conf["mappedFileSizeConsumeQueue"] = 2_000
        victim = Victim(tmp_path, "master", pair=Pair(broker, broker))
        await broker.start()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(victim.load.run)
            await victim.heal()
            with pytest.raises(DishonestError, match="a write failed, and the broker goes on"):
                await victim.meet(Injection("running", call, "EIO", "3"))
            nursery.cancel_scope.cancel()
