"""A broker as its observability port sees it, from before its recovery to its end."""

from collections.abc import Iterator
from functools import partial
from typing import Final

from rmqha.broker.broker_controller import BrokerController
from rmqha.metrics import broker_families
from rmqha.metrics.http_server import HttpServer
from rmqha.metrics.page import Source
from rmqha.metrics.readiness import what_passes, why_not_ready
from rmqha.metrics.replication_families import replication
from rmqha.metrics.runtime_families import runtime
from rmqha.metrics.topic_families import TopicFamilies


class WatchedBroker:
    """See :class:`~rmqha.metrics.port.Watched`.

    While the store is recovered, or closed, nothing of it is looked at.
    """

    def __init__(self, broker: BrokerController, port: HttpServer) -> None:
        self._broker: Final = broker
        self._port: Final = port
        self._topics: Final = TopicFamilies(broker)

    @property
    def _is_serving(self) -> bool:
        return self._broker.server is not None and not self._broker.stopping.is_set()

    def sources(self) -> Iterator[Source]:
        """See :meth:`Watched.sources`."""
        yield partial(broker_families.whether_it_is_ready, self._broker)
        if not self._is_serving:
            return
        parts = broker_families
        for told in (
            parts.puts,
            parts.pulls,
            parts.log,
            parts.hidden,
            parts.delayed,
            parts.transactions,
            parts.troubles,
            parts.deleted_early,
            parts.certificate,
            parts.disks,
            parts.clients,
            replication,
            runtime,
        ):
            yield partial(told, self._broker)
        yield self._topics.families
        yield lambda: [broker_families.refused_peers(self._broker, metrics=self._port.refused)]

    async def prepare(self) -> None:
        """See :meth:`Watched.prepare`."""
        if self._is_serving:
            await self._topics.refresh()

    def why_not_ready(self) -> list[str]:
        """See :meth:`Watched.why_not_ready`."""
        return why_not_ready(self._broker)

    def what_passes(self) -> list[str]:
        """See :meth:`Watched.what_passes`."""
        return what_passes(self._broker)
