"""Runs a member as a process: what it may open, and what its exit code says."""

import time
from dataclasses import replace

import structlog
import trio

from rmqha import process
from rmqha.dledger.dledger_server import DLedgerServer
from rmqha.dledger.membership import find_other_group
from rmqha.dledger.open_store import open_store
from rmqha.dledger.other_members import find_other_members, find_others_data
from rmqha.dledger.server_options import ServerOptions
from rmqha.errors import ConfigError
from rmqha.exit_codes import EXIT_OK, EXIT_STORE_FAILED
from rmqha.store.os_disk import OsDisk
from rmqha.transport import TcpNetwork

logger = structlog.get_logger()


def run_server(options: ServerOptions) -> int:
    """Run until SIGTERM or SIGINT; a second one ends the process at once. Returns the exit code."""
    return process.run_server("dledger", lambda: trio.run(_run, _with_descriptors(options)))


def _with_descriptors(options: ServerOptions) -> ServerOptions:
    """As many files as the process may open: at least half of them for the store."""
    hard = process.raise_files_limit()
    if hard is None:
        return options
    connections = max(1, min(options.limits.max_connections, hard // 2))
    return replace(options, limits=replace(options.limits, max_connections=connections))


async def _run(options: ServerOptions) -> int:
    servers: list[DLedgerServer] = []

    async def run(*, task_status: trio.TaskStatus[None]) -> None:
        disk = OsDisk()
        if others := find_other_members(options.store, disk):  # several may share a directory
            logger.warning("dledger_store.of_others", what=others.what, next=others.next)
        if strangers := find_others_data(options.store, disk) or find_other_group(options, disk):
            raise ConfigError(f"{strangers.what}. Nothing was changed. Next: {strangers.next}")
        store = await open_store(options.store, disk)
        server = DLedgerServer(
            options,
            store,
            disk,
            TcpNetwork(tell_lacking=process.tell_lacking),
            now_ms=lambda: time.time_ns() // 1_000_000,
            random=process.chance(),
        )
        servers.append(server)
        await server.run(task_status=task_status)

    def stop() -> None:
        servers[0].stop()

    await process.serve("dledger", run, stop, is_starting=lambda: not servers)
    if (error := servers[0].store.write_error) is not None:
        logger.error("dledger.store_failed", reason=str(error))
        return EXIT_STORE_FAILED
    return EXIT_OK
