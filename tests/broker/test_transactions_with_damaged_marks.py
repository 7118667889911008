"""Half messages whose mark may be one that is damaged: nobody knows whether they were committed or rolled back."""

import json

import pytest
import trio
from structlog.testing import capture_logs

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.transaction import marks
from rmqha.broker.transaction.half_message import CHECK_MAX_TIME_TOPIC, OP_TOPIC
from rmqha.codec.codes import RequestCode
from rmqha.codec.consume_queue import UNIT, UNIT_SIZE
from rmqha.codec.remoting import RemotingCommand
from rmqha.replication.role import RoleKind
from tests.broker.machines import Machine, ask
from tests.broker.producers import COMMIT, ROLLBACK, producer_of, seen
from tests.sim.sim_clock import VirtualClock
from tests.sim.sim_net import SimNet

RARELY = {"transactionCheckInterval": "40000", "transactionTimeOut": "3000"}
DAMAGES = ["body", "head", "unit behind the end", "unit beside a record"]


@pytest.fixture
def machine() -> Machine:
    return Machine(SimNet(), "10.0.0.1", RARELY)


def damage(machine: Machine, broker: BrokerController, place: int, how: str) -> None:
    """The mark at this place of its queue."""
    queue = broker.store.queues.find(OP_TOPIC, 0)
    assert queue is not None
    unit = queue.unit(place)
    assert unit is not None
    at, size, tags_code = unit
    if how in {"body", "head"}:
        (log,) = [files for path, files in machine.disk.files.items() if path.endswith(f"commitlog/{0:020}")]
        last_of_body = log.cache.index(bytes([len(OP_TOPIC)]) + OP_TOPIC.encode(), at, at + size) - 1
        log.cache[at + 5 if how == "head" else last_of_body] ^= 4
        return
    leads_to = 1 << 40 if how == "unit behind the end" else at + 8
    (units,) = [files for path, files in machine.disk.files.items() if path.endswith(f"{OP_TOPIC}/0/{0:020}")]
    units.cache[place * UNIT_SIZE : (place + 1) * UNIT_SIZE] = UNIT.pack(leads_to, size, tags_code)


async def become_master_again(broker: BrokerController) -> None:
    """So that it reads the marks."""
    broker.role.become(RoleKind.SLAVE, master="10.0.0.2:10911", term=1)
    await trio.sleep(1)
    broker.role.become(RoleKind.MASTER, term=2)
    await trio.sleep(1)


@pytest.mark.parametrize("how", DAMAGES)
async def test_one_that_was_rolled_back_is_neither_asked_about_nor_committed(
    machine: Machine, how: str, virtual_clock: VirtualClock
) -> None:
    """It was asked about, and who commits late had consumers see what had been rolled back."""
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        gone = await producer.prepare(b"rolled back")
        kept = await producer.prepare(b"committed")
        await producer.end(gone, ROLLBACK)
        await producer.end(kept, COMMIT)
        late = await producer.prepare(b"late")
        await seen(broker, topic=OP_TOPIC)
        damage(machine, broker, 0, how)
        with capture_logs() as logs:
            await become_master_again(broker)
            refused = await producer.end(gone, COMMIT)
            again = await producer.end(kept, COMMIT)
            await trio.sleep(90)
            asked = [await producer.wait_asked(number + 1) for number in range(len(producer.asked))]
            assert {message.body for _, message in asked} == {b"late"}
            still_refused = await producer.end(gone, COMMIT)
            await producer.end(asked[-1][0], COMMIT)
        assert late.queue_offset == 2
        assert refused is not None
        assert refused.code != 0
        assert "damaged" in (refused.remark or "")
        assert still_refused is not None
        assert still_refused.code != 0
        assert again is not None
        assert again.code == 0
        assert [message.body for message in await seen(broker)] == [b"committed", b"late"]
        assert [half.body for half in await seen(broker, topic=CHECK_MAX_TIME_TOPIC)] == [b"rolled back"]
        assert [line["half_offset"] for line in logs if line["event"] == "transaction.discarded"] == [0]
        assert broker.store.running_flags.is_writeable
        async with machine.client() as client:
            table = (await ask(client, RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))).body
            told = json.loads(json.loads(table)["table"]["rmqhaStatus"])["damaged_marks"]
        assert told.startswith("a mark of ended transactions could not be read")


@pytest.mark.parametrize("how", DAMAGES)
async def test_where_the_last_mark_is_damaged_all_that_are_open_are_put_aside(
    machine: Machine, how: str, virtual_clock: VirtualClock
) -> None:
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        gone = await producer.prepare(b"rolled back")
        await producer.prepare(b"open")
        await producer.end(gone, ROLLBACK)
        await seen(broker, topic=OP_TOPIC)
        damage(machine, broker, 0, how)
        await become_master_again(broker)
        await producer.prepare(b"new")
        await trio.sleep(90)
        asked = [await producer.wait_asked(number + 1) for number in range(len(producer.asked))]
        assert {message.body for _, message in asked} == {b"new"}
        aside = [half.body for half in await seen(broker, topic=CHECK_MAX_TIME_TOPIC)]
        assert aside == [b"rolled back", b"open"]


async def test_marks_before_those_that_are_read_at_once_count_as_well(
    machine: Machine, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks, "KEPT_MAX", 1)
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        halves = [await producer.prepare(body) for body in (b"open", b"rolled back", b"other")]
        for half in halves[1:]:
            await producer.end(half, ROLLBACK)
        await seen(broker, topic=OP_TOPIC)
        damage(machine, broker, 0, "body")
        await become_master_again(broker)
        await trio.sleep(90)
        assert producer.asked == []
        aside = [half.body for half in await seen(broker, topic=CHECK_MAX_TIME_TOPIC)]
        assert aside == [b"open", b"rolled back"]


async def test_what_this_master_has_ended_it_knows_without_its_mark(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        gone = await producer.prepare(b"rolled back")
        await producer.prepare(b"open")
        await producer.end(gone, ROLLBACK)
        await seen(broker, topic=OP_TOPIC)
        damage(machine, broker, 0, "body")
        await trio.sleep(90)
        asked = [await producer.wait_asked(number + 1) for number in range(len(producer.asked))]
        assert {message.body for _, message in asked} == {b"open"}
        assert await seen(broker, topic=CHECK_MAX_TIME_TOPIC) == []
