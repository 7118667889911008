"""SendMessageProcessor. Hot path: checks send requests that arrived together, and encodes their answers.

Each request is checked and refused on its own; what is left goes to
:class:`~rmqha.broker.puts.put_service.PutMessageService` in one list.

Source: spec: remoting §2.4, §3; rocketmq-all-4.9.8 AbstractSendMessageProcessor.java:165-240.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from rmqha.broker.puts.durability import Answer
from rmqha.broker.puts.put_service import Put, PutMessageService
from rmqha.broker.puts.sent_records import (
    LARGE_BYTES,
    Asked,
    SendRules,
    SentBatch,
    born_host_of,
    put_to_wait,
    records_of,
)
from rmqha.broker.puts.stored_properties import (
    SendRefusedError,
    StoredProperties,
    is_transactional,
    without_delay,
)
from rmqha.broker.puts.usual_puts import UsualPuts
from rmqha.broker.tables.retry_topics import RETRY_GROUP_TOPIC_PREFIX, RetryTopics, is_spent
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.broker.transaction.half_send import half_of, no_transaction
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.limits import FORBIDDEN_SEND_TOPICS, topic_problem
from rmqha.codec.record.encoder import PreparedRecord
from rmqha.codec.record.layout import SysFlag
from rmqha.codec.remoting import FLAG_ONEWAY, FLAG_RESPONSE, RemotingCommand
from rmqha.codec.send_answers import SendMessageResponseEncoder
from rmqha.codec.send_headers import (
    SendMessageRequestDecoder,
    SendMessageRequestHeader,
)
from rmqha.codec.usual.sends import Request
from rmqha.errors import LocalProtocolError, ProtocolError
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.remoting.fence import Guard
from rmqha.store.status import AppendResult, PutMessageStatus

_CODES: Final = (RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE)
_PUT_OK: Final = PutMessageStatus.PUT_OK  # hot: looking a member up in its enumeration takes longer than comparing it
_CODE_OF_STATUS: Final = {
    PutMessageStatus.PUT_OK: ResponseCode.SUCCESS,
    PutMessageStatus.FLUSH_DISK_TIMEOUT: ResponseCode.FLUSH_DISK_TIMEOUT,
    PutMessageStatus.SLAVE_NOT_AVAILABLE: ResponseCode.SLAVE_NOT_AVAILABLE,
    PutMessageStatus.FLUSH_SLAVE_TIMEOUT: ResponseCode.FLUSH_SLAVE_TIMEOUT,
    PutMessageStatus.MESSAGE_ILLEGAL: ResponseCode.MESSAGE_ILLEGAL,
    PutMessageStatus.PROPERTIES_SIZE_EXCEEDED: ResponseCode.MESSAGE_ILLEGAL,
    PutMessageStatus.SERVICE_NOT_AVAILABLE: ResponseCode.SERVICE_NOT_AVAILABLE,
    PutMessageStatus.CREATE_MAPEDFILE_FAILED: ResponseCode.SYSTEM_ERROR,
    PutMessageStatus.OS_PAGECACHE_BUSY: ResponseCode.SYSTEM_ERROR,
    PutMessageStatus.UNKNOWN_ERROR: ResponseCode.SYSTEM_ERROR,
}
_RARE_FLAGS: Final = SysFlag.TRANSACTION_TYPE | SysFlag.INNER_BATCH
_UNCONFIRMED: Final = {
    PutMessageStatus.UNKNOWN_ERROR: "the log was cut before this message was confirmed: another node may still hold "
    "it, or none; send it again",
    PutMessageStatus.OS_PAGECACHE_BUSY: "no majority of the group has confirmed this message in time: it may be "
    "confirmed later, or never; send it again",
}
LARGE_BATCHES_MAX: Final = 4
"""So many large batches are being prepared at one time; with their records each takes some 30 MB."""

_Stored = tuple[Asked, AppendResult]


class SendMessageProcessor:
    """Handles codes 10, 310 and 320."""

    def __init__(
        self, puts: PutMessageService, topics: TopicConfigManager, retries: RetryTopics, *, rules: SendRules
    ) -> None:
        self._puts = puts
        self._retries = retries
        self._topics = topics
        self._rules = rules
        self._stored_properties = StoredProperties(rules.cluster_name)
        self._decoder = SendMessageRequestDecoder()
        self._encoder = SendMessageResponseEncoder(rules.store_host)
        self._next_queue = 0
        self._usual = UsualPuts(topics, self._check_destination, self._stored_properties, rules=rules)
        self._large_batches = 0

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Take the codes of sends, as many at once as arrive together."""
        dispatcher.register_batch(_CODES, self.process)

    def process(self, connection: Connection, requests: list[Request]) -> None:
        """Answer every request once, now or when it is durable; large batches are prepared in turns."""
        refusal = self._puts.refusal()
        if refusal:
            self._puts.note_refused(len(requests))
            for request in requests:
                connection.respond(request, ResponseCode.SERVICE_NOT_AVAILABLE, remark=refusal)
            return
        connection.work(self._process(connection, requests))

    def _process(self, connection: Connection, requests: list[Request]) -> Iterator[bool]:
        sender, accepted, handled = _Sender(connection, self._encode_answers), list[Put[Asked]](), 0
        cost = 0
        while handled < len(requests):
            handled += self._usual.accept(requests, handled, connection.peer, accepted=accepted)
            if handled == len(requests):
                break
            request = requests[handled].command
            handled += 1
            try:
                put = self._accept(connection, request)
                if isinstance(put.request, SentBatch):
                    if accepted and put.request.is_large:
                        before, accepted, cost = accepted, [], 0
                        with (
                            connection.fenced()
                        ):  # a bug met there is none of this request, and what is put is put once
                            self._puts.put(before, sender)
                    cost += put.request.cost
                    yield from self._prepare(put.request)
                accepted.append(put)
            except ProtocolError as error:
                self._puts.note_refused(1)
                code = error.code if isinstance(error, SendRefusedError) else ResponseCode.SYSTEM_ERROR
                connection.respond(request, code, remark=str(error))
            except Exception as error:  # noqa: BLE001 - the fence, which for each message would cost too much as a block
                connection.refuse(request, error)
            if cost > LARGE_BYTES:  # however many came together, no more than one large batch is held and appended
                self._puts.put(accepted, sender)
                accepted, cost = [], 0
                yield False
        if accepted:
            self._puts.put(accepted, sender)

    def _prepare(self, batch: SentBatch) -> Iterator[bool]:
        """A large batch in steps, and only a few at one time, since their records take memory; any other at once.

        Raises:
            SendRefusedError: the batch may not be stored.
            RemoteProtocolError: it does not parse.
        """
        is_large = batch.is_large
        while is_large and self._large_batches >= LARGE_BATCHES_MAX:
            yield True
        self._large_batches += is_large
        try:
            for _ in batch.prepare():
                if is_large:
                    yield False
        except LocalProtocolError as error:
            raise SendRefusedError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None
        finally:
            self._large_batches -= is_large

    def _accept(self, connection: Connection, request: RemotingCommand) -> Put[Asked]:
        """Check a request and make of it what the log takes.

        Raises:
            SendRefusedError: the message may not be stored.
            RemoteProtocolError: the request does not parse.
        """
        header = self._decoder.decode(request)
        queue_id = told_queue_id = self._check_destination(header, peer=connection.peer)
        if header.topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            header, queue_id = self._check_retry(connection, request, header=header, queue_id=queue_id)
        is_half = not header.batch and is_transactional(header.properties)
        if is_half and header.reconsume_times > 0:
            header, is_half = no_transaction(header), False
        if header.sys_flag & _RARE_FLAGS:
            _check_flags(header.sys_flag, is_half=is_half)
        make = (
            self._stored_properties.make_half if is_half else partial(self._stored_properties.make, batch=header.batch)
        )
        stored, wait, delay = make(header.properties)
        born_host = born_host_of(connection.peer)
        try:
            records = (half_of if is_half else records_of)(
                header, request.body, rules=self._rules, born_host=born_host, queue_id=queue_id, properties=stored
            )
            if delay is not None:
                assert isinstance(records, PreparedRecord), "no batch is delayed"
                records = put_to_wait(records, delay, rules=self._rules)
        except LocalProtocolError as error:
            raise SendRefusedError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None
        oneway = request.flag & FLAG_ONEWAY != 0
        asked = (request.opaque, request.serialize, oneway, told_queue_id, request.size)
        return tuple.__new__(Put, (asked, records, wait, oneway))

    def _check_retry(
        self, connection: Connection, request: RemotingCommand, *, header: SendMessageRequestHeader, queue_id: int
    ) -> tuple[SendMessageRequestHeader, int]:
        """A consumer's message that is to come again, as it could not send it back (36): or it is a dead letter.

        Java's consumers give each of them a level of delay; a dead letter is for people, and does not wait, as with 36.

        Raises:
            RemoteProtocolError: there may be no such group, or there is no room for its topic.
        """
        name = header.topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX)
        group = self._retries.find_group(name, peer=connection.peer)
        if group is None:
            raise SendRefusedError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group not exist, {name}")
        is_over = is_spent(
            group,
            header.reconsume_times,
            client_version=request.version,
            max_reconsume_times=header.max_reconsume_times,
        )
        if not is_over:
            return header, queue_id
        dead = self._retries.dead_letter_topic(name, peer=connection.peer)
        return header._replace(topic=dead.topic_name, properties=without_delay(header.properties)), 0

    def _check_destination(self, header: SendMessageRequestHeader, *, peer: str = "") -> int:
        """The queue to store in; creates the topic at its first use, on behalf of ``peer``.

        Raises:
            RemoteProtocolError: there are too many queues for another topic, or the message may not go there.
        """
        topic = header.topic
        config = self._topics.select(topic)
        if config is None or topic in FORBIDDEN_SEND_TOPICS:
            problem = topic_problem(topic)
            if problem:
                raise SendRefusedError(ResponseCode.SYSTEM_ERROR, problem)
            if topic in FORBIDDEN_SEND_TOPICS:
                raise SendRefusedError(ResponseCode.NO_PERMISSION, f"sending to topic {topic} is forbidden")
            if refusal := self._puts.store_refusal:  # a slave's topics are its master's
                raise SendRefusedError(ResponseCode.SERVICE_NOT_AVAILABLE, refusal)
            config = self._topics.create_topic_in_send_message_method(
                topic,
                default_topic=header.default_topic,
                client_default_topic_queue_nums=header.default_topic_queue_nums,
                peer=peer,
            )
        if config is None and topic.startswith(RETRY_GROUP_TOPIC_PREFIX):
            config = self._retries.retry_topic(topic.removeprefix(RETRY_GROUP_TOPIC_PREFIX), 1, peer=peer)
        if config is None:
            raise SendRefusedError(ResponseCode.TOPIC_NOT_EXIST, f"topic {topic} does not exist; create it first")
        if not self._rules.writable and config.order:
            raise SendRefusedError(ResponseCode.NO_PERMISSION, "brokerPermission does not allow sends")
        if header.queue_id >= config.write_queue_nums and header.queue_id >= config.read_queue_nums:
            raise SendRefusedError(
                ResponseCode.SYSTEM_ERROR,
                f"topic {topic} has {config.write_queue_nums} write queues, there is no queue {header.queue_id}",
            )
        if header.queue_id >= 0:
            return header.queue_id
        self._next_queue += 1
        return self._next_queue % max(config.write_queue_nums, 1)

    def _encode_answers(self, stored: list[_Stored], statuses: list[PutMessageStatus]) -> list[bytes]:
        """Hot path: one answer a message, in order."""
        encode_success, frames = self._encoder.encode_success, []
        for (asked, result), status in zip(stored, statuses, strict=True):
            opaque, serialize, oneway, queue_id, _ = asked
            _, wrote_offset, _, queue_offset, _, batch_offsets, _ = result
            if oneway:
                continue
            if status is _PUT_OK and not batch_offsets:
                frames.append(encode_success(serialize, opaque, wrote_offset, queue_id, queue_offset))
            else:
                frames.append(self._encode_answer(asked, result, status))
        return frames

    def _encode_answer(self, asked: Asked, result: AppendResult, status: PutMessageStatus) -> bytes:
        opaque, serialize, _, queue_id, _ = asked
        code = _CODE_OF_STATUS[status]
        if code == ResponseCode.SYSTEM_ERROR:
            return _encode_unconfirmed(opaque, serialize, status)
        msg_id = self._encoder.message_ids(result.offsets)
        return self._encoder.encode(serialize, opaque, code, msg_id, queue_id, result.queue_offset)


class _Sender:
    """A :class:`~rmqha.broker.puts.put_service.PutCaller`: one connection, which sent messages together."""

    __slots__ = ("_connection", "_encode_answers")

    def __init__(
        self,
        connection: Connection,
        encode_answers: Callable[[list[_Stored], list[PutMessageStatus]], list[bytes]],
    ) -> None:
        self._connection = connection
        self._encode_answers = encode_answers

    @property
    def peer(self) -> str:
        return self._connection.peer

    def fenced(self) -> Guard:
        return self._connection.fenced()

    def refuse(self, asked: Asked, result: AppendResult) -> None:
        opaque, serialize, oneway, _, size = asked
        flag = FLAG_ONEWAY if oneway else 0
        request = RemotingCommand(0, opaque=opaque, serialize=serialize, flag=flag, size=size)
        self._connection.respond(request, _CODE_OF_STATUS[result.status], remark=result.remark or result.status.value)

    def finish_oneway(self, puts: list[Asked]) -> None:
        self._connection.finish_oneway(len(puts), sum(size for _, _, _, _, size in puts))

    def prepare_answers(self, stored: list[_Stored]) -> Answer:
        connection, encode_answers = self._connection, self._encode_answers
        all_good = [_PUT_OK] * len(stored)
        frames = encode_answers(stored, all_good)
        size = sum([size for (_, _, oneway, _, size), _ in stored if not oneway])

        def send_answers(statuses: list[PutMessageStatus]) -> None:
            with connection.fenced():
                good = statuses == all_good
                connection.send_responses(frames if good else encode_answers(stored, statuses), size)

        return send_answers


def _encode_unconfirmed(opaque: int, serialize: int, status: PutMessageStatus) -> bytes:
    """The answer to a message that is in the log, or was, and is no SEND_OK: its producer sends it again."""
    answer = RemotingCommand(
        ResponseCode.SYSTEM_ERROR, opaque, FLAG_RESPONSE, remark=_UNCONFIRMED[status], serialize=serialize
    )
    return answer.encode()


def _check_flags(sys_flag: int, *, is_half: bool) -> None:
    """Raises SendRefusedError: what has such a SYSFLAG would be in the log, and never be seen."""
    if sys_flag & SysFlag.TRANSACTION_TYPE and not is_half:
        text = f"sysFlag {sys_flag} is that of a transactional message, and TRAN_MSG is not true"
        raise SendRefusedError(ResponseCode.MESSAGE_ILLEGAL, text)
    if sys_flag & SysFlag.INNER_BATCH:
        text = f"sysFlag {sys_flag} is that of an inner batch of RocketMQ 5, and there are no topics for them here"
        raise SendRefusedError(ResponseCode.MESSAGE_ILLEGAL, text)
