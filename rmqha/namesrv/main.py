"""Runs a name server as a process: what it may open, and what its exit code says."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from typing import Final

import structlog
import trio

from rmqha import process
from rmqha.config.namesrv_config import NamesrvConfig
from rmqha.exit_codes import EXIT_OK
from rmqha.namesrv.namesrv_controller import NamesrvController
from rmqha.store.os_disk import OsDisk
from rmqha.transport import TcpNetwork

logger = structlog.get_logger()

_OWN_DESCRIPTORS: Final = 64
Observe = Callable[[NamesrvController], AbstractAsyncContextManager[object]]


def run_name_server(config: NamesrvConfig, *, observe: Observe | None = None) -> int:
    """Run until SIGTERM or SIGINT; a second one ends the process at once. Returns the exit code.

    Args:
        config: the operator's decisions.
        observe: a block around the name server's life, in which others may look at it.
    """
    for note in config.notes:
        logger.warning("config.noted", note=note)
    return process.run_server("namesrv", lambda: trio.run(_run, _with_descriptors(config), observe))


def _with_descriptors(config: NamesrvConfig) -> NamesrvConfig:
    """As many connections as the process may have."""
    hard = process.raise_files_limit()
    if hard is None:
        return config
    return replace(config, max_connections=max(1, min(config.max_connections, hard - _OWN_DESCRIPTORS)))


async def _run(config: NamesrvConfig, observe: Observe | None) -> int:
    controller = NamesrvController(config, disk=OsDisk(), network=TcpNetwork(tell_lacking=process.tell_lacking))
    async with observe(controller) if observe else nullcontext():
        await process.serve("namesrv", controller.run, controller.stop)
    return EXIT_OK
