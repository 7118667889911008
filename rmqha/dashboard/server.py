"""Runs the dashboard as a process: the collector, and the site on a port, until a signal."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Final

import structlog
import trio

from rmqha import process
from rmqha.codec.host import join_address
from rmqha.dashboard.asking import ThreadAsker
from rmqha.dashboard.collector import Collector
from rmqha.dashboard.site import Site
from rmqha.exit_codes import EXIT_OK
from rmqha.metrics.http_server import UNSENT_BYTES_MAX, HttpServer
from rmqha.transport import TcpNetwork

logger = structlog.get_logger()

_NAME: Final = "dashboard"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What the command was told; times are seconds."""

    addresses: tuple[str, ...]
    host: str
    port: int
    names: tuple[str, ...]
    interval_s: float
    timeout_s: float
    with_groups: bool


def run_dashboard(options: Options) -> int:
    """Run until SIGTERM or SIGINT; returns the exit code."""
    return process.run_server(_NAME, lambda: trio.run(_run, options))


async def _run(options: Options) -> int:
    scope = trio.CancelScope()

    async def run(*, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        with scope:
            async with open_dashboard(options):
                task_status.started()
                await trio.sleep_forever()

    await process.serve(_NAME, run, scope.cancel)
    return EXIT_OK


@asynccontextmanager
async def open_dashboard(options: Options) -> AsyncIterator[str]:
    """Watch and serve while the block runs; yields the page's URL.

    Raises:
        OSError: the address cannot be bound.
    """
    asker = ThreadAsker(timeout_s=options.timeout_s)
    collector = Collector(options.addresses, asker, interval_s=options.interval_s, with_groups=options.with_groups)
    site = Site(collector, asker, names=options.names)
    async with open_site(site, host=options.host, port=options.port) as url, trio.open_nursery() as nursery:
        nursery.start_soon(collector.run)
        yield url
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def open_site(site: Site, *, host: str, port: int) -> AsyncIterator[str]:
    """Serve while the block runs; yields the URL. Raises as :func:`open_dashboard`."""
    listener = await TcpNetwork().listen(host, port, unsent_bytes_max=UNSENT_BYTES_MAX)
    server = HttpServer(site.answer, allow=(), name=_NAME)
    url = f"http://{join_address(host, listener.port)}/"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve, listener)
        logger.info("dashboard.started", url=url)
        if not _is_loopback(host):
            logger.warning("dashboard.exposed", host=host, consequence="who reaches it sees what is in your messages")
        yield url
        nursery.cancel_scope.cancel()


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
