"""ReplyMessageProcessor: replies to messages that were sent as requests go to the client that waits for them.

Source: spec: remoting §2.4 (324, 325), §2.8 (326); rocketmq-all-4.9.8 ReplyMessageProcessor.java.
"""

from collections.abc import Callable
from typing import Final

import structlog

from rmqha.broker.clients.producer_manager import ProducerManager
from rmqha.broker.puts.internal_puts import InternalPuts
from rmqha.broker.puts.sent_records import SendRules, born_host_of
from rmqha.broker.puts.stored_properties import SendRefusedError
from rmqha.broker.tables.topic_config import TopicConfig
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import encode_header
from rmqha.codec.host import decode_host, host_of
from rmqha.codec.limits import FORBIDDEN_SEND_TOPICS, topic_problem
from rmqha.codec.message_id import encode_message_id
from rmqha.codec.properties import decode_utf8, find_property
from rmqha.codec.record.encoder import prepare
from rmqha.codec.record.layout import SysFlag
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.reply_headers import ReplyMessageRequestHeader
from rmqha.codec.send_headers import SendMessageRequestDecoder, SendMessageRequestHeader
from rmqha.errors import LocalProtocolError, RemotingError
from rmqha.log_limit import LogLimit
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.shares import Shares

logger = structlog.get_logger()

_NO: Final = "it is not there, and may not be made by a reply; 'rmqha topics create' makes it"
_TAKEN_S: Final = 10.0
"""The client that asked says so soon that it has the reply. Source: Broker2Client.java, callClient."""
REPLIES_MAX: Final = 4096
"""That wait until a client has taken them. Each is a task; when who sent them leaves, they all end at one moment."""


class ReplyMessageProcessor:
    """Pushes each reply, and stores it as well, if the operator wants that, where nobody waits for it.

    Invariant: of all clients at most :data:`REPLIES_MAX` wait, of those of one host no more than it leaves to others.
    """

    def __init__(
        self,
        producers: ProducerManager,
        topics: TopicConfigManager,
        puts: InternalPuts,
        *,
        rules: SendRules,
        now_ms: Callable[[], int],
    ) -> None:
        self._producers: Final = producers
        self._topics: Final = topics
        self._puts: Final = puts
        self._rules: Final = rules
        self._now_ms: Final = now_ms
        self._decoder: Final = SendMessageRequestDecoder()
        self._lines: Final = LogLimit()
        self._waiting = 0
        self._shares: Final = Shares()

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Take the codes of replies."""
        dispatcher.register(RequestCode.SEND_REPLY_MESSAGE, self.send_reply_message)
        dispatcher.register(RequestCode.SEND_REPLY_MESSAGE_V2, self.send_reply_message)

    def send_reply_message(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """324 and 325, whose headers are those of 10 and 310."""
        is_v1 = request.code == RequestCode.SEND_REPLY_MESSAGE
        code = RequestCode.SEND_MESSAGE if is_v1 else RequestCode.SEND_MESSAGE_V2
        header = self._decoder.decode(RemotingCommand(code, ext_fields=request.ext_fields))
        topic = self._topic_of(header, peer=connection.peer)
        if topic is None:
            why = topic_problem(header.topic) or self._puts.refusal or _NO
            remark = f"topic {header.topic[:200]} takes no replies"
            if header.topic not in FORBIDDEN_SEND_TOPICS:
                remark += f": {why}"
            return RemotingCommand(ResponseCode.TOPIC_NOT_EXIST, remark=remark)
        if not 0 <= header.queue_id < topic.queue_nums:
            remark = f"topic {header.topic} has {topic.queue_nums} queues, there is no queue {header.queue_id}"
            return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=remark)
        client_id = decode_utf8(find_property(header.properties, b"REPLY_TO_CLIENT") or b"")
        asker = self._producers.find_connection(client_id)
        if asker is None:
            remark = f"push reply message fail, channel of <{client_id[:200]}> not found."
            return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=remark)
        if not self._shares.has_room(host_of(connection.peer), 1, free=REPLIES_MAX - self._waiting):
            remark = f"{self._waiting} replies wait until clients have taken them: send it again later"
            return RemotingCommand(ResponseCode.SYSTEM_BUSY, remark=remark)
        self._count(connection, 1)
        connection.start_soon(self._relay, connection, request, header, asker)
        return None

    def _topic_of(self, header: SendMessageRequestHeader, *, peer: str) -> TopicConfig | None:
        """As of any send, made where it is not there: clients with a namespace have a topic of replies of their own.

        None: it takes no replies, or may not be made.
        """
        if header.topic in FORBIDDEN_SEND_TOPICS:
            return None
        known = self._topics.select(header.topic)
        if known is not None or topic_problem(header.topic) or self._puts.refusal:
            return known
        return self._topics.create_topic_in_send_message_method(
            header.topic,
            default_topic=header.default_topic,
            client_default_topic_queue_nums=header.default_topic_queue_nums,
            peer=peer,
        )

    def _count(self, connection: Connection, change: int) -> None:
        self._waiting += change
        self._shares.add(host_of(connection.peer), change)

    async def _relay(
        self, connection: Connection, request: RemotingCommand, header: SendMessageRequestHeader, asker: Connection
    ) -> None:
        try:
            with connection.fenced(request):
                answer = await self._deliver(header, request.body, asker, peer=connection.peer)
                connection.send_reply(request, answer)
        finally:
            self._count(connection, -1)

    async def _deliver(
        self, header: SendMessageRequestHeader, body: bytes, asker: Connection, *, peer: str
    ) -> RemotingCommand:
        try:
            push = self._push_request(header, body, peer=peer)
            taken = (await asker.invoke(push, timeout_s=_TAKEN_S)).code == ResponseCode.SUCCESS
            reason = "it refused the reply"
        except RemotingError as error:
            taken, reason = False, str(error)
        if not taken:
            remark = f"push reply message to {asker.peer} fail: {reason}"
            return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=remark)
        msg_id, queue_offset = await self._store(header, body, peer=peer)
        fields = {"msgId": msg_id, "queueId": str(header.queue_id), "queueOffset": str(queue_offset)}
        common = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        return RemotingCommand(ResponseCode.SUCCESS, ext_fields=fields | common)

    def _push_request(self, header: SendMessageRequestHeader, body: bytes, *, peer: str) -> RemotingCommand:
        now_ms = self._now_ms()
        pushed_at = f"PUSH_REPLY_TIME\x01{now_ms}"
        told = ReplyMessageRequestHeader(
            header.producer_group,
            header.topic,
            header.default_topic,
            header.default_topic_queue_nums,
            header.queue_id,
            header.sys_flag,
            header.born_timestamp_ms,
            header.flag,
            born_host=decode_host(born_host_of(peer)),
            store_host=decode_host(self._rules.store_host),
            store_timestamp=now_ms,
            properties="\x02".join(filter(None, [decode_utf8(header.properties).rstrip("\x02"), pushed_at])),
            reconsume_times=header.reconsume_times,
        )
        return RemotingCommand(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, ext_fields=encode_header(told), body=body)

    async def _store(self, header: SendMessageRequestHeader, body: bytes, *, peer: str) -> tuple[str, int]:
        """Its id and its place in the queue; ``0`` and 0 if it is not stored, which costs who asked nothing."""
        if not self._rules.stores_replies:
            return "0", 0
        try:
            self._rules.check_body(len(body))
            record = prepare(
                header.topic,
                body,
                queue_id=header.queue_id,
                born_timestamp_ms=header.born_timestamp_ms,
                born_host_raw=born_host_of(peer),
                store_host_raw=self._rules.store_host,
                properties_raw=header.properties,
                flag=header.flag,
                sys_flag=header.sys_flag & ~(SysFlag.TRANSACTION_TYPE | SysFlag.INNER_BATCH),
                reconsume_times=header.reconsume_times,
            )
        except (LocalProtocolError, SendRefusedError) as error:
            self._lines.log(logger.warning, "reply.not_stored", peer=peer, reason=str(error))
            return "0", 0
        result = await self._puts.put(record, wait=False)
        if not result.is_stored:
            self._lines.log(logger.warning, "reply.not_stored", peer=peer, reason=result.append.remark)
            return "0", 0
        return encode_message_id(self._rules.store_host, result.append.wrote_offset), result.append.queue_offset
