"""SubscriptionGroupProcessor: an operator makes, changes and deletes groups of consumers (200, 207).

Source: spec: remoting §2.7; rocketmq-all-4.9.8 AdminBrokerProcessor.java.
"""

from functools import partial

import structlog

from rmqha.broker.metadata import MetadataService
from rmqha.broker.subscription_group_manager import SubscriptionGroupConfig
from rmqha.codec import java_json
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.group_headers import DeleteSubscriptionGroupRequestHeader
from rmqha.codec.headers import decode_header
from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import RemoteProtocolError
from rmqha.log_limit import LogLimit
from rmqha.remoting.answers_in_turns import AnswersInTurns
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.replication.role import Role

logger = structlog.get_logger()

_BODY_SIZE_MAX = 64 * 1024


class SubscriptionGroupProcessor:
    """Only a master takes such requests; it answers when the change is saved."""

    def __init__(self, metadata: MetadataService, role: Role, *, answers: AnswersInTurns) -> None:
        self._metadata = metadata
        self._groups = metadata.groups
        self._role = role
        self._answers = answers
        self._lines = LogLimit()

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Take the codes this processor answers."""
        dispatcher.register(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, self.update_and_create_subscription_group)
        dispatcher.register(RequestCode.DELETE_SUBSCRIPTIONGROUP, self.delete_subscription_group)

    def update_and_create_subscription_group(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | None:
        """200: a group is to be as the body says; what it does not mention has RocketMQ's defaults."""
        if refusal := self._refusal():
            return refusal
        group = _decode_group(request.body)
        self._answers.answer(connection, request, partial(self._update, group, connection.peer))
        return None

    def delete_subscription_group(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """207: a group is to be forgotten, perhaps with how far it is; that is fine if it is not known."""
        if refusal := self._refusal():
            return refusal
        header = decode_header(DeleteSubscriptionGroupRequestHeader, request)
        self._answers.answer(connection, request, partial(self._delete, header, connection.peer))
        return None

    def _refusal(self) -> RemotingCommand | None:
        if self._role.is_master:
            return None
        remark = "Can't modify topic or subscription group from slave broker, please execute it from master broker."
        return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=remark)

    async def _update(self, group: SubscriptionGroupConfig, peer: str) -> RemotingCommand:
        self._groups.update(group)
        self._lines.log(logger.info, "subscription_group.updated", group=group.group_name, peer=peer)
        return await self._save()

    async def _delete(self, header: DeleteSubscriptionGroupRequestHeader, peer: str) -> RemotingCommand:
        self._groups.delete(header.group_name)
        self._lines.log(logger.info, "subscription_group.deleted", group=header.group_name[:80], peer=peer)
        if header.remove_offset:
            await self._metadata.offsets.remove_offset_in_turns(header.group_name)
        return await self._save()

    async def _save(self) -> RemotingCommand:
        await self._metadata.save()
        if self._groups.dirty:
            raise RemoteProtocolError("it is changed, but not saved: metadata.not_saved in the broker's log")
        return RemotingCommand(ResponseCode.SUCCESS)


def _decode_group(body: bytes) -> SubscriptionGroupConfig:
    if len(body) > _BODY_SIZE_MAX:
        raise RemoteProtocolError(f"a subscription group of {len(body)} bytes: at most {_BODY_SIZE_MAX} are taken")
    value = java_json.loads(body, java_keys=False)
    try:
        return SubscriptionGroupConfig.from_json(value["groupName"], value)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise RemoteProtocolError(f"the subscription group does not parse: {error!r:.200}") from None
