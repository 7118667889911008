"""CallConsumerProcessor: asks consumers on an operator's behalf, and hands on what they answer (223, 307, 309).

Source: spec: remoting §2.7, §2.8; rocketmq-all-4.9.8 AdminBrokerProcessor.java (callConsumer), Broker2Client.java.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from rmqha.broker.clients.client_channel_info import ClientChannelInfo
from rmqha.broker.clients.consumer_manager import ConsumerManager
from rmqha.codec.acl import without_credentials
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.consumer_status import decode_consumer_status, encode_consumer_table
from rmqha.codec.group_headers import (
    CallConsumerRequestHeader,
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerStatusRequestHeader,
)
from rmqha.codec.headers import decode_header, encode_header
from rmqha.codec.host import host_of
from rmqha.codec.message_id import decode_message_id
from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import RemoteProtocolError, RemotingError, RemotingTimeoutError
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.shares import Shares
from rmqha.store.message_store import DefaultMessageStore

CALLS_MAX: Final = 32
"""At a time; a call holds a message."""
_CALL_S: Final = 10.0
_STATUS_S: Final = 5.0
_MEMBERS_MAX: Final = 64
_V3_0_7: Final = 28
_V3_1_8: Final = 62
"""Clients of earlier versions do not understand the question."""

Call = Callable[[], Awaitable[RemotingCommand]]


class CallConsumerProcessor:
    """Invariant: of all clients at most :data:`CALLS_MAX` calls are under way, of one host's no more than it leaves."""

    def __init__(self, store: DefaultMessageStore, consumers: ConsumerManager, *, broker_name: str) -> None:
        self._store: Final = store
        self._consumers: Final = consumers
        self._broker_name: Final = broker_name
        self._calls = 0
        self._reading: Final = trio.Lock()
        self._shares: Final = Shares()

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Take the codes this processor answers."""
        dispatcher.register(RequestCode.GET_CONSUMER_RUNNING_INFO, self.get_consumer_running_info)
        dispatcher.register(RequestCode.CONSUME_MESSAGE_DIRECTLY, self.consume_message_directly)
        dispatcher.register(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, self.get_consumer_status)

    def get_consumer_running_info(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """307: what a consumer is doing."""
        header = decode_header(CallConsumerRequestHeader, request)
        question = RemotingCommand(request.code, ext_fields=without_credentials(request.ext_fields))
        return self._call_one(connection, request, header.consumer_group, header.client_id, question=question)

    def consume_message_directly(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """309: a consumer is to consume one message at once."""
        header = decode_header(ConsumeMessageDirectlyRequestHeader, request)
        _, offset = decode_message_id(header.msg_id)
        record = self._store.look_message_by_offset(offset)
        if record is None:
            return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=f"can not find message by offset {offset}")
        fields = without_credentials(request.ext_fields) | {"brokerName": self._broker_name}
        question = RemotingCommand(request.code, ext_fields=fields, body=bytes(record))
        return self._call_one(connection, request, header.consumer_group, header.client_id, question=question)

    def _call_one(
        self, connection: Connection, request: RemotingCommand, group: str, client_id: str, *, question: RemotingCommand
    ) -> RemotingCommand | None:
        member = self._consumers.find_client(group, client_id)
        who = f"<{group[:80]}> <{client_id[:80]}>"
        if member is None:
            return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=f"The Consumer {who} not online")
        if member.version < _V3_1_8:
            remark = f"The Consumer {who} Version <{member.version}> too low to finish, please upgrade it"
            return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=remark)

        async def call() -> RemotingCommand:
            try:
                answer = await member.connection.invoke(question, timeout_s=_CALL_S)
            except RemotingTimeoutError as error:
                return RemotingCommand(ResponseCode.CONSUME_MSG_TIMEOUT, remark=f"consumer {who} Timeout: {error}")
            except RemotingError as error:
                return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=f"invoke consumer {who} Exception: {error}")
            fields = dict(answer.ext_fields)
            return RemotingCommand(answer.code, remark=answer.remark, ext_fields=fields, body=answer.body)

        return self._begin(connection, request, call)

    def get_consumer_status(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """223: how far the consumers of a group are in their own minds, or one of them."""
        header = decode_header(GetConsumerStatusRequestHeader, request)
        group = self._consumers.find_group(header.group)
        if group is None:
            remark = f"No Any Consumer online in the consumer group: [{header.group[:80]}]"
            return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=remark)
        asked = [one for one in group.members.values() if header.client_addr in {None, "", one.client_id}]
        if any(member.version < _V3_0_7 for member in asked):
            remark = "the client does not support this feature: a member is older than 3.0.7"
            return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=remark)
        fields = encode_header(GetConsumerStatusRequestHeader(header.topic, header.group))

        async def call() -> RemotingCommand:
            tables: dict[str, str] = {}
            async with trio.open_nursery() as nursery:
                for member in asked[:_MEMBERS_MAX]:
                    nursery.start_soon(self._ask_status, member, fields, tables)
            return RemotingCommand(ResponseCode.SUCCESS, body=encode_consumer_table(tables))

        return self._begin(connection, request, call)

    async def _ask_status(self, member: ClientChannelInfo, fields: dict[str, str], tables: dict[str, str]) -> None:
        """Who does not answer, or not with a table, is left out. Answers that come together are read in turns."""
        question = RemotingCommand(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, ext_fields=fields)
        try:
            answer = await member.connection.invoke(question, timeout_s=_STATUS_S)
            if answer.code == ResponseCode.SUCCESS:
                async with self._reading:
                    tables[member.client_id] = decode_consumer_status(answer.body)
        except (RemotingError, RemoteProtocolError):
            return

    def _begin(self, connection: Connection, request: RemotingCommand, call: Call) -> RemotingCommand | None:
        host = host_of(connection.peer)
        if not self._shares.has_room(host, 1, free=CALLS_MAX - self._calls):
            return RemotingCommand(ResponseCode.SYSTEM_BUSY, remark="too many consumers are being asked: ask again")
        if not connection.closed:
            self._note(host, 1)
            connection.start_soon(self._relay, connection, connection.let_go(request), call)
        return None

    async def _relay(self, connection: Connection, request: RemotingCommand, call: Call) -> None:
        try:
            with connection.fenced(request):
                connection.send_reply(request, await call())
        finally:
            self._note(host_of(connection.peer), -1)

    def _note(self, host: str, calls: int) -> None:
        self._calls += calls
        self._shares.add(host, calls)
