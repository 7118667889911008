"""Who was in many groups leaves them in turns, and is from the first moment a member of none; it comes in turns, too.

A connection may be in 60,000 groups: to take it out of all of them at once would stop everybody for a second.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.clients.client_channel_info import ClientChannelInfo
from rmqha.broker.clients.client_housekeeping_service import CHANNEL_EXPIRED_S, ClientHousekeepingService
from rmqha.broker.clients.consumer_manager import ConsumerManager
from rmqha.broker.clients.producer_manager import ProducerManager
from rmqha.broker.processors.client_manage_processor import ClientManageProcessor
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.heartbeat import ConsumerData, HeartbeatData, SubscriptionData, encode_heartbeat
from rmqha.codec.remoting import RemotingCommand
from tests.broker.group_members import consuming, member_of
from tests.broker.machines import Machine
from tests.reachable import count_entries

AT_ONCE = 100
MANY = 1000
NAMES = [f"g{number}" for number in range(MANY)]


class Wire:
    """A connection, as far as groups go."""

    takes_answers = True
    peer = "10.0.0.1:1"

    def __init__(self) -> None:
        self.steps: Iterator[bool] = iter(())
        self.answers: list[RemotingCommand] = []
        self.ends_with = ""

    def close(self, reason: str) -> None:
        self.ends_with = reason

    def work(self, steps: Iterator[bool]) -> None:
        self.steps = steps

    def fenced(self, _request: RemotingCommand | None = None) -> AbstractContextManager[None]:
        return nullcontext()

    def let_go(self, request: RemotingCommand) -> RemotingCommand:
        return request

    def respond(self, _request: RemotingCommand, code: int) -> None:
        self.answers.append(RemotingCommand(code))


class Clients:
    """Both managers, what keeps house in them, and the groups that changed."""

    def __init__(self) -> None:
        self.consumers, self.producers = ConsumerManager(), ProducerManager()
        self.housekeeping = ClientHousekeepingService(self.consumers, self.producers)
        self.changed: list[str] = []
        self.consumers.on_changed = self._on_changed

    def _on_changed(self, name: str) -> None:
        self.consumers.find_group(name)  # as who tells members does
        self.changed.append(name)

    def join(self, connection: Any, names: list[str] = NAMES, *, client_id: str = "c", peer: str = Wire.peer) -> None:
        client = ClientChannelInfo(connection, client_id, peer)
        self.housekeeping.note_heartbeat(connection)
        for name in names:
            self.consumers.register(ConsumerData(name, subscription_data_set=(SubscriptionData("t"),)), client)
            self.producers.register(name, client)
        self.changed.clear()

    def ids(self, name: str) -> bytes:
        group = self.consumers.find_group(name)
        return b"" if group is None else group.client_ids

    def produce(self) -> int:
        """How many are in groups of producers still, seen or not."""
        return sum(len(group.members) for group in self.producers._groups.values())

    def entries(self) -> int:
        return count_entries(self.consumers) + count_entries(self.producers)


@pytest.fixture
def clients() -> Clients:
    return Clients()


@pytest.fixture
def wire() -> Any:
    return Wire()


async def test_who_leaves_many_groups_is_not_taken_out_of_all_at_once(clients: Clients, wire: Any) -> None:
    clients.join(wire)
    clients.housekeeping.forget(wire)
    assert len(clients.changed) <= AT_ONCE
    assert clients.produce() >= MANY - AT_ONCE


async def test_who_has_left_is_a_member_of_no_group_at_once(clients: Clients, wire: Any) -> None:
    """Nobody is to be told to share queues with it, nor is it to be asked anything."""
    other: Any = Wire()
    clients.join(wire)
    clients.join(other, ["g7"], client_id="other")
    clients.housekeeping.forget(wire)
    assert await clients.consumers.groups_of_in_turns("t") == ["g7"]
    assert clients.ids("g7") == b'{"consumerIdList":["other"]}'
    assert clients.changed.count("g7") == 1
    assert [name for name in NAMES if clients.consumers.find_group(name)] == ["g7"]
    assert clients.consumers.find_client("g8", "c") is None
    assert [clients.producers.any_connection("g7") for _ in range(3)] == [other] * 3
    assert [client.connection for client in clients.producers.members("g7")] == [other]
    assert clients.producers.find_connection("c") is None
    assert (clients.producers.any_connection("g8"), clients.producers.members("g9")) == (None, [])
    assert not clients.consumers.is_member(wire)
    assert not clients.producers.is_member(wire)


async def test_a_list_of_all_producers_has_nobody_who_has_left(clients: Clients, wire: Any) -> None:
    other: Any = Wire()
    clients.join(wire)
    clients.join(other, ["g7"], client_id="other")
    clients.housekeeping.forget(wire)
    listed = (await clients.producers.to_json_in_turns())["data"]
    assert {name: [one["clientId"] for one in group.to_json()] for name, group in listed.items()} == {"g7": ["other"]}


class Steps(trio.abc.Instrument):
    """How many groups changed at most in one step of a task."""

    def __init__(self, changed: list[str]) -> None:
        self.most = 0
        self._changed, self._before = changed, len(changed)

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.most, self._before = max(self.most, len(self._changed) - self._before), len(self._changed)


async def keep_house(clients: Clients, *, for_s: float = 1.0) -> int:
    """Returns how many groups changed at most between any two of everybody else's turns."""
    steps = Steps(clients.changed)
    trio.lowlevel.add_instrument(steps)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(clients.housekeeping.run)
        await trio.sleep(for_s)
        nursery.cancel_scope.cancel()
    trio.lowlevel.remove_instrument(steps)
    return steps.most


async def test_each_group_is_told_once_in_turns_and_nothing_is_left(
    clients: Clients, autojump_clock: MockClock
) -> None:
    """Neither of its groups, nor on its host's account."""
    members: list[Any] = [Wire() for _ in range(5)]
    for number, member in enumerate(members):
        clients.join(member, peer=f"10.0.0.{number % 2}:{number}")
        clients.housekeeping.forget(member)
    told = len(clients.changed)
    assert await keep_house(clients) <= AT_ONCE
    assert sorted({*clients.changed}) == sorted(NAMES)
    assert len(clients.changed) + told <= 5 * MANY
    assert clients.entries() == Clients().entries()
    assert clients.consumers._room.size == clients.producers._room.size == 0


async def test_who_comes_back_meanwhile_stays(clients: Clients, autojump_clock: MockClock) -> None:
    """By a new connection, with the id that it had, to groups that its former connection is still to leave."""
    wires: list[Any] = [Wire(), Wire()]
    former, present = wires
    clients.join(former)
    clients.housekeeping.forget(former)
    clients.join(present, NAMES[MANY // 4 : MANY // 2])
    assert [clients.producers.find_connection("c")] == [present]
    await keep_house(clients)
    assert clients.produce() == MANY // 4
    for name in NAMES[MANY // 4 : MANY // 2]:
        assert clients.ids(name) == b'{"consumerIdList":["c"]}'
        assert [clients.producers.any_connection(name)] == [present]
    clients.housekeeping.forget(present)
    await keep_house(clients)
    assert clients.entries() == Clients().entries()
    assert clients.consumers._room.size == clients.producers._room.size == 0


async def test_a_heartbeat_on_its_way_to_a_connection_that_was_ended_stays_consistent(
    clients: Clients, autojump_clock: MockClock
) -> None:
    """It had been silent, is ended, and what it had sent last is handled before it notices."""
    wire: Any = Wire()
    clients.join(wire)
    clients.housekeeping.forget(wire)
    clients.join(wire, NAMES[:300])
    clients.housekeeping.forget(wire)
    await keep_house(clients)
    assert clients.entries() == Clients().entries()
    assert clients.consumers._room.size == clients.producers._room.size == 0


async def test_many_members_of_one_group_leave_it_as_one(clients: Clients) -> None:
    """Each is told of by a call: one within the other, for each member, were too many."""
    members: list[Any] = [Wire() for _ in range(350)]
    for number, member in enumerate(members):
        clients.join(member, ["shared", *(f"of {number}, {one}" for one in range(70))])
    for member in members:
        clients.housekeeping.forget(member)
    clients.changed.clear()
    assert clients.consumers.find_group("shared") is None
    assert clients.changed == ["shared"]


async def test_those_overdue_are_ended_in_turns(clients: Clients, autojump_clock: MockClock) -> None:
    members = [Wire() for _ in range(200)]
    for number, member in enumerate(members):
        clients.join(member, [f"of {number}, {one}" for one in range(50)])
    assert await keep_house(clients, for_s=1.5 * CHANNEL_EXPIRED_S) <= 300
    assert all(member.ends_with for member in members)
    assert clients.entries() == Clients().entries()


async def test_a_heartbeat_with_many_groups_is_taken_in_steps(broker: BrokerController, wire: Any) -> None:
    manage = ClientManageProcessor(
        broker.consumers,
        broker.producers,
        broker.groups,
        broker.topics,
        broker.access,
        role=broker.store.role,
        now_ms=lambda: 0,
    )
    names = tuple(NAMES[:600])
    body = encode_heartbeat(HeartbeatData("c", names, tuple(map(consuming, names))))
    manage.heart_beat(wire, RemotingCommand(RequestCode.HEART_BEAT, body=body))
    assert not [name for name in NAMES if broker.consumers.find_group(name)]
    before = 0
    for waits in wire.steps:
        assert not waits
        there = len(broker.consumers._groups) + len(broker.producers._groups)
        assert there - before <= 10
        before = there
        assert not wire.answers
    assert len(broker.consumers._groups) + len(broker.producers._groups) == before
    assert [name for name in NAMES if broker.consumers.find_group(name)] == [*names]
    assert [name for name in NAMES if broker.producers.members(name)] == [*names]


async def test_others_are_told_of_one_who_was_in_many_groups(
    autojump_clock: MockClock, machine: Machine, broker: BrokerController
) -> None:
    async with member_of(machine, "stays") as stays:
        await stays.heartbeat("g7", "g250")
        async with member_of(machine, "leaves") as leaves:
            await leaves.heartbeat(*NAMES[:300], producers=tuple(NAMES[:300]))
            await trio.sleep(2)
            assert {*stays.told} == {"g7", "g250"}
            stays.told.clear()
        await trio.sleep(1)
        assert {*stays.told} == {"g7", "g250"}
        assert broker.consumers.find_group("g8") is None
        answer = await stays.ask(
            RemotingCommand(RequestCode.GET_CONSUMER_LIST_BY_GROUP, ext_fields={"consumerGroup": "g7"})
        )
        assert (answer.code, answer.body) == (ResponseCode.SUCCESS, b'{"consumerIdList":["stays"]}')


async def test_who_leaves_while_others_are_taken_out_is_taken_out_too(
    clients: Clients, wire: Any, nursery: trio.Nursery
) -> None:
    """Groups of consumers had been looked through, and those of producers were being."""
    other: Any = Wire()
    clients.join(wire)
    clients.join(other, client_id="other")
    nursery.start_soon(clients.housekeeping.run)
    clients.housekeeping.forget(wire)
    while clients.consumers.leaving.groups_of:
        await trio.lowlevel.checkpoint()
    assert clients.producers.leaving.groups_of
    clients.housekeeping.forget(other)
    for _ in range(10 * MANY):
        await trio.lowlevel.checkpoint()
    assert clients.entries() == Clients().entries()
    nursery.cancel_scope.cancel()
