"""Whose tables a member's broker has, as it tells the others: of a leader only once they are taken over from it."""

from dataclasses import replace
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs

from rmqha.broker.master_link import MasterLink
from rmqha.broker.slave_synchronize import SlaveSynchronize
from tests.broker.dledger_brokers import Node
from tests.broker.test_dledger_broker import group_of
from tests.broker.test_dledger_followers import followers_of
from tests.broker.test_dledger_takeover import hand_over
from tests.sim.sim_clock import VirtualClock


def origin_of(node: Node) -> tuple[int, str]:
    """Term, and of whom."""
    told = node.replication.facts()["tables"]
    return told["term"], told["leader_id"]


async def test_a_follower_has_the_tables_of_who_led_before_until_it_has_those_of_the_next(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who leads next would take them for newer than they are, and pass over newer ones that others have."""
    run, may_take = SlaveSynchronize.run, trio.Event()

    async def waits(tables: SlaveSynchronize, *args: Any, **options: Any) -> None:
        await may_take.wait()
        await run(tables, *args, **options)

    async with group_of() as group:
        leader, late = await group.wait_master(), (await followers_of(group))[0]
        first = leader.running.role.term
        await group.wait(lambda: origin_of(late) == (first, leader.name))
        monkeypatch.setattr(SlaveSynchronize, "run", waits)
        other = next(node for node in group.nodes.values() if node not in {leader, late})
        await hand_over(leader, other)
        await group.wait(lambda: late.running.role.master == f"{group.addresses[other.name]}:10911")
        await trio.sleep(1)
        assert (other.is_master, origin_of(late)) == (True, (first, leader.name))
        may_take.set()
        await group.wait(lambda: origin_of(late) == (other.running.role.term, other.name))


async def test_how_long_the_master_of_another_term_had_been_one_says_nothing_of_this_term(
    virtual_clock: VirtualClock,
) -> None:
    """One that was restarted tells what its disk says, which may be from long before."""
    async with group_of() as group:
        leader, follower = await group.wait_master(), (await followers_of(group))[0]
        term = leader.running.role.term
        await group.wait(lambda: origin_of(follower) == (term, leader.name))
        tables = follower.replication._tables._slave_synchronize
        for told_in, for_ms in ((term, 60_000), (term - 1, 0)):
            tables.origin = replace(tables.origin, term=told_in, for_ms=60_000)
            told = follower.replication.facts()["tables"]
            assert (told["term"], told["for_ms"]) == (term, for_ms)


@pytest.mark.parametrize("is_silent", [True, False])
async def test_who_heard_no_majority_before_it_is_master_says_that_its_tables_may_be_old(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, *, is_silent: bool
) -> None:
    """All have been killed: a former master may be among those that vote, and do not tell whose tables they have."""

    async def tells_nothing(_link: MasterLink, _address: str) -> None:
        await trio.sleep(0.01)

    async with group_of() as group:
        await group.send(b"0")
        await group.wait_same()
        await trio.sleep(30)  # all have saved the tables
        for node in group.nodes.values():
            node.kill()
        if is_silent:
            monkeypatch.setattr(MasterLink, "ask_tables_origin", tells_nothing)
        with capture_logs() as logs:
            await group.start()
            await group.wait_master()
    assert ("dledger_tables.not_taken_over" in [log["event"] for log in logs]) == is_silent
