"""MetadataProcessor: hands the broker's tables to slaves (requests 21, 43, 45, 201, 21021), and 328 to operators.

Source: spec: ha §12, remoting §2.6; rocketmq-all-4.9.8 SlaveSynchronize.java, AdminBrokerProcessor.java.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

import trio

from rmqha.broker.clients.producer_manager import ProducerManager
from rmqha.broker.tables.metadata import MetadataService
from rmqha.codec.codes import READS_ORIGIN_FIELD, RequestCode, ResponseCode
from rmqha.codec.headers import QueueEndsRequestHeader, decode_header
from rmqha.codec.host import host_of
from rmqha.codec.remoting import FLAG_RESPONSE, FRAME_SIZE_MAX, RemotingCommand
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.store.config_files import encode_in_turns
from rmqha.waiting import FairLock

Send = Callable[[Connection, RemotingCommand], Awaitable[None]]

_SENT_AT_ONCE: Final = 32
_TABLE_BYTES_MAX: Final = FRAME_SIZE_MAX - 1024
"""The header before it takes less."""


class MetadataProcessor:
    """Answers with whole tables, as their files hold them, and with the ends of queues by the page."""

    def __init__(self, metadata: MetadataService, producers: ProducerManager) -> None:
        self._metadata = metadata
        self._producers = producers
        self._asking: dict[Connection, RemotingCommand] = {}
        self._making = trio.Lock()
        self._paging = FairLock()

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Take the codes by which slaves ask for the tables."""
        dispatcher.register(RequestCode.GET_ALL_TOPIC_CONFIG, self.get_all_topic_config)
        dispatcher.register(RequestCode.GET_ALL_CONSUMER_OFFSET, self.get_all_consumer_offset)
        dispatcher.register(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, self.get_all_subscription_group)
        dispatcher.register(RequestCode.GET_ALL_PRODUCER_INFO, self.get_all_producer_info)
        dispatcher.register(RequestCode.GET_ALL_DELAY_OFFSET, self.get_all_delay_offset)
        dispatcher.register(RequestCode.GET_QUEUE_ENDS, self.get_queue_ends)

    def get_all_topic_config(self, connection: Connection, request: RemotingCommand) -> None:
        """21: the topics, with how many queues each has."""
        self._answer_table(connection, request, self._metadata.topics.to_json_in_turns)

    def get_all_consumer_offset(self, connection: Connection, request: RemotingCommand) -> None:
        """43: how far consumer groups are."""
        self._answer_table(connection, request, self._metadata.offsets.to_json_in_turns)

    def get_all_subscription_group(self, connection: Connection, request: RemotingCommand) -> None:
        """201: what consumer groups there are, and what each is allowed."""
        self._answer_table(connection, request, self._metadata.groups.to_json_in_turns)

    def get_all_producer_info(self, connection: Connection, request: RemotingCommand) -> None:
        """328: the producers of all groups."""
        self._answer(connection, request, partial(self._send_table, make=self._producers.to_json_in_turns))

    def get_all_delay_offset(self, connection: Connection, request: RemotingCommand) -> None:
        """45: how far delayed messages are delivered, if that is known.

        Who was told that nothing is would drop its own.
        """
        self._answer_table(connection, request, self._metadata.delay_offsets.told)

    def get_queue_ends(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """21021: a page of the ends of queues, and where the next page starts, if there is one."""
        header, queue_ends = decode_header(QueueEndsRequestHeader, request), self._metadata.queue_ends
        if queue_ends.known_before < header.before:
            remark = f"only {queue_ends.known_before} bytes of the log are in the queues yet: ask again later"
            return RemotingCommand(ResponseCode.SYSTEM_BUSY, remark=remark)
        page = partial(queue_ends.page_in_turns, header.start, before=header.before)
        self._answer(connection, request, partial(self._send_page, make=page))
        return None

    def _answer_table(
        self, connection: Connection, request: RemotingCommand, make: Callable[[], Awaitable[dict[str, Any] | None]]
    ) -> None:
        why = self._metadata.why_withheld()
        if not why and READS_ORIGIN_FIELD not in (request.ext_fields or {}):
            why = self._metadata.why_withheld_from(host_of(connection.peer))
        if why:
            connection.respond(request, ResponseCode.SYSTEM_BUSY, remark=why)
            return
        self._answer(connection, request, partial(self._send_table, make=make))

    def _answer(self, connection: Connection, request: RemotingCommand, send: Send) -> None:
        """A request of 25 bytes may ask for megabytes: a connection gets a table after it took the last.

        Thousands may wait: of the request no more is kept than what its answer needs.
        """
        if connection in self._asking or not connection.takes_answers:
            remark = "answers wait to be taken: read them, then ask again"
            connection.respond(request, ResponseCode.SYSTEM_BUSY, remark=remark)
            return
        request = connection.let_go(request)
        self._asking[connection] = request
        connection.start_soon(self._send, connection, request, send)

    async def _send(self, connection: Connection, request: RemotingCommand, send: Send) -> None:
        try:
            with connection.fenced(request):
                await send(connection, request)
        finally:
            if self._is_asking(connection, request):
                del self._asking[connection]

    def _is_asking(self, connection: Connection, request: RemotingCommand) -> bool:
        return self._asking.get(connection) is request

    async def _send_table(
        self, connection: Connection, request: RemotingCommand, *, make: Callable[[], Awaitable[dict[str, Any] | None]]
    ) -> None:
        """One is made at a time: made together, all tables would be in memory at once.

        It is for all who asked for it before it was begun, or thousands of clients would keep a slave waiting for as
        many tables; and it is finished also if this client leaves.
        """
        async with self._making:
            if not self._is_asking(connection, request):
                return
            asked = [(client, one) for client, one in self._asking.items() if one.code == request.code]
            with trio.CancelScope(shield=True):
                table = await make()
                body = await encode_in_turns(table) if table else b""
                if not table:
                    self._refuse_all(asked, "it is not known here yet: no master has told it")
                elif len(body) > _TABLE_BYTES_MAX:
                    self._refuse_all(
                        asked, f"the table has {len(body)} bytes: {_TABLE_BYTES_MAX} at most fit an answer"
                    )
                else:
                    await self._send_to_all(asked, body)

    def _refuse_all(self, asked: list[tuple[Connection, RemotingCommand]], remark: str) -> None:
        for client, request in asked:
            if self._is_asking(client, request):
                del self._asking[client]
                client.respond(request, ResponseCode.SYSTEM_ERROR, remark=remark)

    async def _send_to_all(self, asked: list[tuple[Connection, RemotingCommand]], body: bytes) -> None:
        """They may be thousands: everybody else has a turn after a few."""
        for sent, (client, request) in enumerate(asked):
            if self._is_asking(client, request):
                del self._asking[client]
                answer = RemotingCommand(
                    ResponseCode.SUCCESS, request.opaque, FLAG_RESPONSE, serialize=request.serialize
                )
                client.send_response(answer.encode_header(len(body)), body, size=request.size)
            if sent % _SENT_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()

    async def _send_page(
        self, connection: Connection, request: RemotingCommand, *, make: Callable[[], Awaitable[dict[str, Any]]]
    ) -> None:
        async with self._paging.turn(host_of(connection.peer)):
            body = await encode_in_turns(await make())
        connection.respond(request, ResponseCode.SUCCESS, body=body)
