"""What every server does as a process: signals, the limit of open files, and what the exit code says."""

import errno
import faulthandler
import gc
import os
import re
import resource
import signal
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from math import floor
from pathlib import Path
from random import Random
from typing import Final

import structlog
import trio

from rmqha import certificates
from rmqha.errors import ConfigError, RmqhaError, errors_in
from rmqha.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from rmqha.service_manager import READY, STOPPING, ServiceManager
from rmqha.stalls import tell_of_stalls

logger = structlog.get_logger()

_STDERR: Final = 2
"""A page of a file that the device cannot read ends the process by SIGBUS: then the last lines here say where."""
_NO_MEMORY: Final = (
    "the system gives this process no more memory: 'ulimit -v', MemoryMax= of its unit and 'free' say how much it may "
    "have; what was acknowledged is in its store, as after a kill: start it again with more"
)
_EXPIRES_SOON_S: Final = 14 * 24 * 3600.0
_LOOKS_S: Final = 60.0
_GC_THRESHOLDS: Final = (10_000, 20, 50)
"""Hardly anything makes reference cycles: collections may be rare. Nobody is answered meanwhile: so they are small.

An object that lives takes a microsecond of one, one to be freed three: of 10,000 that are new some 10 ms, with those of
20 times before 0.2 s, or 0.6 s if all were garbage. The third kind looks at everything, but only if a quarter is new.
"""


def run_server(name: str, serve: Callable[[], int]) -> int:
    """The exit code of ``serve``, or that of an error that it raised, which is in the log as one of the server's."""
    faulthandler.enable(_STDERR, all_threads=False)
    if hasattr(gc, "set_threshold"):  # PyPy's collector has none, and no such pauses
        gc.set_threshold(*_GC_THRESHOLDS)
    failed = f"{name}.failed"
    try:
        return serve()
    except (RmqhaError, OSError, MemoryError, BaseExceptionGroup) as raised:
        for failure in errors_in(raised, RmqhaError, OSError, MemoryError):
            if isinstance(failure, MemoryError):
                logger.error(failed, reason=_NO_MEMORY, exc_info=failure)
            else:
                logger.error(failed, reason=str(failure))
        return EXIT_FAILED


def raise_files_limit() -> int | None:
    """Let this process open as many files and connections as it may; how many that are, None if nothing limits it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return None
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def raise_file_size_limit() -> int | None:
    """Let this process make files as large as it may; how large, in bytes, None if nothing limits it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    return None if hard == resource.RLIM_INFINITY else hard


def tell_lacking(port: int, error: OSError) -> None:
    """Log that nobody is accepted at ``port``: who asks this process how it is gets no answer, and no metrics."""
    pid = os.getpid()
    told = f"it goes on when some are free: 'prlimit --pid {pid} --nofile=NUMBER', or LimitNOFILE= of its unit"
    if error.errno not in (errno.EMFILE, errno.ENFILE):
        told = "it goes on when there is enough: 'dmesg' and 'free' say what took it"
    logger.error("listener.accepts_nobody", port=port, reason=error.strerror or str(error), next=told)


def chance() -> Callable[[], float]:
    """The next of numbers from 0 to 1, another process's are others: not by its id, which is 1 in every container.

    Members of a group that draw the same numbers ask for votes at the same time, again and again.
    """
    return Random().random  # noqa: S311 - spreads votes and reconnects, guards nothing


async def serve(
    name: str,
    run: Callable[..., Awaitable[None]],
    stop: Callable[[], None],
    *,
    is_starting: Callable[[], bool] = lambda: False,
) -> None:
    """Run a server until it ends, or a signal has it end; systemd is told what there is to tell.

    Args:
        name: of the server, in its log.
        run: its life; it reports to its ``task_status`` when it serves.
        stop: begins the end of it.
        is_starting: as :func:`stopped_by_signals` has it.
    """
    manager, state = ServiceManager(os.environ), READY

    def begin_to_stop() -> None:
        nonlocal state
        state = STOPPING
        manager.tell(state)
        stop()

    hung_up, hangups = trio.open_memory_channel[None](1)
    with stopped_by_signals(name, begin_to_stop, on_hangup=hung_up, is_starting=is_starting):
        async with trio.open_nursery() as beating:
            beating.start_soon(manager.beat)
            beating.start_soon(tell_of_stalls)
            beating.start_soon(_read_certificates, hangups)
            beating.start_soon(tell_of_expiry)
            async with trio.open_nursery() as running:
                await running.start(run)
                warn_of_expiry(now_s=time.time())
                manager.tell(state)  # who is stopped before it serves is not ready
            beating.cancel_scope.cancel()


def warn_of_expiry(*, now_s: float) -> None:
    """Log the certificate that ends within two weeks, has ended, or has yet to begin. ``now_s``: since 1970."""
    if (early := certificates.not_valid_yet(now_s=now_s)) is not None:
        logger.error(
            "certificates.not_valid_yet", path=early.path, valid_from=_in_utc(early.begins_s), see="docs/security.md",
            consequence="who checks it makes no new connection until then: compare this clock with that of who made it",
        )  # fmt: skip
    first = certificates.first_to_expire()
    if first is None or first.ends_s - now_s >= _EXPIRES_SOON_S:
        return
    days = round((first.ends_s - now_s) / 86_400, 1)
    if first.ends_s <= now_s:
        logger.error(
            "certificates.expired", path=first.path, days_left=days, see="docs/security.md",
            consequence="who checks it makes no new connection: renew it, then send SIGHUP",
        )  # fmt: skip
    else:
        logger.warning("certificates.expiring", path=first.path, days_left=days, see="docs/security.md")


async def tell_of_expiry(*, now_s: Callable[[], float] = time.time) -> None:
    """As :func:`warn_of_expiry`, once a day and when the certificate ends, until cancelled.

    Certificates go by the wall clock: it is looked at each minute. What is so at the start was told then.
    """
    told = _expiry(now_s())
    while True:
        await trio.sleep(_LOOKS_S)
        present = _expiry(now_s())
        if present not in {None, told}:
            warn_of_expiry(now_s=now_s())
        told = present


def _expiry(now_s: float) -> tuple[str, int] | None:
    """Which certificate ends within two weeks, and in how many days: negative once it has ended."""
    first = certificates.first_to_expire()
    if first is None or first.ends_s - now_s >= _EXPIRES_SOON_S:
        return None
    return first.path, floor((first.ends_s - now_s) / 86_400)


async def _read_certificates(hangups: trio.MemoryReceiveChannel[None]) -> None:
    """At each hangup, until cancelled."""
    async for _ in hangups:
        try:
            files = await certificates.read_again()
            logger.info("certificates.read", files=files, valid_until=_valid_until())
            warn_of_expiry(now_s=time.time())
        except (ConfigError, OSError) as error:
            logger.warning("certificates.kept", reason=str(error), consequence="all that were in use go on to be")


def _valid_until() -> str | None:
    """When the first of the certificates in use ends, in UTC; None without one."""
    first = certificates.first_to_expire()
    return None if first is None else _in_utc(first.ends_s)


def _in_utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


@contextmanager
def stopped_by_signals(
    name: str,
    stop: Callable[[], None],
    *,
    on_hangup: trio.MemorySendChannel[None],
    is_starting: Callable[[], bool] = lambda: False,
) -> Iterator[None]:
    """In the event loop: SIGTERM or SIGINT calls ``stop``, and a second one ends the process at once.

    SIGHUP is told to ``on_hangup``; where a process has a terminal, and was not started by nohup, that has gone then,
    and SIGHUP stops it as well.

    The first ends it at once, too, while ``is_starting``: a recovery may take minutes, and changes nothing that the
    next one would miss. The handlers are Python's own: they run also while the event loop gets no turn.
    """
    token = trio.lowlevel.current_trio_token()
    stopping, stopped, stopped_at_once = f"{name}.stopping", f"{name}.stopped", f"{name}.stopped_at_once"
    count = 0

    def stop_in_loop(signal_name: str) -> None:
        logger.info(stopping, signal=signal_name)
        if is_starting():
            logger.info(stopped, write_error=None, recovered=False)
            os._exit(EXIT_OK)
        stop()

    def on_signal(number: int, _frame: object) -> None:
        nonlocal count
        count += 1
        signal_name = signal.Signals(number).name
        if count == 1:
            token.run_sync_soon(stop_in_loop, signal_name)
            return
        try:
            logger.warning(stopped_at_once, signal=signal_name)
        finally:  # a handler may meet a line that is just being written
            os._exit(EXIT_INTERRUPTED)

    def hang_up_in_loop() -> None:
        with suppress(trio.WouldBlock):
            on_hangup.send_nowait(None)

    def hang_up(_number: int, _frame: object) -> None:
        token.run_sync_soon(hang_up_in_loop, idempotent=True)

    former = {number: signal.signal(number, on_signal) for number in (signal.SIGTERM, signal.SIGINT)}
    is_of_terminal = _has_terminal() and not _is_ignored(signal.SIGHUP)
    former[signal.SIGHUP] = signal.signal(signal.SIGHUP, on_signal if is_of_terminal else hang_up)
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def _has_terminal() -> bool:
    """Whether this process would be told by SIGHUP that its terminal is gone; services have none."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _is_ignored(number: signal.Signals) -> bool:
    """Whether this process was started with the signal ignored: the kernel knows; PyPy's ``getsignal`` does not."""
    try:
        status = Path("/proc/self/status").read_text()
    except OSError:
        return signal.getsignal(number) is signal.SIG_IGN
    ignored = re.search(r"^SigIgn:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return ignored is not None and int(ignored[1], 16) >> (number - 1) & 1 == 1
