"""ClientManageProcessor: heartbeats and goodbyes.

Source: spec: remoting §2.4 (34, 35), §2.5 (46); rocketmq-all-4.9.8 ClientManageProcessor.java.
"""

from collections.abc import Callable, Iterator
from typing import Final

import structlog
import trio

from rmqha.broker.acl.client_access import ClientAccess
from rmqha.broker.clients.client_channel_info import ClientChannelInfo
from rmqha.broker.clients.client_housekeeping_service import ClientHousekeepingService
from rmqha.broker.clients.consumer_manager import ConsumerManager
from rmqha.broker.clients.producer_manager import ProducerManager
from rmqha.broker.tables.retry_topics import RETRY_GROUP_TOPIC_PREFIX
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupManager
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import UnregisterClientRequestHeader, decode_header
from rmqha.codec.heartbeat import ConsumerData, HeartbeatData, decode_checked_subscription, decode_heartbeat
from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import RemoteProtocolError
from rmqha.log_limit import LogLimit
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.replication.role import Role

logger = structlog.get_logger()

_UNIT_SUB: Final = 2
"""``topicSysFlag`` of the retry topic of a group in unit mode."""
_CLIENT_ID_SIZE_MAX: Final = 255
_SAVED_S: Final = 1.0
"""A heartbeat waits so long for ``topics.json`` at most: clients wait three seconds for its answer."""


class ClientManageProcessor:
    """Knows which clients are connected."""

    def __init__(
        self,
        consumers: ConsumerManager,
        producers: ProducerManager,
        groups: SubscriptionGroupManager,
        topics: TopicConfigManager,
        access: ClientAccess,
        *,
        role: Role,
        now_ms: Callable[[], int],
    ) -> None:
        self._consumers = consumers
        self._producers = producers
        self._groups = groups
        self._topics = topics
        self._access = access
        self._role = role
        self._now_ms = now_ms
        self.housekeeping: Final = ClientHousekeepingService(consumers, producers)
        """To be run."""
        self._warnings: Final = LogLimit()

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Take the codes this processor answers."""
        dispatcher.register(RequestCode.HEART_BEAT, self.heart_beat)
        dispatcher.register(RequestCode.UNREGISTER_CLIENT, self.unregister_client)
        dispatcher.register(RequestCode.CHECK_CLIENT_CONFIG, self.check_client_config)
        dispatcher.on_closed(self.housekeeping.forget)
        dispatcher.on_closed(self._access.forget)

    def heart_beat(self, connection: Connection, request: RemotingCommand) -> None:
        """34: a client says which groups it belongs to; missing and null sets are legal.

        It is answered when name servers know the groups' retry topics: then the client asks for them.
        """
        heartbeat = decode_heartbeat(request.body)
        client = self._client_of(heartbeat, connection, request)
        self._access.claim_client_id(client.client_id, connection, client.asker)
        self.housekeeping.note_heartbeat(connection)
        connection.work(self._take_in(heartbeat, client, connection, request))

    def _take_in(
        self, heartbeat: HeartbeatData, client: ClientChannelInfo, connection: Connection, request: RemotingCommand
    ) -> Iterator[bool]:
        """One group after the other, as they may be two thousand, and new; then the answer."""
        with connection.fenced(request):
            for consumer in heartbeat.consumer_data_set:
                self._make_group(consumer, connection.peer)
                self._consumers.register(consumer, client)
                yield False
            for group in heartbeat.producer_data_set:
                self._producers.register(group, client)
                yield False
            if not (self._topics.untold.numbers and self._answer_when_told(heartbeat, connection, request)):
                connection.send_reply(request, RemotingCommand(ResponseCode.SUCCESS))

    def _answer_when_told(self, heartbeat: HeartbeatData, connection: Connection, request: RemotingCommand) -> bool:
        """Whether there is anything to wait for."""
        untold = self._topics.untold
        topics = [RETRY_GROUP_TOPIC_PREFIX + consumer.group_name for consumer in heartbeat.consumer_data_set]
        numbers = {topic: untold.numbers[topic] for topic in topics if topic in untold.numbers}
        if not numbers:
            return False
        asked = connection.let_go(request)

        def answer(_is_told: bool, _count: int) -> None:
            with connection.fenced():
                connection.respond(asked, ResponseCode.SUCCESS)

        untold.when_told(max(numbers, key=numbers.__getitem__), trio.current_time() + _SAVED_S, answer)
        return True

    def _client_of(
        self, heartbeat: HeartbeatData, connection: Connection, request: RemotingCommand
    ) -> ClientChannelInfo:
        if len(heartbeat.client_id) > _CLIENT_ID_SIZE_MAX:
            raise RemoteProtocolError(
                f"a clientID of {len(heartbeat.client_id)} characters: at most {_CLIENT_ID_SIZE_MAX} are taken"
            )
        return ClientChannelInfo(
            connection,
            heartbeat.client_id,
            connection.peer,
            language=request.language,
            version=request.version,
            last_update_timestamp_ms=self._now_ms(),
            asker=self._access.asker_of(connection, request),
        )

    def _make_group(self, consumer: ConsumerData, peer: str) -> None:
        """Make the group, and the topic to which its members send back what they could not consume (§6 row 38).

        A slave has both from its master. A group without such a topic still consumes.
        """
        config = self._groups.find(consumer.group_name, peer=peer)
        if config is None or config.retry_queue_nums < 1 or not self._role.is_master:
            return
        try:
            self._topics.create_topic_in_send_message_back_method(
                RETRY_GROUP_TOPIC_PREFIX + consumer.group_name,
                queue_nums=config.retry_queue_nums,
                topic_sys_flag=_UNIT_SUB if consumer.unit_mode else 0,
                peer=peer,
            )
        except RemoteProtocolError as error:
            self._warnings.log(logger.warning, "retry_topic.not_made", peer=peer, reason=str(error))

    def check_client_config(self, _connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """46: a client asks whether the broker filters as it subscribes: by tags, and by nothing else."""
        subscription = decode_checked_subscription(request.body)
        if subscription is not None and not subscription.is_tag_type:
            remark = f"The broker does not support consumer to filter message by {subscription.expression_type[:40]}"
            return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=remark)
        return RemotingCommand(ResponseCode.SUCCESS)

    def unregister_client(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """35: a client leaves; that is fine even if it never came."""
        header = decode_header(UnregisterClientRequestHeader, request)
        if header.producer_group:
            self._producers.unregister(header.producer_group, connection)
        if header.consumer_group:
            self._consumers.unregister(header.consumer_group, connection)
        return RemotingCommand(ResponseCode.SUCCESS)
