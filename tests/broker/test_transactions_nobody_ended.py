"""Half messages that nobody ends: how many wait is told, and how many were discarded, by metric and by status."""

import json
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.transaction.fates import Fates
from rmqha.cli.verdict import judge
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.replication.role import RoleKind
from tests.broker.machines import Machine, ask
from tests.broker.producers import COMMIT, half_request, producer_of
from tests.sim.sim_net import SimNet

TWICE = {"transactionCheckInterval": "4000", "transactionTimeOut": "3000", "transactionCheckMax": "2"}


@pytest.fixture
def machine() -> Machine:
    return Machine(SimNet(), "10.0.0.1", TWICE)


async def status_of(machine: Machine) -> dict[str, Any]:
    async with machine.client() as client:
        table = (await ask(client, RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))).body
        told: dict[str, Any] = json.loads(json.loads(table)["table"]["rmqhaStatus"])
        return told


async def test_those_that_were_discarded_are_counted_and_make_the_broker_degraded_for_an_hour(
    machine: Machine, autojump_clock: MockClock
) -> None:
    """A line in the log alone told of them, one of many, and nobody was woken."""
    async with machine.broker() as broker, machine.client() as client:
        for number in range(50):
            assert (await ask(client, half_request(b"%d" % number))).code == ResponseCode.SUCCESS
        assert (await status_of(machine))["discarded_halves"] is None
        await trio.sleep(9)
        assert (broker.store.stats.undecided_half_messages, broker.store.stats.discarded_halves.count) == (50, 0)
        await trio.sleep(20)
        assert (broker.store.stats.undecided_half_messages, broker.store.stats.discarded_halves.count) == (0, 50)
        facts = await status_of(machine)
        assert facts["discarded_halves"] == {"count": 50, "last_s_ago": pytest.approx(13, abs=5)}
        assert "50 half messages were discarded undecided" in judge(facts).reasons[-1]


async def test_those_that_are_ended_in_time_are_none(machine: Machine, autojump_clock: MockClock) -> None:
    async with machine.broker() as broker, producer_of(machine) as producer:
        half = await producer.prepare(b"late")
        await producer.end(await producer.prepare(b"at once"), COMMIT)
        await trio.sleep(9)
        assert broker.store.stats.undecided_half_messages == 1
        await producer.end(half, COMMIT)
        await trio.sleep(30)
        assert (broker.store.stats.undecided_half_messages, broker.store.stats.discarded_halves.count) == (0, 0)


async def test_one_that_ends_while_it_is_written_again_is_not_asked_about(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """Its producer was asked once more, and answered what counts no more."""

    def ended_first(fates: Fates, offset: int, renewed_offset: int) -> bool:
        fates.end(offset)
        return note_renewed(fates, offset, renewed_offset)

    note_renewed = Fates.note_renewed
    async with machine.broker() as broker, producer_of(machine) as producer:
        await producer.join()
        await producer.prepare(b"money")
        monkeypatch.setattr(Fates, "note_renewed", ended_first)
        await trio.sleep(20)
        assert producer.asked == []
        assert broker.store.stats.undecided_half_messages == 0


async def test_who_is_master_no_more_knows_of_none_that_waits(machine: Machine, autojump_clock: MockClock) -> None:
    async with machine.broker() as broker, machine.client() as client:
        await ask(client, half_request(b"x"))
        await trio.sleep(9)
        assert broker.store.stats.undecided_half_messages == 1
        broker.role.become(RoleKind.SLAVE, master="10.0.0.2:10911", term=1)
        await trio.sleep(9)
        assert broker.store.stats.undecided_half_messages == 0
