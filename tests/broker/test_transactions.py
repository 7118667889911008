"""Transactional messages: invariant I14 and traps 30 and 31 of the remoting spec, and what no crash may cost."""

import json
from collections import Counter
from functools import partial
from typing import Any

import pytest
import trio
import trio.lowlevel
from structlog.testing import capture_logs

from rmqha.broker.processors import end_transaction_processor
from rmqha.broker.puts.put_service import Put, PutMessageService
from rmqha.broker.transaction import marks
from rmqha.broker.transaction.fates import Fates
from rmqha.broker.transaction.half_message import CHECK_MAX_TIME_TOPIC, CONSUMER_GROUP, HALF_TOPIC, OP_TOPIC
from rmqha.broker.transaction.transactional_message_service import TransactionalMessageService
from rmqha.codec.codes import ResponseCode
from rmqha.codec.consume_queue import UNIT, UNIT_SIZE
from rmqha.codec.record.layout import SysFlag
from rmqha.codec.record.message import StoredMessage
from rmqha.remoting.connection import Connection
from rmqha.replication.role import RoleKind
from rmqha.store.status import AppendResult, PutMessageStatus
from tests.broker.machines import Machine, ask, send_request
from tests.broker.producers import (
    COMMIT,
    ROLLBACK,
    UNKNOWN,
    Half,
    Producer,
    end_request,
    half_request,
    producer_of,
    seen,
)
from tests.sim.sim_clock import VirtualClock
from tests.sim.sim_net import SimNet

TIMES = {"transactionCheckInterval": "4000", "transactionTimeOut": "3000"}


@pytest.fixture
def machine() -> Machine:
    return Machine(SimNet(), "10.0.0.1", TIMES)


async def test_i14_a_half_message_is_seen_once_if_it_is_committed(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    """Java's producers end a transaction one-way, right behind SEND_OK."""
    async with machine.broker() as broker, producer_of(machine) as producer:
        half = await producer.prepare(b"money", h="7", e="2")
        assert await seen(broker, queue_id=2) == []
        await producer.end(half, COMMIT, waits=False)
        await producer.prepare(b"other")  # it is answered when the commit is dealt with
        await trio.lowlevel.checkpoint()
        (message,) = await seen(broker, queue_id=2)
        assert (message.body, message.topic, message.queue_id, message.flag) == (b"money", "t", 2, 7)
        assert message.sys_flag & SysFlag.TRANSACTION_TYPE == SysFlag.TRANSACTION_COMMIT
        assert message.prepared_transaction_offset == half.log_offset
        kept = {"TRAN_MSG": "true", "REAL_TOPIC": "t", "REAL_QID": "2", "PGROUP": "PG", "WAIT": "true"}
        assert kept.items() <= message.properties.items()
        assert [mark.body for mark in await seen(broker, topic=OP_TOPIC)] == [b"0"]


async def test_a_new_topic_is_saved_before_a_half_message_to_it_is_answered(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    """Its commit would otherwise make it again after a crash, with other queues."""
    async with machine.broker(), machine.client() as client:
        assert (await ask(client, half_request(b"x", b="new"))).code == ResponseCode.SUCCESS
        assert "new" in json.loads(machine.disk.files["/store/config/topics.json"].durable)["topicConfigTable"]


async def test_i14_a_half_message_that_is_rolled_back_is_never_seen(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        half = await producer.prepare(b"money")
        await producer.end(half, ROLLBACK)
        await producer.end(half, COMMIT)
        await trio.sleep(20)
        assert producer.asked == []
        assert await seen(broker) == []


async def test_i14_who_commits_twice_is_seen_once(machine: Machine, virtual_clock: VirtualClock) -> None:
    async with machine.broker() as broker, producer_of(machine) as producer:
        half = await producer.prepare(b"money")
        for _ in range(3):
            await producer.end(half, COMMIT, waits=False)
        await producer.end(half, ROLLBACK)  # it is answered when the others are dealt with
        assert len(await seen(broker)) == 1
        assert len(await seen(broker, topic=OP_TOPIC)) == 1


async def test_trap_30_a_producer_is_told_where_the_half_message_lies(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    """With the real topic's offset its commit would match no half message."""
    async with machine.broker() as broker, producer_of(machine) as producer:
        for _ in range(3):
            await producer.ask(send_request(b"seen at once", queue_id=1))
        half = await producer.prepare(b"money", e="1")
        assert (half.queue_offset, half.queue_id) == (0, 1)
        (stored,) = await seen(broker, topic=HALF_TOPIC)
        assert (stored.queue_offset, stored.physical_offset, stored.queue_id) == (0, half.log_offset, 0)
        assert stored.sys_flag & SysFlag.TRANSACTION_TYPE == 0


async def test_trap_31_a_producer_is_asked_about_the_place_where_the_half_message_lies_now(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        first = await producer.prepare(b"money", e="3", h="7")
        await producer.end(first, UNKNOWN)
        asked, message = await producer.wait_asked(1)
        assert (asked.queue_offset, first.queue_offset) == (1, 0)
        assert asked.log_offset > first.log_offset
        assert (message.topic, message.queue_id, message.body, message.flag) == ("t", 3, b"money", 7)
        assert (message.queue_offset, message.physical_offset) == (asked.queue_offset, asked.log_offset)
        assert message.properties["TRANSACTION_CHECK_TIMES"] == "1"
        again, message = await producer.wait_asked(2)
        assert (again.queue_offset, message.properties["TRANSACTION_CHECK_TIMES"]) == (2, "2")
        await producer.end(again, COMMIT)
        (message,) = await seen(broker, queue_id=3)
        assert (message.prepared_transaction_offset, message.flag) == (again.log_offset, 7)
        await trio.sleep(20)
        assert len(producer.asked) == 2
        assert [mark.body for mark in await seen(broker, topic=OP_TOPIC)] == [b"0", b"1", b"2"]
        offset = broker.offsets.query_offset
        assert (offset(CONSUMER_GROUP, HALF_TOPIC, 0), offset(CONSUMER_GROUP, OP_TOPIC, 0)) == (3, 3)


async def test_a_late_commit_of_the_first_place_ends_all_later_ones(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    """In RocketMQ the producer is asked on, and may commit the message a second time."""
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        first = await producer.prepare(b"money")
        second, _ = await producer.wait_asked(1)
        await producer.end(first, COMMIT)
        await producer.end(second, COMMIT)
        await trio.sleep(20)
        assert len(producer.asked) == 1
        assert len(await seen(broker)) == 1


async def test_nobody_is_asked_whose_commit_comes_while_the_half_message_is_written_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock
) -> None:
    """Its end waits to be stored; once that is refused the producer is asked."""
    write_again, begun = TransactionalMessageService._write_again, list[tuple[Fates, list[int]]]()

    async def meanwhile(self: TransactionalMessageService, half: StoredMessage, *how: Any) -> StoredMessage | None:
        again = await write_again(self, half, *how)
        if not begun:
            begun.append((self.fates, self.fates.begin_end(half.queue_offset)))
        return again

    monkeypatch.setattr(TransactionalMessageService, "_write_again", meanwhile)
    async with machine.broker(), producer_of(machine) as producer:
        await producer.join()
        await producer.prepare(b"money")
        await trio.sleep(60)
        [(fates, places)] = begun
        assert (len(places), producer.asked) == (2, [])
        fates.take_back(places)
        again, _ = await producer.wait_asked(1)
        assert again.queue_offset == places[-1]


async def test_others_are_not_asked_about_and_the_young_are_left_alone(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        await producer.end(await producer.prepare(b"done"), COMMIT)
        await producer.prepare(b"old")
        await trio.sleep(2)
        born_ms = (await seen(broker, topic=HALF_TOPIC))[0].store_timestamp_ms
        await producer.prepare(b"young", g=str(born_ms + 2000))
        half, message = await producer.wait_asked(1)
        assert (half.queue_offset, message.body) == (3, b"old")
        await trio.sleep(1)
        assert len(producer.asked) == 1


async def test_a_half_message_of_a_clock_that_is_ahead_keeps_nobody_waiting(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        await producer.end(await producer.prepare(b"done"), COMMIT)
        born_ms = (await seen(broker, topic=HALF_TOPIC))[0].store_timestamp_ms + 3_600_000
        await producer.prepare(b"ahead", g=str(born_ms))
        await producer.prepare(b"behind it")
        await trio.sleep(60)
        assert [(await producer.wait_asked(count))[1].body for count in (1, 2)] == [b"ahead", b"behind it"]


async def test_who_asks_for_it_is_left_alone_for_longer(machine: Machine, virtual_clock: VirtualClock) -> None:
    """CHECK_IMMUNITY_TIME_IN_SECONDS; meanwhile it is written again, and its first place goes on to count."""
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        await producer.prepare(b"first")
        born = (await seen(broker, topic=HALF_TOPIC))[0].store_timestamp_ms
        await producer.end(Half(0, 0), ROLLBACK)
        immune = await producer.prepare(b"patient", properties="CHECK_IMMUNITY_TIME_IN_SECONDS\x0130", g=str(born))
        await trio.sleep(20)
        assert producer.asked == []
        halves = await seen(broker, topic=HALF_TOPIC)
        assert len(halves) > 3
        assert {half.properties.get("TRAN_PREPARED_QUEUE_OFFSET") for half in halves[2:]} == {"1"}
        await producer.end(immune, COMMIT)
        await trio.sleep(60)
        assert producer.asked == []
        assert len(await seen(broker)) == 1


@pytest.mark.parametrize("is_there", [True, False])
async def test_after_so_many_questions_it_is_put_aside(
    machine: Machine, is_there: bool, virtual_clock: VirtualClock
) -> None:
    """Those that nobody is there to be asked count as well, and are no reason to write it again more often."""
    async with machine.broker(transactionCheckMax="3") as broker, producer_of(machine) as producer:
        if is_there:
            await producer.join()
        await producer.prepare(b"money", h="7")
        await trio.sleep(40)
        assert len(producer.asked) == (3 if is_there else 0)
        (aside,) = await seen(broker, topic=CHECK_MAX_TIME_TOPIC)
        assert (aside.body, aside.flag, aside.properties["REAL_TOPIC"]) == (b"money", 7, "t")
        assert broker.offsets.query_offset(CONSUMER_GROUP, HALF_TOPIC, 0) == 4


@pytest.mark.parametrize("is_ever_free", [True, False])
async def test_a_producer_that_takes_no_question_is_asked_later(
    machine: Machine, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, *, is_ever_free: bool
) -> None:
    """It was not asked once, and half messages were put aside as asked 15 times. Nor is it waited for for ever."""
    async with machine.broker(transactionCheckMax="10") as broker, producer_of(machine) as producer:
        await producer.join()
        await producer.prepare(b"now")
        born_ms = (await seen(broker, topic=HALF_TOPIC))[0].store_timestamp_ms
        await producer.prepare(b"x", g=str(born_ms))
        with monkeypatch.context() as patch:
            patch.setattr(Connection, "takes_answers", property(lambda _connection: False))
            await trio.sleep(30 if is_ever_free else 200)
        aside = [one.body for one in await seen(broker, topic=CHECK_MAX_TIME_TOPIC)]
        assert (b"x" in aside) == (not is_ever_free)
        await trio.sleep(100)
        asked = [message.body for _, message in [await producer.wait_asked(1 + n) for n in range(len(producer.asked))]]
        assert (asked.count(b"x") > 5) == is_ever_free


async def test_nobody_has_a_half_message_written_again_for_ever(machine: Machine, virtual_clock: VirtualClock) -> None:
    """What is older than fileReservedTime is put aside; what a client says to be born in a thousand years was not."""
    async with machine.broker(transactionCheckMax="2") as broker, producer_of(machine) as producer:
        await producer.prepare(b"x", properties="CHECK_IMMUNITY_TIME_IN_SECONDS\x011", g=str(2**62))
        await trio.sleep(40)
        assert [aside.body for aside in await seen(broker, topic=CHECK_MAX_TIME_TOPIC)] == [b"x"]
        assert len(await seen(broker, topic=HALF_TOPIC)) == 3


@pytest.mark.parametrize("born_ahead_s", [-5, 0, 8, 30, 86_400])
async def test_however_long_a_producer_is_not_to_be_asked_it_is_written_again_so_often_only(
    machine: Machine, born_ahead_s: int, virtual_clock: VirtualClock
) -> None:
    """Some megabytes with an immunity of days were written again in each round of all these days."""
    async with machine.broker(transactionCheckMax="3") as broker, producer_of(machine) as producer:
        await producer.join()
        await producer.prepare(b"now")
        born_ms = (await seen(broker, topic=HALF_TOPIC))[0].store_timestamp_ms + 1000 * born_ahead_s
        await producer.prepare(b"x", properties="CHECK_IMMUNITY_TIME_IN_SECONDS\x01200000", g=str(born_ms))
        await trio.sleep(100)
        assert b"x" in [aside.body for aside in await seen(broker, topic=CHECK_MAX_TIME_TOPIC)]
        written = [half for half in await seen(broker, topic=HALF_TOPIC) if half.body == b"x"]
        assert len(written) <= 1 + 3 * 3
        asked = [message.body for _, message in [await producer.wait_asked(1 + n) for n in range(len(producer.asked))]]
        assert asked.count(b"x") == 3


async def test_any_producer_of_the_group_is_asked(machine: Machine, virtual_clock: VirtualClock) -> None:
    async with machine.broker() as broker, producer_of(machine) as other, producer_of(machine, group="X") as stranger:
        await stranger.join()
        async with producer_of(machine) as producer:
            await producer.join()
            await producer.prepare(b"money")
        await other.join()
        half, _ = await other.wait_asked(1)
        await other.end(half, COMMIT)
        assert len(await seen(broker)) == 1
        assert stranger.asked == []


@pytest.mark.parametrize("is_killed", [True, False])
async def test_a_restart_costs_no_half_message(machine: Machine, is_killed: bool, virtual_clock: VirtualClock) -> None:
    with trio.CancelScope() as life:
        async with machine.broker(flushDiskType="SYNC_FLUSH"), producer_of(machine) as producer:
            await producer.join()
            rolled_back, pending = await producer.prepare(b"no"), await producer.prepare(b"yes")
            await producer.end(rolled_back, ROLLBACK)
            await producer.wait_asked(1)
            if is_killed:
                life.cancel()
            await trio.lowlevel.checkpoint()
    if is_killed:
        machine.disk.power_cut()
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        half, message = await producer.wait_asked(1)
        assert message.body == b"yes"
        assert half.queue_offset > pending.queue_offset
        await producer.end(half, COMMIT)
        assert [message.body for message in await seen(broker)] == [b"yes"]


async def test_no_power_cut_costs_what_was_written_again(machine: Machine, virtual_clock: VirtualClock) -> None:
    """RocketMQ saves at once how far it is, and flushes the log when that is due."""
    async with machine.broker(), producer_of(machine) as producer:
        await producer.prepare(b"money")
    rarely = {"flushIntervalCommitLog": "600000", "flushCommitLogThoroughInterval": "600000"}
    with trio.CancelScope() as life:
        async with machine.broker(**rarely) as broker, producer_of(machine) as producer:
            await producer.join()
            await producer.wait_asked(1)
            await trio.sleep(10)
            assert broker.offsets.query_offset(CONSUMER_GROUP, HALF_TOPIC, 0)
            life.cancel()
            await trio.lowlevel.checkpoint()
    machine.disk.lose_power(lambda _path, _sector, old, _new: old)
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        half, message = await producer.wait_asked(1)
        assert message.body == b"money"
        await producer.end(half, COMMIT)
        assert len(await seen(broker)) == 1


async def test_a_master_that_begins_too_early_asks_about_the_last_places_alone(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    """How far its predecessor was is known some seconds late; RocketMQ then has messages committed twice."""
    async with machine.broker(), producer_of(machine) as producer:
        await producer.join()
        for body in (b"early", b"late", b"pending"):
            await producer.prepare(body)
        early, _ = await producer.wait_asked(1)
        await producer.end(early, COMMIT)
        late = next(half for half, message in [await producer.wait_asked(n) for n in (4, 5)] if message.body == b"late")
        await producer.end(late, COMMIT)
    async with machine.broker() as broker, producer_of(machine) as producer:
        for topic in (HALF_TOPIC, OP_TOPIC):
            broker.offsets.commit_offset(CONSUMER_GROUP, topic, 0, offset=0)
        await producer.join()
        half, message = await producer.wait_asked(1)
        assert message.body == b"pending"
        await trio.sleep(10)
        assert {message.body for _, message in [await producer.wait_asked(n) for n in (1, 2)]} == {b"pending"}
        await producer.end(half, COMMIT)
        await producer.end(Half(2, (await seen(broker, topic=HALF_TOPIC))[2].physical_offset), COMMIT)
        asked = len(producer.asked)
        await trio.sleep(20)
        assert len(producer.asked) == asked
        assert [message.body for message in await seen(broker)] == [b"early", b"late", b"pending"]


@pytest.mark.parametrize(
    ("half", "how", "group", "words"),
    [
        (Half(1, 0), COMMIT, "PG", "there is no half message 1"),
        (Half(-1, 0), COMMIT, "PG", "there is no half message -1"),
        (Half(0, 17), COMMIT, "PG", "does not lie at 17"),
        (Half(0, 0), ROLLBACK, "other", "another group's"),
    ],
)
async def test_nobody_ends_what_is_not_his(
    machine: Machine, half: Half, how: int, group: str, words: str, virtual_clock: VirtualClock
) -> None:
    async with machine.broker() as broker, producer_of(machine) as producer:
        own = await producer.prepare(b"money")
        answer = await producer.end(half, how, group=group)
        assert answer is not None
        assert (answer.code, words in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True), answer.remark
        await producer.end(own, COMMIT)
        assert len(await seen(broker)) == 1


@pytest.mark.parametrize(
    ("settings", "request_", "code"),
    [
        ({"rejectTransactionMessage": "true"}, half_request(b"x"), ResponseCode.NO_PERMISSION),
        ({}, half_request(b"x", properties="DELAY\x013"), ResponseCode.MESSAGE_ILLEGAL),
        ({}, half_request(b"x", properties="K\x01" + "v" * 32_600), ResponseCode.MESSAGE_ILLEGAL),
        ({}, half_request(b"x", e="9"), ResponseCode.SYSTEM_ERROR),
        ({}, half_request(b"x", b=HALF_TOPIC), ResponseCode.NO_PERMISSION),
        ({}, send_request(b"x", f="4"), ResponseCode.MESSAGE_ILLEGAL),
        ({}, half_request(b"x", f="8"), ResponseCode.SUCCESS),
        ({}, half_request(b"x", f="0"), ResponseCode.SUCCESS),
    ],
)
async def test_what_no_half_message_can_be(
    machine: Machine, settings: dict[str, str], request_: object, code: ResponseCode, virtual_clock: VirtualClock
) -> None:
    async with machine.broker(**settings) as broker, machine.client() as client:
        answer = await ask(client, request_)  # type: ignore[arg-type]
        assert answer.code == code, answer.remark
        assert await seen(broker) == []


async def test_a_slave_ends_nothing(virtual_clock: VirtualClock) -> None:
    slave = Machine(SimNet(), "10.0.0.2", {"brokerRole": "SLAVE", "haMasterAddress": "10.0.0.1:10912", "brokerId": "1"})
    async with slave.broker(), producer_of(slave) as producer:
        answer = await producer.end(Half(0, 0), COMMIT)
        assert answer is not None
        assert answer.code == ResponseCode.SLAVE_NOT_AVAILABLE


async def test_what_waits_for_dispatch_is_bounded(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock
) -> None:
    """Nothing is lost by it: the producer is asked."""
    monkeypatch.setattr(end_transaction_processor, "WAITING_MAX", 10)
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        half = await producer.prepare(b"money")
        frames = [end_request(half, COMMIT) for _ in range(20)]
        for opaque, frame in enumerate(frames):
            frame.opaque = 1000 + opaque
        await producer.stream.send_all(b"".join(frame.encode() for frame in frames))
        with trio.fail_after(60):
            while not {frame.opaque for frame in frames} <= set(producer.answers):
                await producer.heard.wait()
        codes = Counter(producer.answers[frame.opaque].code for frame in frames)
        assert codes == {ResponseCode.SUCCESS: 5, ResponseCode.SYSTEM_BUSY: 15}
        assert len(await seen(broker)) == 1
        assert (await producer.end(half, COMMIT)) is not None
        (connection,) = broker.server.connections if broker.server else ()
        assert connection.in_flight.requests == 0


async def test_what_cannot_be_dispatched_keeps_nobody_waiting(machine: Machine, virtual_clock: VirtualClock) -> None:
    """A half message that no slave has yet, and whose producer was told so, is ended when it can be seen."""
    async with machine.broker() as broker, producer_of(machine) as producer:
        half = await producer.prepare(b"money")
        broker.store.parts.confirm_offset.limit_to(lambda: 0)
        answer = await producer.end(Half(half.queue_offset, half.log_offset), COMMIT)
        assert answer is not None
        assert (answer.code, "cannot be read yet" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)


async def test_ends_whose_time_is_over_make_room_for_others(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock
) -> None:
    monkeypatch.setattr(end_transaction_processor, "WAITING_MAX", 4)
    async with machine.broker() as broker, producer_of(machine) as producer:
        half = await producer.prepare(b"money")
        broker.store.parts.confirm_offset.limit_to(lambda: 0)
        answers = [await producer.end(half, COMMIT) for _ in range(6)]
        assert {answer.code for answer in answers if answer} == {ResponseCode.SYSTEM_ERROR}


async def test_a_half_message_that_is_sent_again_has_nothing_of_what_became_of_the_first(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    """Its properties may be those of a question: the place in them is that of another half message, which has ended."""
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        first = await producer.prepare(b"first")
        await producer.end(first, ROLLBACK)
        noted = f"TRAN_PREPARED_QUEUE_OFFSET\x01{first.queue_offset}\x02TRANSACTION_CHECK_TIMES\x0115"
        await producer.prepare(b"again", properties=noted)
        asked, message = await producer.wait_asked(1)
        assert (message.body, message.properties["TRANSACTION_CHECK_TIMES"]) == (b"again", "1")
        await producer.end(asked, COMMIT)
        assert [message.body for message in await seen(broker)] == [b"again"]


async def test_what_a_consumer_sends_to_get_it_again_is_no_half_message(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    """As clients before 4.6.1 do where the broker did not take it back (36)."""
    async with machine.broker() as broker, machine.client() as client:
        again = half_request(b"money", b="%RETRY%readers", j="1", l="16", properties="DELAY\x011")
        assert (await ask(client, again)).code == ResponseCode.SUCCESS
        await trio.sleep(5)
        (message,) = await seen(broker, topic="%RETRY%readers")
        assert (message.body, message.sys_flag & SysFlag.TRANSACTION_TYPE) == (b"money", 0)
        assert await seen(broker, topic=HALF_TOPIC) == []


async def test_marks_of_half_messages_that_went_with_the_log_hold_nothing_up(
    machine: Machine, virtual_clock: VirtualClock
) -> None:
    """The first file goes, with a half message that nobody ended, and one whose mark lies behind."""
    rarely = {"transactionCheckInterval": "600000", "fileReservedTime": "0"}
    async with machine.broker(**rarely) as broker, producer_of(machine) as producer:
        await producer.prepare(b"never ended")
        late = await producer.prepare(b"ended late")
        for _ in range(3):
            await producer.ask(send_request(bytes(40_000), topic="busy"))
        await producer.end(late, COMMIT)
        await producer.prepare(b"there")
        await trio.sleep(1)
        broker.store.cleaner.execute_delete_files_manually()
        await trio.sleep(610)
        assert broker.store.min_offset > late.log_offset
        assert [half.body for half in await seen(broker, topic=CHECK_MAX_TIME_TOPIC)] == [b"there"]
        assert broker.offsets.query_offset(CONSUMER_GROUP, OP_TOPIC, 0) == 1
        assert broker.offsets.query_offset(CONSUMER_GROUP, HALF_TOPIC, 0) == 3


async def test_a_round_waits_for_a_commit_that_is_not_stored_yet(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock
) -> None:
    """The log's next file is not there when the round comes, and then the commit is refused: the producer is asked."""
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        half = await producer.prepare(b"money")
        await trio.sleep(3)
        with monkeypatch.context() as patch:
            patch.setattr(broker.store, "put_messages", lambda _requests: [])
            patch.setattr(broker.store, "wait_allocated", trio.sleep_forever)
            refused = await producer.end(half, COMMIT)
        assert refused is not None
        assert (refused.code, "next file" in (refused.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
        again, _ = await producer.wait_asked(1)
        await producer.end(again, COMMIT)
        assert [message.body for message in await seen(broker)] == [b"money"]
        assert [mark.body for mark in await seen(broker, topic=OP_TOPIC)] == [b"0", b"1"]


async def test_an_end_that_comes_while_another_waits_is_not_answered_as_done(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock
) -> None:
    """The first one may be refused yet: then nothing is stored, and somebody was told SUCCESS."""
    rarely = {"transactionCheckInterval": "600000"}
    async with machine.broker(**rarely) as broker, producer_of(machine) as producer, producer_of(machine) as other:
        half = await producer.prepare(b"money")
        answers = list[ResponseCode]()

        async def end(by: Producer, *, after_s: float) -> None:
            await trio.sleep(after_s)
            answer = await by.end(half, COMMIT)
            assert answer is not None
            answers.append(ResponseCode(answer.code))

        with monkeypatch.context() as patch:
            patch.setattr(broker.store, "put_messages", lambda _requests: [])
            patch.setattr(broker.store, "wait_allocated", trio.sleep_forever)
            async with trio.open_nursery() as nursery:
                nursery.start_soon(partial(end, producer, after_s=0.0))
                nursery.start_soon(partial(end, other, after_s=0.5))
        assert answers == [ResponseCode.SYSTEM_BUSY, ResponseCode.SYSTEM_ERROR]
        await end(other, after_s=0.0)
        assert answers[-1] == ResponseCode.SUCCESS
        assert [message.body for message in await seen(broker)] == [b"money"]


async def test_all_members_of_a_group_are_asked_in_turn(machine: Machine, virtual_clock: VirtualClock) -> None:
    """Of two always the same one was: where that one hangs, half messages were thrown away that the other knows."""
    async with machine.broker(), producer_of(machine) as first, producer_of(machine) as second:
        for producer in (first, second):
            await producer.join()
        await first.prepare(b"money")
        await trio.sleep(40)
        counts = sorted(len(producer.asked) for producer in (first, second))
        assert counts[0] >= counts[1] - 1 > 2


def put_no_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the log's file ends behind a commit, and the next one cannot be made; or a slave got no more."""
    put = PutMessageService.put

    def put_others(service: PutMessageService, puts: list[Put[Any]], caller: Any) -> None:
        for one in puts:
            if one.request.topic == OP_TOPIC:
                caller.refuse(one.asked, AppendResult(PutMessageStatus.CREATE_MAPEDFILE_FAILED, remark="no next file"))
        put(service, [one for one in puts if one.request.topic != OP_TOPIC], caller)

    monkeypatch.setattr(PutMessageService, "put", put_others)


async def test_a_mark_that_is_refused_is_stored_when_that_can_be(
    machine: Machine, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with machine.broker() as broker, producer_of(machine) as producer:
        half = await producer.prepare(b"money")
        with monkeypatch.context() as patch, capture_logs() as logs:
            put_no_mark(patch)
            answer = await producer.end(half, COMMIT)
            assert answer is not None
            assert answer.code == 0
            await trio.sleep(30)
        assert await seen(broker, topic=OP_TOPIC) == []
        assert "transaction.not_marked" in [entry["event"] for entry in logs]
        await trio.sleep(2)
        assert [mark.body for mark in await seen(broker, topic=OP_TOPIC)] == [b"0"]
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.end(half, COMMIT)
        assert [message.body for message in await seen(broker)] == [b"money"]


@pytest.mark.parametrize("filler", [0, 3000])
async def test_a_commit_whose_mark_did_not_come_counts_for_the_next_master(
    machine: Machine, filler: int, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was asked about, and stored a second time."""
    with monkeypatch.context() as patch:
        put_no_mark(patch)
        async with machine.broker(), producer_of(machine) as producer:
            halves = [await producer.prepare(body) for body in (b"money", b"open", b"more")]
            for half in (halves[0], halves[2]):
                answer = await producer.end(half, COMMIT)
                assert answer is not None
                assert answer.code == 0
            for _ in range(filler // 1000):
                await producer.ask(send_request(bytes(1000), topic="other"))
    machine.disk.power_cut()
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        await trio.sleep(30)
        assert {message.body for _, message in [await producer.wait_asked(1)]} == {b"open"}
        assert len(await seen(broker, topic=OP_TOPIC)) >= 2, "it has its mark now"
        for half in halves:
            await producer.end(half, COMMIT)
        assert sorted(message.body for message in await seen(broker)) == [b"money", b"more", b"open"]


async def test_so_it_does_before_the_first_half_message_near_the_end_of_the_log(
    machine: Machine, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own one lies farther before; from the next one on the log was read too late to meet the commit."""
    monkeypatch.setattr(marks, "_COMMITS_WITHIN", 4000)
    with monkeypatch.context() as patch:
        put_no_mark(patch)
        async with machine.broker(), producer_of(machine) as producer:
            half = await producer.prepare(b"money")
            for _ in range(5):
                await producer.ask(send_request(bytes(1000), topic="other"))
            await producer.end(half, COMMIT)
            await producer.prepare(b"open")
    machine.disk.power_cut()
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.end(half, COMMIT)
        assert [message.body for message in await seen(broker)] == [b"money"]


async def test_so_it_does_where_the_log_begins_behind_the_half_message_before(
    machine: Machine, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.end(await producer.prepare(b"early"), COMMIT)
        while broker.store.max_offset < 66_000:
            await producer.ask(send_request(bytes(4000), topic="other"))
        await trio.sleep(30)
    with monkeypatch.context() as patch:
        put_no_mark(patch)
        async with machine.broker(), producer_of(machine) as producer:
            half = await producer.prepare(b"money")
            await producer.end(half, COMMIT)
    machine.disk.power_cut()
    del machine.disk.files[f"/store/commitlog/{0:020d}"]
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        await trio.sleep(30)
        assert producer.asked == []
        await producer.end(half, COMMIT)
        assert broker.store.next_queue_offset("t", 0) == 2


@pytest.mark.parametrize("behind", ["nothing", "another half message", "a message"])
async def test_and_where_no_other_transaction_is_near(
    machine: Machine, behind: str, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its half message lies far before, and what queues lead to perhaps behind it."""
    machine.settings |= {"mappedFileSizeCommitLog": str(64 << 20), "transactionTimeOut": "60000"}
    with monkeypatch.context() as patch:
        put_no_mark(patch)
        async with machine.broker(), producer_of(machine) as producer:
            half = await producer.prepare(b"money")
            for _ in range(33):
                assert (await producer.ask(send_request(bytes(1 << 20), topic="other"))).code == 0
            await producer.end(half, COMMIT)
            if behind == "another half message":
                await producer.prepare(b"another")
            elif behind == "a message":
                assert (await producer.ask(send_request(b"any", topic="a"))).code == 0
    machine.disk.power_cut()
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.end(half, COMMIT)
        assert [message.body for message in await seen(broker)] == [b"money"]


async def test_a_unit_that_leads_beside_a_record_does_not_keep_commits_from_being_learned(
    machine: Machine, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where reading began there, nothing of the log's end was read."""
    monkeypatch.setattr(marks, "_COMMITS_WITHIN", 4000)
    async with machine.broker() as broker, producer_of(machine) as producer:
        half = await producer.prepare(b"money")
        for topic in ("damaged", *["other"] * 20, "damaged", *["other"] * 3):
            await producer.ask(send_request(bytes(1000), topic=topic))
        with monkeypatch.context() as patch:
            put_no_mark(patch)
            await producer.end(half, COMMIT)
            await seen(broker)
            broker.role.become(RoleKind.SLAVE, master="10.0.0.2:10911", term=1)
            await trio.sleep(2)
        units = machine.disk.files[f"/store/consumequeue/damaged/0/{0:020}"].cache
        offset, size, tags_code = UNIT.unpack_from(units, UNIT_SIZE)
        UNIT.pack_into(units, UNIT_SIZE, offset + 8, size, tags_code)
        broker.role.become(RoleKind.MASTER, term=2)
        await producer.end(half, COMMIT)
        assert [message.body for message in await seen(broker)] == [b"money"]
