"""What the broker itself puts is stored as a client's messages are, and the one who puts it hears what became of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.puts.durability import Durability, FlushPromise, ReplicaPromise
from rmqha.broker.puts.internal_puts import InternalPuts
from rmqha.broker.puts.put_service import PutMessageService
from rmqha.codec.codes import ResponseCode
from rmqha.codec.host import parse_host
from rmqha.codec.record.encoder import PreparedRecord, prepare
from rmqha.replication.watermark import Watermark
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.status import PutMessageStatus
from rmqha.waiting import DeadlineService
from tests.broker.machines import Machine, ask, pull_request, send_request
from tests.sim.sim_net import SimNet

SEGMENT = 4096


def a_record(body: bytes = b"made here", *, topic: str = "t", queue_id: int = 0) -> PreparedRecord:
    host = parse_host("10.0.0.1:10911")
    return prepare(topic, body, queue_id=queue_id, born_timestamp_ms=1, born_host_raw=host, store_host_raw=host)


class Replicas:
    """What :class:`ReplicaPromise` asks; nobody ever acknowledges anything."""

    acked_from = 0

    def __init__(self, *, connected: bool) -> None:
        self.acked = Watermark()
        self.connected = connected

    def is_slave_ok(self, next_offset: int) -> bool:
        return self.connected


@asynccontextmanager
async def putting(
    *, refusal: str = "", replicas: Replicas | None = None, sync_flush: bool = False
) -> AsyncIterator[tuple[InternalPuts, BrokerController, Machine]]:
    """The puts of a broker of their own; its store is another's, which serves."""
    settings = {"mappedFileSizeCommitLog": str(SEGMENT), "brokerRole": "ASYNC_MASTER"}
    machine = Machine(SimNet(), "10.0.0.1", settings)
    async with machine.broker() as broker, trio.open_nursery() as nursery:
        store = broker.store
        flush = FlushPromise(store.flushed, store.request_flush, 5.0) if sync_flush else None
        promise = None if replicas is None else ReplicaPromise(replicas, 3.0)
        if replicas is not None:
            nursery.start_soon(DeadlineService(replicas.acked.deadlines).run)
        durability = Durability(store, clock=trio.current_time, flush=flush, replica=promise)
        puts = PutMessageService(store, broker.topics, durability, refusal=lambda: refusal)
        nursery.start_soon(puts.run)
        yield InternalPuts(puts, fence=broker.fence), broker, machine
        nursery.cancel_scope.cancel()


async def test_it_is_stored_and_seen(autojump_clock: MockClock) -> None:
    async with putting(sync_flush=True) as (puts, broker, machine), machine.client() as client:
        results = await puts.put_all([a_record(b"a"), a_record(b"b")])
        assert [result.status for result in results] == [PutMessageStatus.PUT_OK] * 2
        assert [result.append.queue_offset for result in results] == [0, 1]
        assert broker.store.flushed_offset >= results[1].append.end_offset, "it was to be durable"
        await trio.sleep(0.1)  # its topic is known when it is dispatched
        pulled = await ask(client, pull_request(0))
        assert pulled.code == ResponseCode.SUCCESS


async def test_nothing_put_is_nothing_awaited(autojump_clock: MockClock) -> None:
    async with putting() as (puts, broker, _):
        assert await puts.put_all([]) == []
        assert broker.store.max_offset == 0


async def test_what_may_not_be_stored_now_is_not(autojump_clock: MockClock) -> None:
    async with putting(refusal="1 of the 2 replicas are there") as (puts, broker, _):
        result = await puts.put(a_record())
        assert (result.status, result.append.remark) == (
            PutMessageStatus.SERVICE_NOT_AVAILABLE,
            "1 of the 2 replicas are there",
        )
        assert not result.is_stored
        assert broker.store.max_offset == 0


async def test_one_that_no_log_can_take_is_refused_alone(autojump_clock: MockClock) -> None:
    async with putting() as (puts, _, _):
        good, bad = await puts.put_all([a_record(), a_record(bytes(SEGMENT))])
        assert good.is_stored
        assert bad.status is PutMessageStatus.MESSAGE_ILLEGAL
        assert not bad.is_stored


@pytest.mark.parametrize(
    ("connected", "status", "waited_s"),
    [(False, PutMessageStatus.SLAVE_NOT_AVAILABLE, 0), (True, PutMessageStatus.FLUSH_SLAVE_TIMEOUT, 3)],
)
async def test_replicas_are_waited_for_if_that_is_asked_for(
    connected: bool, status: PutMessageStatus, waited_s: float, autojump_clock: MockClock
) -> None:
    async with putting(replicas=Replicas(connected=connected)) as (puts, _, _):
        assert (await puts.put(a_record(), wait=False)).status is PutMessageStatus.PUT_OK
        begun_at = trio.current_time()
        result = await puts.put(a_record())
        assert (result.status, result.is_stored) == (status, True)
        assert trio.current_time() - begun_at == pytest.approx(waited_s, abs=0.1)


async def test_a_disk_that_hangs_keeps_nobody_for_longer_than_a_producer(autojump_clock: MockClock) -> None:
    async with putting() as (puts, _, machine):
        await puts.put(a_record())
        await trio.sleep(1)
        machine.disk.faults.hung_until = trio.current_time() + 60
        begun_at = trio.current_time()
        results = [await puts.put(a_record(bytes(2000)), wait=False) for _ in range(6)]
        assert results[-1].status is PutMessageStatus.CREATE_MAPEDFILE_FAILED
        assert trio.current_time() - begun_at < 6 * 5.1


async def test_a_message_in_doubt_does_not_count_as_stored(autojump_clock: MockClock) -> None:
    """The log's tail was cut while it waited for the replicas."""
    replicas = Replicas(connected=True)
    async with putting(replicas=replicas) as (puts, _, _), trio.open_nursery() as nursery:

        async def put() -> None:
            result = await puts.put(a_record())
            assert (result.status, result.is_stored) == (PutMessageStatus.UNKNOWN_ERROR, False)

        nursery.start_soon(put)
        await trio.sleep(1)
        replicas.acked.cut(0)


@pytest.mark.meets_bugs
async def test_a_bug_on_its_way_costs_that_message_alone(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put_messages(*_: Any) -> None:
        raise AssertionError("planted")

    async with putting() as (puts, broker, _):
        with monkeypatch.context() as planted:
            planted.setattr(DefaultMessageStore, "put_messages", put_messages)
            result = await puts.put(a_record())
        assert (result.status, result.is_stored) == (PutMessageStatus.UNKNOWN_ERROR, False)
        assert "planted" in result.append.remark
        assert broker.fence.bugs == 1
        assert (await puts.put(a_record())).is_stored


async def test_clients_are_served_meanwhile(autojump_clock: MockClock) -> None:
    async with (
        putting(replicas=Replicas(connected=True)) as (puts, _, machine),
        machine.client() as client,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(puts.put, a_record())
        with trio.fail_after(1):
            assert (await ask(client, send_request(b"x"))).code == ResponseCode.SUCCESS
