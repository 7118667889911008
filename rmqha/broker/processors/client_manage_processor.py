"""ClientManageProcessor: heartbeats, goodbyes and routes.

Source: spec: remoting §2.3 (105), §2.4 (34, 35); rocketmq-all-4.9.8 ClientManageProcessor.java.
"""

from collections.abc import Callable

from rmqha.broker.consumer_manager import ConsumerManager
from rmqha.broker.topic_config_manager import TopicConfigManager
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import GetRouteInfoRequestHeader, UnregisterClientRequestHeader, decode_header
from rmqha.codec.heartbeat import decode_heartbeat
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.route import BrokerData, QueueData, TopicRouteData, encode_route
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher


class ClientManageProcessor:
    """Knows which clients are connected, and answers 105 for its own broker so that no name server is needed."""

    def __init__(
        self, consumers: ConsumerManager, topics: TopicConfigManager, *, broker: Callable[[], BrokerData]
    ) -> None:
        self._consumers = consumers
        self._topics = topics
        self._broker = broker

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Take the codes this processor answers."""
        dispatcher.register(RequestCode.HEART_BEAT, self.heart_beat)
        dispatcher.register(RequestCode.UNREGISTER_CLIENT, self.unregister_client)
        dispatcher.register(RequestCode.GET_ROUTEINFO_BY_TOPIC, self.get_route_info_by_topic)
        dispatcher.on_closed(self._consumers.forget_member)

    def heart_beat(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """34: a client says which groups it belongs to; missing and null sets are legal."""
        heartbeat = decode_heartbeat(request.body)
        for consumer in heartbeat.consumer_data_set:
            self._consumers.register(
                consumer.group_name,
                connection,
                client_id=heartbeat.client_id,
                subscriptions=consumer.subscription_data_set,
                peer=connection.peer,
            )
        return RemotingCommand(ResponseCode.SUCCESS)

    def unregister_client(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """35: a client leaves; that is fine even if it never came."""
        header = decode_header(UnregisterClientRequestHeader, request)
        if header.consumer_group:
            self._consumers.unregister(header.consumer_group, connection)
        return RemotingCommand(ResponseCode.SUCCESS)

    def get_route_info_by_topic(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """105: this broker, with as many queues as the topic has here."""
        header = decode_header(GetRouteInfoRequestHeader, request)
        topic = self._topics.select(header.topic)
        if topic is None or header.topic in self._topics.unsaved:
            remark = f"No topic route info in name server for the topic: {header.topic}"
            return RemotingCommand(ResponseCode.TOPIC_NOT_EXIST, remark=remark)
        broker = self._broker()
        queues = QueueData(
            broker.broker_name,
            read_queue_nums=topic.read_queue_nums,
            write_queue_nums=topic.write_queue_nums,
            perm=topic.perm,
            topic_sys_flag=topic.topic_sys_flag,
        )
        body = encode_route(
            TopicRouteData((broker,), (queues,)),
            version=request.version,
            accept_standard_json_only=header.accept_standard_json_only,
        )
        return RemotingCommand(ResponseCode.SUCCESS, body=body)
