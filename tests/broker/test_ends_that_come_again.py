"""A transaction that has ended is not ended again: after a restart, by the next master, and when it was long ago."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any

import pytest
import trio
import trio.lowlevel

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.transaction import half_message, marks, transactional_message_service
from rmqha.broker.transaction.fates import Fates
from rmqha.broker.transaction.half_message import (
    CHECK_IMMUNITY_TIME,
    CHECK_MAX_TIME_TOPIC,
    CONSUMER_GROUP,
    HALF_TOPIC,
    OP_TOPIC,
    removal_mark,
)
from rmqha.broker.transaction.transactional_message_bridge import TransactionalMessageBridge
from rmqha.codec.codes import ResponseCode
from rmqha.replication.role import RoleKind
from rmqha.store.status import GetMessageResult
from tests.broker.machines import Machine, replication_of
from tests.broker.producers import COMMIT, ROLLBACK, Half, Producer, producer_of, seen
from tests.broker.test_dledger_broker import group_of
from tests.broker.test_pair import SLAVE
from tests.sim.sim_clock import VirtualClock, WallClock
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_net import SimNet

TIMES: dict[str, Any] = {"transactionCheckInterval": "4000", "transactionTimeOut": "3000"}
RARELY: dict[str, Any] = {"transactionCheckInterval": "600000"}


@pytest.fixture
def machine() -> Machine:
    return Machine(SimNet(), "10.0.0.1", TIMES)


@asynccontextmanager
async def life(
    machine: Machine, *, is_killed: bool = False, **settings: str
) -> AsyncIterator[tuple[BrokerController, Producer]]:
    """One of a broker, with a producer; killed, it leaves what it has written."""
    with trio.CancelScope() as scope:
        async with machine.broker(**settings) as broker, producer_of(machine) as producer:
            await producer.join()
            yield broker, producer
            if is_killed:
                scope.cancel()
            await trio.lowlevel.checkpoint()


def few_are_remembered(monkeypatch: pytest.MonkeyPatch, count: int, *, read: int = 0) -> None:
    monkeypatch.setattr(transactional_message_service, "Fates", partial(Fates, kept_max=count))
    monkeypatch.setattr(marks, "KEPT_MAX", read or count)


async def end_all(producer: Producer, halves: list[Half], how: int = COMMIT) -> list[int]:
    return [answer.code for half in halves if (answer := await producer.end(half, how))]


async def bodies(broker: BrokerController, topic: str = "t") -> list[bytes]:
    return [message.body for message in await seen(broker, topic=topic)]


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize(("before_s", "after_s"), [(0, 0), (30, 0), (30, 30)])
async def test_after_a_restart(
    machine: Machine, is_killed: bool, before_s: float, after_s: float, virtual_clock: VirtualClock
) -> None:
    """A commit was seen twice, and what was rolled back; of what rounds had passed for as long as the log held it."""
    async with life(machine, is_killed=is_killed) as (_, producer):
        done, lost = await producer.prepare(b"done"), await producer.prepare(b"lost")
        await producer.end(done, COMMIT)
        await producer.end(lost, ROLLBACK)
        await trio.sleep(before_s)
    async with life(machine) as (broker, producer):
        await trio.sleep(after_s)
        assert await end_all(producer, [done, lost]) == [ResponseCode.SUCCESS] * 2
        assert await bodies(broker) == [b"done"]


@pytest.mark.parametrize("is_killed", [True, False])
@pytest.mark.parametrize("ended_at", [0, 1, 2])
async def test_by_any_place_after_a_restart(
    machine: Machine, is_killed: bool, ended_at: int, virtual_clock: VirtualClock
) -> None:
    """Its producer was asked, and ends it by one place before the restart, by the others after it."""
    async with life(machine, is_killed=is_killed) as (_, producer):
        places = [await producer.prepare(b"money")]
        places += [(await producer.wait_asked(count))[0] for count in (1, 2)]
        await producer.end(places[ended_at], COMMIT)
        await trio.sleep(20)
    async with life(machine, **RARELY) as (broker, producer):
        assert await end_all(producer, places) == [ResponseCode.SUCCESS] * 3
        assert await bodies(broker) == [b"money"]


async def test_by_places_that_lie_before_a_mastership(machine: Machine, virtual_clock: VirtualClock) -> None:
    """The half message is still to be ended: by one of them it is, by the others not again."""
    async with life(machine) as (broker, producer):
        places = [await producer.prepare(b"money")]
        places += [(await producer.wait_asked(count))[0] for count in (1, 2, 3)]
        await trio.sleep(1)
        assert broker.offsets.query_offset(CONSUMER_GROUP, HALF_TOPIC, 0) == 3
    async with life(machine, **RARELY) as (broker, producer):
        await end_all(producer, places)
        assert await bodies(broker) == [b"money"]


@pytest.mark.parametrize("kept", [4, 131_072])
@pytest.mark.parametrize("again", [COMMIT, ROLLBACK])
async def test_the_first_end_counts_whenever_it_comes(
    machine: Machine, kept: int, again: int, monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock
) -> None:
    """Of one that waits, and of one that nobody is asked about any more; and what follows changes nothing."""
    few_are_remembered(monkeypatch, kept)
    async with life(machine, transactionCheckMax="1") as (broker, producer):
        aside = await producer.prepare(b"aside")
        await trio.sleep(30)
        assert await bodies(broker, CHECK_MAX_TIME_TOPIC) == [b"aside"]
        waiting = await producer.prepare(b"waiting")
        for number in range(20):
            await producer.end(await producer.prepare(b"%d" % number), ROLLBACK)
    for _ in range(2):
        async with life(machine, **RARELY) as (broker, producer):
            await end_all(producer, [waiting, aside, waiting, aside])
            await end_all(producer, [waiting, aside], again)
            assert await bodies(broker) == [b"waiting", b"aside"]


@pytest.mark.parametrize("restarts", [True, False])
async def test_when_it_is_forgotten(
    machine: Machine, restarts: bool, monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock
) -> None:
    """Then its mark in the log tells, which lies among so many behind its half message."""
    few_are_remembered(monkeypatch, 8, read=100)
    async with machine.broker() as broker, producer_of(machine) as producer:
        lost = await producer.prepare(b"lost")
        await producer.end(lost, ROLLBACK)
        others = [await producer.prepare(b"%d" % number) for number in range(30)]
        await end_all(producer, others)
        if not restarts:
            await end_all(producer, [lost, *others])
            assert sorted(await bodies(broker)) == sorted(b"%d" % number for number in range(30))
    async with machine.broker() as broker, producer_of(machine) as producer:
        assert await end_all(producer, [lost, *others]) == [ResponseCode.SUCCESS] * 31
        assert sorted(await bodies(broker)) == sorted(b"%d" % number for number in range(30))


async def test_when_the_place_at_which_it_ended_is_forgotten(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock
) -> None:
    """Written again meanwhile, it was committed once more by its later place, which counted as known."""
    few_are_remembered(monkeypatch, 8, read=100)
    settings: dict[str, Any] = {"transactionCheckInterval": "40000", "flushDiskType": "SYNC_FLUSH"}
    async with life(machine, **settings) as (broker, producer):
        halves = [await producer.prepare(b"%d" % number) for number in range(20)]
        await trio.sleep(45)
        assert len(producer.asked) == 20, "each was written again"
        await end_all(producer, halves)
        for number in range(60):
            await trio.sleep(2)
            if number % 10 == 0:
                await producer.beat()
        again = [(await producer.wait_asked(1 + number))[0] for number in range(len(producer.asked))]
        assert set(await end_all(producer, again)) == {ResponseCode.SUCCESS}
        assert sorted(await bodies(broker)) == sorted(b"%d" % number for number in range(20))


async def test_who_looks_for_a_mark_reads_no_more_than_so_many(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock
) -> None:
    few_are_remembered(monkeypatch, 64)
    async with machine.broker(**RARELY) as broker, producer_of(machine) as producer:
        late = await producer.prepare(b"late")
        for number in range(300):
            await producer.end(await producer.prepare(b"%d" % number), ROLLBACK)
        await seen(broker)
        counts, read = list[int](), broker.store.get_message

        def counted(topic: str, *args: Any, **kwargs: Any) -> GetMessageResult:
            result = read(topic, *args, **kwargs)
            counts.append(len(result.views) if topic == OP_TOPIC else 0)
            return result

        with monkeypatch.context() as patch:
            patch.setattr(broker.store, "get_message", counted)
            for _ in range(100):
                await producer.end(late, COMMIT, waits=False)
            await producer.end(late, COMMIT)
        assert 64 <= sum(counts) < 2 * (64 + 32), "one search for all that came meanwhile"
        assert await bodies(broker) == [b"late"]


async def test_to_wait_for_dispatch_keeps_nobody_else_waiting(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock
) -> None:
    """It is no work of which a search takes a quarter of the time: the next one was told that there are too many."""
    few_are_remembered(monkeypatch, 8)
    waits = [10.0]

    async def wait_dispatched(_bridge: TransactionalMessageBridge, **_: Any) -> bool:
        await trio.sleep(waits.pop() if waits else 0)
        return True

    async with machine.broker(**RARELY) as broker, producer_of(machine) as producer:
        late = [await producer.prepare(body) for body in (b"late", b"later")]
        await end_all(producer, [await producer.prepare(b"%d" % number) for number in range(20)], ROLLBACK)
        await seen(broker)
        monkeypatch.setattr(TransactionalMessageBridge, "wait_dispatched", wait_dispatched)
        await producer.end(late[0], COMMIT, waits=False)
        assert await end_all(producer, late[1:]) == [ResponseCode.SUCCESS]
        assert waits == []
        assert await bodies(broker) == [b"late", b"later"]


async def test_before_the_log_is_dispatched_nobody_is_taken_not_to_have_ended(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock
) -> None:
    """Its mark may be among what cannot be read yet: the message would be committed twice."""
    few_are_remembered(monkeypatch, 8)
    is_dispatched = False

    async def wait_dispatched(_bridge: TransactionalMessageBridge, **_: Any) -> bool:
        await trio.sleep(1)
        return is_dispatched

    async with machine.broker(**RARELY) as broker, producer_of(machine) as producer:
        late = [await producer.prepare(b"late")]
        await end_all(producer, [await producer.prepare(b"%d" % number) for number in range(20)], ROLLBACK)
        await seen(broker)
        monkeypatch.setattr(TransactionalMessageBridge, "wait_dispatched", wait_dispatched)
        assert await end_all(producer, late) == [ResponseCode.SYSTEM_ERROR]
        assert await bodies(broker) == []
        is_dispatched = True
        assert await end_all(producer, late) == [ResponseCode.SUCCESS]
        assert await bodies(broker) == [b"late"]


async def test_who_looks_for_a_mark_has_the_log_flushed(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock
) -> None:
    """On a quiet broker each waited ten seconds for the commit of the one before it."""
    few_are_remembered(monkeypatch, 8)
    async with machine.broker(**RARELY, flushDiskType="ASYNC_FLUSH") as broker, producer_of(machine) as producer:
        late = [await producer.prepare(b"late%d" % number) for number in range(5)]
        await end_all(producer, [await producer.prepare(b"%d" % number) for number in range(20)], ROLLBACK)
        await seen(broker)
        begun_at = trio.current_time()
        assert await end_all(producer, late) == [ResponseCode.SUCCESS] * 5
        assert trio.current_time() - begun_at < 2


async def test_a_start_reads_no_more_marks_than_are_remembered(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock
) -> None:
    few_are_remembered(monkeypatch, 16)
    async with machine.broker() as broker, producer_of(machine) as producer:
        for number in range(100):
            await producer.end(await producer.prepare(b"%d" % number), ROLLBACK)
    async with machine.broker(**RARELY) as broker, producer_of(machine) as producer:
        fates = Fates(kept_max=16)
        assert await marks.learn_marks(TransactionalMessageBridge(broker.store, broker.offsets), fates) == set(
            range(84, 100)
        )
        assert fates.known_from == 84
        assert not fates.is_known(83)


async def test_nobody_is_asked_about_what_ended_before_all_that_is_remembered(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock
) -> None:
    """Marks from the saved place on are read for the rounds, however many there are."""
    async with life(machine, transactionTimeOut="600000") as (broker, producer):
        await producer.prepare(b"pending")
        await end_all(producer, [await producer.prepare(b"%d" % number) for number in range(20)], ROLLBACK)
        await trio.sleep(20)
    few_are_remembered(monkeypatch, 4)
    async with life(machine) as (broker, producer):
        await trio.sleep(20)
        asked = {(await producer.wait_asked(1 + number))[1].body for number in range(len(producer.asked))}
        assert asked == {b"pending"}
        await end_all(producer, [(await producer.wait_asked(len(producer.asked)))[0]])
        assert await bodies(broker) == [b"pending"]


async def test_a_copy_that_has_no_mark_gets_one(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock
) -> None:
    """RocketMQ's copies do not say where they lay first, and the named place alone is marked."""
    with monkeypatch.context() as rocketmq:
        rocketmq.setattr(half_message, "PREPARED_QUEUE_OFFSET", "KEYS")
        async with life(machine) as (broker, producer):
            first = await producer.prepare(b"money")
            copy, _ = await producer.wait_asked(1)
            mark = removal_mark(first.queue_offset, store_host=bytes(8), born_timestamp_ms=0)
            broker.store.put_messages([mark])
    for settings in (TIMES, RARELY):
        async with life(machine, **settings) as (broker, producer):
            await trio.sleep(20)
            assert [mark.body for mark in await seen(broker, topic=OP_TOPIC)] == [b"0", b"1"]
    async with life(machine, **RARELY) as (broker, producer):
        assert await end_all(producer, [copy]) == [ResponseCode.SUCCESS]
        assert await bodies(broker) == []


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_mark_is_of_what_lay_there_before_it(
    machine: Machine, is_restarted: bool, virtual_clock: VirtualClock
) -> None:
    """Where the queue of half messages began anew, old marks name places of others: these counted as ended."""
    async with life(machine, is_killed=is_restarted) as (broker, producer):
        broker.store.put_messages([removal_mark(place, store_host=bytes(8), born_timestamp_ms=0) for place in range(3)])
        await trio.sleep(6)
        halves = [await producer.prepare(b"done"), await producer.prepare(b"asked about")]
        if not is_restarted:
            assert await end_all(producer, halves[:1]) == [ResponseCode.SUCCESS]
            await producer.wait_asked(1)
            assert await bodies(broker) == [b"done"]
    async with life(machine) as (broker, producer):
        await producer.wait_asked(1)
        if is_restarted:
            assert await end_all(producer, halves[:1]) == [ResponseCode.SUCCESS]
        assert await bodies(broker) == [b"done"]


async def test_an_end_waits_until_it_is_known_what_has_ended(machine: Machine, virtual_clock: VirtualClock) -> None:
    """Marks that cannot be seen yet, as no slave has them, are marks."""
    async with life(machine, **RARELY) as (broker, producer):
        half, other = await producer.prepare(b"money"), await producer.prepare(b"other")
        await seen(broker)
        end = broker.store.max_offset
        broker.store.parts.confirm_offset.limit_to(lambda: end)
        await producer.end(half, COMMIT)
        broker.role.become(RoleKind.SLAVE, master="10.0.0.2:10911", term=1)
        broker.role.become(RoleKind.MASTER, term=2)
        answer = await producer.end(half, COMMIT)
        assert answer is not None
        assert (answer.code, "not known yet" in (answer.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)
        broker.store.parts.confirm_offset.limit_to(lambda: broker.store.max_offset)
        broker.store.confirm()
        await end_all(producer, [half, other])
        assert await bodies(broker) == [b"money", b"other"]


async def test_the_next_leader_of_a_group_knows_what_has_ended(virtual_clock: VirtualClock) -> None:
    async with group_of(**TIMES) as group:
        former = await group.wait_master()
        async with producer_of(former) as producer:
            await producer.join()
            done, lost = await producer.prepare(b"done"), await producer.prepare(b"lost")
            await producer.end(done, COMMIT)
            await producer.end(lost, ROLLBACK)
            await trio.sleep(20)
            pending = await producer.prepare(b"pending")
        former.kill()
        leader = await group.wait_master()
        async with producer_of(leader) as producer:
            await end_all(producer, [done, lost, pending, pending])
            assert await bodies(leader.running) == [b"done", b"pending"]
        await former.start()
        await group.wait_same()


@pytest.mark.parametrize("seed", range(6))
async def test_whatever_happens_in_between(
    machine: Machine, seed: int, monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock
) -> None:
    """The first end that is answered counts, and no other: over rounds, stops and kills, remembered or not."""
    random = Random(f"ends {seed}")
    few_are_remembered(monkeypatch, random.choice((6, 40, 131_072)), read=131_072)
    places, fates = list[list[Half]](), dict[int, int]()
    for _ in range(5):
        async with life(machine, is_killed=random.random() < 0.5, transactionCheckMax="3") as (broker, producer):
            for _ in range(random.randint(5, 25)):
                step = random.random()
                if step < 0.3 or not places:
                    patient = f"{CHECK_IMMUNITY_TIME}\x01{random.choice((5, 20))}" if random.random() < 0.4 else ""
                    places.append([await producer.prepare(b"%d" % len(places), properties=patient)])
                elif step < 0.4:
                    await trio.sleep(random.choice((1, 5, 12)))
                else:
                    number, how = random.randrange(len(places)), random.choice((COMMIT, ROLLBACK))
                    (code,) = await end_all(producer, [random.choice(places[number])], how)
                    assert code == ResponseCode.SUCCESS
                    fates.setdefault(number, how)
                for half, message in [await producer.wait_asked(1 + n) for n in range(len(producer.asked))]:
                    if half not in places[int(message.body)]:
                        places[int(message.body)].append(half)
                wanted = sorted(number for number, how in fates.items() if how == COMMIT)
                assert sorted(map(int, await bodies(broker))) == wanted


@pytest.mark.parametrize("immunity_s", [0, 15])
async def test_another_one_with_the_same_key_is_another_one(
    machine: Machine, immunity_s: int, virtual_clock: VirtualClock
) -> None:
    """A Java program that sends one message object twice; or somebody who took the key of another's."""
    properties = f"{CHECK_IMMUNITY_TIME}\x01{immunity_s}" if immunity_s else ""
    key = "UNIQ_KEY\x01SAME"
    async with life(machine, is_killed=True) as (_, producer):
        await producer.prepare(b"mine", properties="\x02".join(filter(None, [key, properties])))
        await producer.prepare(b"yours", properties=key)
        await trio.sleep(12)
    async with life(machine) as (broker, producer):
        ended = set[int]()
        with trio.move_on_after(60):
            for count in range(1, 100):
                half, _ = await producer.wait_asked(count)
                await producer.end(half, COMMIT)
                ended.add(half.queue_offset)
        assert sorted(await bodies(broker)) == [b"mine", b"yours"]


@pytest.mark.parametrize("away_s", [0, 15])
async def test_what_a_peer_gives_back_has_ended_there(away_s: float, virtual_clock: VirtualClock) -> None:
    """A master that lost its store serves before all of its log is back: it knew of no end that came with the rest."""
    net = SimNet()
    first, second = Machine(net, "10.0.0.1", TIMES), Machine(net, "10.0.0.2")
    async with second.broker(**SLAVE), life(first) as (_, producer):
        halves = [await producer.prepare(body) for body in (b"done", b"lost")]
        for half, how in zip(halves, (COMMIT, ROLLBACK), strict=True):
            await producer.end(half, how)
        await trio.sleep(60)
    first.disk = SimDisk(now_ms=WallClock())

    async def come_late() -> None:
        await trio.sleep(away_s)
        async with second.broker(**SLAVE):
            await trio.sleep_forever()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(come_late)
        peers: dict[str, Any] = {"haPeers": "10.0.0.2:10912", "haCatchUpAtStart": "require"}
        async with life(first, **RARELY, **peers) as (broker, producer):
            await replication_of(broker).opened.wait()
            assert await end_all(producer, halves) == [ResponseCode.SUCCESS] * 2
            assert await bodies(broker) == [b"done"]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("says_first_place", [True, False])
async def test_many_marks_do_not_hide_what_was_written_again(
    says_first_place: bool, monkeypatch: pytest.MonkeyPatch, virtual_clock: VirtualClock
) -> None:
    """A start remembered marks in place of copies: producers were asked about both places. Copies may be RocketMQ's."""
    few_are_remembered(monkeypatch, 8)
    one = Machine(SimNet(), "10.0.0.1", TIMES)
    with monkeypatch.context() as patch:
        if not says_first_place:
            patch.setattr(half_message, "PREPARED_QUEUE_OFFSET", "KEYS")
        late: dict[str, Any] = {"transactionTimeOut": "30000", "transactionCheckInterval": "1000"}
        async with life(one, is_killed=True, **late) as (_, producer):
            await producer.prepare(b"pending")
            for number in range(20):
                await producer.end(await producer.prepare(b"%d" % number), ROLLBACK)
            await producer.wait_asked(1)
    async with life(one) as (broker, producer):
        await trio.sleep(6)
        halves = [(await producer.wait_asked(1 + count))[0] for count in range(len(producer.asked))]
        assert len(halves) == 1
        await end_all(producer, halves)
        assert await bodies(broker) == [b"pending"]
