"""ClientListProcessor: shows an operator who is connected (203, 204).

Source: spec: remoting §2.7; rocketmq-all-4.9.8 AdminBrokerProcessor.java.
"""

from rmqha.broker.clients.consumer_manager import ConsumerManager
from rmqha.broker.clients.producer_manager import ProducerManager
from rmqha.codec import java_json
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.group_headers import ConsumerGroupRequestHeader, ProducerGroupRequestHeader
from rmqha.codec.headers import decode_header
from rmqha.codec.heartbeat import subscription_json
from rmqha.codec.remoting import RemotingCommand
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher


class ClientListProcessor:
    """Of one group at a time; of all producers at once :class:`MetadataProcessor` tells."""

    def __init__(self, consumers: ConsumerManager, producers: ProducerManager) -> None:
        self._consumers = consumers
        self._producers = producers

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Take the codes this processor answers."""
        dispatcher.register(RequestCode.GET_CONSUMER_CONNECTION_LIST, self.get_consumer_connection_list)
        dispatcher.register(RequestCode.GET_PRODUCER_CONNECTION_LIST, self.get_producer_connection_list)

    def get_consumer_connection_list(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """203: the members of a group of consumers, and what it subscribes to."""
        name = decode_header(ConsumerGroupRequestHeader, request).consumer_group
        group = self._consumers.find_group(name)
        if group is None:
            remark = f"the consumer group[{name[:80]}] not online"
            return RemotingCommand(ResponseCode.CONSUMER_NOT_ONLINE, remark=remark)
        document = {
            "connectionSet": [member.to_json() for member in group.members.values()],
            "consumeFromWhere": group.consume_from_where,
            "consumeType": group.consume_type,
            "messageModel": group.message_model,
            "subscriptionTable": {topic: subscription_json(one) for topic, one in group.subscriptions.items()},
        }
        return RemotingCommand(ResponseCode.SUCCESS, body=java_json.dumps(document).encode())

    def get_producer_connection_list(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """204: the members of a group of producers."""
        name = decode_header(ProducerGroupRequestHeader, request).producer_group
        members = self._producers.members(name)
        if not members:
            remark = f"the producer group[{name[:80]}] not exist"
            return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=remark)
        document = {"connectionSet": [member.to_json() for member in members]}
        return RemotingCommand(ResponseCode.SUCCESS, body=java_json.dumps(document).encode())
