"""Between an election and the first send: what a broker on a DLedger group waits for before it is master."""

import pytest
import trio
from trio.testing import MockClock

from rmqha.store.message_store import DefaultMessageStore
from tests.broker.test_dledger_broker import group_of


async def test_who_learns_too_late_that_it_leads_no_more_is_no_master(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is read in a thread goes on though nobody waits for it any more."""
    learn, learning = DefaultMessageStore.recover_topic_queue_table, trio.Event()

    async def learn_slowly(store: DefaultMessageStore) -> None:
        await learn(store)
        learning.set()
        with trio.CancelScope(shield=True):
            await trio.sleep(10)

    async with group_of() as group:
        former = await group.wait_master()
        monkeypatch.setattr(DefaultMessageStore, "recover_topic_queue_table", learn_slowly)
        former.kill()
        await learning.wait()
        next_one, other = [node for node in group.nodes.values() if node.broker]
        if next_one.replication.facts()["role"] != "LEADER":
            next_one, other = other, next_one
        other.kill()
        await group.wait(lambda: next_one.replication.facts()["role"] == "CANDIDATE")
        await trio.sleep(11)
        assert not next_one.is_master
        monkeypatch.undo()
        await other.start()
        await group.send(b"0")


async def test_a_leader_waits_for_its_queues(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Consumers would be told that their queues end where they do not."""
    behind, real = 1, DefaultMessageStore.reput_from_offset

    async with group_of() as group:
        await group.send(b"0")
        await group.wait_same()
        monkeypatch.setattr(
            DefaultMessageStore,
            "reput_from_offset",
            property(lambda store: real.fget(store) - behind),  # type: ignore[attr-defined]
        )
        (await group.wait_master()).kill()
        await trio.sleep(10)
        assert "LEADER" in [node.replication.facts()["role"] for node in group.nodes.values() if node.broker]
        assert group.masters == []
        behind = 0
        await group.wait_master()
