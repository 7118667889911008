"""How far groups of consumers are, over changes of the master: what is set back, or deleted, is so for the next."""

from functools import partial

import pytest
import trio
from structlog.testing import capture_logs

from rmqha.broker.master_link import MasterLink
from rmqha.broker.slave_synchronize import SlaveSynchronize
from rmqha.broker.tables.tables_origin import TablesOrigin
from tests.broker.dledger_brokers import TOPIC, BrokerGroup, Node
from tests.broker.test_dledger_broker import group_of
from tests.broker.test_dledger_followers import followers_of
from tests.broker.test_dledger_takeover import hand_over, let_lead_first
from tests.sim.sim_clock import VirtualClock

CLIENT = "10.9.9.9:1"


def offsets_of(group: BrokerGroup, name: str) -> list[int | None]:
    return [node.running.offsets.query_offset(name, TOPIC, 0) for node in group.nodes.values() if node.broker]


async def commit(group: BrokerGroup, *names: str) -> Node:
    """How far these groups are, everywhere; returns the master."""
    await group.send(*(b"%d" % number for number in range(40)))
    master = await group.wait_master()
    for name in names:
        master.running.offsets.commit_offset(name, TOPIC, 0, offset=4, peer=CLIENT)
    await group.wait(lambda: [offsets_of(group, name) for name in names] == [[4, 4, 4]] * len(names))
    return master


async def set_back_and_delete(master: Node) -> None:
    master.running.offsets.commit_offset("set_back", TOPIC, 0, offset=2, peer=CLIENT)
    await master.running.offsets.remove_offset_in_turns("deleted")


async def test_a_group_of_consumers_that_was_set_back_or_deleted_is_so_for_the_next_master(
    virtual_clock: VirtualClock,
) -> None:
    """It went on where it had been before, and passed over what it was to read again."""
    async with group_of() as group:
        master, heir = await commit(group, "set_back", "deleted"), (await followers_of(group))[0]
        await set_back_and_delete(master)
        await hand_over(master, heir)
        await group.wait(lambda: heir.is_master)
        assert heir.running.offsets.query_offset("set_back", TOPIC, 0) == 2
        assert heir.running.offsets.query_offset("deleted", TOPIC, 0) is None
        await trio.sleep(15)
        assert offsets_of(group, "set_back") == [2, 2, 2]
        assert offsets_of(group, "deleted") == [None, None, None]


async def test_so_it_is_for_one_that_was_away_meanwhile(virtual_clock: VirtualClock) -> None:
    """It had on its disk where they were before, kept that, and had all others take it over when it led."""
    async with group_of() as group:
        master, away = await commit(group, "set_back", "deleted"), (await followers_of(group))[0]
        await away.stop()
        await set_back_and_delete(master)
        await away.start()
        await trio.sleep(15)
        assert offsets_of(group, "set_back") == [2, 2, 2]
        assert offsets_of(group, "deleted") == [None, None, None]
        await hand_over(master, away)
        await group.wait(lambda: away.is_master)
        await trio.sleep(15)
        assert offsets_of(group, "set_back") == [2, 2, 2]
        assert offsets_of(group, "deleted") == [None, None, None]


async def test_tables_of_one_that_was_away_do_not_become_those_of_all_when_all_are_started(
    virtual_clock: VirtualClock,
) -> None:
    """What others had found on their disks was taken for as old as its own, though theirs was of today."""
    async with group_of() as group:
        master = await commit(group, "set_back", "deleted")
        away, other = await followers_of(group)
        await away.stop()
        await set_back_and_delete(master)
        await trio.sleep(30)
        for node in (other, master, away, other):
            await (node.stop() if node.broker else node.start())
        await group.wait(lambda: away.is_master or other.is_master)
        assert away.is_master, "it is that which asks"
        await master.start()
        await trio.sleep(15)
        assert offsets_of(group, "set_back") == [2, 2, 2]
        assert offsets_of(group, "deleted") == [None, None, None]


async def test_so_it_is_for_one_that_only_the_next_master_tells(virtual_clock: VirtualClock) -> None:
    """It had asked the one before for the last time before that was told."""
    async with group_of() as group:
        master = await commit(group, "set_back", "deleted")
        heir, other = await followers_of(group)
        await set_back_and_delete(master)
        assert other.running.offsets.query_offset("set_back", TOPIC, 0) == 4
        await hand_over(master, heir)
        await group.wait(lambda: heir.is_master)
        await trio.sleep(15)
        assert offsets_of(group, "set_back") == [2, 2, 2]
        assert offsets_of(group, "deleted") == [None, None, None]


async def test_what_clients_told_a_follower_alone_stays(virtual_clock: VirtualClock) -> None:
    """While nobody led, as clients do that do not find a master."""
    async with group_of() as group:
        master, follower = await commit(group, "on"), (await followers_of(group))[0]
        follower.running.offsets.commit_offset("on", TOPIC, 0, offset=7, peer=CLIENT)
        await trio.sleep(15)
        assert follower.running.offsets.query_offset("on", TOPIC, 0) == 7
        await hand_over(master, follower)
        await group.wait(lambda: follower.is_master)
        await trio.sleep(15)
        assert offsets_of(group, "on") == [7, 7, 7]


async def test_a_process_in_a_master_s_place_takes_nothing_away(virtual_clock: VirtualClock) -> None:
    """It answers before the group knows that the master is gone, and has no more than what is on its disk."""
    async with group_of() as group:
        master, follower = await commit(group, "on"), (await followers_of(group))[0]
        master.kill()
        master.disk.files.clear()
        await master.start()
        assert not master.is_master
        await follower.replication._tables._slave_synchronize.synchronize(f"{group.addresses[master.name]}:10911")
        assert follower.running.offsets.query_offset("on", TOPIC, 0) == 4


async def test_a_leader_that_stood_still_waits_for_one_that_did_not(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That was busy, or starting, for more than a second: what two of three had acknowledged was gone."""
    ask, is_ready = MasterLink.ask_tables_origin, False

    async def ask_when_ready(link: MasterLink, address: str) -> TablesOrigin | None:
        return await ask(link, address) if is_ready else None

    async def stand_still(_tables: SlaveSynchronize, _address: str, **_: object) -> None:
        await trio.sleep_forever()

    async with group_of() as group:
        master, (heir, other) = await commit(group, "on"), await followers_of(group)
        let_lead_first(monkeypatch, heir)
        heirs = heir.replication._tables._slave_synchronize
        with monkeypatch.context() as patch:
            patch.setattr(heirs, "synchronize", partial(stand_still, heirs))
            master.running.offsets.commit_offset("on", TOPIC, 0, offset=7, peer=CLIENT)
            await group.wait(lambda: other.running.offsets.query_offset("on", TOPIC, 0) == 7)
            patch.setattr(MasterLink, "ask_tables_origin", ask_when_ready)
            await trio.sleep(20)
            master.kill()
            await group.wait(lambda: heir.replication.facts()["role"] == "LEADER")
            patch.delattr(heirs, "synchronize")
            await trio.sleep(3)
            assert not heir.is_master
            is_ready = True
            await group.wait(lambda: heir.is_master, limit_s=1)
        await trio.sleep(15)
        assert offsets_of(group, "on") == [7, 7]


async def test_a_leader_waits_for_what_the_one_before_is_slow_to_tell(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large tables take seconds; the topics alone were taken over."""
    synchronize = SlaveSynchronize.synchronize

    async def synchronize_slowly(tables: SlaveSynchronize, address: str, **_: object) -> None:
        await trio.sleep(3)
        await synchronize(tables, address)

    async with group_of() as group:
        master, heir = await commit(group, "on"), (await followers_of(group))[0]
        master.running.offsets.commit_offset("on", TOPIC, 0, offset=7, peer=CLIENT)
        monkeypatch.setattr(SlaveSynchronize, "synchronize", synchronize_slowly)
        await hand_over(master, heir)
        await group.wait(lambda: heir.is_master, limit_s=4)
        assert heir.running.offsets.query_offset("on", TOPIC, 0) == 7


@pytest.mark.parametrize(("is_majority", "limit_s"), [(False, 2), (True, 6)])
async def test_but_not_for_ever_for_one_that_does_not_answer(
    is_majority: bool, limit_s: float, virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says what may be missing."""
    ask = MasterLink.ask_tables_origin

    async def is_silent(link: MasterLink, address: str) -> TablesOrigin | None:
        if is_majority or address.startswith(group.addresses[master.name]):
            await trio.sleep_forever()
        return await ask(link, address)

    async with group_of() as group:
        master, heir = await commit(group, "on"), (await followers_of(group))[0]
        monkeypatch.setattr(MasterLink, "ask_tables_origin", is_silent)
        with capture_logs() as logs:
            await hand_over(master, heir)
            await group.wait(lambda: heir.is_master, limit_s=limit_s)
    assert [log["log_level"] for log in logs if log["event"] == "dledger_tables.last_changes_not_taken"] == ["warning"]
