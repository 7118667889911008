"""SendMessageProcessor. Hot path: send requests that arrived together become one append and wait as one.

Each request is checked and refused on its own; what is left goes into the log with one write, and is answered when
:class:`~rmqha.broker.durability.Durability` says what became of it.

Source: spec: remoting §2.4, §3; rocketmq-all-4.9.8 AbstractSendMessageProcessor.java:165-240.
"""

from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from typing import Final, NamedTuple

import trio

from rmqha.broker.durability import Durability
from rmqha.broker.sent_records import SendRules, SentBatch, records_of
from rmqha.broker.stored_properties import SendRefusedError, StoredProperties
from rmqha.broker.topic_config_manager import FORBIDDEN_SEND_TOPICS, TopicConfigManager
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.host import parse_host
from rmqha.codec.limits import topic_problem
from rmqha.codec.record.encoder import PreparedRecord
from rmqha.codec.record.layout import SysFlag
from rmqha.codec.remoting import FLAG_ONEWAY, RemotingCommand
from rmqha.codec.send_answers import SendMessageResponseEncoder
from rmqha.codec.send_headers import (
    SendMessageRequestDecoder,
    SendMessageRequestHeader,
)
from rmqha.errors import LocalProtocolError, ProtocolError
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.store.commit_log import PutRequest
from rmqha.store.message_store import DefaultMessageStore
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

_SEGMENT_MADE_S: Final = 5.0
"""Sends wait so long for the next segment. Source: AllocateMappedFileService.java, waitTimeOut."""
_NO_SEGMENT: Final = AppendResult(
    PutMessageStatus.CREATE_MAPEDFILE_FAILED,
    remark=f"the log's next file is not there after {_SEGMENT_MADE_S:g} s: nothing is stored. Does the disk hang?",
)
BACKLOG_BYTES_MAX: Final = 256 * 1024 * 1024
"""Records of all connections that wait for the next segment, also of clients that have left meanwhile."""
_NO_ROOM: Final = AppendResult(
    PutMessageStatus.CREATE_MAPEDFILE_FAILED,
    remark="too many bytes wait for the log's next file or for topics.json already: this is not stored. "
    "Does the disk hang?",
)
LARGE_BATCHES_MAX: Final = 4
"""So many large batches are being prepared at one time; with their records each takes some 30 MB."""
_TOPIC_SAVED_S: Final = 2.0
"""A send to a new topic waits so long for topics.json at most: less than clients wait for the answer."""


class _Sent(NamedTuple):
    """A request whose message goes into the log; ``queue_id`` is what the producer is told."""

    connection: Connection
    opaque: int
    serialize: int
    oneway: bool
    queue_id: int
    wait: bool
    request: PutRequest


_Stored = tuple[int, int, bool, int, AppendResult]
"""What an answer needs: the request's opaque and serialize, whether it was one-way, the queue, and the result."""


class SendMessageProcessor:
    """Handles codes 10, 310 and 320."""

    def __init__(
        self,
        store: DefaultMessageStore,
        topics: TopicConfigManager,
        durability: Durability,
        *,
        rules: SendRules,
        refuse_sends: Callable[[], str],
    ) -> None:
        """``refuse_sends()`` is empty, or why no message may be stored now (too few replicas)."""
        self._store = store
        self._topics = topics
        self._durability = durability
        self._rules = rules
        self._refuse_sends = refuse_sends
        self._stored_properties = StoredProperties(rules.cluster_name)
        self._id_prefix = rules.store_host.hex().upper()  # what encode_message_id puts before the offset
        self._decoder = SendMessageRequestDecoder()
        self._encoder = SendMessageResponseEncoder()
        self._next_queue = 0
        self._large_batches = 0
        self._backlog: deque[list[_Sent]] = deque()
        self._backlog_bytes = 0
        self._backlog_grew = trio.Event()

    def register(self, dispatcher: RequestDispatcher) -> None:
        """Take the codes of sends, as many at once as arrive together."""
        dispatcher.register_batch(_CODES, self.process)

    def process(self, connection: Connection, requests: list[RemotingCommand]) -> None:
        """Answer every request once, now or when it is durable; large batches are prepared in turns."""
        refusal = self._refuse_sends()
        if refusal:
            for request in requests:
                connection.respond(request, ResponseCode.SERVICE_NOT_AVAILABLE, remark=refusal)
            return
        connection.work(self._process(connection, requests))

    def _process(self, connection: Connection, requests: list[RemotingCommand]) -> Iterator[bool]:
        accepted: list[_Sent] = []
        for request in requests:
            try:
                sent = self._accept(connection, request)
                if isinstance(sent.request, SentBatch):
                    yield from self._prepare(sent.request)
                accepted.append(sent)
            except SendRefusedError as error:
                connection.respond(request, error.code, remark=str(error))
            except ProtocolError as error:
                connection.respond(request, ResponseCode.SYSTEM_ERROR, remark=str(error))
            except Exception as error:  # noqa: BLE001 - the fence, which for each message would cost too much as a block
                connection.refuse(request, error)
        if self._topics.unsaved:
            accepted = self._hold_back(accepted)
        if accepted:
            self._put(accepted)

    def _prepare(self, batch: SentBatch) -> Iterator[bool]:
        """In steps; of large batches only a few at one time, since their records take memory.

        Raises:
            SendRefusedError: the batch may not be stored.
            RemoteProtocolError: it does not parse.
        """
        while batch.is_large and self._large_batches >= LARGE_BATCHES_MAX:
            yield True
        self._large_batches += batch.is_large
        try:
            yield from batch.prepare()
        except LocalProtocolError as error:
            raise SendRefusedError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None
        finally:
            self._large_batches -= batch.is_large

    def _accept(self, connection: Connection, request: RemotingCommand) -> _Sent:
        """Check a request and make of it what the log takes.

        Raises:
            SendRefusedError: the message may not be stored.
            RemoteProtocolError: the request does not parse.
        """
        header = self._decoder.decode(request)
        queue_id = self._check_destination(header)
        if header.sys_flag & SysFlag.TRANSACTION_TYPE:
            raise SendRefusedError(
                ResponseCode.MESSAGE_ILLEGAL,
                f"sysFlag {header.sys_flag} is that of a transactional message: not supported by this version of rmqha",
            )
        stored, wait = self._stored_properties.make(header.properties, batch=header.batch)
        born_host = _host_of(connection.peer)
        try:
            put = records_of(
                header, request.body, rules=self._rules, born_host=born_host, queue_id=queue_id, properties=stored
            )
        except LocalProtocolError as error:
            raise SendRefusedError(ResponseCode.MESSAGE_ILLEGAL, str(error)) from None
        oneway = request.flag & FLAG_ONEWAY != 0
        sent = (connection, request.opaque, request.serialize, oneway, queue_id, wait, put)
        return tuple.__new__(_Sent, sent)

    def _check_destination(self, header: SendMessageRequestHeader) -> int:
        """The queue to store in; creates the topic at its first use.

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
            config = self._topics.create_topic_in_send_message_method(
                topic,
                default_topic=header.default_topic,
                client_default_topic_queue_nums=header.default_topic_queue_nums,
            )
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

    def _hold_back(self, sent: list[_Sent]) -> list[_Sent]:
        """Put those with a new topic when that is saved, or refuse them; returns the others.

        RocketMQ, too, saves a topic before it stores the message that made it. Nobody is told of a one-way message.
        """
        unsaved, held, others = self._topics.unsaved, dict[str, list[_Sent]](), list[_Sent]()
        for one in sent:
            topic = _topic_of(one.request)
            some = held.setdefault(topic, []) if topic in unsaved and not one.oneway else others
            some.append(one)
        for topic, some in held.items():
            if self._has_room(some):
                self._backlog_bytes += _size_of(some)
                self._topics.when_saved(topic, trio.current_time() + _TOPIC_SAVED_S, partial(self._put_held, some))
            else:
                self._answer(some, [_NO_ROOM] * len(some))
        return others

    def _has_room(self, sent: list[_Sent]) -> bool:
        return self._backlog_bytes + _size_of(sent) <= BACKLOG_BYTES_MAX

    def _put_held(self, sent: list[_Sent], saved: bool, _count: int) -> None:
        self._backlog_bytes -= _size_of(sent)
        with sent[0].connection.fenced():
            if saved:
                self._put(sent)
                return
            topic = _topic_of(sent[0].request)
            remark = f"topic {topic} is new and could not be saved to topics.json: nothing is stored"
            for one in sent:
                self._refuse(one, AppendResult(PutMessageStatus.UNKNOWN_ERROR, remark=remark))

    def _put(self, sent: list[_Sent]) -> None:
        """Append what can be appended now; the rest is left to :meth:`run`, and everything after it too."""
        if self._backlog:
            self._put_off(sent)
            return
        results = self._store.put_messages([one.request for one in sent])
        if len(results) < len(sent):
            self._put_off(sent[len(results) :])
        self._answer(sent, results)

    def _put_off(self, sent: list[_Sent]) -> None:
        """Keep what comes from one connection for :meth:`run`, as far as there is room."""
        if not self._has_room(sent):
            self._answer(sent, [_NO_ROOM] * len(sent))
            return
        self._backlog.append(sent)
        self._backlog_bytes += _size_of(sent)
        self._backlog_grew.set()

    async def run(self) -> None:
        """Append, in order, what had to wait for the next segment to be made; until cancelled.

        If that takes too long everything that waits is refused, so nobody waits longer.
        """
        while True:
            await self._backlog_grew.wait()
            self._backlog_grew = trio.Event()
            while self._backlog:
                if not self._put_first() and not await self._is_segment_made():
                    await self._refuse_backlog()
                await trio.lowlevel.checkpoint()

    def _put_first(self) -> bool:
        """Append what has waited longest; False if the next segment is still not there."""
        sent = self._backlog.popleft()
        self._backlog_bytes -= _size_of(sent)
        with sent[0].connection.fenced():
            results = self._store.put_messages([one.request for one in sent])
            if rest := sent[len(results) :]:
                self._backlog.appendleft(rest)
                self._backlog_bytes += _size_of(rest)
            self._answer(sent, results)
            return bool(results)
        return True

    async def _refuse_backlog(self) -> None:
        for _ in range(len(self._backlog)):
            sent = self._backlog.popleft()
            self._backlog_bytes -= _size_of(sent)
            with sent[0].connection.fenced():
                self._answer(sent, [_NO_SEGMENT] * len(sent))
            await trio.lowlevel.checkpoint()

    async def _is_segment_made(self) -> bool:
        with trio.move_on_after(_SEGMENT_MADE_S) as patience:
            await self._store.wait_allocated()
        return not patience.cancelled_caught

    def _answer(self, sent: list[_Sent], results: list[AppendResult]) -> None:
        """Answer requests of one connection, now or when they are durable; the messages themselves are let go."""
        waiting: list[_Stored] = []
        at_once: list[_Stored] = []
        ends: list[int] = []
        oneways = 0
        for one, result in zip(sent, results, strict=False):
            _, opaque, serialize, oneway, queue_id, wait, _ = one
            if result.status is not _PUT_OK:
                self._refuse(one, result)
                continue
            oneways += oneway
            if wait:
                waiting.append((opaque, serialize, oneway, queue_id, result))
                ends.append(result.wrote_offset + result.wrote_bytes)
            else:
                at_once.append((opaque, serialize, oneway, queue_id, result))
        connection = sent[0].connection
        if oneways:
            connection.finish_oneway(oneways)
        if at_once:
            failed = self._store.write_error is not None
            status = PutMessageStatus.FLUSH_DISK_TIMEOUT if failed else _PUT_OK
            connection.send_responses(self._encode_answers(at_once, [status] * len(at_once)))
        if waiting:
            all_good = [_PUT_OK] * len(waiting)
            frames = self._encode_answers(waiting, all_good)  # while disk and replicas do their part

            def send_answers(statuses: list[PutMessageStatus]) -> None:
                with connection.fenced():
                    good = statuses == all_good
                    connection.send_responses(frames if good else self._encode_answers(waiting, statuses))

            self._durability.answer_when_durable(waiting[0][-1].wrote_offset, ends, send_answers)

    def _encode_answers(self, stored: list[_Stored], statuses: list[PutMessageStatus]) -> list[bytes]:
        """Hot path: one answer a message, in order."""
        encode, id_prefix = self._encoder.encode, self._id_prefix
        frames = []
        for (opaque, serialize, oneway, queue_id, result), status in zip(stored, statuses, strict=True):
            if oneway:
                continue
            code = 0 if status is _PUT_OK else _CODE_OF_STATUS[status]
            msg_id = f"{id_prefix}{result.wrote_offset:016X}"
            if result.batch_offsets:
                msg_id = ",".join([f"{id_prefix}{offset:016X}" for offset in result.batch_offsets])
            frames.append(encode(serialize, opaque, code, msg_id, queue_id, result.queue_offset))
        return frames

    def _refuse(self, one: _Sent, result: AppendResult) -> None:
        request = RemotingCommand(0, opaque=one.opaque, serialize=one.serialize, flag=FLAG_ONEWAY if one.oneway else 0)
        one.connection.respond(request, _CODE_OF_STATUS[result.status], remark=result.remark or result.status.value)


def _size_of(sent: list[_Sent]) -> int:
    return sum(
        request.size if isinstance(request, PreparedRecord) else sum(one.size for one in request)
        for *_, request in sent
    )


def _topic_of(request: PutRequest) -> str:
    records = (request,) if isinstance(request, PreparedRecord) else request
    return records[0].topic if records else ""


@lru_cache(maxsize=4096)
def _host_of(peer: str) -> bytes:
    return parse_host(peer)
