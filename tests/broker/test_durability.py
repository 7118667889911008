"""SEND_OK only when what the roles promise has come true; otherwise the status says what is missing."""

from collections.abc import Sequence
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.processors.send_message_processor import SendMessageProcessor
from rmqha.broker.puts.durability import Durability, FlushPromise, ReplicaPromise
from rmqha.broker.puts.put_service import PutMessageService
from rmqha.broker.puts.sent_records import SendRules
from rmqha.codec.codes import ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.ha.group_transfer_service import GroupTransferService
from rmqha.replication.in_sync import InSyncReplicas, Replica
from rmqha.replication.slave_identity import SlaveIdentity
from rmqha.replication.watermark import Watermark
from rmqha.store.status import PutMessageStatus
from tests.broker.machines import Machine, Sender, ask, retry_topics, send_request
from tests.sim.sim_net import SimNet

OK = PutMessageStatus.PUT_OK
DISK = PutMessageStatus.FLUSH_DISK_TIMEOUT
SLAVE = PutMessageStatus.FLUSH_SLAVE_TIMEOUT
NONE = PutMessageStatus.SLAVE_NOT_AVAILABLE
CUT = PutMessageStatus.UNKNOWN_ERROR


class Broker:
    """A master as Durability sees it: a store that may have failed, two watermarks and a clock."""

    def __init__(self, *, sync_flush: bool, sync_master: bool, slave_ok: bool = True) -> None:
        self.write_error: Exception | None = None
        self.now = 0.0
        self.flushed = Watermark()
        self.in_sync = InSyncReplicas(2, slave_fallbehind_max=1000)
        self.transfer = GroupTransferService(self.in_sync, self.flushed)
        self.acked = self.transfer.acked
        self.flush_requests = 0
        self.answers: list[list[PutMessageStatus]] = []
        self.promise = ReplicaPromise(self.transfer, 3.0)
        self.durability = Durability(
            self,
            clock=lambda: self.now,
            flush=FlushPromise(self.flushed, self.request_flush, 5.0) if sync_flush else None,
            replica=self.promise if sync_master else None,
        )
        if slave_ok:
            self.connect(0)

    def request_flush(self) -> None:
        self.flush_requests += 1

    def connect(self, begins_at: int) -> Replica:
        replica = Replica(SlaveIdentity("10.0.0.2"), begins_at=begins_at, reported=begins_at)
        self.in_sync.add(replica)
        return replica

    def acknowledge(self, replica: Replica, offset: int) -> None:
        self.in_sync.acknowledge(replica, offset, begins_at=replica.begins_at)
        self.transfer.notify_transfer_some()

    def cut(self, end: int) -> None:
        """As a log whose tail is cut, and HAService after it."""
        self.transfer.cut(end)
        self.flushed.cut(end)

    def put(self, ends: Sequence[int], *, begin: int = 0) -> None:
        self.durability.answer_when_durable(begin, ends, self.answers.append)


def test_an_asynchronous_master_answers_at_once() -> None:
    broker = Broker(sync_flush=False, sync_master=False)
    broker.put([100, 200])
    assert broker.answers == [[OK, OK]]


def test_both_promises_must_hold() -> None:
    broker = Broker(sync_flush=True, sync_master=True)
    broker.put([100, 200])
    broker.acked.advance(200)
    assert broker.answers == []
    broker.flushed.advance(200)
    assert broker.answers == [[OK, OK]]
    assert broker.flush_requests == 1


@pytest.mark.parametrize("first", ["disk", "slave"])
def test_what_holds_already_does_not_answer_for_what_is_still_to_come(first: str) -> None:
    broker = Broker(sync_flush=True, sync_master=True)
    held, awaited = (broker.flushed, broker.acked) if first == "disk" else (broker.acked, broker.flushed)
    held.advance(200)
    broker.put([100, 200])
    assert broker.answers == []
    awaited.advance(200)
    assert broker.answers == [[OK, OK]]


def test_without_a_slave_the_answer_says_so_but_still_waits_for_the_disk() -> None:
    broker = Broker(sync_flush=True, sync_master=True, slave_ok=False)
    broker.put([100, 200])
    assert broker.answers == []
    broker.flushed.advance(200)
    assert broker.answers == [[NONE, NONE]]
    assert broker.promise.unreplicated == 2


def test_a_slave_must_be_close_to_the_end_of_what_waits() -> None:
    broker = Broker(sync_flush=False, sync_master=True)
    broker.put([500, 1000])
    assert broker.answers == [[NONE, NONE]]


def test_at_the_deadline_each_message_gets_its_own_status() -> None:
    broker = Broker(sync_flush=False, sync_master=True)
    broker.put([100, 200, 300])
    broker.acked.advance(250)
    broker.acked.deadlines.expire(3.0)
    assert broker.answers == [[OK, OK, SLAVE]]


def test_if_both_waits_fail_the_replica_status_is_reported() -> None:
    broker = Broker(sync_flush=True, sync_master=True)
    broker.put([100])
    broker.acked.deadlines.expire(3.0)
    broker.flushed.deadlines.expire(5.0)
    assert broker.answers == [[SLAVE]]


@pytest.mark.parametrize("sync_flush", [False, True])
def test_after_a_failed_flush_nothing_is_ever_send_ok(sync_flush: bool) -> None:
    broker = Broker(sync_flush=sync_flush, sync_master=True)
    broker.put([100, 200])
    broker.flushed.advance(100)
    broker.write_error = OSError("the device failed")
    broker.flushed.fail_all()
    broker.acked.advance(200)
    assert broker.answers == [[DISK, DISK]]


@pytest.mark.parametrize(
    ("begins_at", "statuses"),
    [(200, [OK, OK]), (201, [SLAVE, OK]), (250, [SLAVE, OK]), (251, [SLAVE, SLAVE]), (399, [SLAVE, SLAVE])],
)
def test_what_lies_before_the_stream_of_a_slave_is_not_known_to_be_held(
    begins_at: int, statuses: list[PutMessageStatus]
) -> None:
    """A slave of RocketMQ asks from its own end, and never compares what it has with the master's log."""
    broker = Broker(sync_flush=False, sync_master=True)
    broker.put([250, 400], begin=200)
    broker.acknowledge(broker.connect(begins_at), 400)
    assert broker.answers == [statuses]


def test_nor_is_it_when_the_deadline_comes_before_the_last_message_is_held() -> None:
    broker = Broker(sync_flush=False, sync_master=True)
    broker.put([250, 400, 500], begin=200)
    broker.acknowledge(broker.connect(230), 400)
    broker.acked.deadlines.expire(3.0)
    assert broker.answers == [[SLAVE, OK, SLAVE]]
    assert broker.promise.unreplicated == 2, "messages, not sends"


async def test_what_arrived_with_it_and_does_not_wait_need_not_be_held(autojump_clock: MockClock) -> None:
    machine, sender = Machine(SimNet(), "10.0.0.1", {"brokerRole": "ASYNC_MASTER"}), Sender()
    async with machine.broker() as broker, machine.client() as client:
        await ask(client, send_request(b"", topic="t"))
        store, replicas = broker.store, InSyncReplicas(2, slave_fallbehind_max=1000)
        transfer = GroupTransferService(replicas, Watermark())
        durability = Durability(store, clock=trio.current_time, flush=None, replica=ReplicaPromise(transfer, 3.0))
        rules = SendRules("cluster", bytes(8), 1000)
        puts = PutMessageService(store, broker.topics, durability, refusal=lambda: "")
        sends = SendMessageProcessor(puts, broker.topics, retry_topics(broker.topics), rules=rules)
        replicas.add(Replica(SlaveIdentity("10.0.0.2"), begins_at=0, reported=0))
        requests = [send_request(b"x", properties=properties) for properties in ("WAIT\x01false", "WAIT\x01true")]
        for opaque, request in enumerate(requests):
            request.opaque = opaque
        begin = store.max_offset
        sends.process(sender, requests)  # type: ignore[arg-type]
        second, end = (begin + store.max_offset) // 2, store.max_offset
        replica = Replica(SlaveIdentity("10.0.0.3"), begins_at=second)
        replicas.add(replica)
        replicas.acknowledge(replica, end, begins_at=second)
        transfer.notify_transfer_some()
        assert [sender.answers[opaque].code for opaque in (0, 1)] == [ResponseCode.SUCCESS] * 2


async def test_what_does_not_wait_is_not_send_ok_either_when_the_store_has_failed(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of two that arrive together fills a segment, and the write of the second to the next one fails."""
    machine, sender = Machine(SimNet(), "10.0.0.1", {"brokerRole": "ASYNC_MASTER"}), Sender()
    note = machine.disk.note

    def note_and_fail_next(kind: Any, path: str, **facts: Any) -> None:
        note(kind, path, **facts)
        machine.disk.faults.write_errors = int("/commitlog/" in path)

    async with machine.broker() as broker, machine.client() as client:
        await ask(client, send_request(bytes(40_000), topic="t"))
        await trio.sleep(1)
        durability = Durability(broker.store, clock=trio.current_time, flush=None, replica=None)
        rules = SendRules("cluster", bytes(8), 40_000)
        puts = PutMessageService(broker.store, broker.topics, durability, refusal=lambda: "")
        sends = SendMessageProcessor(puts, broker.topics, retry_topics(broker.topics), rules=rules)
        requests = [send_request(bytes(20_000), properties="WAIT\x01false") for _ in range(2)]
        for opaque, request in enumerate(requests):
            request.opaque = opaque
        monkeypatch.setattr(machine.disk, "note", note_and_fail_next)
        sends.process(sender, requests)  # type: ignore[arg-type]
        codes = [sender.answers[opaque].code for opaque in (0, 1)]
        assert codes == [ResponseCode.FLUSH_DISK_TIMEOUT, ResponseCode.SERVICE_NOT_AVAILABLE]


@pytest.mark.parametrize(("cut_to", "statuses"), [(100, [OK, CUT]), (150, [OK, CUT]), (0, [CUT, CUT])])
def test_what_was_cut_is_never_send_ok(cut_to: int, statuses: list[PutMessageStatus]) -> None:
    """Neither at once, nor when other bytes in the same place are flushed and held."""
    broker = Broker(sync_flush=True, sync_master=True)
    broker.put([100, 200])
    broker.flushed.advance(200)
    broker.acked.advance(100)
    broker.cut(cut_to)
    assert broker.answers == [statuses]
    broker.flushed.advance(300)
    broker.acked.advance(300)
    assert broker.answers == [statuses]
    assert broker.promise.unreplicated == 0, "it was not stored at all"


def test_what_is_put_after_a_cut_is_answered_as_ever() -> None:
    broker = Broker(sync_flush=True, sync_master=True)
    broker.flushed.advance(500)
    broker.cut(300)
    broker.put([400], begin=300)
    assert broker.answers == []
    broker.acked.advance(400)
    broker.flushed.advance(400)
    assert broker.answers == [[OK]]


def test_what_waits_below_a_cut_goes_on_waiting() -> None:
    broker = Broker(sync_flush=True, sync_master=True)
    broker.put([100, 200])
    broker.cut(200)
    assert broker.answers == []
    broker.flushed.advance(200)
    broker.acked.deadlines.expire(3.0)
    assert broker.answers == [[SLAVE, SLAVE]]


def test_a_cut_is_told_before_a_slave_that_is_missing() -> None:
    broker = Broker(sync_flush=True, sync_master=True, slave_ok=False)
    broker.put([100, 200])
    broker.cut(100)
    assert broker.answers == [[NONE, CUT]]


async def test_a_producer_whose_message_was_cut_is_told_to_send_it_again(autojump_clock: MockClock) -> None:
    settings = {"brokerRole": "ASYNC_MASTER", "flushDiskType": "SYNC_FLUSH"}
    machine = Machine(SimNet(), "10.0.0.1", settings)
    async with machine.broker() as broker, machine.client() as client, trio.open_nursery() as nursery:
        await ask(client, send_request(b"", topic="t"))
        end, answers = broker.store.max_offset, list[RemotingCommand]()

        async def send() -> None:
            answers.append(await ask(client, send_request(b"x", topic="t")))

        machine.disk.faults.hung_until = trio.current_time() + 2
        nursery.start_soon(send)
        await trio.sleep(1)
        assert (broker.store.max_offset > end, answers) == (True, [])
        broker.store.flushed.cut(end)
        await trio.sleep(0.1)
        assert [answer.code for answer in answers] == [ResponseCode.SYSTEM_ERROR]
        assert "the log was cut before this message was confirmed" in (answers[0].remark or "")


def test_what_one_slave_showed_is_not_taken_back_by_another() -> None:
    broker = Broker(sync_flush=False, sync_master=True)
    broker.acknowledge(broker.connect(0), 200)
    broker.put([300], begin=200)
    broker.acknowledge(broker.connect(100), 300)
    broker.put([350], begin=300)
    broker.acknowledge(broker.connect(350), 360)
    assert broker.answers == [[OK], [SLAVE]]
    broker.put([400], begin=360)
    broker.acknowledge(broker.connect(0), 400)
    assert broker.answers == [[OK], [SLAVE], [OK]]
