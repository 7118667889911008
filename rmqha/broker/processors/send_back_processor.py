"""SendBackProcessor: a consumer could not consume a message, and wants it again after a while (36).

The message is stored anew, as one that waits and then goes to ``%RETRY%group``; if it has come too often, or is not to
come again, it goes to ``%DLQ%group`` at once. The consumer counts it as consumed when this is answered with SUCCESS, so
it is answered as a send is: when disk and replicas have it, as far as this broker waits for them. On any other answer a
consumer of RocketMQ's sends the message itself.

Source: spec: remoting §2.5 (36), §6 row 53; rocketmq-all-4.9.8 SendMessageProcessor.java:111-245.
"""

from typing import Final

from rmqha.broker.acl.client_access import ClientAccess
from rmqha.broker.acl.needed_permissions import Need
from rmqha.broker.acl.permission import SUB
from rmqha.broker.puts.durability import Answer
from rmqha.broker.puts.put_service import Put, PutMessageService
from rmqha.broker.puts.sent_records import SendRules, put_to_wait
from rmqha.broker.puts.stored_properties import DelayAsked, SendRefusedError
from rmqha.broker.tables.retry_topics import GroupConfig, RetryTopics, is_spent
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import decode_header
from rmqha.codec.properties import pairs_of
from rmqha.codec.record.encoder import PreparedRecord, prepare, without_nul
from rmqha.codec.record.layout import enters_queue
from rmqha.codec.record.message import StoredMessage, decode_message
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.route import PERM_WRITE
from rmqha.codec.send_back_header import ConsumerSendMsgBackRequestHeader
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.remoting.fence import Guard
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.status import AppendResult, PutMessageStatus

_FIRST_RETRY_LEVEL: Final = 3
"""The first time it comes again after this level's delay, each time after that of the next."""
_INT32_MAX: Final = 2**31 - 1
_NOT_STORED: Final = frozenset({PutMessageStatus.UNKNOWN_ERROR, PutMessageStatus.OS_PAGECACHE_BUSY})
"""The log was cut, or no majority has confirmed it in time; with any other status that is told it is in the log."""


class SendBackProcessor:
    """Handles code 36."""

    def __init__(
        self,
        store: DefaultMessageStore,
        puts: PutMessageService,
        retries: RetryTopics,
        access: ClientAccess,
        *,
        rules: SendRules,
    ) -> None:
        self._store: Final = store
        self._puts: Final = puts
        self._retries: Final = retries
        self._access: Final = access
        self._rules: Final = rules

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Take the code this processor answers."""
        dispatcher.register(RequestCode.CONSUMER_SEND_MSG_BACK, self.consumer_send_msg_back)

    def consumer_send_msg_back(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """36: the message at an offset of the log is to come again."""
        if refusal := self._puts.refusal() or self._puts.store_refusal:  # a slave's topics and groups are its master's
            return RemotingCommand(ResponseCode.SYSTEM_ERROR, remark=refusal)
        header = decode_header(ConsumerSendMsgBackRequestHeader, request)
        try:
            record = self._make_record(connection, request, header)
        except SendRefusedError as error:
            return RemotingCommand(error.code, remark=str(error))
        if record is None:
            return RemotingCommand(ResponseCode.SUCCESS)
        self._puts.put([Put(request.to_answer(request.size), record, True, request.is_oneway)], _Consumer(connection))
        return None

    def _make_record(
        self, connection: Connection, request: RemotingCommand, header: ConsumerSendMsgBackRequestHeader
    ) -> PreparedRecord | None:
        """What to store; None if the group has no retry topic, and wants nothing again.

        Raises:
            SendRefusedError: there is no such group or message, or it may not be stored.
            RmqhaError: the message cannot be read, or not be stored.
        """
        group = self._retries.find_group(header.group, peer=connection.peer)
        if group is None:
            reason = f"subscription group not exist, {header.group[:80]}"
            raise SendRefusedError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, reason)
        if not self._rules.writable:
            raise SendRefusedError(ResponseCode.NO_PERMISSION, "brokerPermission does not allow sends")
        if group.retry_queue_nums <= 0:
            return None
        retry = self._retries.retry_topic(
            header.group, group.retry_queue_nums, peer=connection.peer, unit_mode=header.unit_mode
        )
        if not retry.perm & PERM_WRITE:
            reason = f"the topic {retry.topic_name} may not be written"
            raise SendRefusedError(ResponseCode.NO_PERMISSION, reason)
        message = self._find_message(header.offset)
        asker = self._access.asker_of(connection, request)
        if message.topic != retry.topic_name and self._access.why_not(asker, Need(message.topic, SUB)):
            raise _none_there(header.offset)  # in other words it would tell where the messages of others begin
        if not enters_queue(message.sys_flag):
            reason = f"the message at {header.offset} is none that is consumed"
            raise SendRefusedError(ResponseCode.SYSTEM_ERROR, reason)
        if self._is_dead(group, message, header, client_version=request.version):
            dead = self._retries.dead_letter_topic(header.group, peer=connection.peer)
            queue_id = self._store.queue_for(dead.topic_name, 0)
            return self._prepare(message, dead.topic_name, queue_id, delay_level=0)
        queue_id = self._retries.next_queue(max(1, min(group.retry_queue_nums, retry.write_queue_nums)))
        delay_level = header.delay_level or _FIRST_RETRY_LEVEL + message.reconsume_times
        return self._prepare(message, retry.topic_name, queue_id, delay_level=delay_level)

    def _find_message(self, offset: int) -> StoredMessage:
        """What lies at ``offset``, where a consumer says to have found it. Raises as :meth:`_make_record`."""
        view = self._store.stored_message_at(offset)
        if view is None:
            raise _none_there(offset)
        return decode_message(view)

    @staticmethod
    def _is_dead(
        group: GroupConfig, message: StoredMessage, header: ConsumerSendMsgBackRequestHeader, *, client_version: int
    ) -> bool:
        is_over = is_spent(
            group,
            message.reconsume_times,
            client_version=client_version,
            max_reconsume_times=header.max_reconsume_times,
        )
        return header.delay_level < 0 or is_over

    def _prepare(self, message: StoredMessage, topic: str, queue_id: int, *, delay_level: int) -> PreparedRecord:
        """The message as it is stored again, in the other topic, or on its way there."""
        pairs = pairs_of(without_nul(message.properties_raw))
        pairs.setdefault(b"RETRY_TOPIC", b"RETRY_TOPIC\x01" + message.topic.encode())
        pairs.setdefault(b"ORIGIN_MESSAGE_ID", b"ORIGIN_MESSAGE_ID\x01" + message.offset_msg_id.encode())
        pairs |= {b"WAIT": b"WAIT\x01false", b"DELAY": b"DELAY\x01%d" % delay_level}
        record = prepare(
            topic,
            message.body,
            queue_id=queue_id,
            born_timestamp_ms=message.born_timestamp_ms,
            born_host_raw=message.born_host_raw,
            store_host_raw=self._rules.store_host,
            properties_raw=b"\x02".join(pairs.values()),
            flag=message.flag,
            sys_flag=message.sys_flag,
            reconsume_times=min(message.reconsume_times + 1, _INT32_MAX),
        )
        return put_to_wait(record, DelayAsked(delay_level, pairs), rules=self._rules) if delay_level > 0 else record


def _none_there(offset: int) -> SendRefusedError:
    reason = f"look message by offset failed, {offset}: it is deleted, or none begins there"
    return SendRefusedError(ResponseCode.SYSTEM_ERROR, reason)


class _Consumer:
    """A :class:`~rmqha.broker.puts.put_service.PutCaller`: who sent one message back."""

    def __init__(self, connection: Connection) -> None:
        self._connection: Final = connection

    @property
    def peer(self) -> str:
        return self._connection.peer

    def fenced(self) -> Guard:
        return self._connection.fenced()

    def refuse(self, asked: RemotingCommand, result: AppendResult) -> None:
        remark = result.remark or result.status.value
        self._connection.respond(asked, ResponseCode.SYSTEM_ERROR, remark=remark)

    def finish_oneway(self, puts: list[RemotingCommand]) -> None:
        self._connection.finish_oneway(len(puts), sum(request.size for request in puts))

    def prepare_answers(self, stored: list[tuple[RemotingCommand, AppendResult]]) -> Answer:
        def answer(statuses: list[PutMessageStatus]) -> None:
            with self._connection.fenced():
                for (asked, _), status in zip(stored, statuses, strict=True):
                    if not asked.is_oneway:
                        code = ResponseCode.SYSTEM_ERROR if status in _NOT_STORED else ResponseCode.SUCCESS
                        remark = status.value if status in _NOT_STORED else None
                        self._connection.respond(asked, code, remark=remark)

        return answer
