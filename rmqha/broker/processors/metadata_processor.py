"""MetadataProcessor: hands the broker's tables to slaves (requests 21, 43, 45, 201, 21021).

Source: spec: ha §12, remoting §2.6; rocketmq-all-4.9.8 SlaveSynchronize.java, AdminBrokerProcessor.java.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import trio

from rmqha.broker.config_files import DELAY_OFFSET, SUBSCRIPTION_GROUP, encode_in_turns
from rmqha.broker.metadata import MetadataService
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import QueueEndsRequestHeader, decode_header
from rmqha.codec.remoting import RemotingCommand
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher

_NO_GROUPS: dict[str, Any] = {"dataVersion": {"counter": 0, "timestamp": 0}, "subscriptionGroupTable": {}}
_NO_DELAYS: dict[str, Any] = {"offsetTable": {}}


class MetadataProcessor:
    """Answers with whole tables, as their files hold them, and with the ends of queues by the page."""

    def __init__(self, metadata: MetadataService) -> None:
        self._metadata = metadata
        self._asking: set[Connection] = set()
        self._making = trio.Lock()

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Take the codes by which slaves ask for the tables."""
        dispatcher.register(RequestCode.GET_ALL_TOPIC_CONFIG, self.get_all_topic_config)
        dispatcher.register(RequestCode.GET_ALL_CONSUMER_OFFSET, self.get_all_consumer_offset)
        dispatcher.register(RequestCode.GET_ALL_DELAY_OFFSET, self.get_all_delay_offset)
        dispatcher.register(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, self.get_all_subscription_group_config)
        dispatcher.register(RequestCode.GET_QUEUE_ENDS, self.get_queue_ends)

    def get_all_topic_config(self, connection: Connection, request: RemotingCommand) -> None:
        """21: the topics, with how many queues each has."""
        self._answer_table(connection, request, self._metadata.topics.to_json_in_turns)

    def get_all_consumer_offset(self, connection: Connection, request: RemotingCommand) -> None:
        """43: how far consumer groups are."""
        self._answer_table(connection, request, self._metadata.offsets.to_json_in_turns)

    def get_all_delay_offset(self, connection: Connection, request: RemotingCommand) -> None:
        """45: how far delayed messages are delivered, as the store was brought here."""
        self._answer_table(connection, request, partial(self._load, DELAY_OFFSET, _NO_DELAYS))

    def get_all_subscription_group_config(self, connection: Connection, request: RemotingCommand) -> None:
        """201: the settings of consumer groups, as the store was brought here."""
        self._answer_table(connection, request, partial(self._load, SUBSCRIPTION_GROUP, _NO_GROUPS))

    async def _load(self, name: str, otherwise: dict[str, Any]) -> dict[str, Any]:
        return await self._metadata.files.load_in_thread(name) or otherwise

    def get_queue_ends(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """21021: a page of the ends of queues, and where the next page starts, if there is one."""
        header, queue_ends = decode_header(QueueEndsRequestHeader, request), self._metadata.queue_ends
        if queue_ends.known_before < header.before:
            remark = f"only {queue_ends.known_before} bytes of the log are in the queues yet: ask again later"
            return RemotingCommand(ResponseCode.SYSTEM_BUSY, remark=remark)
        self._answer_table(connection, request, partial(queue_ends.page_in_turns, header.start, before=header.before))
        return None

    def _answer_table(
        self, connection: Connection, request: RemotingCommand, make: Callable[[], Awaitable[dict[str, Any]]]
    ) -> None:
        """A request of 25 bytes may ask for megabytes: a connection gets a table after it took the last.

        Thousands may wait: of the request no more is kept than what its answer needs.
        """
        if connection in self._asking or not connection.takes_answers:
            _refuse(connection, request)
            return
        self._asking.add(connection)
        connection.let_go(request)
        request = RemotingCommand(request.code, request.opaque, request.flag, serialize=request.serialize)
        connection.start_soon(self._send_table, connection, request, make)

    async def _send_table(
        self, connection: Connection, request: RemotingCommand, make: Callable[[], Awaitable[dict[str, Any]]]
    ) -> None:
        """One at a time, for all connections: made together, all tables would be in memory at once.

        While this one waited, those made for others may have become too much.
        """
        try:
            with connection.fenced(request):
                async with self._making:
                    body = await encode_in_turns(await make()) if connection.takes_answers else None
                if body is None:
                    _refuse(connection, request)
                else:
                    connection.respond(request, ResponseCode.SUCCESS, body=body)
        finally:
            self._asking.discard(connection)


def _refuse(connection: Connection, request: RemotingCommand) -> None:
    remark = "answers wait to be taken: read them, then ask again"
    connection.respond(request, ResponseCode.SYSTEM_BUSY, remark=remark)
