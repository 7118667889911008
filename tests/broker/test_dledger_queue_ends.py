"""A log that begins anew while its broker is told where queues ended: it is to be told again."""

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.dledger.dledger_tables import DLedgerTables
from rmqha.broker.tables.queue_ends_client import QueueEndsClient
from tests.broker.test_dledger_broker import group_of
from tests.broker.test_dledger_followers import followers_of


async def never(_ends: QueueEndsClient) -> None:
    await trio.sleep_forever()


class Teller:
    """Of the ends; the first time that it is asked the log begins anew before it has told all."""

    def __init__(self) -> None:
        self.asked = self.beginnings = 0

    async def run(self) -> None:
        await self.learn(before=0)

    async def learn(self, *, before: int) -> bool:
        await trio.sleep(1)
        self.asked += 1
        self.beginnings = 1
        return True


async def test_what_a_follower_is_told_meanwhile_is_not_all(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its former log lacked was told; of what lies between the two logs nothing was."""
    monkeypatch.setattr(QueueEndsClient, "run", never)
    async with group_of() as group:
        tables, teller = (await followers_of(group))[0].replication._tables, Teller()
        monkeypatch.setattr(tables, "_beginnings", lambda: teller.beginnings)
        with trio.move_on_after(1.5):
            await tables._follow_ends(teller)  # type: ignore[arg-type]
        assert (teller.asked, tables._ends_known_of) == (1, 0), "who leads now asks the others"
        with trio.move_on_after(10):
            await tables._follow_ends(teller)  # type: ignore[arg-type]
        assert (teller.asked, tables._ends_known_of) == (2, 1)


async def test_a_new_leader_does_not_take_it_for_told(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would give places of messages that are deleted once more."""
    monkeypatch.setattr(QueueEndsClient, "run", never)

    async def ask(_tables: DLedgerTables, _member: str) -> str:
        return "10.0.0.9:10911"

    async with group_of() as group:
        node, teller = (await followers_of(group))[0], Teller()
        tables = node.replication._tables
        monkeypatch.setattr(DLedgerTables, "_ask", ask)
        monkeypatch.setattr(tables, "_beginnings", lambda: teller.beginnings)
        monkeypatch.setattr(tables, "_ends_client", lambda _address: teller)
        assert await tables._learn_ends_of("n9")
        assert tables._ends_known_of == 0 != tables._beginnings()
        assert await tables._learn_ends_of("n9")
        assert tables._ends_known_of == 1
