"""A slave whose log lacks what its master's begins with, and what has not expired, says so: it should be no master."""

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.classic.later_begin import begin_if_later, later_begin
from rmqha.cli.promotion import obstacles
from rmqha.cli.verdict import Verdict, judge
from tests.broker.machines import Machine, ask, send_request, status_of
from tests.broker.producers import seen
from tests.broker.test_pair import SLAVE, Pair
from tests.broker.test_tables_merged import DECIDED, MASTER, OTHER_SLAVE, decide, decided, lose
from tests.settings import clean_options
from tests.sim.sim_clock import VirtualClock, WallClock
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_net import SimNet
from tests.store.helpers import SEGMENT, Clock, commit_log, message, put, running


@pytest.fixture
def pair() -> Pair:
    return Pair()


async def fill(master: Machine) -> None:
    async with master.client() as client:
        for number in range(60):
            await ask(client, send_request(b"x" * 4000, queue_id=number % 4))


async def verdict_of(machine: Machine) -> Verdict:
    return judge(await status_of(machine))


async def lose_first(broker: BrokerController) -> None:
    await commit_log(broker.store).queue.delete_first_in_thread()


PEERS = pytest.mark.parametrize("peers", ["10.0.0.2:10912,10.0.0.3:10912", "10.0.0.3:10912,10.0.0.2:10912"])


async def three_of_which_the_master_is_lost(*, end_alike: bool = False) -> tuple[Machine, Machine, Machine, int]:
    """The slave that has come farthest had deleted what has not expired, and the other one still holds that."""
    net = SimNet()
    master, short, long = (Machine(net, f"10.0.0.{number}") for number in (1, 2, 3))
    async with master.broker(**MASTER) as broker, long.broker(**OTHER_SLAVE) as longest:
        async with short.broker(**SLAVE):
            await trio.sleep(10)
            await fill(master)
            await trio.sleep(20)
        if not end_alike:
            await fill(master)
        decide(broker)
        await lose_first(longest)
        await trio.sleep(20)
        end = broker.store.max_offset
        assert (longest.store.min_offset > 0, longest.store.max_offset) == (True, end)
    master.disk = SimDisk(now_ms=WallClock())
    return master, short, long, end


@PEERS
async def test_a_master_that_lost_its_store_begins_where_the_group_s_log_does(
    peers: str, virtual_clock: VirtualClock
) -> None:
    master, short, long, end = await three_of_which_the_master_is_lost()
    async with short.broker(**SLAVE), long.broker(**OTHER_SLAVE), master.broker(**MASTER, haPeers=peers) as broker:
        await trio.sleep(60)
        assert (broker.store.min_offset, broker.store.max_offset) == (0, end)
        assert decided(broker) == DECIDED


@pytest.mark.parametrize("mode", ["try", "require"])
@PEERS
async def test_who_begins_first_may_have_no_tables_if_another_holds_more(
    peers: str, mode: str, virtual_clock: VirtualClock
) -> None:
    """It waited for the master's, and the master for its own: for ever, with all three there."""
    master, short, long, end = await three_of_which_the_master_is_lost()
    lose(short)
    master.settings |= {"haPeers": peers, "haCatchUpAtStart": mode}
    async with short.broker(**SLAVE) as slave, long.broker(**OTHER_SLAVE), master.broker(**MASTER) as broker:
        await trio.sleep(120)
        assert (broker.store.min_offset, broker.store.max_offset) == (0, end)
        assert [decided(broker), decided(slave)] == [DECIDED] * 2
        assert [broker.store.next_queue_offset("t", number) for number in range(4)] == [30] * 4
        assert (await seen(broker, queue_id=3))[0].queue_offset == 0
        (reason,) = (await verdict_of(master)).reasons
        assert "10.0.0.3:10911 (broker-a/2) lacks the first " in reason, "it was made so"


@PEERS
async def test_who_begins_first_may_have_no_tables_if_another_ends_where_it_does(
    peers: str, virtual_clock: VirtualClock
) -> None:
    """That it is no longer than this one was a reason to wait for tables that the other one had."""
    master, short, long, end = await three_of_which_the_master_is_lost(end_alike=True)
    lose(short)
    async with short.broker(**SLAVE), long.broker(**OTHER_SLAVE), master.broker(**MASTER, haPeers=peers) as broker:
        await trio.sleep(120)
        assert (broker.store.min_offset, broker.store.max_offset) == (0, end)
        assert decided(broker) == DECIDED
        assert [broker.store.next_queue_offset("t", number) for number in range(4)] == [15] * 4
        assert not broker.store.running_flags.refusal()


async def test_where_nobody_has_tables_the_master_waits(virtual_clock: VirtualClock) -> None:
    """What was deleted, forbidden or consumed no log tells."""
    master, short, long, _ = await three_of_which_the_master_is_lost()
    lose(short)
    lose(long)
    peers = "10.0.0.2:10912,10.0.0.3:10912"
    async with short.broker(**SLAVE), long.broker(**OTHER_SLAVE), master.broker(**MASTER, haPeers=peers) as broker:
        await trio.sleep(600)
        assert broker.store.max_offset == 0
        assert "could not be taken over" in broker.store.running_flags.refusal()


async def test_what_lacks_and_has_not_expired_is_told_also_after_a_restart(
    pair: Pair, autojump_clock: MockClock
) -> None:
    """It was told for an hour, and not after a restart: backups and promotions went by 'in sync'."""
    async with pair.running() as (master, slave):
        await fill(pair.master)
        await lose_first(slave)
        await trio.sleep(12)
        lacking = slave.store.min_offset
        assert (master.store.min_offset, lacking > 0) == (0, True)
        assert not (await verdict_of(pair.slave)).in_sync
        assert not (await verdict_of(pair.master)).in_sync
    async with pair.master.broker(), pair.slave.broker():
        await trio.sleep(12)
        verdict = await verdict_of(pair.slave)
        assert (verdict.level, verdict.in_sync) == ("degraded", False)
        (reason,) = verdict.reasons
        assert f"its log begins {lacking:,} bytes later than its master's, and what lacks has not expired" in reason
        found = obstacles(await status_of(pair.slave), ())
        assert [one.accepted_by for one in found if "bytes later" in one.what] == ["--accept-later-begin"]


async def test_its_master_says_so_too_and_at_once(pair: Pair, autojump_clock: MockClock) -> None:
    """By the master alone goes a rolling restart: it said "in sync and whole" of one that lacked the first files."""
    async with pair.running() as (_, slave):
        await fill(pair.master)
        await trio.sleep(12)
        assert (await verdict_of(pair.master)).in_sync
        await lose_first(slave)
        lacking = slave.store.min_offset
        await trio.sleep(12)
    async with pair.master.broker():
        async with pair.slave.broker():
            await trio.sleep(3)
            verdict = await verdict_of(pair.master)
            assert (verdict.level, verdict.in_sync) == ("degraded", False)
            (reason,) = [one for one in verdict.reasons if "10.0.0.2:10911 (broker-a/1)" in one]
            assert f"lacks the first {lacking:,} bytes of this log, which have not expired" in reason
        await trio.sleep(40)
        assert "lacks the first" not in " ".join((await verdict_of(pair.master)).reasons), (
            "it may be another one by now"
        )


async def test_what_lacks_there_too_is_no_lack(pair: Pair, autojump_clock: MockClock) -> None:
    async with pair.running() as (master, slave):
        await fill(pair.master)
        await lose_first(slave)
        await lose_first(master)
        await trio.sleep(12)
        assert (await verdict_of(pair.slave)).in_sync
        assert (await verdict_of(pair.master)).in_sync
        await lose_first(slave)
        await trio.sleep(12)
        assert not (await verdict_of(pair.slave)).in_sync


async def test_what_lacks_is_what_is_there_and_would_be_kept(autojump_clock: MockClock) -> None:
    clock = Clock()
    clean = clean_options(delete_when=(), file_reserved_time_s=3600.0)

    def passes(seconds: int) -> None:
        clock.now_ms += seconds * 1000
        autojump_clock.jump(seconds)

    async with running(SimDisk(now_ms=clock, latency_s=(0, 0)).mount(), now_ms=clock, clean=clean) as store:
        await put(store, *[message(size=1800) for _ in range(4)])
        assert (later_begin(store, 0), begin_if_later(store, 0)) == (None, 0)
        await commit_log(store).queue.delete_first_in_thread()
        passes(600)
        all_lack = {"bytes": SEGMENT, "expires_in_s": 3000.0}
        masters = (0, -1, SEGMENT - 1, SEGMENT, None)
        told = [later_begin(store, there) for there in masters]
        assert told == [all_lack, all_lack, all_lack | {"bytes": 1}, None, None]
        passes(3000)
        assert later_begin(store, 0) is None, "it has expired"
        assert [begin_if_later(store, there) for there in masters] == [SEGMENT, SEGMENT, SEGMENT, 0, 0]
