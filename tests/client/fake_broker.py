"""A broker in a few lines, behind the real RemotingServer: topics, sends, held pulls, offsets."""

from dataclasses import dataclass, field

import trio

from rmqha.codec.batch import BatchEntry
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.hashing import tags_code
from rmqha.codec.headers import (
    GetRouteInfoRequestHeader,
    OffsetResponseHeader,
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    PullSysFlag,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
    decode_header,
    encode_header,
)
from rmqha.codec.heartbeat import build_subscription_data
from rmqha.codec.host import parse_host
from rmqha.codec.message_id import encode_message_id
from rmqha.codec.record.encoder import prepare
from rmqha.codec.record.message import StoredMessage, decode_message
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.route import BrokerData, QueueData, TopicRouteData, encode_route
from rmqha.codec.send_answers import SendMessageResponseEncoder
from rmqha.codec.send_headers import SendMessageRequestDecoder
from rmqha.codec.usual.sends import Request
from rmqha.remoting.connection import Connection
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.remoting.server import RemotingServer
from rmqha.transport import Network
from tests.batches import decode_batch
from tests.settings import remoting_limits

SEND_CODES = [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE]


@dataclass
class Log:
    """What a master and its slave share here."""

    records: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)
    size: int = 0
    first: int = 0
    """The offset at which every queue begins."""
    committed: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """By group, topic and queue."""


class FakeBroker(RequestDispatcher):
    """Topics come into being by asking TBW102, as at a real broker."""

    def __init__(
        self, name: str = "broker-a", port: int = 10911, *, slave: bool = False, log: Log | None = None
    ) -> None:
        super().__init__()
        self.name = name
        self.address = f"10.0.0.1:{port}"
        self.port = port
        self.slave = slave
        self.addrs = {1 if slave else 0: self.address}
        self.log = log or Log()
        self.topics: dict[str, int] = {}
        self.perm = 6
        """Of every topic: 4 to read, 2 to write."""
        self.write_queue_nums: int | None = None
        """If a topic has not as many queues to write to as to read from."""
        self.auto_create = True
        self.answers: list[int] = []
        """Codes for the next sends, instead of storing them with SUCCESS."""
        self.silent = False
        self.sent: list[RemotingCommand] = []
        self.pulls: list[PullMessageRequestHeader] = []
        self.now_ms = 1_700_000_000_000
        self.held: list[tuple[Connection, RemotingCommand, PullMessageRequestHeader]] = []
        self._decoder = SendMessageRequestDecoder()
        self._encoder = SendMessageResponseEncoder()
        self.server = RemotingServer(self, limits=remoting_limits())
        self.register(RequestCode.GET_ROUTEINFO_BY_TOPIC, self.route)
        self.register_batch(SEND_CODES, self._send)
        self.register(RequestCode.PULL_MESSAGE, self._pull)
        self.register(RequestCode.GET_MIN_OFFSET, lambda _, request: self._offset(request, end=False))
        self.register(RequestCode.GET_MAX_OFFSET, lambda _, request: self._offset(request, end=True))
        self.register(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, self._search)
        self.register(RequestCode.QUERY_CONSUMER_OFFSET, self._query_offset)
        self.register(RequestCode.UPDATE_CONSUMER_OFFSET, self._update_offset)

    async def run(self, network: Network) -> None:
        await self.server.serve(await network.listen("10.0.0.1", self.port))

    async def die(self) -> None:
        await self.server.close(grace_s=0)

    def route(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        topic = decode_header(GetRouteInfoRequestHeader, request).topic
        nums = 8 if topic == "TBW102" and self.auto_create else self.topics.get(topic)
        if nums is None:
            return RemotingCommand(ResponseCode.TOPIC_NOT_EXIST, remark=f"no route for {topic}")
        queues = QueueData(self.name, nums, nums if self.write_queue_nums is None else self.write_queue_nums, self.perm)
        route = TopicRouteData((BrokerData("c", self.name, self.addrs),), (queues,))
        return RemotingCommand(0, body=encode_route(route, version=request.version))

    def _send(self, connection: Connection, requests: list[Request]) -> None:
        commands = [request.command for request in requests]
        self.sent += commands
        for request in commands:
            code = self.answers.pop(0) if self.answers else 0
            if self.silent:
                continue
            if code not in (0, 10, 11, 12):
                connection.respond(request, code, remark="because")
                continue
            header = self._decoder.decode(request)
            self.topics.setdefault(header.topic, 4)
            single = BatchEntry(header.flag, bytes(request.body), header.properties)
            entries = decode_batch(request.body) if header.batch else [single]
            ids, first_offset = [], len(self._queue(header.topic, header.queue_id))
            for flag, body, properties in entries:
                ids.append(self._append(header.topic, header.queue_id, body, properties, flag, header.sys_flag))
            if not request.is_oneway:
                answer = self._encoder.encode(
                    request.serialize, request.opaque, code, ",".join(ids), header.queue_id, first_offset
                )
                connection.send_response(answer, size=request.size)
        self.wake_held()

    def _append(self, topic: str, queue_id: int, body: bytes, properties: bytes, flag: int, sys_flag: int) -> str:
        queue = self._queue(topic, queue_id)
        host = parse_host(self.address)
        record = prepare(
            topic,
            body,
            properties_raw=properties,
            queue_id=queue_id,
            flag=flag,
            sys_flag=sys_flag,
            born_timestamp_ms=self.now_ms,
            born_host_raw=host,
            store_host_raw=host,
        ).pack(queue_offset=len(queue), physical_offset=self.log.size, store_timestamp_ms=self.now_ms)
        msg_id = encode_message_id(host, self.log.size)
        queue.append(record)
        self.log.size += len(record)
        return msg_id

    def _queue(self, topic: str, queue_id: int) -> list[bytes]:
        return self.log.records.setdefault((topic, queue_id), [])

    def messages(self, topic: str, queue_id: int) -> list[StoredMessage]:
        return [decode_message(record) for record in self._queue(topic, queue_id)]

    def _pull(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        header = decode_header(PullMessageRequestHeader, request)
        self.pulls.append(header)
        answer = self._find(header)
        if header.sys_flag & PullSysFlag.SUSPEND and self._may_hold(header, answer):
            self.held.append((connection, request, header))
            connection.start_soon(self._expire, connection, request, header)
            return None
        return answer

    def _may_hold(self, header: PullMessageRequestHeader, answer: RemotingCommand) -> bool:
        """As a broker of ours: also what matches nothing up to the queue's end."""
        if answer.code != ResponseCode.PULL_RETRY_IMMEDIATELY:
            return answer.code == ResponseCode.PULL_NOT_FOUND
        end = len(self._queue(header.topic, header.queue_id))
        return header.queue_offset < end == decode_header(PullMessageResponseHeader, answer).next_begin_offset

    async def _expire(self, connection: Connection, request: RemotingCommand, header: PullMessageRequestHeader) -> None:
        await trio.sleep(header.suspend_timeout_millis / 1000)
        if (connection, request, header) in self.held:
            self.held.remove((connection, request, header))
            connection.send_reply(request, self._find(header))

    def wake_held(self) -> None:
        for held in list(self.held):
            answer = self._find(held[2])
            if answer.code == 0:
                self.held.remove(held)
                held[0].send_reply(held[1], answer)

    def _find(self, header: PullMessageRequestHeader) -> RemotingCommand:
        queue = self._queue(header.topic, header.queue_id)
        offset, end = header.queue_offset, len(queue)
        code, following, body = ResponseCode.PULL_NOT_FOUND, offset, b""
        if offset > end:
            code = ResponseCode.PULL_RETRY_IMMEDIATELY if self.slave else ResponseCode.PULL_OFFSET_MOVED
            following = offset if self.slave else end
        elif offset < end:
            following = min(end, offset + header.max_msg_nums)
            codes = build_subscription_data(header.topic, header.subscription).code_set
            found = [record for record in queue[offset:following] if not codes or self._tag_code(record) in codes]
            body = b"".join(found)
            code = ResponseCode.SUCCESS if found else ResponseCode.PULL_RETRY_IMMEDIATELY
        fields = encode_header(PullMessageResponseHeader(0, following, 0, end))
        return RemotingCommand(code, ext_fields=fields, body=body)

    def _tag_code(self, record: bytes) -> int:
        return tags_code(decode_message(record).properties.get("TAGS"))

    def _offset(self, request: RemotingCommand, *, end: bool) -> RemotingCommand:
        header = decode_header(QueueRequestHeader, request)
        offset = len(self._queue(header.topic, header.queue_id)) if end else self.log.first
        return RemotingCommand(0, ext_fields=encode_header(OffsetResponseHeader(offset)))

    def _search(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        header = decode_header(SearchOffsetRequestHeader, request)
        stored = [decode_message(record) for record in self._queue(header.topic, header.queue_id)]
        offsets = [message.queue_offset for message in stored if message.store_timestamp_ms >= header.timestamp]
        offset = offsets[0] if offsets else max(len(stored) - 1, 0)
        return RemotingCommand(0, ext_fields=encode_header(OffsetResponseHeader(offset)))

    def _query_offset(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        header = decode_header(QueryConsumerOffsetRequestHeader, request)
        key = (header.consumer_group, header.topic, header.queue_id)
        offset = self.log.committed.get(key, None if self.log.first else 0)
        if offset is None:
            return RemotingCommand(ResponseCode.QUERY_NOT_FOUND, remark="this group consumer boot first")
        return RemotingCommand(0, ext_fields=encode_header(OffsetResponseHeader(offset)))

    def _update_offset(self, _: Connection, request: RemotingCommand) -> RemotingCommand:
        header = decode_header(UpdateConsumerOffsetRequestHeader, request)
        self.log.committed[header.consumer_group, header.topic, header.queue_id] = header.commit_offset
        return RemotingCommand(0)

    def refuse(self) -> RemotingCommand:
        return RemotingCommand(ResponseCode.NO_PERMISSION, remark="not for you")
