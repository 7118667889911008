"""Whose tables the other members of a DLedger group have, and when that is sure."""

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.dledger.last_changes import Told, look_for_last_changes
from rmqha.broker.tables.tables_origin import TablesOrigin

LAST = TablesOrigin(7, was_master=True)
OLD = TablesOrigin(6)


@pytest.mark.parametrize(
    ("told", "is_sure", "within_s"),
    [
        ({"n1": Told("b:1", LAST), "n2": Told("", None)}, True, 1.0),
        ({"n1": Told("b:1", OLD), "n2": Told("b:2", OLD)}, True, 1.0),
        ({"n1": Told("b:1", OLD), "n2": Told("", None)}, True, 1.0),
        ({"n1": Told("", None), "n2": Told("", None)}, False, 1.0),
        ({"n1": Told("b:1", OLD), "n2": Told(None, None)}, True, 1.0),
        ({"n1": Told("b:1", None), "n2": Told("b:2", None)}, False, 5.0),
    ],
)
async def test_a_member_that_does_not_say_where_its_broker_is_makes_nothing_sure(
    told: dict[str, Told], is_sure: bool, within_s: float, autojump_clock: MockClock
) -> None:
    """It costs no time either: it counted as one whose tables are known."""

    async def ask(peer: str) -> Told:
        return told[peer]

    begun_at = trio.current_time()
    found = await look_for_last_changes(list(told), ask, last=LAST)
    assert found.is_sure is is_sure
    assert trio.current_time() - begun_at <= within_s


async def test_of_four_members_two_others_are_waited_for(autojump_clock: MockClock) -> None:
    """With this one they are a majority of which one has all that another majority was told."""
    begun_at = trio.current_time()

    async def ask(peer: str) -> Told:
        if peer == "n1":
            return Told("b:1", OLD)
        is_up = peer == "n2" and trio.current_time() >= begun_at + 3
        return Told("b:2", LAST if is_up else None) if peer == "n2" else Told(None, None)

    found = await look_for_last_changes(["n1", "n2", "n3"], ask, last=LAST)
    assert found.origins["b:2"] == LAST
