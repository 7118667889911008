"""Many seeds: run them on several processes, add up what was reached, and put all digests into one."""

import gc
import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Final, Protocol, cast

import structlog
from structlog.typing import BindableLogger

from tests.sim import shrink, sim_loop
from tests.sim.journal import CountingLogger
from tests.sim.mutants import Mutant
from tests.sim.world import Outcome, simulate

CORPUS = Path(__file__).parent / "corpus"
_CHUNK = 200
"""So many schedules leave some 100 MB of garbage."""
_COUNTER: Final = CountingLogger()


class Run(Protocol):
    """Simulates a seed: of brokers, or of DLedger groups."""

    def __call__(self, seed: int, *, is_last: bool = ...) -> Outcome:
        """See :func:`tests.sim.world.simulate`."""
        ...


_FOR_GOOD: Final = ExitStack()
"""What a process that runs nothing but schedules has entered, and does not leave."""


@dataclass
class Summary:
    """What a range of seeds came to."""

    schedules: int = 0
    failed: list[Outcome] = field(default_factory=list)
    acked: int = 0
    virtual_s: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    _digest: hashlib.blake2b = field(default_factory=lambda: hashlib.blake2b(digest_size=8))

    def add(self, outcome: Outcome) -> None:
        """One more schedule, in the order of the seeds."""
        self.schedules += 1
        self.acked += outcome.acked
        self.virtual_s += outcome.virtual_s
        self.counts.update(outcome.counts)
        self._digest.update(outcome.digest.encode())
        if outcome.violations:
            self.failed.append(outcome)

    @property
    def digest(self) -> str:
        """Depends on every event of every schedule."""
        return self._digest.hexdigest()


def quiet() -> None:
    """Let the brokers' log lines be counted and not written: a simulation has its journal."""
    structlog.configure(wrapper_class=cast(type[BindableLogger], CountingLogger))


def _count_at_once(_: object, method: str) -> object:
    """What a broker's logger does."""
    return getattr(_COUNTER, method)


def _prepare_process() -> None:
    """This process runs schedules and nothing else: it never collects garbage, nor makes a logger for each line."""
    gc.disable()
    _FOR_GOOD.enter_context(sim_loop.installed())
    structlog._config.BoundLoggerLazyProxy.__getattr__ = _count_at_once  # type: ignore[method-assign]


def outcomes(seeds: range, *, jobs: int, run: Run = simulate, chunk: int = _CHUNK) -> Iterator[Outcome]:
    """Every outcome, in the order of the seeds.

    Each chunk has a process of its own, whose garbage goes with it: collecting it was an eighth of the work.
    """
    quiet()
    if hasattr(gc, "freeze"):  # PyPy has none
        gc.freeze()
    chunks = [seeds[start : start + chunk] for start in range(0, len(seeds), chunk)]
    with get_context("fork").Pool(jobs, initializer=_prepare_process, maxtasksperchild=1) as pool:
        for chunk_of_outcomes in pool.imap(partial(_run_chunk, run), chunks):
            yield from chunk_of_outcomes


def _run_chunk(run: Run, seeds: range) -> list[Outcome]:
    return [_run(run, seed) for seed in seeds]


def _run(run: Run, seed: int) -> Outcome:
    """A defect of the simulator that is no Exception would leave the pool waiting for its process for ever."""
    try:
        return run(seed, is_last=True)
    except BaseException as error:
        raise RuntimeError(f"the simulator failed in seed {seed}: {error!r}") from error


def changed(mutant: Mutant, seeds: range, *, run: Run = simulate) -> int:
    """How many schedules a planted bug makes another one of: where there is none it was never reached."""
    quiet()
    count = 0
    for seed in seeds:
        with mutant:
            digest = run(seed).digest
        count += digest != run(seed).digest
    return count


def first_failure(mutant: Mutant, seeds: range, *, run: Run = simulate) -> tuple[int | None, Outcome | None]:
    """How many seeds it takes to find a planted bug, and how it showed; None if it survives.

    A seed that fails without the bug as well says nothing about it, and is passed over.
    """
    quiet()
    for count, seed in enumerate(seeds, 1):
        with mutant:
            outcome = run(seed)
        if outcome.violations and not run(seed).violations:
            assert not _is_misfit(outcome), f"{mutant.name} does not fit the code any more: {outcome.traceback}"
            return count, outcome
    return None, None


def _is_misfit(outcome: Outcome) -> bool:
    """Whether the planted bug itself is broken, rather than the code with it."""
    return any("TypeError" in violation or "AttributeError" in violation for violation in outcome.violations)


def corpus() -> dict[str, shrink.Tape]:
    """The tapes of failures that have been repaired, by name."""
    return {path.stem: shrink.Tape.from_json(json.loads(path.read_text())) for path in sorted(CORPUS.glob("*.json"))}


def keep(name: str, tape: shrink.Tape) -> Path:
    """Add a tape to the corpus."""
    CORPUS.mkdir(exist_ok=True)
    path = CORPUS / f"{name}.json"
    path.write_text(json.dumps(tape.to_json(), indent=1) + "\n")
    return path
