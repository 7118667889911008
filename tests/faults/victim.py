"""A pair under load of which one broker meets fault after fault, and is judged after each."""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

import trio

from tests.e2e.commitlog import HeldMessages
from tests.e2e.conftest import Pair
from tests.e2e.load import LoadProducer, Sends, body_of_size, wait_in_sync
from tests.faults.conftest import make_pair
from tests.faults.proofs import all_there, status
from tests.faults.sweep import (
    DISK,
    MAKES_ROOM,
    QUIET,
    THREADS,
    DishonestError,
    Injection,
    has_failed,
    is_told,
    judge,
)
from tests.faults.tracing import at_start, attached, injected

MEETING_S: Final = 6
"""So long a running broker has time to make the n-th call,"""
MEETING_ANSWERS: Final = 300
"""and until so many more requests were answered, in which a slow machine makes as many calls as a fast one,"""
MEETING_S_MAX: Final = 40
"""but no longer."""
SETTLED_S: Final = 60
"""A broker that answers nothing for so long hangs."""
TOLD_S: Final = 20
"""So soon the log says it."""
NOT_MET: Final = "not met"
CONF: Final = {
    "mappedFileSizeCommitLog": 1 << 17,
    "mappedFileSizeConsumeQueue": 1_000,
    "flushIntervalConsumeQueue": 100,
    "haTransferBatchSize": 100_000,
    "slaveTimeout": 200,
    "haCatchUpAtStart": "try",
}
"""Small files, so that several are made in a second."""
BODY_SIZES: Final = [700] * 30 + [80_000]

Side = Literal["master", "slave"]


class Victim:
    """One side of a pair. Use ``run`` around everything else."""

    def __init__(self, directory: Path, side: Side, *, pair: Pair | None = None) -> None:
        self.pair = pair or make_pair(directory, **CONF)
        self.broker = self.pair.master if side == "master" else self.pair.slave
        sends = Sends("orders", body=body_of_size(*BODY_SIZES))
        self.load = LoadProducer(self.pair.master.ports.listen, sends, window=8)
        self._directory = directory
        self._held = HeldMessages(self.broker.store / "commitlog", "orders")
        self._fresh = 0

    async def heal(self) -> None:
        """Without a fault it runs, takes new connections, and messages are acknowledged; if need be after a restart.

        While it is down, everything acknowledged has to be in its log.
        """
        if self.broker.child is None or self.broker.running.returncode is not None:
            self.nothing_lost()
            await self.broker.start()
        with trio.fail_after(SETTLED_S):
            await wait_in_sync(self.pair.master.ports.listen)
            await (await trio.open_tcp_stream("127.0.0.1", self.broker.ports.listen)).aclose()
        await self.load.wait_acknowledged(10, timeout_s=SETTLED_S)

    def nothing_lost(self) -> None:
        """Its log as it is on disk holds what was acknowledged."""
        if not (self.broker.store / "commitlog").exists():
            return
        missing = self.load.acknowledged - self._held.read(torn=True)
        assert not missing, f"acknowledged and lost: {sorted(missing)[:5]}"

    async def all_there(self) -> None:
        """In the end the logs are equal, and hold everything acknowledged. A slave's fault is no error of a master."""
        assert self.broker is self.pair.master or not self.load.unexpected, self.load.unexpected[:3]
        await all_there(self.pair, self.load.acknowledged)

    async def meet(self, injection: Injection) -> str:
        """Let it meet one fault; returns what came of it, or NOT_MET."""
        report = self._directory / f"{injection}.strace"
        return await {"running": self._running, "start": self._starting, "stop": self._stopping}[injection.phase](
            injection, report
        )

    async def _running(self, injection: Injection, report: Path) -> str:
        child = self.broker.running
        before = len(child.output())
        async with attached(injection, self.broker, report=report, topics=self._topics()):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._stir)
                await self._until(self._has_met(report), timeout_s=MEETING_S_MAX)
                nursery.cancel_scope.cancel()
            if injected(report):
                await self._settle()
        return await self._judged(injection, before=before, count=injected(report))

    def _has_met(self, report: Path) -> Callable[[], bool]:
        """Whether a running broker has made the n-th call, or had its chances."""
        enough_at, enough = trio.current_time() + MEETING_S, self._answers() + MEETING_ANSWERS
        return lambda: injected(report) > 0 or (trio.current_time() >= enough_at and self._answers() >= enough)

    async def _starting(self, injection: Injection, report: Path) -> str:
        """Its start after a kill -9."""
        await self.broker.kill()
        self.nothing_lost()
        self.broker.prefix = at_start(injection, self.broker, report=report, topics=self._topics())
        child = self.broker.launch()
        self.broker.prefix = ()
        await self._until(lambda: "broker.started" in child.output(), timeout_s=SETTLED_S)
        await self._settle()
        if child.returncode is None:
            await self.broker.stop()
        return await self._judged(injection, before=0, count=injected(report))

    async def _stopping(self, injection: Injection, report: Path) -> str:
        before = len(self.broker.running.output())
        async with attached(injection, self.broker, report=report, topics=self._topics()):
            await self.broker.stop()
        return await self._judged(injection, before=before, count=injected(report))

    async def _judged(self, injection: Injection, *, before: int, count: int) -> str:
        child = self.broker.running
        if count and injection.call in DISK:
            if injection.call not in QUIET and injection.error not in MAKES_ROOM:
                await self._until(lambda: is_told(injection, child.output()), timeout_s=TOLD_S)
            await self._settle(self.load.window)  # another thread's call may have failed just before the tracer left
        if child.returncode is None and has_failed(child.output()):
            await self._refuses(injection)
            await self.broker.stop()
        output = child.output()
        if os.strerror(errno.ENOSYS) in output[before:]:
            return NOT_MET  # the tracer left in the middle of a call, of which it had taken the number
        outcome = judge(injection, output[before:], exit_code=child.returncode, count=count)
        made_room = outcome == "absorbed" and injection.error in MAKES_ROOM
        if count and injection.call in DISK.keys() - QUIET and not (made_room or is_told(injection, output)):
            raise DishonestError(f"{injection}: the log does not say so\n{output[before:][-6_000:]}")
        return outcome if count else NOT_MET

    async def _refuses(self, injection: Injection) -> None:
        """Nothing is acknowledged any more, and the operator is told why."""
        await self._settle(2 * self.load.window)  # what was underway may still be SEND_OK
        final = len(self.load.acknowledged)
        await self._settle()
        if len(self.load.acknowledged) != final and not self._replicates_on(self.broker.running.output()):
            raise DishonestError(f"{injection}: SEND_OK goes on after {self.load.codes}")
        if injection.when == "1":  # a process for each status: once for each error is enough
            code, text = await status(self.broker)
            if code != 1 or not (is_told(injection, text) or injection.call in THREADS):
                raise DishonestError(f"{injection}: the status is {code}\n{text}")

    def _replicates_on(self, output: str) -> bool:
        """A slave that cannot dispatch has the log all the same; its next start dispatches what is missing."""
        return self.broker is self.pair.slave and "store.write_failed" not in output

    async def _settle(self, more: int = 30) -> None:
        """Return when so many were answered, or it has ended. A hang, in which nobody is answered, is a failure."""
        goal = self._answers() + more
        await self._until(lambda: self._answers() >= goal, timeout_s=SETTLED_S)
        child = self.broker.running
        if self._answers() < goal and child.returncode is None:
            raise DishonestError(f"nobody is answered: {self.load.codes}\n{child.output()[-4_000:]}")

    def _answers(self) -> int:
        return sum(self.load.codes.values())

    async def _until(self, condition: Callable[[], bool], *, timeout_s: float) -> None:
        """Return when it holds, the broker has ended, or the time is over: there is nothing to wait on."""
        with trio.move_on_after(timeout_s):
            while not condition() and self.broker.running.returncode is None:  # noqa: ASYNC110
                await trio.sleep(0.02)

    def _topics(self) -> list[str]:
        return ["orders", "warm-up", *(f"fresh-{self._fresh + more}" for more in range(20))]

    async def _stir(self) -> None:
        """New connections to both ports, and new topics, so that the calls for these are made as well."""
        while True:
            fresh = LoadProducer(self.load.port, Sends(f"fresh-{self._fresh}", body=body_of_size(10)), window=1)
            self._fresh += 1
            with trio.move_on_after(0.4):
                await fresh.run()
            with suppress(OSError):
                await (await trio.open_tcp_stream("127.0.0.1", self.broker.ports.listen)).aclose()
