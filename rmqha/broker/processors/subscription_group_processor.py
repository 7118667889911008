"""SubscriptionGroupProcessor: an operator makes, changes and deletes groups of consumers (200, 207, 21022).

Source: spec: remoting §2.7; rocketmq-all-4.9.8 AdminBrokerProcessor.java.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import structlog
import trio

from rmqha.broker.broker_stats_manager import BrokerStatsManager
from rmqha.broker.tables.metadata import MetadataService
from rmqha.broker.tables.retry_topics import RETRY_GROUP_TOPIC_PREFIX
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupConfig
from rmqha.broker.transaction.half_message import CONSUMER_GROUP
from rmqha.codec import java_json
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.group_headers import DeleteSubscriptionGroupRequestHeader
from rmqha.codec.headers import SaveConsumerOffsetsRequestHeader, decode_header
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.route import QUEUE_NUMS_MAX
from rmqha.errors import RemoteProtocolError
from rmqha.log_limit import LogLimit
from rmqha.remoting.answers_in_turns import AnswersInTurns
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.replication.role import Role
from rmqha.waiting import wait_reached

logger = structlog.get_logger()

_BODY_SIZE_MAX: Final = 64 * 1024
_SAVED_S: Final = 4.0
"""mqadmin waits for five seconds."""


class SubscriptionGroupProcessor:
    """Only a master makes changes; it answers when they are saved."""

    def __init__(
        self, metadata: MetadataService, stats: BrokerStatsManager, role: Role, *, answers: AnswersInTurns
    ) -> None:
        self._metadata = metadata
        self._stats = stats
        self._groups = metadata.groups
        self._topics = metadata.topics
        self._offsets = metadata.offsets
        self._role = role
        self._answers = answers
        self._lines = LogLimit()

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Take the codes this processor answers."""
        dispatcher.register(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, self.update_and_create_subscription_group)
        dispatcher.register(RequestCode.DELETE_SUBSCRIPTIONGROUP, self.delete_subscription_group)
        dispatcher.register(RequestCode.SAVE_CONSUMER_OFFSETS, self.save_consumer_offsets)

    def update_and_create_subscription_group(self, connection: Connection, request: RemotingCommand) -> None:
        """200: a group is to be as the body says; what it does not mention has RocketMQ's defaults.

        Its retry topic, if it is there, gets the queues that it lacks.
        """
        self._check_role()
        self._answer(connection, request, partial(self._update, _decode_group(request.body), connection.peer))

    def delete_subscription_group(self, connection: Connection, request: RemotingCommand) -> None:
        """207: a group is to be forgotten, perhaps with how far it is; that is fine if it is not known."""
        self._check_role()
        header = decode_header(DeleteSubscriptionGroupRequestHeader, request)
        if header.group_name == CONSUMER_GROUP and header.remove_offset:
            raise RemoteProtocolError(f"{CONSUMER_GROUP} is the broker itself: how far it is with transactions is kept")
        self._answer(connection, request, partial(self._delete, header, connection.peer))

    def save_consumer_offsets(self, connection: Connection, request: RemotingCommand) -> None:
        """21022: an operator has set a group back, by commits, and wants to know that no crash undoes it.

        One save is made at a time, and all that ask while it is under way share the next.
        """
        decode_header(SaveConsumerOffsetsRequestHeader, request)
        self._answer(connection, request, self._await_offsets)

    async def _await_offsets(self) -> None:
        self._offsets.awaited += 1

    def _check_role(self) -> None:
        if not self._role.is_master:
            raise RemoteProtocolError(
                "Can't modify topic or subscription group from slave broker, please execute it from master broker."
            )

    def _answer(self, connection: Connection, request: RemotingCommand, change: Callable[[], Awaitable[None]]) -> None:
        self._answers.answer(connection, request, change, settle=self._when_saved)

    async def _update(self, group: SubscriptionGroupConfig, peer: str) -> None:
        self._check_role()  # it may have changed while others had their turns
        self._topics.grow(RETRY_GROUP_TOPIC_PREFIX + group.group_name, group.retry_queue_nums)
        self._groups.update(group)
        self._lines.log(logger.info, "subscription_group.updated", group=group.group_name, peer=peer)

    async def _delete(self, header: DeleteSubscriptionGroupRequestHeader, peer: str) -> None:
        self._check_role()
        self._groups.delete(header.group_name)
        self._stats.on_group_deleted(header.group_name)
        self._lines.log(logger.info, "subscription_group.deleted", group=header.group_name[:80], peer=peer)
        if header.remove_offset:
            await self._offsets.remove_offset_in_turns(header.group_name)

    async def _when_saved(self) -> RemotingCommand:
        self._metadata.save_soon()
        deadline, made = trio.current_time() + _SAVED_S, self._topics.made
        awaited = (
            (self._groups.saved, self._groups.made),
            (self._topics.saved, made),
            (self._offsets.saved, self._offsets.awaited),
        )
        if all([await wait_reached(saved, number, deadline=deadline) for saved, number in awaited]):
            await wait_reached(self._topics.untold.told, made)  # a retry topic may have got more queues
            return RemotingCommand(ResponseCode.SUCCESS)
        remark = "it is changed, but not saved yet: it is tried again. Is the disk full, or does it not answer?"
        return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=remark)


def _decode_group(body: bytes) -> SubscriptionGroupConfig:
    if len(body) > _BODY_SIZE_MAX:
        raise RemoteProtocolError(f"a subscription group of {len(body)} bytes: at most {_BODY_SIZE_MAX} are taken")
    value = java_json.loads(body, java_keys=False)
    try:
        group = SubscriptionGroupConfig.from_json(value["groupName"], value)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RemoteProtocolError(f"the subscription group does not parse: {error!r:.200}") from None
    if group.retry_queue_nums > QUEUE_NUMS_MAX:
        told = f"retryQueueNums is {group.retry_queue_nums}: a topic has at most {QUEUE_NUMS_MAX} queues"
        raise RemoteProtocolError(told)
    return group
