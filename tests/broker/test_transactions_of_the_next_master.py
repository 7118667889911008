"""What a master learns of the half messages that the one before it had begun to deal with."""

import json
from types import SimpleNamespace

import pytest
import trio

from rmqha.broker.schedule.delay_offsets import DelayOffsets
from rmqha.broker.transaction import half_send, marks
from rmqha.broker.transaction.half_message import (
    CHECK_IMMUNITY_TIME,
    CONSUMER_GROUP,
    HALF_TOPIC,
    OP_TOPIC,
    PREPARED_QUEUE_OFFSET,
)
from rmqha.broker.transaction.transactional_message_bridge import TransactionalMessageBridge
from rmqha.replication.role import RoleKind
from tests.broker.machines import Machine, send_request
from tests.broker.producers import COMMIT, ROLLBACK, as_rocketmq_stores, producer_of, seen
from tests.broker.test_master_link import SLAVE, answering
from tests.broker.test_slave_synchronize import synchronize_with, told_by_a_peer
from tests.broker.test_transactions import put_no_mark
from tests.sim.sim_clock import EPOCH_MS, VirtualClock, WallClock
from tests.sim.sim_net import SimNet
from tests.store.helpers import commit_log

TIMES = {"transactionCheckInterval": "4000", "transactionTimeOut": "3000"}


@pytest.fixture
def machine() -> Machine:
    return Machine(SimNet(), "10.0.0.1", TIMES)


async def test_marks_behind_a_half_message_that_is_not_passed_are_read_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock
) -> None:
    """Their half messages would be asked about once more, and committed a second time.

    Here they are not among the last ones, which a master reads in any case.
    """
    monkeypatch.setattr(marks, "KEPT_MAX", 0)
    async with machine.broker(transactionTimeOut="600000") as broker, producer_of(machine) as producer:
        await producer.prepare(b"pending")
        await producer.end(await producer.prepare(b"done"), COMMIT)
        await trio.sleep(30)
        assert not broker.offsets.query_offset(CONSUMER_GROUP, HALF_TOPIC, 0)
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        await trio.sleep(30)
        asked = [await producer.wait_asked(number + 1) for number in range(len(producer.asked))]
        assert {message.body for _, message in asked} == {b"pending"}
        for half, _ in asked:
            await producer.end(half, COMMIT)
        assert [message.body for message in await seen(broker)] == [b"done", b"pending"]


async def test_a_half_message_that_was_put_off_is_asked_about_at_its_last_place_alone(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        await producer.prepare(b"late", properties=f"{CHECK_IMMUNITY_TIME}\x0130")
        await trio.sleep(10)
        assert producer.asked == []
        assert len(await seen(broker, topic=HALF_TOPIC)) > 1, "it is written again meanwhile"
    async with machine.broker() as broker, producer_of(machine) as producer:
        for topic in (HALF_TOPIC, OP_TOPIC):
            broker.offsets.commit_offset(CONSUMER_GROUP, topic, 0, offset=0)
        await producer.join()
        await producer.wait_asked(1)
        await trio.sleep(1)
        asked = [await producer.wait_asked(number + 1) for number in range(len(producer.asked))]
        for half, _ in asked:
            await producer.end(half, COMMIT)
        assert [message.body for message in await seen(broker)] == [b"late"]
        assert len(asked) == 1


async def test_who_is_master_once_more_goes_by_what_the_log_says_meanwhile(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    """And neither asks nobody any more, nor about what another master has dealt with."""
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        for body in (b"ended elsewhere", b"pending"):
            await producer.prepare(body)
        await producer.wait_asked(2)
        broker.role.become(RoleKind.SLAVE, master="10.0.0.2:10911", term=1)
        await trio.sleep(20)
        before = len(producer.asked)
        last, end = (await producer.wait_asked(before))[0], broker.store.next_queue_offset(HALF_TOPIC, 0)
        assert last.queue_offset == end - 1
        broker.offsets.commit_offset(CONSUMER_GROUP, HALF_TOPIC, 0, offset=last.queue_offset)
        broker.role.become(RoleKind.MASTER, term=2)
        half, message = await producer.wait_asked(before + 1)
        assert message.body == b"pending"
        await producer.end(half, COMMIT)
        await trio.sleep(30)
        assert len(producer.asked) == before + 1
        assert [one.body for one in await seen(broker)] == [b"pending"]


@pytest.mark.parametrize("ends_before_the_first_round", [True, False])
async def test_who_ends_at_the_first_place_what_a_former_master_wrote_again_ends_it(
    machine: Machine, ends_before_the_first_round: bool, virtual_clock: VirtualClock
) -> None:
    """The next master begins behind that place: it asked once more, and the message was committed a second time."""
    async with machine.broker() as broker, producer_of(machine) as producer:
        half = await producer.prepare(b"long")
        await trio.sleep(30)
        begin = broker.offsets.query_offset(CONSUMER_GROUP, HALF_TOPIC, 0)
        assert begin is not None
        assert begin > half.queue_offset
    async with machine.broker() as broker, producer_of(machine) as producer:
        if not ends_before_the_first_round:
            await trio.sleep(6)
        await producer.join()
        await producer.end(half, COMMIT)
        await trio.sleep(30)
        asked = [await producer.wait_asked(number + 1) for number in range(len(producer.asked))]
        for other, _ in asked:
            await producer.end(other, COMMIT)
        assert [message.body for message in await seen(broker)] == [b"long"]
        assert asked == []


async def test_what_a_former_master_said_of_places_that_this_one_gives_out_anew_counts_no_more(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    """Its log reached further: half messages that came to lie there instead were passed, and nobody was asked."""
    async with machine.broker() as broker, producer_of(machine) as producer:
        broker.role.become(RoleKind.SLAVE, master="10.0.0.2:10911", term=1)
        for topic in (HALF_TOPIC, OP_TOPIC):
            broker.offsets.commit_offset(CONSUMER_GROUP, topic, 0, offset=5)
        broker.role.become(RoleKind.MASTER, term=2)
        await producer.join()
        await producer.prepare(b"money")
        half, message = await producer.wait_asked(1)
        assert message.body == b"money"
        await producer.end(half, COMMIT)
        await trio.sleep(20)
        assert len(producer.asked) == 1
        assert broker.offsets.query_offset(CONSUMER_GROUP, HALF_TOPIC, 0) == 2


async def test_a_clock_that_was_set_back_holds_up_no_questions(
    machine: Machine, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A half message that was stored an hour later, as its time says, kept all behind it waiting for that hour."""
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        await producer.prepare(b"pending")
        log, clock = commit_log(broker.store), WallClock()
        with monkeypatch.context() as later:
            later.setattr(log, "_now_ms", lambda: clock() + 3_600_000)
            await producer.wait_asked(1)
        await trio.sleep(30)
        assert len(producer.asked) > 3


async def test_nor_does_that_of_a_producer_which_is_ahead(machine: Machine, virtual_clock: VirtualClock) -> None:
    """How old a half message is nobody can tell then: it is asked about at once, and holds up none behind it."""
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        await producer.prepare(b"of tomorrow", g=str(EPOCH_MS + 86_400_000))
        await producer.prepare(b"of now", g=str(EPOCH_MS))
        for number, body in enumerate((b"of tomorrow", b"of now"), 1):
            half, asked = await producer.wait_asked(number)
            assert asked.body == body
            await producer.end(half, COMMIT)
        assert trio.current_time() < 60
        assert [message.body for message in await seen(broker)] == [b"of tomorrow", b"of now"]


async def test_who_is_no_master_any_more_saves_nothing_of_its_last_round(
    machine: Machine, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has written again may be cut from its log: the next one would pass a half message that lies nowhere."""
    saved = list[str]()

    async def until_another_is_master(_bridge: TransactionalMessageBridge, *, timeout_s: float) -> bool:
        del timeout_s
        broker.role.become(RoleKind.SLAVE, master="10.0.0.2:10911", term=1)
        return True

    def save(_bridge: TransactionalMessageBridge, topic: str, _offset: int) -> None:
        saved.append(topic)

    async with machine.broker() as broker, producer_of(machine) as producer:
        monkeypatch.setattr(TransactionalMessageBridge, "wait_safe", until_another_is_master)
        monkeypatch.setattr(TransactionalMessageBridge, "update_consume_offset", save)
        await producer.join()
        await producer.prepare(b"pending")
        await trio.sleep(20)
        assert not broker.role.is_master
        assert saved == []


async def test_what_is_not_safe_yet_is_not_counted_by_what_is_saved(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock
) -> None:
    """A crash could take away what was written again: who goes on behind it would pass the half message for ever."""
    saved, is_safe = list[int](), [False]

    async def wait_safe(_bridge: TransactionalMessageBridge, *, timeout_s: float) -> bool:
        await trio.sleep(timeout_s / 10)
        return is_safe[0]

    def save(_bridge: TransactionalMessageBridge, topic: str, offset: int) -> None:
        if topic == HALF_TOPIC:
            saved.append(offset)

    async with machine.broker(), producer_of(machine) as producer:
        monkeypatch.setattr(TransactionalMessageBridge, "wait_safe", wait_safe)
        monkeypatch.setattr(TransactionalMessageBridge, "update_consume_offset", save)
        await producer.join()
        await producer.prepare(b"pending")
        await producer.wait_asked(2)
        assert saved == []
        is_safe[0] = True
        await producer.wait_asked(3)
        await trio.sleep(3)
        assert saved
        assert saved[-1] >= 2


@pytest.mark.parametrize("how", [ROLLBACK, COMMIT])
async def test_the_place_of_another_half_message_that_a_client_named_is_not_believed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, how: int, virtual_clock: VirtualClock
) -> None:
    """As of a message that a producer got in a question and sent again, in a store that RocketMQ's broker wrote."""
    with monkeypatch.context() as stored:
        stored.setattr(half_send, "half_properties", as_rocketmq_stores)
        async with machine.broker(transactionTimeOut="600000"), producer_of(machine) as producer:
            await producer.prepare(b"first")
            await producer.end(ended := await producer.prepare(b"ended"), how)
            named = f"{PREPARED_QUEUE_OFFSET}\x01{ended.queue_offset}"
            sent = await producer.prepare(b"sent with its place", properties=named)
            await producer.prepare(b"asked about", properties=named)
    async with machine.broker(transactionTimeOut="600000") as broker, producer_of(machine) as producer:
        await producer.end(sent, COMMIT)
        before = [b"ended"] if how == COMMIT else []
        assert [message.body for message in await seen(broker)] == [*before, b"sent with its place"]
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        for number in range(2):
            half, _ = await producer.wait_asked(number + 1)
            await producer.end(half, COMMIT)
        bodies = [message.body for message in await seen(broker)]
        assert bodies == [*before, b"sent with its place", b"first", b"asked about"]


async def test_nor_is_one_that_has_expired_and_ended_before_the_half_message_was_stored(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock
) -> None:
    """Its commit was answered SUCCESS, and stored nothing: the mark may be there when what it marks has gone."""
    rarely = {"transactionCheckInterval": "600000", "fileReservedTime": "0"}
    with monkeypatch.context() as stored:
        stored.setattr(half_send, "half_properties", as_rocketmq_stores)
        async with machine.broker(**rarely), producer_of(machine) as producer:
            first = await producer.prepare(b"first")
            for _ in range(2):
                await producer.ask(send_request(bytes(40_000), topic="busy"))
            await producer.end(first, ROLLBACK)
            sent = await producer.prepare(b"second", properties=f"{PREPARED_QUEUE_OFFSET}\x01{first.queue_offset}")
            await producer.prepare(b"end of a file")
    async with machine.broker(**rarely) as broker, producer_of(machine) as producer:
        broker.store.cleaner.execute_delete_files_manually()
        await trio.sleep(100)
        assert first.log_offset < broker.store.min_offset < sent.log_offset
        assert await seen(broker, topic=OP_TOPIC), "the mark is there"
        await producer.end(sent, COMMIT)
        assert [message.body for message in await seen(broker)] == [b"second"]


async def test_a_damaged_queue_of_half_messages_does_not_cost_their_marks(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    """A place that leads behind its mark was taken for another message's: the same commit was carried out again."""
    async with machine.broker(), producer_of(machine) as producer:
        half = await producer.prepare(b"money")
        await producer.end(half, COMMIT)
        for _ in range(3):
            await producer.ask(send_request(bytes(4000), topic="other"))
        await trio.sleep(30)
    queue = machine.disk.files[f"/store/consumequeue/{HALF_TOPIC}/0/{0:020d}"]
    for content in (queue.cache, queue.durable):
        content[:8] = (int.from_bytes(content[:8], "big") + 9_000).to_bytes(8, "big")
    async with machine.broker() as broker, producer_of(machine) as producer:
        for _ in range(4):
            await producer.end(half, COMMIT)
            await trio.sleep(20)
        assert [message.body for message in await seen(broker)] == [b"money"]


@pytest.mark.parametrize("begin", [2, 3])
@pytest.mark.parametrize("ended", [0, 1, 2])
async def test_a_commit_whose_mark_did_not_come_counts_at_each_place_of_its_half_message(
    machine: Machine, ended: int, begin: int, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counted at the place that the producer had named: who was asked at another one committed once more."""
    with monkeypatch.context() as patch:
        put_no_mark(patch)
        async with machine.broker() as broker, producer_of(machine) as producer:
            await producer.join()
            halves = [await producer.prepare(b"money")]
            halves += [(await producer.wait_asked(number))[0] for number in (1, 2)]
            assert [half.queue_offset for half in halves] == [0, 1, 2]
            await producer.end(halves[ended], COMMIT)
            assert await seen(broker, topic=OP_TOPIC) == []
            broker.offsets.commit_offset(CONSUMER_GROUP, HALF_TOPIC, 0, offset=begin)
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        await trio.sleep(30)
        assert producer.asked == []
    async with machine.broker() as broker, producer_of(machine) as producer:
        for half in halves:
            await producer.end(half, COMMIT)
        assert [message.body for message in await seen(broker)] == [b"money"]


async def test_how_far_a_busy_master_is_counts_once_the_log_has_come_so_far(
    monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock
) -> None:
    """Its log grows with each round: a slave that was promoted asked about half messages from of old."""
    log = SimpleNamespace(settled=0)
    monkeypatch.setattr(DelayOffsets, "is_settled", lambda _self, log_end: log_end <= log.settled)
    net = SimNet()
    slave = Machine(net, "10.0.0.2").controller(**SLAVE)
    tables = synchronize_with(net, "10.0.0.2", slave)
    told, table = told_by_a_peer(b""), dict[str, str]()
    async with answering(net, table, told):
        for end, settled, place, known in [(1000, 0, 7, None), (2000, 500, 8, None), (3000, 1500, 9, 7)]:
            table["commitLogMaxOffset"], log.settled = str(end), settled
            offsets = json.dumps({"offsetTable": {f"{HALF_TOPIC}@{CONSUMER_GROUP}": {"0": place}}}).encode()
            told |= told_by_a_peer(offsets)
            await tables.synchronize(SLAVE["masterAddress"])
            assert tables.failure == ""
            assert slave.offsets.query_offset(CONSUMER_GROUP, HALF_TOPIC, 0) == known
