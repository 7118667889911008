"""Every system call fails once, with every error: syscall x errno x n-th call, by strace.

Each call fails in the short form; RMQHA_SYSCALLS=full takes the whole table of sweep.py (about a thousand cases for
each side, hours), RMQHA_SYSCALLS=<regex> those whose name, as pwritev2-EIO-3, it matches.
"""

import os
import re
import shutil
from pathlib import Path

import pytest
import trio

from tests.e2e.commitlog import HeldMessages
from tests.e2e.load import LoadProducer, Sends, body_of_size
from tests.e2e.processes import RmqhaBroker, reaping
from tests.faults.conftest import make_pair
from tests.faults.proofs import all_there
from tests.faults.sweep import Injection, answers, has_failed, injected, injections, judge, wait_until
from tests.faults.unprotected import alone

WANTED = os.environ.get("RMQHA_SYSCALLS", "")
SETTLED_S = 12


def _wanted(side: str) -> list[Injection]:
    if WANTED in ("", "full"):
        return injections(side, full=WANTED == "full")
    return [injection for injection in injections(side, full=True) if re.search(WANTED, str(injection))]


async def _settled(victim: RmqhaBroker, load: LoadProducer) -> None:
    """Return when enough was answered, or the victim has ended.

    A hang, in which nobody is answered any more, is a failure.
    """
    goal = answers(load) + 200
    await wait_until(lambda: answers(load) >= goal or victim.running.returncode is not None, timeout_s=SETTLED_S)
    assert answers(load) >= goal or victim.running.returncode is not None, (
        f"no answers: {answers(load) - goal + 200} of 200; {victim.running.output()[-4_000:]}"
    )


async def meet(victim: RmqhaBroker, load: LoadProducer, *, injection: Injection) -> str:
    """Start the victim with the fault, under load, and stop it; returns what came of it."""
    report = victim.directory / f"{injection}.strace"
    victim.prefix = injection.prefix(victim, report)
    child = victim.launch()
    await wait_until(lambda: "broker.started" in child.output() or child.returncode is not None, timeout_s=SETTLED_S)
    await _settled(victim, load)
    if has_failed(victim) and victim.running.returncode is None:
        final = len(load.acknowledged)
        await _settled(victim, load)
        assert len(load.acknowledged) == final, f"{injection}: SEND_OK goes on after {load.codes}"
    exit_code = await victim.stop()
    count = injected(report)
    return f"{judge(victim, injection, exit_code=exit_code, count=count)}, {count} failed"


@pytest.mark.parametrize("side", ["master", "slave"])
async def test_no_failing_call_makes_a_broker_dishonest(tmp_path: Path, side: str) -> None:
    """Absorbed, refused or ended with a reason; nothing acknowledged is lost, and in the end the logs are equal."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    pair = make_pair(tmp_path, slaveTimeout=100, haCatchUpAtStart="try")
    victim, other = (pair.master, pair.slave) if side == "master" else (pair.slave, pair.master)
    results: dict[str, str] = {}
    load = LoadProducer(pair.master.ports.listen, Sends("orders", body_of_size(700)), window=16)
    with reaping(*pair.brokers):
        await other.start()
        held = HeldMessages(victim.store / "commitlog", "orders")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load.run)
            for injection in _wanted(side):
                try:
                    results[str(injection)] = await meet(victim, load, injection=injection)
                except AssertionError as error:
                    results[str(injection)] = f"FAILED {error}"
                    victim.reap()
                with (tmp_path / "results.txt").open("a") as results_file:  # a full run takes hours: see how it goes
                    results_file.write(f"{side:8}{injection!s:30}{results[str(injection)]}\n")
                if (victim.store / "commitlog").exists():
                    assert not load.acknowledged - held.read(torn=True), injection
            victim.prefix = ()
            await victim.start()
            await load.wait_acknowledged(100)
            nursery.cancel_scope.cancel()
        await all_there(pair, load.acknowledged)
    print("\n".join(f"{side:8}{name:30}{result}" for name, result in results.items()))  # noqa: T201
    hits = [result for result in results.values() if not result.endswith(", 0 failed")]
    assert WANTED or len(hits) > len(results) // 2, "most calls never came"
    assert not [name for name, result in results.items() if result.startswith("FAILED")]


@pytest.mark.parametrize("call", ["pwritev2", "fdatasync"])
async def test_control_a_failed_call_that_is_forgotten_is_found(tmp_path: Path, call: str) -> None:
    """The judge and the reader see what a broker without the protection does. Without this, the sweep shows nothing."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    with alone(tmp_path) as broker:
        load = LoadProducer(broker.ports.listen, Sends("orders", body_of_size(700)), window=4)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load.run)
            with pytest.raises(AssertionError, match="the exit code says it did not"):
                await meet(broker, load, injection=Injection(call, "EIO", "3+"))
            nursery.cancel_scope.cancel()
