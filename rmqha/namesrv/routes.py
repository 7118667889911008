"""Routes: what a name server answers from, wherever that is kept.

A name server of its own keeps what brokers register (:class:`~rmqha.namesrv.route_info_manager.RouteInfoManager`); a
broker that is one for its group has its topics at hand (:class:`~rmqha.broker.own_routes.OwnRoutes`).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

from rmqha.codec.namesrv_headers import RegisterBrokerResponseHeader
from rmqha.codec.register_broker import NO_TOPICS, DataVersion
from rmqha.codec.route import BrokerData, QueueData, TopicRouteData


class BrokerConnection(Protocol):
    """On which a broker registered."""

    @property
    def peer(self) -> str:
        """``ip:port`` of the broker's end."""
        ...

    def close(self, reason: str) -> None:
        """End it now."""
        ...


@dataclass(frozen=True, slots=True)
class Registration:
    """A broker as it says to be."""

    cluster: str
    broker_name: str
    broker_id: int
    broker_addr: str
    ha_server_addr: str = ""
    data_version: DataVersion = NO_TOPICS


class BrokerGroup(Protocol):
    """A master and its slaves, who have the same name and topics."""

    @property
    def cluster(self) -> str:
        """The cluster that they belong to."""
        ...

    @property
    def data(self) -> BrokerData:
        """Where they are, at this moment; at least one of them."""
        ...

    def queues_of(self, topic: str) -> QueueData | None:
        """How many queues the topic has there; None if they do not have it."""
        ...

    def topics(self) -> Iterator[tuple[str, QueueData]]:
        """All that they have at this moment; they may change before the last one is taken."""
        ...


class Routes(Protocol):
    """The brokers and their topics."""

    def groups(self) -> Iterable[BrokerGroup]:
        """All that there are."""
        ...

    def find(self, broker_name: str) -> BrokerGroup | None:
        """The group of this name."""
        ...

    def register_broker(
        self, registration: Registration, topics: Mapping[str, QueueData], *, connection: BrokerConnection, now: float
    ) -> RegisterBrokerResponseHeader:
        """A broker is there, until ``connection`` ends, and tells its topics; returns where its master is.

        Raises:
            RemoteProtocolError: it is not taken; nothing has changed.
        """
        ...

    def unregister_broker(self, registration: Registration) -> None:
        """A broker leaves; that is fine even if it never came."""
        ...

    def query_data_version(self, registration: Registration, *, now: float) -> DataVersion | None:
        """Which topics the broker told last, None if it is not known; if they are still the same, it is alive."""
        ...

    def change_write_perm(self, broker_name: str, *, writable: bool) -> Iterator[int]:
        """Change the permission of the group's topics, step by step; each step says how many it has changed so far."""
        ...

    def delete_topic(self, topic: str, *, cluster: str | None) -> None:
        """Forget a topic, of one cluster's brokers or of all."""
        ...

    def connection_closed(self, connection: BrokerConnection) -> None:
        """Forget the brokers that registered on it last."""
        ...

    def scan_not_active_broker(self, *, now: float) -> Iterator[None]:
        """Forget, step by step, the brokers that have not registered for too long, and end their connections.

        And what is still kept of those whose connections have ended.
        """
        ...


def pickup_topic_route_data(routes: Routes, topic: str) -> TopicRouteData | None:
    """Who has a topic; None if nobody."""
    brokers, queues = list[BrokerData](), list[QueueData]()
    for group in routes.groups():
        if (found := group.queues_of(topic)) is not None:
            brokers.append(group.data)
            queues.append(found)
    return TopicRouteData(tuple(brokers), tuple(queues)) if queues else None
