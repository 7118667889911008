"""A transactional producer as Java's: sends half messages, ends them, and is asked about them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import trio

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.transaction.half_message import set_property
from rmqha.codec.acl import SessionCredentials
from rmqha.codec.codes import RequestCode
from rmqha.codec.frame_decoder import FrameDecoder
from rmqha.codec.headers import decode_header, encode_header
from rmqha.codec.properties import REAL_QID, REAL_TOPIC
from rmqha.codec.record.layout import SysFlag
from rmqha.codec.record.message import StoredMessage, decode_message
from rmqha.codec.remoting import FLAG_ONEWAY, FLAG_RESPONSE, RemotingCommand
from rmqha.codec.send_answers import decode_send_response
from rmqha.codec.transaction_headers import CheckTransactionStateRequestHeader, EndTransactionRequestHeader
from rmqha.memory import new_buffer
from rmqha.transport import Stream
from tests.broker.dledger_brokers import Node
from tests.broker.machines import TIMEOUT_S, Machine, send_request

COMMIT, ROLLBACK, UNKNOWN = SysFlag.TRANSACTION_COMMIT, SysFlag.TRANSACTION_ROLLBACK, 0


@dataclass(frozen=True)
class Half:
    """What a producer keeps of a half message until it ends it."""

    queue_offset: int
    log_offset: int
    queue_id: int = 0


@dataclass
class Producer:
    """One connection."""

    stream: Stream
    group: str = "PG"
    credentials: SessionCredentials | None = None
    client_id: str = "10.9.9.9@1"
    answers: dict[int, RemotingCommand] = field(default_factory=dict)
    asked: list[RemotingCommand] = field(default_factory=list)
    """39 and other questions of the broker."""
    opaque: int = 0
    heard: trio.Event = field(default_factory=trio.Event)

    async def listen(self) -> None:
        """Until the broker leaves."""
        decoder, buffer = FrameDecoder(), new_buffer(65536)
        while count := await self.stream.receive_into(decoder.space(buffer)):
            for command in decoder.on_received(buffer, count):
                if command.flag & FLAG_RESPONSE:
                    self.answers[command.opaque] = command
                else:
                    self.asked.append(command)
            self.heard.set()
            self.heard = trio.Event()

    async def tell(self, request: RemotingCommand) -> None:
        """One-way."""
        self.opaque += 1
        request.opaque, request.flag = self.opaque, FLAG_ONEWAY
        await self._send(request)

    async def ask(self, request: RemotingCommand) -> RemotingCommand:
        """The answer."""
        self.opaque += 1
        request.opaque = self.opaque
        await self._send(request)
        with trio.fail_after(TIMEOUT_S):
            while request.opaque not in self.answers:
                await self.heard.wait()
        return self.answers[request.opaque]

    async def _send(self, request: RemotingCommand) -> None:
        if self.credentials is not None:
            self.credentials.sign(request)
        await self.stream.send_all(request.encode())

    async def beat(self) -> RemotingCommand:
        """The answer to a heartbeat, which says which group this is of."""
        body = b'{"clientID":"%s","consumerDataSet":[],"producerDataSet":[{"groupName":"%s"}]}'
        body %= self.client_id.encode(), self.group.encode()
        return await self.ask(RemotingCommand(RequestCode.HEART_BEAT, body=body))

    async def join(self) -> None:
        """Say which group this is of."""
        assert (await self.beat()).code == 0

    async def prepare(self, body: bytes, *, properties: str = "", **fields: str) -> Half:
        """Send a half message."""
        sent = await self.ask(half_request(body, group=self.group, properties=properties, **fields))
        assert sent.code == 0, sent.remark
        header = decode_send_response(sent)
        return Half(header.queue_offset, int(header.msg_id[-16:], 16), header.queue_id)

    async def end(self, half: Half, how: int, *, waits: bool = True, group: str = "") -> RemotingCommand | None:
        """37; Java's producers do not wait for an answer."""
        request = end_request(half, how, group=group or self.group)
        if waits:
            return await self.ask(request)
        await self.tell(request)
        return None

    async def wait_asked(self, count: int) -> tuple[Half, StoredMessage]:
        """What the ``count``-th question is about, and the message in it."""
        with trio.fail_after(5 * TIMEOUT_S):
            while len(self.asked) < count:
                await self.heard.wait()
        request = self.asked[count - 1]
        assert (request.code, request.flag) == (RequestCode.CHECK_TRANSACTION_STATE, FLAG_ONEWAY)
        header = decode_header(CheckTransactionStateRequestHeader, request)
        message = decode_message(request.body)
        return Half(header.tran_state_table_offset, header.commit_log_offset, message.queue_id), message


def half_request(body: bytes, *, group: str = "PG", properties: str = "", **fields: str) -> RemotingCommand:
    """310 of a half message."""
    texts = ["KEYS\x01k", "TRAN_MSG\x01true", "UNIQ_KEY\x01" + body.hex().upper(), "WAIT\x01true", f"PGROUP\x01{group}"]
    joined = "\x02".join([*texts, "TAGS\x01tx", *filter(None, [properties])])
    return send_request(body, properties=joined, **({"f": "4"} | dict[str, Any](fields)))


def as_rocketmq_stores(stored: bytes, *, topic: str, queue_id: int) -> bytes:
    """In place of ``half_properties``: RocketMQ's broker leaves in a half message whatever its client says."""
    return set_property(set_property(stored, REAL_TOPIC, topic), REAL_QID, str(queue_id))


def end_request(half: Half, how: int, *, group: str = "PG") -> RemotingCommand:
    """37."""
    header = EndTransactionRequestHeader(group, half.queue_offset, half.log_offset, how)
    return RemotingCommand(RequestCode.END_TRANSACTION, ext_fields=encode_header(header))


@asynccontextmanager
async def producer_of(
    machine: Machine | Node, *, group: str = "PG", credentials: SessionCredentials | None = None
) -> AsyncIterator[Producer]:
    """One on another machine, which is not in its group yet."""
    net, address = (machine.net, machine.address) if isinstance(machine, Machine) else machine.place
    network = net.host(f"10.9.8.{len(net.hosts)}").mount()
    stream = await network.connect(address, 10911, timeout_s=TIMEOUT_S)
    async with trio.open_nursery() as nursery:
        producer = Producer(stream, group, credentials)
        nursery.start_soon(producer.listen)
        yield producer
        nursery.cancel_scope.cancel()
    stream.close()


async def seen(
    broker: BrokerController, *, topic: str = "t", queue_id: int = 0, offset: int = 0
) -> list[StoredMessage]:
    """What consumers see of a queue from there on, once all is dispatched."""
    store = broker.store
    while store.reput_from_offset < store.max_offset:  # noqa: ASYNC110 - dispatch tells nobody
        await trio.sleep(0.01)
    return [decode_message(view) for view in store.get_message(topic, queue_id, offset).views]
