"""A broker of another kind: the same controller and processors, on a log that a quorum keeps."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker import options
from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.group import ReplicationGroup
from rmqha.broker.puts.durability import ReplicaPromise
from rmqha.broker.tuning import Tuning
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.record.message import decode_message
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.send_answers import decode_send_response
from rmqha.config import BrokerConfig, load_config
from rmqha.remoting.client import RemotingClient, open_remoting_client
from rmqha.replication.role import RoleKind
from rmqha.replication.watermark import Watermark
from rmqha.store.confirm_offset import NO_LIMIT
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.parts import make_parts
from rmqha.store.store_log import StoreGround
from rmqha.waiting import DeadlineService
from tests.broker.machines import COMMON, ask, pull_request, send_request
from tests.sim.sim_clock import WallClock
from tests.sim.sim_net import SimNet
from tests.store.sparse_log import Medium, SparseLog


class Quorum:
    """A :class:`Replication` in which the test says what the other nodes have, and who leads."""

    port = 0
    final_error = None
    acked_from = 0
    ha_address = ""
    follows_tables = False

    def __init__(self, config: BrokerConfig, store: DefaultMessageStore, log: SparseLog) -> None:
        self._store = store
        self._log = log
        self.opened = trio.Event()
        self.opened.set()
        self.group = ReplicationGroup(config, slave_addresses=lambda: (), name_slave=lambda *_: None)
        self.acked = Watermark()
        self.promise = ReplicaPromise(self, config.slave_timeout_s)
        log.wrote.on_cut(self.acked.cut)

    # ---- what other nodes do

    async def commit(self) -> None:
        """They have all of it."""
        await self._store.flush_now(self._store.max_offset)
        self._log.confirm(self._store.max_offset)
        self.acked.advance(self._log.confirmed)
        self._store.confirm()

    async def elect(self, kind: RoleKind, *, term: int) -> None:
        """In another term this node keeps of its log what is confirmed."""
        self._log.truncate(self._log.confirmed)
        await self._store.recover_topic_queue_table()
        self._store.role.become(kind, term=term)

    # ---- as its broker sees it

    def broker_addrs(self, own: str) -> dict[int, str]:
        return {0: own}

    def is_slave_ok(self, next_offset: int) -> bool:
        return True

    def confirmed_offset(self) -> int:
        return self._log.confirmed

    def is_held_by(self, broker_id: int, offset: int) -> bool:
        return bool(broker_id) and offset < self._log.confirmed

    def refusal(self) -> str:
        return ""

    def kept_from(self) -> int:
        return NO_LIMIT

    def is_far_behind(self) -> bool:
        return False

    def doubt(self) -> str:
        return ""

    async def hand_over(self) -> None: ...

    async def take_leave(self) -> None: ...

    async def open(self) -> None: ...

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        task_status.started()
        await DeadlineService(self.acked.deadlines).run()

    def facts(self) -> dict[str, Any]:
        return {"quorum": "of the test"}


class Node:
    """A machine on which such brokers live one after the other."""

    def __init__(self) -> None:
        self.medium = Medium()
        self.net = SimNet()

    @asynccontextmanager
    async def broker(self) -> AsyncIterator[tuple[BrokerController, Quorum, RemotingClient]]:
        """A running broker and a client of it; stopped cleanly at the end of the block."""
        config = load_config(None, COMMON | {"brokerIP1": "10.0.0.1", "flushDiskType": "ASYNC_FLUSH"})
        ground = StoreGround(options.store_options(config, Tuning()), self.medium.disk.mount(), now_ms=WallClock())
        log = SparseLog(self.medium, ground.disk)
        store = DefaultMessageStore(make_parts(ground, log, role=options.role(config)))
        quorum = Quorum(config, store, log)
        controller = BrokerController(
            config,
            store,
            replicate=lambda _: quorum,
            network=self.net.host("10.0.0.1").mount(),
            now_ms=WallClock(),
            tuning=Tuning(),
        )
        async with trio.open_nursery() as nursery:
            await nursery.start(controller.run)
            async with open_remoting_client(self.net.host("10.9.9.9").mount(), "10.0.0.1:10911") as client:
                yield controller, quorum, client
            controller.stop()


@pytest.fixture
def node() -> Node:
    return Node()


async def bodies(client: RemotingClient) -> list[bytes]:
    answer = await ask(client, pull_request(0))
    return [decode_message(answer.body).body] if answer.code == ResponseCode.SUCCESS else []


async def test_a_producer_is_answered_when_a_quorum_has_it(node: Node, autojump_clock: MockClock) -> None:
    answers = list[RemotingCommand]()
    async with node.broker() as (_, quorum, client), trio.open_nursery() as nursery:

        async def send() -> None:
            answers.append(await ask(client, send_request(b"hello")))

        nursery.start_soon(send)
        await trio.sleep(1)
        assert (answers, await bodies(client)) == ([], [])
        await quorum.commit()
        await trio.sleep(1)
        assert [decode_send_response(answer).queue_offset for answer in answers] == [0]
        assert await bodies(client) == [b"hello"]
    async with node.broker() as (broker, _, client):
        assert await bodies(client) == [b"hello"]
        assert broker.store.reput_from_offset == broker.store.max_offset


async def test_without_a_quorum_the_answer_comes_in_time(node: Node, autojump_clock: MockClock) -> None:
    async with node.broker() as (_, _, client):
        answer = await ask(client, send_request(b"hello"))
        assert answer.code == ResponseCode.FLUSH_SLAVE_TIMEOUT


async def test_what_another_leader_cut_is_no_success_and_the_next_has_its_place(
    node: Node, autojump_clock: MockClock
) -> None:
    answers = list[RemotingCommand]()
    async with node.broker() as (broker, quorum, client), trio.open_nursery() as nursery:

        async def send(body: bytes) -> None:
            answers.append(await ask(client, send_request(body)))

        nursery.start_soon(send, b"of another term")
        await trio.sleep(1)
        await quorum.elect(RoleKind.SLAVE, term=1)
        await trio.sleep(0.1)
        assert [answer.code for answer in answers] == [ResponseCode.SYSTEM_ERROR]
        await send(b"to a follower")
        assert answers[-1].code not in (ResponseCode.SUCCESS, ResponseCode.FLUSH_SLAVE_TIMEOUT)
        assert broker.store.max_offset == 0
        await quorum.elect(RoleKind.MASTER, term=2)
        nursery.start_soon(send, b"of this term")
        await trio.sleep(1)
        await quorum.commit()
        await trio.sleep(1)
        assert (decode_send_response(answers[-1]).queue_offset, await bodies(client)) == (0, [b"of this term"])


async def test_its_status_tells_what_its_replication_tells(node: Node, autojump_clock: MockClock) -> None:
    async with node.broker() as (_, _, client):
        answer = await ask(client, RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
        assert b"of the test" in answer.body


async def test_what_is_sent_back_and_cut_is_no_success(node: Node, autojump_clock: MockClock) -> None:
    """A consumer that is told of success counts the message as consumed; it would never come again."""
    answers = list[RemotingCommand]()
    async with node.broker() as (_, quorum, client), trio.open_nursery() as nursery:

        async def send(request: RemotingCommand) -> None:
            answers.append(await ask(client, request))

        nursery.start_soon(send, send_request(b"hello"))
        await trio.sleep(1)
        await quorum.commit()
        await trio.sleep(1)
        (sent,) = answers
        offset = str(int(decode_send_response(sent).msg_id[-16:], 16))
        fields = {"offset": offset, "group": "g", "delayLevel": "0", "originTopic": "t"}
        nursery.start_soon(send, RemotingCommand(RequestCode.CONSUMER_SEND_MSG_BACK, ext_fields=fields))
        await trio.sleep(1)
        assert answers == [sent]
        await quorum.elect(RoleKind.SLAVE, term=1)
        await trio.sleep(0.1)
        assert [answer.code for answer in answers[1:]] == [ResponseCode.SYSTEM_ERROR]
