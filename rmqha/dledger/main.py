"""Runs a member as a process: signals, and what the exit code says."""

import faulthandler
import gc
import os
import resource
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Final

import structlog
import trio

from rmqha.dledger.dledger_server import DLedgerServer
from rmqha.dledger.open_store import open_store
from rmqha.dledger.server_options import ServerOptions
from rmqha.errors import RmqhaError, errors_in
from rmqha.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, EXIT_STORE_FAILED
from rmqha.store.disk import Disk
from rmqha.store.os_disk import OsDisk
from rmqha.transport import TcpNetwork

logger = structlog.get_logger()

_STDERR: Final = 2
_GC_THRESHOLDS: Final = (50_000, 20, 100)
"""Entries make no reference cycles; a rare collection keeps its pauses out of the tail latency."""
_STOP: Final = (signal.SIGTERM, signal.SIGINT)


def run_server(options: ServerOptions) -> int:
    """Run until SIGTERM or SIGINT; a second one ends the process at once. Returns the exit code."""
    faulthandler.enable(_STDERR, all_threads=False)
    if hasattr(gc, "set_threshold"):  # PyPy's collector has none, and no such pauses
        gc.set_threshold(*_GC_THRESHOLDS)
    try:
        return trio.run(_run, _with_descriptors(options), OsDisk())
    except (RmqhaError, OSError, BaseExceptionGroup) as raised:
        for failure in errors_in(raised, RmqhaError, OSError):
            logger.error("dledger.failed", reason=str(failure))
        return EXIT_FAILED


def _with_descriptors(options: ServerOptions) -> ServerOptions:
    """As many files as the process may open: at least half of them for the store."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return options
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    connections = max(1, min(options.limits.max_connections, hard // 2))
    return replace(options, limits=replace(options.limits, max_connections=connections))


async def _run(options: ServerOptions, disk: Disk) -> int:
    async with trio.open_nursery() as nursery:
        stops = await nursery.start(_watch_signals)
        store = await open_store(options.store, disk)
        server = DLedgerServer(
            options,
            store,
            disk,
            TcpNetwork(),
            now_ms=lambda: time.time_ns() // 1_000_000,
            random=Random(os.getpid()).random,  # noqa: S311 - spreads votes, guards nothing
        )
        stops.append(server.stop)
        await server.run()
        nursery.cancel_scope.cancel()
    if store.write_error is not None:
        logger.error("dledger.store_failed", reason=str(store.write_error))
        return EXIT_STORE_FAILED
    return EXIT_OK


async def _watch_signals(*, task_status: trio.TaskStatus[list[Callable[[], None]]]) -> None:
    stops: list[Callable[[], None]] = []
    with trio.open_signal_receiver(*_STOP) as signals:
        task_status.started(stops)
        has_stopped = False
        async for number in signals:
            logger.info("dledger.stopping", signal=signal.Signals(number).name)
            if has_stopped:
                os._exit(EXIT_INTERRUPTED)
            if not stops:  # in recovery, which changes nothing that the next one would miss
                os._exit(EXIT_OK)
            stops[0]()
            has_stopped = True
