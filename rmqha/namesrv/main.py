"""Runs a name server as a process: signals, and what the exit code says."""

import faulthandler
import os
import resource
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import structlog
import trio

from rmqha.config.namesrv_config import NamesrvConfig
from rmqha.errors import RmqhaError, errors_in
from rmqha.exit_codes import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from rmqha.namesrv.namesrv_controller import NamesrvController
from rmqha.store.os_disk import OsDisk
from rmqha.transport import TcpNetwork

logger = structlog.get_logger()

_STDERR: Final = 2
_OWN_DESCRIPTORS: Final = 64
_STOP: Final = (signal.SIGTERM, signal.SIGINT)


def run_name_server(config: NamesrvConfig) -> int:
    """Run until SIGTERM or SIGINT; a second one ends the process at once. Returns the exit code."""
    faulthandler.enable(_STDERR, all_threads=False)
    for note in config.notes:
        logger.warning("config.noted", note=note)
    try:
        trio.run(_run, _with_descriptors(config))
    except (RmqhaError, OSError, BaseExceptionGroup) as raised:
        for failure in errors_in(raised, RmqhaError, OSError):
            logger.error("namesrv.failed", reason=str(failure))
        return EXIT_FAILED
    return EXIT_OK


def _with_descriptors(config: NamesrvConfig) -> NamesrvConfig:
    """As many connections as the process may have."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY:
        return config
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return replace(config, max_connections=max(1, min(config.max_connections, hard - _OWN_DESCRIPTORS)))


async def _run(config: NamesrvConfig) -> None:
    controller = NamesrvController(config, disk=OsDisk(), network=TcpNetwork())
    async with trio.open_nursery() as nursery:
        await nursery.start(_watch_signals, controller.stop)
        await controller.run()
        nursery.cancel_scope.cancel()


async def _watch_signals(stop: Callable[[], None], *, task_status: trio.TaskStatus[None]) -> None:
    with trio.open_signal_receiver(*_STOP) as signals:
        task_status.started()
        has_stopped = False
        async for number in signals:
            logger.info("namesrv.stopping", signal=signal.Signals(number).name)
            if has_stopped:
                os._exit(EXIT_INTERRUPTED)
            stop()
            has_stopped = True
