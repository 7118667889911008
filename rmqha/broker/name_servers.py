"""NameServers: a broker on a DLedger group tells RocketMQ's name servers who it is, and asks them who is master.

Clients of RocketMQ find brokers there, and RocketMQ's own followers learn there from which broker to take topics and
consumers' offsets. A name server forgets a broker when the connection ends on which that one told of itself.

Source: spec: remoting §2.3 (103, 105), §5.4; rocketmq-all-4.9.8 BrokerController.java, RouteInfoManager.java.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

import structlog
import trio

from rmqha.broker.config_files import encode_in_turns
from rmqha.broker.topic_config_manager import TopicConfigManager
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import GetRouteInfoRequestHeader, RegisterBrokerRequestHeader, encode_header
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.route import MASTER_ID, decode_route
from rmqha.config import BrokerConfig
from rmqha.errors import RemoteProtocolError, RemotingError
from rmqha.remoting.client import RemotingClient, open_remoting_client
from rmqha.transport import Network

logger = structlog.get_logger()

_PERIOD_S: Final = 30.0
"""A name server drops who is silent for 120 s."""
_LOOKS_AGAIN_S: Final = 0.5
_AGAIN_S: Final = 5.0
_ANSWER_S: Final = 6.0


class Presence(NamedTuple):
    """Who this broker is at this moment; when it is another, name servers are told at once."""

    broker_id: int
    data_version: tuple[int, int]
    """Of its topics, which only a master tells: (0, 0) for a slave."""


class NameServers:
    """Keeps one connection to each name server."""

    def __init__(
        self,
        config: BrokerConfig,
        topics: TopicConfigManager,
        *,
        network: Network,
        address: Callable[[], str],
        is_master: Callable[[], bool],
    ) -> None:
        """Nothing is connected yet.

        Args:
            config: with the addresses of the name servers.
            topics: of this broker.
            network: the door to them.
            address: where clients find this broker.
            is_master: whether it is master now.
        """
        self._config: Final = config
        self._topics: Final = topics
        self._network: Final = network
        self._address: Final = address
        self._is_master: Final = is_master

    async def run(self) -> None:
        """Be registered with all of them, until cancelled."""
        async with trio.open_nursery() as nursery:
            for name_server in self._config.namesrv_addr:
                nursery.start_soon(self._stay_registered, name_server)

    async def _stay_registered(self, name_server: str) -> None:
        failure = ""
        while True:
            try:
                async with open_remoting_client(self._network, name_server) as client:
                    while True:
                        presence = await self._register(client)
                        if failure:
                            logger.info("name_servers.registered", name_server=name_server)
                        failure = ""
                        await self._wait_for_news(client, presence)
            except (RemotingError, RemoteProtocolError) as error:
                if not failure:
                    logger.warning("name_servers.not_registered", name_server=name_server, reason=str(error))
                failure = str(error)
            await trio.sleep(_AGAIN_S)

    def _presence(self) -> Presence:
        if self._is_master():
            return Presence(MASTER_ID, self._topics.data_version)
        return Presence(self._config.broker_id, (0, 0))

    async def _register(self, client: RemotingClient) -> Presence:
        """Tell who this broker is; a name server takes topics from masters alone."""
        presence, config, address = self._presence(), self._config, self._address()
        is_master = presence.broker_id == MASTER_ID
        topics = {"filterServerList": [], "topicConfigSerializeWrapper": self._topics.to_json()} if is_master else None
        header = RegisterBrokerRequestHeader(
            broker_name=config.broker_name,
            broker_addr=address,
            cluster_name=config.broker_cluster_name,
            ha_server_addr=address,
            broker_id=presence.broker_id,
        )
        body = await encode_in_turns(topics) if topics else b""
        await _ask(client, RemotingCommand(RequestCode.REGISTER_BROKER, ext_fields=encode_header(header), body=body))
        return presence

    async def _wait_for_news(self, client: RemotingClient, told: Presence) -> None:
        with trio.move_on_after(_PERIOD_S):
            while self._presence() == told and not client.closed:  # noqa: ASYNC110 - of three kinds, which tell nobody
                await trio.sleep(_LOOKS_AGAIN_S)

    async def find_master(self) -> str:
        """``host:port`` of the broker of this name that was last told to be master; empty if none is known."""
        header = GetRouteInfoRequestHeader(self._config.broker_name)  # each broker has a topic of its own name
        request = RemotingCommand(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields=encode_header(header))
        for name_server in self._config.namesrv_addr:
            try:
                async with open_remoting_client(self._network, name_server) as client:
                    route = decode_route((await _ask(client, request)).body)
            except (RemotingError, RemoteProtocolError) as error:
                logger.debug("name_servers.no_answer", name_server=name_server, reason=str(error))
                continue
            for broker in route.broker_datas:
                if broker.broker_name == self._config.broker_name and MASTER_ID in broker.broker_addrs:
                    return broker.broker_addrs[MASTER_ID]
        return ""


async def _ask(client: RemotingClient, request: RemotingCommand) -> RemotingCommand:
    """The answer. Raises RemotingError, or RemoteProtocolError if it is an error."""
    answer = await client.invoke(request, timeout_s=_ANSWER_S)
    if answer.code != ResponseCode.SUCCESS:
        remark = f"{answer.remark or 'no reason given'!s:.200}"
        raise RemoteProtocolError(f"request {request.code} is answered with error {answer.code}: {remark}")
    return answer
