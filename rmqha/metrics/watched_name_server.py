"""A name server as its observability port sees it."""

from collections.abc import Iterable, Iterator
from typing import Final

from prometheus_client.metrics_core import Metric

from rmqha import __version__
from rmqha.metrics.families import counter, counters, gauge, gauges
from rmqha.metrics.http_server import HttpServer
from rmqha.metrics.page import Source
from rmqha.namesrv.namesrv_controller import NamesrvController


class WatchedNameServer:
    """See :class:`~rmqha.metrics.port.Watched`."""

    def __init__(self, name_server: NamesrvController, port: HttpServer) -> None:
        self._name_server: Final = name_server
        self._port: Final = port

    def sources(self) -> Iterable[Source]:
        """See :meth:`Watched.sources`."""
        return [self._families]

    async def prepare(self) -> None:
        """See :meth:`Watched.prepare`."""

    def why_not_ready(self) -> list[str]:
        """See :meth:`Watched.why_not_ready`."""
        if self._name_server.is_stopping:
            return ["stopping"]
        return [] if self._name_server.server is not None else ["starting"]

    def what_passes(self) -> list[str]:
        """See :meth:`Watched.what_passes`."""
        return []

    def _families(self) -> Iterator[Metric]:
        address, server = self._name_server.address, self._name_server.server
        yield gauges("rmqha_namesrv_info", "Who this is.", ["version", "address"], {(__version__, address): 1.0})
        yield gauge("rmqha_ready", "1 if /readyz answers 200.", float(not self.why_not_ready()))
        groups = list(self._name_server.routes.groups())
        yield gauge("rmqha_namesrv_groups", "Names of brokers that have registered.", len(groups))
        yield gauge("rmqha_namesrv_brokers", "Brokers that have registered.", sum(len(one.brokers) for one in groups))
        yield gauge("rmqha_namesrv_topics", "Topics of all names.", sum(len(one.queues) for one in groups))
        meaning = "Registrations that took a place back from another broker that registers there, too."
        yield counter("rmqha_namesrv_clashes", meaning, self._name_server.routes.clashes)
        refused = {"metrics": dict(self._port.refused)}
        if server is not None:
            yield gauge("rmqha_connections", "Clients and brokers connected.", len(server.connections))
            yield gauge("rmqha_connections_max", "maxConnections.", self._name_server.config.max_connections)
            refused["clients"] = dict(server.refused)
        yield counters(
            "rmqha_refused_peers",
            "Connections turned away, and those that did not speak the port's protocol.",
            ["port", "reason"],
            {(name, reason): count for name, counts in refused.items() for reason, count in counts.items()},
        )
