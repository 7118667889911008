"""RouteInfoManager: the brokers that have registered, and what topics each master told.

Each brokerName has its own table of topics: to forget a broker costs nothing, and to look up a topic one look per name.

Source: spec: remoting §2.3; rocketmq-all-4.9.8 RouteInfoManager.java.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Final

import structlog

from rmqha.codec.host import host_of
from rmqha.codec.namesrv_headers import RegisterBrokerResponseHeader
from rmqha.codec.register_broker import NO_TOPICS, DataVersion
from rmqha.codec.route import MASTER_ID, PERM_READ, PERM_WRITE, BrokerData, QueueData
from rmqha.errors import RemoteProtocolError
from rmqha.log_limit import LogLimit
from rmqha.namesrv.displaced_brokers import DisplacedBrokers
from rmqha.namesrv.routes import BrokerConnection, Registration
from rmqha.shares import Room

logger = structlog.get_logger()

BROKER_CHANNEL_EXPIRED_TIME_S: Final = 120.0
"""A broker that has not registered for so long is forgotten."""
SIZE_MAX: Final = 128 * 1024 * 1024
"""Bytes, more or less, of all that brokers have registered: some 400,000 topics."""
_GROUP_SIZE: Final = 64 * 1024
"""Charged for a brokerName: each lookup of a topic asks every group. So there are 2,048 at most."""
_BROKER_SIZE: Final = 4 * 1024
"""Charged for a broker."""
BROKERS_MAX: Final = 64
"""Of one name: each route to its topics names them all."""
_TOPIC_SIZE: Final = 256
_CHANGED_AT_ONCE: Final = 500
_FORGOTTEN_AT_ONCE: Final = 200
"""Some milliseconds' work. A connection may have brought 13,000 brokers."""


@dataclass(eq=False, slots=True)
class _Broker:
    """One that has registered, and is charged to the host from which it did."""

    registration: Registration
    connection: BrokerConnection
    seen_at: float
    host: str
    has_left: bool = False
    """It is in no group any more."""


@dataclass(eq=False, slots=True)
class _Group:
    """The brokers of one name; ``host`` is that of the last one that told topics, and has the charge for them."""

    cluster: str
    broker_name: str
    host: str
    brokers: dict[int, _Broker] = field(default_factory=dict)
    queues: dict[str, QueueData] = field(default_factory=dict)
    size: int = 0
    """What is charged for it, once it has a broker."""
    lacks_some_of: int = 0
    """How many topics were told when some were left out, until as many are, and none is; 0 if none is lacking."""
    displaced: DisplacedBrokers = field(default_factory=DisplacedBrokers)

    @property
    def data(self) -> BrokerData:
        """As :attr:`BrokerGroup.data`."""
        addresses = {broker_id: broker.registration.broker_addr for broker_id, broker in self.brokers.items()}
        return BrokerData(self.cluster, self.broker_name, addresses)

    def queues_of(self, topic: str) -> QueueData | None:
        """As :meth:`BrokerGroup.queues_of`."""
        return self.queues.get(topic)

    def topics(self) -> Iterator[tuple[str, QueueData]]:
        """As :meth:`BrokerGroup.topics`."""
        return iter(list(self.queues.items()))

    def size_with(self, topics: Mapping[str, QueueData]) -> int:
        """What the group takes with these topics besides those that it has."""
        added = topics.keys() - self.queues.keys()
        return max(self.size, _GROUP_SIZE) + _TOPIC_SIZE * len(added) + 4 * sum(map(len, added))


class RouteInfoManager:
    """See :class:`~rmqha.namesrv.routes.Routes`.

    Invariants: a group has at least one broker, and an address is that of one broker. ``_room``, the sum of what the
    groups and brokers take, is at most :data:`SIZE_MAX`. Brokers whose connection ended are in no group, and found by
    nobody; what else is kept of them goes later if they are many: ``_left``.

    Attributes:
        clashes: how many registrations took a place back from another broker that is there as well.
    """

    def __init__(self) -> None:
        self._groups: Final[dict[str, _Group]] = {}
        self._by_address: Final[dict[str, _Broker]] = {}
        self._of_connection: Final[dict[BrokerConnection, dict[_Broker, None]]] = {}
        self._left: Final[list[_Broker]] = []
        self._room: Final = Room("what brokers register", of_host="what brokers on {host} register", size_max=SIZE_MAX)
        self._lines: Final = LogLimit()
        self._warnings: Final = LogLimit()
        self.clashes = 0

    def groups(self) -> Iterable[_Group]:
        """As :meth:`Routes.groups`."""
        return self._groups.values()

    def find(self, broker_name: str) -> _Group | None:
        """As :meth:`Routes.find`."""
        return self._groups.get(broker_name)

    def register_broker(
        self, registration: Registration, topics: Mapping[str, QueueData], *, connection: BrokerConnection, now: float
    ) -> RegisterBrokerResponseHeader:
        """As :meth:`Routes.register_broker`.

        Only a master tells topics, and only when they are others than those that it told last. Topics that it does not
        tell any more stay: a broker may tell but the one that it has just made. New ones for which there is no room are
        left out, with a line in the log, until it tells them again: it is asked to with its next registration.
        """
        self._forget_some()
        name, host = registration.broker_name, host_of(connection.peer)
        former = self._find_broker(registration.broker_addr)
        tells = registration.broker_id == MASTER_ID and not _has_told(former, registration)
        group = self._groups.get(name) or _Group(registration.cluster, name, host)
        _check_brokers(group, registration, former)
        taken = 0 if former is not None else _BROKER_SIZE
        if tells:
            fit = self._that_fit(registration, group, topics, host, taken=taken)
            is_all = len(topics) == len(fit) >= group.lacks_some_of
            group.lacks_some_of = 0 if is_all else max(len(topics), group.lacks_some_of)
            topics = fit
            if group.lacks_some_of:
                registration = replace(registration, data_version=NO_TOPICS)
        size = group.size_with(topics if tells else {})
        self._check_room(registration, host, growth=size - group.size + taken)
        if former is not None:
            self._forget(former, keeps_group=name)
        if (displaced := group.brokers.get(registration.broker_id)) is not None:
            self._forget(displaced, keeps_group=name)
            self._displace(group, displaced, registration, connection.peer, now)
        group.displaced.has_another_id(registration.broker_id, registration.broker_addr)
        self._groups[name], group.cluster = group, registration.cluster
        self._charge_group(group, host if tells else group.host, size)
        if tells:
            group.queues.update(topics)
        self._add(_Broker(registration, connection, now, host), group)
        if former is None:
            self._log(
                "route_info.broker_registered",
                registration,
                topics=len(group.queues),
                instead_of=displaced and displaced.registration.broker_addr,
            )
        return _master_of(group, registration)

    def _that_fit(
        self, registration: Registration, group: _Group, topics: Mapping[str, QueueData], host: str, *, taken: int
    ) -> Mapping[str, QueueData]:
        """Those of its topics for which there is room: what was known stays, and the broker with it."""
        problem = self._room.problem(host, group.size_with(topics) - group.size + taken)
        if not problem:
            return topics
        new = [topic for topic in topics if topic not in group.queues]
        sizes = [*accumulate((_TOPIC_SIZE + 4 * len(topic) for topic in new), initial=group.size_with({}))]
        too_many = bisect_left(sizes, 1, key=lambda size: bool(self._room.problem(host, size - group.size + taken)))
        left_out = set(new[max(too_many - 1, 0) :])
        facts = {"broker_name": registration.broker_name, "address": registration.broker_addr, "reason": problem}
        self._warnings.log(logger.warning, "route_info.topics_left_out", count=len(left_out), **facts)
        return {topic: queues for topic, queues in topics.items() if topic not in left_out}

    def _displace(self, group: _Group, former: _Broker, by: Registration, peer: str, now: float) -> None:
        """Count, and say once a minute, that two brokers take a place from each other."""
        who, address = (former.registration.broker_addr, former.connection.peer), by.broker_addr
        if not group.displaced.displaces(by.broker_id, address=address, peer=peer, former=who, now=now):
            return
        self.clashes += 1
        if group.displaced.may_warn(now=now):
            facts = {"broker_name": by.broker_name, "broker_id": by.broker_id, "addresses": sorted((address, who[0]))}
            self._warnings.log(logger.warning, "route_info.brokers_clash", **facts)

    def _check_room(self, registration: Registration, host: str, *, growth: int) -> None:
        if problem := self._room.problem(host, growth):
            raise RemoteProtocolError(f"broker {registration.broker_name:.80} is not registered: {problem}")

    def _charge_group(self, group: _Group, host: str, size: int) -> None:
        self._room.add(group.host, -group.size)
        self._room.add(host, size)
        group.host, group.size = host, size

    def _add(self, broker: _Broker, group: _Group) -> None:
        group.brokers[broker.registration.broker_id] = broker
        self._by_address[broker.registration.broker_addr] = broker
        self._of_connection.setdefault(broker.connection, {})[broker] = None
        self._room.add(broker.host, _BROKER_SIZE)

    def _forget(self, broker: _Broker, *, keeps_group: str = "") -> None:
        """Forget a broker, and with the last one its group and all its topics."""
        of_connection = self._of_connection[broker.connection]
        del of_connection[broker]
        if not of_connection:
            del self._of_connection[broker.connection]
        self._leave_group(broker, keeps_group=keeps_group)
        self._give_back(broker)

    def _leave_group(self, broker: _Broker, *, keeps_group: str = "") -> None:
        broker.has_left = True
        group = self._groups[broker.registration.broker_name]
        del group.brokers[broker.registration.broker_id]
        if not group.brokers and group.broker_name != keeps_group:
            del self._groups[group.broker_name]
            self._charge_group(group, group.host, 0)

    def _give_back(self, broker: _Broker) -> None:
        del self._by_address[broker.registration.broker_addr]
        self._room.add(broker.host, -_BROKER_SIZE)

    def _find_broker(self, address: str) -> _Broker | None:
        broker = self._by_address.get(address)
        if broker is None or not broker.has_left:
            return broker
        self._give_back(broker)
        return None

    def _forget_some(self) -> bool:
        """Of those whose connections ended; returns whether there are more."""
        for broker in self._left[-_FORGOTTEN_AT_ONCE:]:
            if self._by_address.get(broker.registration.broker_addr) is broker:  # or it has come back
                self._give_back(broker)
                self._log("route_info.broker_forgotten", broker.registration, reason="its connection ended")
        del self._left[-_FORGOTTEN_AT_ONCE:]
        return bool(self._left)

    def _lose(self, broker: _Broker, why: str) -> None:
        self._forget(broker)
        self._log("route_info.broker_forgotten", broker.registration, reason=why)

    def _log(self, event: str, broker: Registration, **facts: object) -> None:
        name, broker_id, address = broker.broker_name, broker.broker_id, broker.broker_addr
        self._lines.log(logger.info, event, broker_name=name, broker_id=broker_id, address=address, **facts)

    def unregister_broker(self, registration: Registration) -> None:
        """As :meth:`Routes.unregister_broker`."""
        broker = self._find_broker(registration.broker_addr)
        if broker is not None and broker.registration.broker_name == registration.broker_name:
            self._lose(broker, "it said goodbye")

    def query_data_version(self, registration: Registration, *, now: float) -> DataVersion | None:
        """As :meth:`Routes.query_data_version`."""
        broker = self._find_broker(registration.broker_addr)
        if broker is None:
            return None
        if broker.registration.data_version == registration.data_version:
            broker.seen_at = now
        return broker.registration.data_version

    def change_write_perm(self, broker_name: str, *, writable: bool) -> Iterator[int]:
        """As :meth:`Routes.change_write_perm`; until the master tells other topics, with their permissions."""
        queues, count = group.queues if (group := self._groups.get(broker_name)) else {}, 0
        for topic in list(queues):
            if (found := queues.get(topic)) is not None:
                perm = PERM_READ | PERM_WRITE if writable else found.perm & ~PERM_WRITE
                queues[topic] = replace(found, perm=perm)
                count += 1
            if count % _CHANGED_AT_ONCE == 0:
                yield count
        yield count

    def delete_topic(self, topic: str, *, cluster: str | None) -> None:
        """As :meth:`Routes.delete_topic`."""
        for group in self._groups.values():
            if cluster in (None, group.cluster) and topic in group.queues:
                del group.queues[topic]
                self._charge_group(group, group.host, group.size - _TOPIC_SIZE - 4 * len(topic))

    def connection_closed(self, connection: BrokerConnection) -> None:
        """As :meth:`Routes.connection_closed`."""
        brokers = self._of_connection.pop(connection, {})
        for broker in brokers:
            self._leave_group(broker)
        self._left.extend(brokers)
        self._forget_some()

    def scan_not_active_broker(self, *, now: float) -> Iterator[None]:
        """As :meth:`Routes.scan_not_active_broker`."""
        while self._forget_some():
            yield
        silence = f"it has not registered for {BROKER_CHANNEL_EXPIRED_TIME_S:g} s"
        expired = [broker for broker in self._by_address.values() if _is_silent(broker, now)]
        for count, broker in enumerate(expired, 1):
            if not broker.has_left and _is_silent(broker, now):
                self._lose(broker, silence)
                broker.connection.close(silence)
            if count % _FORGOTTEN_AT_ONCE == 0:
                yield


def _is_silent(broker: _Broker, now: float) -> bool:
    return now - broker.seen_at > BROKER_CHANNEL_EXPIRED_TIME_S


def _check_brokers(group: _Group, registration: Registration, former: _Broker | None) -> None:
    """Raises RemoteProtocolError: the group would have more brokers than it may."""
    ids = {broker_id for broker_id, broker in group.brokers.items() if broker is not former}
    if len(ids | {registration.broker_id}) > BROKERS_MAX:
        raise RemoteProtocolError(
            f"broker {registration.broker_addr:.80} is not registered: {BROKERS_MAX} brokers of the name "
            f"{registration.broker_name:.80} are, which is the most"
        )


def _has_told(former: _Broker | None, registration: Registration) -> bool:
    """Whether a broker told these topics already, as master of this group."""
    if former is None:
        return False
    told = former.registration
    same_group = (told.broker_name, told.broker_id) == (registration.broker_name, registration.broker_id)
    return same_group and told.data_version == registration.data_version


def _master_of(group: _Group, registration: Registration) -> RegisterBrokerResponseHeader:
    master = group.brokers.get(MASTER_ID)
    if registration.broker_id == MASTER_ID or master is None:
        return RegisterBrokerResponseHeader()
    return RegisterBrokerResponseHeader(master.registration.ha_server_addr, master.registration.broker_addr)
