"""RouteProcessor: who has which topic, for clients and mqadmin (105, 106, 205, 206, 216, 224, 304, 311-313, 327).

Source: spec: remoting §2.3; rocketmq-all-4.9.8 DefaultRequestProcessor.java, RouteInfoManager.java.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, Final

import trio

from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import GetRouteInfoRequestHeader, decode_header
from rmqha.codec.namesrv_headers import (
    DeleteTopicInNamesrvRequestHeader,
    GetTopicsByClusterRequestHeader,
    WritePermOfBrokerRequestHeader,
)
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.route import QueueData, TopicRouteData, cluster_info_json, encode_route, route_json
from rmqha.namesrv.routes import BrokerGroup, Routes, pickup_topic_route_data
from rmqha.remoting.answers_in_turns import AnswersInTurns
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.store.config_files import encode_in_turns

_LOOKED_AT_ONCE: Final = 1000
_ADDRESSES_AT_ONCE: Final = 256
"""Of brokers in a route that is made in one step: two milliseconds' work."""
_FLAG_UNIT: Final = 1
_FLAG_UNIT_SUB: Final = 2

OrderTopicConf = Callable[[str], str | None]
"""Which queues producers of ordered messages to a topic use, if that is told at all."""
Wanted = Callable[[BrokerGroup, QueueData], bool]


class RouteProcessor:
    """Long answers are made in turns, one at a time."""

    def __init__(self, routes: Routes, *, order_topic_conf: OrderTopicConf) -> None:
        self._routes: Final = routes
        self._order_topic_conf: Final = order_topic_conf
        self._lists: Final = AnswersInTurns()

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Take the codes of clients and mqadmin."""
        dispatcher.register(RequestCode.GET_ROUTEINFO_BY_TOPIC, self.get_route_info_by_topic)
        dispatcher.register(RequestCode.GET_BROKER_CLUSTER_INFO, self.get_broker_cluster_info)
        dispatcher.register(RequestCode.WIPE_WRITE_PERM_OF_BROKER, self.wipe_write_perm_of_broker)
        dispatcher.register(RequestCode.ADD_WRITE_PERM_OF_BROKER, self.add_write_perm_of_broker)
        dispatcher.register(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, self.get_all_topic_list)
        dispatcher.register(RequestCode.DELETE_TOPIC_IN_NAMESRV, self.delete_topic_in_namesrv)
        dispatcher.register(RequestCode.GET_TOPICS_BY_CLUSTER, self.get_topics_by_cluster)
        dispatcher.register(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, self.get_system_topic_list)
        dispatcher.register(RequestCode.GET_UNIT_TOPIC_LIST, self.get_unit_topic_list)
        dispatcher.register(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, self.get_has_unit_sub_topic_list)
        dispatcher.register(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, self.get_has_unit_sub_ununit_topic_list)

    def get_route_info_by_topic(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """105: the brokers that have a topic, with how many queues. A route of thousands is a long answer."""
        header = decode_header(GetRouteInfoRequestHeader, request)
        plain, route = header.accept_standard_json_only, self._find(header.topic)
        if route is None:
            remark = f"No topic route info in name server for the topic: {header.topic}"
            return RemotingCommand(ResponseCode.TOPIC_NOT_EXIST, remark=remark)
        if sum(len(broker.broker_addrs) for broker in route.broker_datas) <= _ADDRESSES_AT_ONCE:
            body = encode_route(route, version=request.version, accept_standard_json_only=plain)
            return RemotingCommand(ResponseCode.SUCCESS, body=body)

        async def make() -> dict[str, Any]:
            found = self._find(header.topic) or TopicRouteData((), ())
            return route_json(found, version=request.version, accept_standard_json_only=plain)

        self._list(connection, request, make)
        return None

    def _find(self, topic: str) -> TopicRouteData | None:
        route = pickup_topic_route_data(self._routes, topic)
        return route and replace(route, order_topic_conf=self._order_topic_conf(topic))

    def get_broker_cluster_info(self, connection: Connection, request: RemotingCommand) -> None:
        """106: the clusters, their brokers, and these brokers' addresses."""

        async def make() -> dict[str, Any]:
            return cluster_info_json([group.data for group in self._routes.groups()], version=request.version)

        self._list(connection, request, make)

    def get_all_topic_list(self, connection: Connection, request: RemotingCommand) -> None:
        """206: the topics of all brokers."""
        self._list_topics(connection, request, lambda _group, _queues: True)

    def get_topics_by_cluster(self, connection: Connection, request: RemotingCommand) -> None:
        """224: the topics of the brokers of one cluster."""
        cluster = decode_header(GetTopicsByClusterRequestHeader, request).cluster
        self._list_topics(connection, request, lambda group, _queues: group.cluster == cluster)

    def get_unit_topic_list(self, connection: Connection, request: RemotingCommand) -> None:
        """311: topics of a unit."""
        self._list_topics(connection, request, lambda _, queues: bool(queues.topic_sys_flag & _FLAG_UNIT))

    def get_has_unit_sub_topic_list(self, connection: Connection, request: RemotingCommand) -> None:
        """312: topics to which groups of units subscribe."""
        self._list_topics(connection, request, lambda _, queues: bool(queues.topic_sys_flag & _FLAG_UNIT_SUB))

    def get_has_unit_sub_ununit_topic_list(self, connection: Connection, request: RemotingCommand) -> None:
        """313: those of them that are of no unit."""
        both = _FLAG_UNIT | _FLAG_UNIT_SUB
        self._list_topics(connection, request, lambda _, queues: queues.topic_sys_flag & both == _FLAG_UNIT_SUB)

    def get_system_topic_list(self, connection: Connection, request: RemotingCommand) -> None:
        """304: the topics that have the names of clusters and brokers, and the address of some broker."""

        async def make() -> dict[str, Any]:
            brokers = [group.data for group in self._routes.groups()]
            names = dict.fromkeys(name for broker in brokers for name in (broker.cluster, broker.broker_name))
            addresses = [address for broker in brokers[:1] for address in broker.broker_addrs.values()]
            return ({"brokerAddr": addresses[0]} if addresses else {}) | {"topicList": list(names)}

        self._list(connection, request, make)

    def _list_topics(self, connection: Connection, request: RemotingCommand, wanted: Wanted) -> None:
        async def make() -> dict[str, Any]:
            names, looked_at = dict[str, None](), 0
            for group in list(self._routes.groups()):
                for topic, queues in group.topics():
                    looked_at += 1
                    if looked_at % _LOOKED_AT_ONCE == 0:
                        await trio.lowlevel.checkpoint()
                    if wanted(group, queues):
                        names[topic] = None
            return {"topicList": list(names)}

        self._list(connection, request, make)

    def _list(
        self, connection: Connection, request: RemotingCommand, make: Callable[[], Awaitable[dict[str, Any]]]
    ) -> None:
        async def answer() -> RemotingCommand:
            return RemotingCommand(ResponseCode.SUCCESS, body=await encode_in_turns(await make()))

        self._lists.answer(connection, request, answer)

    def wipe_write_perm_of_broker(self, connection: Connection, request: RemotingCommand) -> None:
        """205: producers are to leave a broker."""
        self._change_write_perm(connection, request, "wipeTopicCount", writable=False)

    def add_write_perm_of_broker(self, connection: Connection, request: RemotingCommand) -> None:
        """327: they may come back."""
        self._change_write_perm(connection, request, "addTopicCount", writable=True)

    def _change_write_perm(
        self, connection: Connection, request: RemotingCommand, count_name: str, *, writable: bool
    ) -> None:
        broker_name = decode_header(WritePermOfBrokerRequestHeader, request).broker_name

        async def change() -> RemotingCommand:
            count = 0
            for changed in self._routes.change_write_perm(broker_name, writable=writable):
                count = changed
                await trio.lowlevel.checkpoint()
            return RemotingCommand(ResponseCode.SUCCESS, ext_fields={count_name: str(count)})

        self._lists.answer(connection, request, change)

    def delete_topic_in_namesrv(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """216: a topic is gone from the brokers; they do not tell it any more, and it is forgotten here."""
        header = decode_header(DeleteTopicInNamesrvRequestHeader, request)
        self._routes.delete_topic(header.topic, cluster=header.cluster_name or None)
        return RemotingCommand(ResponseCode.SUCCESS)
