"""MetricsPage: the text that Prometheus reads. made at most once a second, and in turns.

A family that cannot be told, by a bug here, is left out and counted; the others are told all the same.
"""

from collections.abc import Awaitable, Callable, Iterable
from math import inf
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final, cast

import structlog
import trio
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric

from rmqha.log_limit import LogLimit
from rmqha.metrics.families import counter

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

logger = structlog.get_logger()

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
FRESH_S: Final = 1.0

Source = Callable[[], Iterable[Metric]]


class MetricsPage:
    """One page for all who ask."""

    def __init__(self, sources: Callable[[], Iterable[Source]], *, prepare: Callable[[], Awaitable[None]]) -> None:
        """Make it.

        Args:
            sources: what there is to tell now, and what makes it; each is a turn.
            prepare: done before.
        """
        self._sources: Final = sources
        self._prepare: Final = prepare
        self._text = b""
        self._made_at = -inf
        self._making: Final = trio.Lock()
        self._broken = 0
        self._lines: Final = LogLimit(burst=3)

    async def text(self) -> bytes:
        """The page, at most a second old."""
        async with self._making:
            if trio.current_time() >= self._made_at + FRESH_S:
                self._text = await self._make()
                self._made_at = trio.current_time()
        return self._text

    async def _make(self) -> bytes:
        try:
            await self._prepare()
        except Exception as bug:  # noqa: BLE001 - it costs what is told of topics, not the page
            self._on_bug(bug)
        parts = []
        for source in self._sources():
            families = iter(source())
            while True:
                try:
                    family = next(families, None)
                    if family is None:
                        break
                    parts.append(_text_of(family))
                except Exception as bug:  # noqa: BLE001 - it costs this family, not the page
                    self._on_bug(bug)
                    break
                await trio.lowlevel.checkpoint()
        broken = counter("rmqha_metrics_broken", "Metrics that were left out by a bug.", self._broken)
        return b"".join((*parts, _text_of(broken)))

    def _on_bug(self, bug: Exception) -> None:
        self._broken += 1
        self._lines.log(logger.error, "metrics.broken", reason=repr(bug), exc_info=bug)


def _text_of(family: Metric) -> bytes:
    """The lines of one family: a page in one go would keep everybody else waiting."""
    only = SimpleNamespace(collect=lambda: [family])
    text: bytes = generate_latest(cast("Collector", only))
    return text
