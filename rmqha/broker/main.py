"""Runs a broker as a process: what it may open, and what its exit code says."""

import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog
import trio

from rmqha import process
from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.classic.classic_broker import make_classic_broker
from rmqha.broker.dledger.dledger_broker import make_dledger_broker
from rmqha.broker.file_size import why_too_small
from rmqha.broker.tuning import Tuning
from rmqha.config import BrokerConfig
from rmqha.exit_codes import EXIT_OK, EXIT_REPLICATION_ENDED, EXIT_STORE_FAILED
from rmqha.store.os_disk import OsDisk
from rmqha.transport import TcpNetwork

logger = structlog.get_logger()

_OWN_DESCRIPTORS: Final = 512
"""At least so many, and at least half of all, for the store's files, for listeners and for connections to peers."""
_OTHER_DESCRIPTORS: Final = 128
"""Of those so many for what is not a file of the store."""
_FILE_DESCRIPTORS: Final = 2
"""For each file of the store: its own, and Python's of the same file's map."""
_OPEN_FILES_MAX: Final = 4096
"""More would bring little."""
_LINUX_MAP_COUNT: Final = 65_530
_MAPS_SHARE: Final = 4
"""The store may take one part in so many of the maps that a process may have: an open segment is one."""


Observe = Callable[[BrokerController], AbstractAsyncContextManager[object]]


def run_broker(config: BrokerConfig, *, observe: Observe | None = None) -> int:
    """Run until SIGTERM or SIGINT and drain; a second one ends the process at once. Returns the exit code.

    Args:
        config: the operator's decisions.
        observe: a block around the broker's life, in which others may look at it.
    """
    return process.run_server("broker", lambda: _serve(config, observe))


def _serve(config: BrokerConfig, observe: Observe | None) -> int:
    config, open_files_max = with_descriptors(with_file_size(config))
    for note in config.notes:
        logger.warning("config.noted", note=note)
    make = make_dledger_broker if config.enable_dleger_commit_log else make_classic_broker
    controller = make(
        config,
        disk=OsDisk(),
        network=TcpNetwork(tell_lacking=process.tell_lacking),
        now_ms=lambda: time.time_ns() // 1_000_000,
        chance=process.chance(),
        tuning=Tuning(open_files_max=open_files_max),
    )
    trio.run(_run, controller, observe)
    return exit_code_of(controller)


async def _run(controller: BrokerController, observe: Observe | None) -> None:
    async with observe(controller) if observe else nullcontext():
        await process.serve("broker", controller.run, controller.stop, is_starting=lambda: controller.is_recovering)


def exit_code_of(controller: BrokerController) -> int:
    """How the life of a broker went that has ended, with the reason in the log if it did not go well."""
    if (error := controller.store.running_flags.final_error) is not None:
        logger.error("broker.store_failed", reason=str(error))
        return EXIT_STORE_FAILED
    if (error := controller.replication.final_error) is not None:
        logger.error("broker.replication_ended", reason=str(error))
        return EXIT_REPLICATION_ENDED
    return EXIT_OK


def with_file_size(config: BrokerConfig) -> BrokerConfig:
    """Raise the process's limit of the size of a file as far as it goes; what it leaves too small is noted."""
    why = why_too_small(config, process.raise_file_size_limit())
    return replace(config, notes=(*config.notes, why)) if why else config


def with_descriptors(config: BrokerConfig) -> tuple[BrokerConfig, int]:
    """Raise the process's limit of open files as far as it goes, and share it out: see :func:`share_descriptors`."""
    hard = process.raise_files_limit()
    shared, open_files_max = share_descriptors(config, hard)
    if shared.max_connections < config.max_connections and shared.notes == config.notes:
        logger.info("process.limited", files_max=hard, max_connections=shared.max_connections)
    return shared, open_files_max


def share_descriptors(config: BrokerConfig, hard: int | None) -> tuple[BrokerConfig, int]:
    """Share out what a process may open.

    Args:
        config: as the operator has it.
        hard: so many files and connections; None: nothing limits them.

    Returns:
        The configuration, with fewer connections if need be, as enough strangers could otherwise leave the store
        without a descriptor for its next segment, and a failed write is final; and how many of its files the store may
        keep open.
    """
    open_files_max = min(_OPEN_FILES_MAX, max_map_count() // _MAPS_SHARE)
    if hard is None:
        return config, open_files_max
    connections = min(config.max_connections, hard - max(_OWN_DESCRIPTORS, hard // 2) - config.max_ha_connections)
    connections = max(connections, 1)
    left = hard - connections - config.max_ha_connections - _OTHER_DESCRIPTORS
    open_files_max = max(min(open_files_max, left // _FILE_DESCRIPTORS), 1)
    if connections == config.max_connections:
        return config, open_files_max
    lowered = replace(config, max_connections=connections)
    if "maxConnections" not in config.origins:  # nobody asked for the default
        return lowered, open_files_max
    note = (
        f"maxConnections lowered from {config.max_connections} to {connections}: this process may have {hard} files "
        "and connections open (ulimit -Hn, LimitNOFILE=), and the store needs its share"
    )
    return replace(lowered, notes=(*config.notes, note)), open_files_max


def max_map_count() -> int:
    """How many maps the kernel grants a process."""
    try:
        return int(Path("/proc/sys/vm/max_map_count").read_text())
    except (OSError, ValueError):
        return _LINUX_MAP_COUNT
