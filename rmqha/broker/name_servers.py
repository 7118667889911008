"""NameServers: a broker tells name servers who it is, and learns from them who is master.

Clients find brokers there; a slave that was not told its master's address does, and RocketMQ's followers learn there
from which broker to take topics and consumers' offsets. A name server forgets a broker when the connection ends on
which that one told of itself.

Source: spec: remoting §2.3 (103, 105), §5.4; rocketmq-all-4.9.8 BrokerController.java, RouteInfoManager.java.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from math import inf
from typing import Any, Final, NamedTuple

import structlog
import trio

from rmqha.broker import options
from rmqha.broker.awaited_name_servers import AwaitedNameServers
from rmqha.broker.identity import Identity
from rmqha.broker.tables.told_topics import told_topics
from rmqha.broker.tables.topic_config import TopicConfig
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.broker.taken_places import TakenPlaces
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import GetRouteInfoRequestHeader, decode_header, encode_header
from rmqha.codec.namesrv_headers import RegisterBrokerRequestHeader, RegisterBrokerResponseHeader
from rmqha.codec.register_broker import DataVersion
from rmqha.codec.remoting import HEADER_SIZE_MAX, RemotingCommand
from rmqha.codec.route import MASTER_ID, TopicRouteData, decode_route
from rmqha.config import BrokerConfig, split_told_address
from rmqha.errors import ProtocolError, RemoteProtocolError, RemotingError
from rmqha.remoting.client import RemotingClient, open_remoting_client
from rmqha.store.config_files import encode_in_turns
from rmqha.transport import Network
from rmqha.waiting import DeadlineService

logger = structlog.get_logger()

_LOOKS_AGAIN_S: Final = 0.5
_LOOKS_FOR_MASTER_S: Final = 2.0
_LOOKS_FOR_ANOTHER_S: Final = 2.0
"""Topics that are made one after the other do not wait for that each time."""
_FOUND_S: Final = 0.2
"""No longer than it pauses: what is told to a name server comes behind that on one connection."""
_FINDS_NOTHING_S: Final = 30.0
"""One that does not say so soon enough where brokers are is not asked for so long."""
_AGAIN_S: Final = 5.0
_ANSWER_S: Final = 6.0
_PAUSE_SHARE: Final = 3
"""After each registration a pause so many times as long: topics made meanwhile share the next."""
_PAUSE_MAX_S: Final = 0.2
"""Answers that wait for the next registration wait for that, too: it leaves most of awaited_name_servers.LIMIT_S."""
_TOPICS_AT_ONCE: Final = 1000
_PAGE: Final = "docs/operations.md, 'A name server that does not know this broker'"
_ROUTE_SIZE_MAX: Final = 64 * 1024
"""As many brokers as a name may have, with the longest addresses; read at once, in some milliseconds."""


class FoundMaster(NamedTuple):
    """A slave's master, as a name server knows it."""

    address: str
    ha_address: str


class _Told(NamedTuple):
    """What a name server knows of this broker."""

    identity: Identity
    data_version: DataVersion
    """Of the topics, as they were when it was about to be told."""
    topics: dict[str, TopicConfig]
    saved: int
    """So much of what was saved is told."""
    whole_at: float
    """When it was last told of all topics."""
    has_parts: bool
    """It was told of some since."""


class NameServers:
    """Keeps one connection to each name server.

    Attributes:
        failures: why this broker is not registered, by name server; all others know it, or will in a moment.
    """

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicConfigManager,
        *,
        network: Network,
        identity: Callable[[], Identity],
        on_master: Callable[[FoundMaster], None] = lambda _master: None,
    ) -> None:
        """Nothing is connected yet.

        Args:
            config: with the addresses of the name servers.
            topics: of this broker.
            network: the door to them; TLS is put before it here.
            identity: who this broker is.
            on_master: told a slave's master; again only when it is another.
        """
        self._config: Final = config
        self._topics: Final = topics
        self._network: Final = options.namesrv_network(config, network)
        self._credentials: Final = options.credentials(config)
        self._identity: Final = identity
        self._on_master: Final = on_master
        self.failures: Final = dict[str, str]()
        self._masters: Final = dict[str, FoundMaster]()
        """By the name server that names it."""
        self._master: FoundMaster | None = None
        self._taken_places: Final = TakenPlaces()
        self._news = trio.Event()
        self._wholes = 0
        """How often all topics were told that had been told in parts: as those of another version."""
        self._awaited: Final = AwaitedNameServers(
            topics, tells_topics=self._tells_topics, on_news=self.look_again, clock=trio.current_time
        )

    def _tells_topics(self) -> bool:
        return self._identity().broker_id == MASTER_ID

    @property
    def master(self) -> FoundMaster | None:
        """A slave's master, as long as a name server names it."""
        return self._master if self._master in self._masters.values() else None

    def look_again(self) -> None:
        """What is to be told has changed: tell it now. Of other changes it hears when it looks by itself."""
        self._news.set()
        self._news = trio.Event()

    async def run(self) -> None:
        """Be registered with all of them, until cancelled; then no answer waits for them any more."""
        name_servers = dict.fromkeys(self._config.namesrv_addr)
        with self._awaited.holding(name_servers):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(DeadlineService(self._topics.untold.told.deadlines).run)
                for name_server in name_servers:
                    nursery.start_soon(self._stay_registered, name_server)

    def _connect(self, name_server: str) -> AbstractAsyncContextManager[RemotingClient]:
        """A connection on which no answer's header holds anybody up."""
        return open_remoting_client(
            self._network, name_server, header_size_max=HEADER_SIZE_MAX, credentials=self._credentials
        )

    async def _stay_registered(self, name_server: str) -> None:
        while True:
            try:
                begun_at = trio.current_time()
                async with self._connect(name_server) as client:
                    await self._stay_registered_by(client, name_server, begun_at)
            except (RemotingError, ProtocolError) as error:  # ours as well: a table that is too large to tell
                if name_server not in self.failures:
                    facts = {"name_server": name_server, "reason": str(error), "see": _PAGE}
                    logger.warning("name_servers.not_registered", **facts)
                self.failures[name_server] = str(error)
                self._masters.pop(name_server, None)
                self._awaited.lost(name_server)
                await trio.sleep(_AGAIN_S)

    async def _stay_registered_by(self, client: RemotingClient, name_server: str, begun_at: float) -> None:
        """Until this broker has another name: a name server forgets the former one by a new connection.

        Raises RemotingError or ProtocolError. What is to be told has waited since ``begun_at``.
        """
        name, told, looked_at, had_its_place = self._identity().broker_name, None, -inf, False
        while self._identity().broker_name == name:
            told = await self._register(client, name_server, told)
            registered_at = trio.current_time()
            self._awaited.knows(name_server, told.saved, took_s=registered_at - begun_at)
            if self.failures.pop(name_server, None):
                logger.info("name_servers.registered", name_server=name_server)
            if registered_at - looked_at >= _LOOKS_FOR_ANOTHER_S:
                found = await _find(client, told.identity)
                had_its_place = found == told.identity.address
                looked_at = trio.current_time() + (_FINDS_NOTHING_S if found is None else 0.0)
            await trio.sleep_until(registered_at + min(_PAUSE_SHARE * (registered_at - begun_at), _PAUSE_MAX_S))
            await self._wait_for_news(client, told)
            begun_at = trio.current_time()
            is_due = had_its_place and begun_at - looked_at >= _LOOKS_FOR_ANOTHER_S
            if is_due and self._identity() == told.identity:
                await self._look_for_another(client, name_server, told.identity)

    def _presence(self) -> tuple[Identity, DataVersion]:
        """What is told. A topic that is not saved is not, and saved it makes another version."""
        identity, topics = self._identity(), self._topics
        if identity.broker_id != MASTER_ID:
            return identity, DataVersion()
        timestamp, counter = topics.data_version
        return identity, DataVersion(timestamp, counter + topics.saved.value)

    async def _register(self, client: RemotingClient, name_server: str, former: _Told | None) -> _Told:
        """Tell who this broker is; a name server takes topics from masters alone.

        Between two times that it is told of all topics it is told of those that are new or changed: all of ten
        thousand are two megabytes. It keeps those that it is not told of, and takes none of a version that it knows.
        """
        (identity, data_version), saved, now = self._presence(), self._topics.saved.value, trio.current_time()
        period_s = self._config.register_name_server_period_s
        if former is not None and (former.identity != identity or now - former.whole_at >= period_s):
            self._wholes += former.has_parts
            former = None
        topics = await self._topics_told() if identity.broker_id == MASTER_ID else {}
        news = topics if former is None else await _news_in(topics, former.topics)
        header = RegisterBrokerRequestHeader(
            broker_name=identity.broker_name,
            broker_addr=identity.address,
            cluster_name=self._config.broker_cluster_name,
            ha_server_addr=identity.ha_address,
            broker_id=identity.broker_id,
        )
        version = DataVersion(data_version.timestamp, data_version.counter + self._wholes)
        body = b"" if identity.broker_id != MASTER_ID else await encode_in_turns(_body(news, version))
        request = RemotingCommand(RequestCode.REGISTER_BROKER, ext_fields=encode_header(header), body=body)
        self._learn_master(name_server, decode_header(RegisterBrokerResponseHeader, await _ask(client, request)))
        whole_at = now if former is None else former.whole_at
        return _Told(identity, data_version, topics, saved, whole_at, has_parts=former is not None)

    async def _topics_told(self) -> dict[str, TopicConfig]:
        table = dict[str, TopicConfig]()
        for topic in told_topics(self._topics, self._config, follows_tables=False):
            table[topic.topic_name] = topic
            if len(table) % _TOPICS_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        return table

    def _learn_master(self, name_server: str, told: RegisterBrokerResponseHeader) -> None:
        """The one that is known stays while a name server names it, or none names any."""
        self._masters.pop(name_server, None)
        if not (told.master_addr and told.ha_server_addr):
            return
        for address in (told.master_addr, told.ha_server_addr):
            _check_address(address)
        self._masters[name_server] = FoundMaster(told.master_addr, told.ha_server_addr)
        named = [self._masters[known] for known in self._config.namesrv_addr if known in self._masters]
        if self._master not in named:
            self._master = named[0]
            logger.info("name_servers.master_found", master=named[0].address, ha_address=named[0].ha_address)
            self._on_master(named[0])

    async def _wait_for_news(self, client: RemotingClient, told: _Told) -> None:
        began_at = trio.current_time()
        while self._presence() == (told.identity, told.data_version) and not client.closed:
            left_s = began_at + self._period_s - trio.current_time()
            if left_s <= 0:
                return
            with trio.move_on_after(min(left_s, _LOOKS_AGAIN_S)):
                await self._news.wait()

    @property
    def _period_s(self) -> float:
        """That of registrations at present: the one name server that named the master may be given up meanwhile."""
        looks_for_master = self._config.is_slave and self.master is None
        return _LOOKS_FOR_MASTER_S if looks_for_master else self._config.register_name_server_period_s

    async def _look_for_another(self, client: RemotingClient, name_server: str, identity: Identity) -> None:
        """A name server that took this broker's registration names another one now, or does not."""
        address = await _find(client, identity)
        if address not in (None, "", identity.address) and self._identity() == identity:
            self._taken_places.saw(name_server, identity, address, now=trio.current_time())

    def not_registered(self) -> list[str]:
        """Which name servers do not know this broker, and why, a sentence each."""
        return [f"name server {name} does not know this broker: {why}" for name, why in self.failures.items()]

    def facts(self) -> dict[str, Any]:
        """Of the status document (rmqha/cli/verdict.py) what tells of name servers."""
        taken = self._taken_places.describe(self._identity(), now=trio.current_time())
        return {"not_registered": self.not_registered(), "place_taken": taken}

    async def find_master(self) -> str:
        """``host:port`` of the broker of this name that was last told to be master; empty if none is known."""
        for name_server in self._config.namesrv_addr:
            try:
                async with self._connect(name_server) as client:
                    addresses = await _addresses(client, self._config.broker_name)
            except (RemotingError, RemoteProtocolError) as error:
                logger.debug("name_servers.no_answer", name_server=name_server, reason=str(error))
                continue
            if MASTER_ID in addresses:
                return addresses[MASTER_ID]
        return ""


async def _news_in(topics: dict[str, TopicConfig], former: dict[str, TopicConfig]) -> dict[str, TopicConfig]:
    """What is new, or another one, in turns."""
    news = dict[str, TopicConfig]()
    for number, (name, topic) in enumerate(topics.items(), 1):
        if former.get(name) != topic:
            news[name] = topic
        if number % _TOPICS_AT_ONCE == 0:
            await trio.lowlevel.checkpoint()
    return news


def _body(topics: dict[str, TopicConfig], data_version: DataVersion) -> dict[str, Any]:
    wrapper = {"dataVersion": data_version.to_json(), "topicConfigTable": topics}
    return {"filterServerList": [], "topicConfigSerializeWrapper": wrapper}


async def _find(client: RemotingClient, identity: Identity) -> str | None:
    """Where a name server has the broker of this name and id; empty if it has none, None if it does not say at once."""
    try:
        return (await _addresses(client, identity.broker_name, timeout_s=_FOUND_S)).get(identity.broker_id, "")
    except RemoteProtocolError:
        return ""
    except RemotingError:
        return None


async def _addresses(client: RemotingClient, broker_name: str, *, timeout_s: float = _ANSWER_S) -> dict[int, str]:
    """Of the brokers of a name, by their ids. Raises RemotingError or RemoteProtocolError."""
    header = GetRouteInfoRequestHeader(broker_name)  # each broker has a topic of its own name
    request = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields=encode_header(header))
    brokers = _route_of(await _ask(client, request, timeout_s=timeout_s)).broker_datas
    return next((dict(broker.broker_addrs) for broker in brokers if broker.broker_name == broker_name), {})


def _route_of(answer: RemotingCommand) -> TopicRouteData:
    """Raises RemoteProtocolError: it is none, or too large to be read at once."""
    if len(answer.body) > _ROUTE_SIZE_MAX:
        raise RemoteProtocolError(f"a route of {len(answer.body)} bytes: more than the brokers of one name take")
    return decode_route(answer.body)


def _check_address(address: str) -> None:
    try:
        split_told_address(address)
    except ValueError as error:
        raise RemoteProtocolError(f"the master that it names cannot be reached: {error!s:.200}") from None


async def _ask(client: RemotingClient, request: RemotingCommand, *, timeout_s: float = _ANSWER_S) -> RemotingCommand:
    """The answer. Raises RemotingError, or RemoteProtocolError if it is an error."""
    answer = await client.invoke(request, timeout_s=timeout_s)
    if answer.code != ResponseCode.SUCCESS:
        remark = f"{answer.remark or 'no reason given'!s:.200}"
        raise RemoteProtocolError(f"request {request.code} is answered with error {answer.code}: {remark}")
    return answer
