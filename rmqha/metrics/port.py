"""The observability port: /metrics, /livez and /readyz, of a broker or of a name server."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Final, Protocol

import structlog
import trio
from prometheus_client.process_collector import ProcessCollector

from rmqha.codec.host import join_address
from rmqha.config.kinds import split_listen_address
from rmqha.listening import listening_by
from rmqha.metrics.http_server import UNSENT_BYTES_MAX, Answer, Asked, HttpServer
from rmqha.metrics.page import CONTENT_TYPE, MetricsPage, Source
from rmqha.transport import Listener, Network

logger = structlog.get_logger()


class Watched(Protocol):
    """What is told of."""

    def sources(self) -> Iterable[Source]:
        """Of the metrics that there are now."""
        ...

    async def prepare(self) -> None:
        """Before they are read."""
        ...

    def why_not_ready(self) -> list[str]:
        """A sentence for each reason; empty if it is ready."""
        ...

    def what_passes(self) -> list[str]:
        """What one that is ready lacks all the same, a sentence each."""
        ...


class MetricsPort:
    """Answers what is asked; :func:`open_port` has it served."""

    def __init__(self, watch: Callable[[HttpServer], Watched], *, allow: tuple[str, ...]) -> None:
        """Make it.

        Args:
            watch: makes what is told of, which may tell of this port as well.
            allow: networks whose peers may connect; empty: all.
        """
        self.server: Final = HttpServer(self.answer, allow=allow)
        self._watched: Final = watch(self.server)
        self._process: Final = ProcessCollector(registry=None)
        self._page: Final = MetricsPage(
            lambda: [self._process.collect, *self._watched.sources()], prepare=self._watched.prepare
        )
        self._paths: Final[dict[str, Callable[[], Awaitable[Answer]]]] = {
            "/": self._index,
            "/metrics": self._metrics,
            "/livez": self._livez,
            "/readyz": self._readyz,
        }

    async def answer(self, asked: Asked) -> Answer:
        """What there is at a path."""
        page = self._paths.get(asked.path)
        return Answer(404, b"not found: see /\n") if page is None else await page()

    async def _index(self) -> Answer:
        return Answer(200, b"/metrics\n/livez\n/readyz\n")

    async def _metrics(self) -> Answer:
        return Answer(200, await self._page.text(), CONTENT_TYPE)

    async def _livez(self) -> Answer:
        """The event loop runs: that is all there is to say."""
        return Answer(200, b"alive\n")

    async def _readyz(self) -> Answer:
        reasons = self._watched.why_not_ready()
        lines = reasons or ["ready", *self._watched.what_passes()]
        return Answer(503 if reasons else 200, ("\n".join(lines) + "\n").encode())


async def _serve(server: HttpServer, listener: Listener) -> None:
    try:
        await server.serve(listener)
    except Exception as bug:
        logger.error("metrics.ended", reason=repr(bug), exc_info=bug)


@asynccontextmanager
async def open_port(port: MetricsPort, network: Network, *, listen: str) -> AsyncIterator[str]:
    """Serve ``port`` while the block runs; yields ``ip:port`` where it listens.

    Raises:
        OSError: the address cannot be bound.
    """
    host, number = split_listen_address(listen)
    with listening_by("metricsListen"):
        listener = await network.listen(host, number, unsent_bytes_max=UNSENT_BYTES_MAX)
    address = join_address(host, listener.port)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_serve, port.server, listener)
        logger.info("metrics.started", address=address)
        yield address
        nursery.cancel_scope.cancel()
