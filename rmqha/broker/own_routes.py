"""OwnRoutes: a broker is a name server for its group. Its topics are at hand; other brokers of the group register.

So clients and mqadmin can be given brokers' addresses where they want a name server's.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from rmqha.broker.replication import Replication
from rmqha.broker.tables.told_topics import told_topic, told_topics
from rmqha.broker.tables.topic_config import TopicConfig
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.codec.namesrv_headers import RegisterBrokerResponseHeader
from rmqha.codec.register_broker import DataVersion
from rmqha.codec.route import MASTER_ID, PERM_WRITE, BrokerData, QueueData
from rmqha.config import BrokerConfig
from rmqha.errors import RemoteProtocolError
from rmqha.namesrv.kv_config_manager import KVConfigManager
from rmqha.namesrv.name_service import NameService
from rmqha.namesrv.route_info_manager import RouteInfoManager
from rmqha.namesrv.routes import BrokerConnection, BrokerGroup, Registration
from rmqha.store.config_files import ConfigFiles


class OwnRoutes:
    """See :class:`~rmqha.namesrv.routes.Routes`, and :class:`~rmqha.namesrv.routes.BrokerGroup`: there is one.

    Invariant: a client hears of a topic only when ``topics.json`` has it, and where a master's tables are followed,
    when they have it.
    """

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicConfigManager,
        replication: Replication,
        *,
        address: Callable[[], str],
    ) -> None:
        """Only this broker is known yet.

        Args:
            config: the operator's decisions.
            topics: of this broker.
            replication: knows who is master.
            address: where clients find this broker.
        """
        self._config: Final = config
        self._topics: Final = topics
        self._replication: Final = replication
        self._address: Final = address
        self._registered: Final = RouteInfoManager()
        self._is_wiped = False

    # ---- the group

    @property
    def cluster(self) -> str:
        """As :attr:`BrokerGroup.cluster`."""
        return self._config.broker_cluster_name

    @property
    def _broker_name(self) -> str:
        return self._replication.group.broker_name

    @property
    def data(self) -> BrokerData:
        """As :attr:`BrokerGroup.data`; who registered here is there, while of others this broker has only heard."""
        address = self._address()
        known, group = self._replication.broker_addrs(address), self._registered.find(self._broker_name)
        own_ids = {broker_id for broker_id, known_address in known.items() if known_address == address}
        registered = {} if group is None else group.data.broker_addrs
        others = {broker_id: other for broker_id, other in registered.items() if other != address}
        return BrokerData(
            self.cluster,
            self._broker_name,
            known | {broker_id: other for broker_id, other in others.items() if broker_id not in own_ids},
        )

    def queues_of(self, topic: str) -> QueueData | None:
        """As :meth:`BrokerGroup.queues_of`."""
        found = told_topic(self._topics, topic, self._config, follows_tables=self._replication.follows_tables)
        return None if found is None else self._queues(found)

    def topics(self) -> Iterator[tuple[str, QueueData]]:
        """As :meth:`BrokerGroup.topics`."""
        told = told_topics(self._topics, self._config, follows_tables=self._replication.follows_tables)
        return ((topic.topic_name, self._queues(topic)) for topic in told)

    def _queues(self, topic: TopicConfig) -> QueueData:
        return QueueData(
            self._broker_name,
            read_queue_nums=topic.read_queue_nums,
            write_queue_nums=topic.write_queue_nums,
            perm=topic.perm & ~PERM_WRITE if self._is_wiped else topic.perm,
            topic_sys_flag=topic.topic_sys_flag,
        )

    # ---- the routes

    def groups(self) -> Iterable[BrokerGroup]:
        """As :meth:`Routes.groups`."""
        return (self,)

    def find(self, broker_name: str) -> BrokerGroup | None:
        """As :meth:`Routes.find`."""
        return self if broker_name == self._broker_name else None

    def register_broker(
        self, registration: Registration, topics: Mapping[str, QueueData], *, connection: BrokerConnection, now: float
    ) -> RegisterBrokerResponseHeader:
        """As :meth:`Routes.register_broker`: of this group, whose topics this broker has."""
        del topics
        told, address = (registration.cluster, registration.broker_name), self._address()
        if told != (self.cluster, self._broker_name):
            raise RemoteProtocolError(
                f"broker {registration.broker_name:.80} of cluster {registration.cluster:.80} is not registered: this "
                f"broker is a name server for {self._broker_name} of {self.cluster} alone; start one by `rmqha namesrv`"
            )
        known = self._replication.broker_addrs(address).get(registration.broker_id)
        if known == address != registration.broker_addr:
            raise RemoteProtocolError(
                f"{registration.broker_addr} is not registered as broker {registration.broker_id} of {told[1]}: this "
                f"broker is that, at {address}"
            )
        found = self._registered.register_broker(registration, {}, connection=connection, now=now)
        if registration.broker_id != MASTER_ID and _is_master(self._replication, address):
            return RegisterBrokerResponseHeader(self._replication.ha_address, address)
        return found

    def unregister_broker(self, registration: Registration) -> None:
        """As :meth:`Routes.unregister_broker`."""
        self._registered.unregister_broker(registration)

    def query_data_version(self, registration: Registration, *, now: float) -> DataVersion | None:
        """As :meth:`Routes.query_data_version`."""
        return self._registered.query_data_version(registration, now=now)

    def change_write_perm(self, broker_name: str, *, writable: bool) -> Iterator[int]:
        """As :meth:`Routes.change_write_perm`, in one step: of what is told, until this process ends."""
        if broker_name != self._broker_name:
            yield 0
            return
        self._is_wiped = not writable
        yield sum(1 for _ in self._topics)

    def delete_topic(self, topic: str, *, cluster: str | None) -> None:
        """As :meth:`Routes.delete_topic`: what this broker has, it has until it is deleted there (215)."""

    def connection_closed(self, connection: BrokerConnection) -> None:
        """As :meth:`Routes.connection_closed`."""
        self._registered.connection_closed(connection)

    def scan_not_active_broker(self, *, now: float) -> Iterator[None]:
        """As :meth:`Routes.scan_not_active_broker`."""
        return self._registered.scan_not_active_broker(now=now)


def _is_master(replication: Replication, address: str) -> bool:
    """Whether the broker at ``address``, this one, is master."""
    return replication.broker_addrs(address).get(MASTER_ID) == address


def own_name_service(
    config: BrokerConfig,
    topics: TopicConfigManager,
    replication: Replication,
    files: ConfigFiles,
    *,
    address: Callable[[], str],
) -> NameService:
    """The name server that a broker is for its group; what operators keep there is saved beside its tables."""
    kv_config = KVConfigManager(files)
    kv_config.load()
    return NameService(
        OwnRoutes(config, topics, replication, address=address),
        kv_config,
        order_message_enable=True,
        properties=lambda: f"listenPort={config.listen_port}\norderMessageEnable=true\n",
    )
