"""What a slave of RocketMQ's is sent, which does not compare its log, and may hold another one."""

from math import inf

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.ha.catch_up import PeerAsker
from rmqha.ha.catch_up_service import CatchUpService
from rmqha.ha.ha_client import MasterAddress
from rmqha.ha.ha_service import HAService
from rmqha.ha.options import HAOptions
from rmqha.ha.runtime_info import ConnectionState
from rmqha.ha.unchecked_slaves import UncheckedSlaves
from rmqha.replication.catch_up_plan import CatchUpPlan
from rmqha.replication.group import GroupMember
from rmqha.replication.master_session import LogRange
from tests.fakes import MemoryNetwork, MemoryStream
from tests.ha.harness import FILE, RawSlave, has_tables, settle, start_catch_up, start_master, until
from tests.ha.java_standin import JavaLog, JavaMaster, JavaSlave
from tests.memory_log import MemoryLog, records
from tests.settings import ha_client_options, ha_options

COMMON = [bytes([i]) * 300 for i in range(8)]
BODIES = COMMON + [b"master" * 20] * 12
OWN = records(BODIES)
WHOLE = records([*BODIES, *[b"later" * 30 + b"end of one"] * 700])
OTHER = records(COMMON + [b"of another history" * 3] * 3)
"""Shorter, and its end lies within a record of the other."""
SAME = records(COMMON + [b"master" * 20] * 4)
ELSEWHERE = "10.0.0.1"
"""Where every connection of this network comes from."""


async def nothing(*_: object) -> None:
    await trio.lowlevel.checkpoint()


class Resolving(MemoryNetwork):
    """Knows the address behind a name."""

    async def connect(self, host: str, port: int, *, timeout_s: float) -> MemoryStream:
        return await super().connect(ELSEWHERE if host == "its-name" else host, port, timeout_s=timeout_s)


class Rocket:
    """A slave of RocketMQ's, with the HA port that it opens for slaves of its own."""

    def __init__(self, network: MemoryNetwork, nursery: trio.Nursery, data: bytes) -> None:
        self.network, self.nursery = network, nursery
        self.log = JavaLog.holding(data, file_size=FILE)
        self.port = 7777
        self.is_there = True
        self.hangs = self.checks_reports = False
        self.broker_id = 1
        self.following = trio.CancelScope()

    async def open(self) -> None:
        await self.nursery.start(self._listen)

    async def _listen(self, task_status: trio.TaskStatus[int]) -> None:
        await JavaMaster(self.log).run(self.network, port=self.port, task_status=task_status)

    async def probe(self, _: MasterAddress) -> LogRange | None:
        await trio.sleep(inf if self.hangs else 0)
        member = GroupMember("broker", self.broker_id)
        there = LogRange(max(self.log.min_offset, 0), self.log.max_offset, self.checks_reports, member)
        return there if self.is_there else None

    def follow(self, port: int) -> None:
        self.nursery.start_soon(self._follow, port)

    async def _follow(self, port: int) -> None:
        with trio.CancelScope() as self.following:
            await JavaSlave(self.network, port, self.log).run()


class Master:
    """A master's log, which goes on growing."""

    def __init__(self, service: HAService, catch_up: CatchUpService, log: MemoryLog, rocket: Rocket) -> None:
        self.service, self.catch_up, self.log = service, catch_up, log
        self.rocket, self.network, self.nursery = rocket, rocket.network, rocket.nursery

    def asker(self) -> PeerAsker:
        """Another one than the catch-up's."""
        return PeerAsker(
            self.log,
            self.network,
            options=ha_client_options(overlap_size=1000),
            probe_peer=self.rocket.probe,
            before_taking=nothing,
            take_tables=has_tables,
        )

    async def write_for(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            end = self.log.max_offset
            self.log.extend(WHOLE[end : WHOLE.index(b"end of one", end) + 14])
            await trio.sleep(1)

    @property
    def states(self) -> list[str]:
        return [peer["state"] for peer in self.catch_up.info()]

    @property
    def refused(self) -> list[str]:
        return [one.reason for one in self.service.info().refused]


async def master_beside(
    nursery: trio.Nursery, rocket: Rocket, *, host: str = ELSEWHERE, options: HAOptions | None = None
) -> Master:
    log = MemoryLog.holding(OWN)
    service = await start_master(nursery, rocket.network, log, options)
    catch_up = start_catch_up(nursery, rocket.network, log, MasterAddress(host, rocket.port), probe_peer=rocket.probe)
    catch_up.watch_slaves(service)
    return Master(service, catch_up, log, rocket)


async def beside(nursery: trio.Nursery, data: bytes = OTHER, *, host: str = ELSEWHERE) -> tuple[Rocket, Master]:
    """A master that takes sends already when the other one, which holds ``data``, comes."""
    rocket = Rocket(Resolving(), nursery, data)
    master = await master_beside(nursery, rocket, host=host)
    await until(master.catch_up.opened.is_set)
    await rocket.open()
    return rocket, master


async def slave_of(master: Master, end: int) -> RawSlave:
    """One whose log ends there."""
    slave = await RawSlave.connect(master.nursery, master.network, master.service.port)
    await slave.report(end)
    return slave


@pytest.mark.parametrize("is_asked_first", [True, False])
@pytest.mark.parametrize("host", [ELSEWHERE, "its-name", "10.0.0.9"])
async def test_who_holds_another_history_is_sent_nothing_ever(
    *, is_asked_first: bool, host: str, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Once it had taken more than is compared, its end would be this master's own. It may come from any address."""
    rocket = Rocket(Resolving(), nursery, OTHER)
    master = await master_beside(nursery, rocket, host=host)
    await until(master.catch_up.opened.is_set)
    if is_asked_first:
        await rocket.open()
        await until(lambda: master.states == ["unfit"])
        rocket.follow(master.service.port)
    else:
        rocket.follow(master.service.port)
        await rocket.open()
    await master.write_for(300)
    assert rocket.log.content() == OTHER, "nothing was appended behind another history"
    assert (master.states, master.refused) == (["unfit"], ["slave-unfit"])
    assert master.service.group_transfer.acked.value <= 0, "it has acknowledged nothing"
    assert master.service.info().departed == (), "and has not begun to follow"
    nursery.cancel_scope.cancel()


async def test_who_holds_the_same_is_sent_what_follows_at_once(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    rocket, master = await beside(nursery, SAME)
    rocket.follow(master.service.port)
    await until(lambda: rocket.log.content() == OWN, within_s=7.0)
    await master.write_for(60)
    assert rocket.log.content() == master.log.content()
    assert [one.state for one in master.service.info().connections] == [ConnectionState.IN_SYNC]
    assert (master.states, master.refused) == (["settled"], [])
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("hangs", [True, False])
async def test_who_cannot_be_asked_is_served(*, hangs: bool, nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """A line that hangs has ten seconds; RocketMQ's slaves leave after twenty."""
    rocket = Rocket(Resolving(), nursery, OTHER)
    rocket.is_there, rocket.hangs = False, hangs
    master = await master_beside(nursery, rocket)
    slave = await RawSlave.connect(nursery, master.network, master.service.port)
    begun_at = trio.current_time()
    await slave.report(len(SAME))
    await until(lambda: slave.reader.frames != [])
    assert (trio.current_time() - begun_at >= 10.0) == hangs
    assert master.refused == []
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("end", [len(SAME) - 1, len(SAME) + 1])
async def test_whose_log_ends_elsewhere_is_another_one(
    end: int, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Two of RocketMQ's may be on one host, of which one does not fit."""
    _, master = await beside(nursery)
    slave = await slave_of(master, len(OTHER) + end - len(SAME))
    await settle()
    assert (slave.reader.frames != [], slave.is_cut, master.refused) == (True, False, [])
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("host", [ELSEWHERE, "10.0.0.8"])
async def test_of_two_that_end_alike_the_one_on_its_host_counts_or_one_that_fits(
    host: str, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network = Resolving()
    rocket, sound = Rocket(network, nursery, OTHER), Rocket(network, nursery, OWN[: len(OTHER)])
    sound.port = 8888
    log = MemoryLog.holding(OWN)
    service = await start_master(nursery, network, log)
    peers = (MasterAddress("10.0.0.9", rocket.port), MasterAddress(host, sound.port))
    catch_up = start_catch_up(nursery, network, log, *peers, probe_peer=rocket.probe)
    catch_up.watch_slaves(service)
    await until(catch_up.opened.is_set)
    await rocket.open()
    await sound.open()
    slave = await RawSlave.connect(nursery, network, service.port)
    await slave.report(len(OTHER))
    await settle()
    assert slave.reader.frames != []
    nursery.cancel_scope.cancel()


async def test_ours_compare_by_themselves_though_they_have_said_no_name(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    rocket, master = await beside(nursery)
    rocket.checks_reports = True
    slave = await slave_of(master, len(OTHER))
    await settle()
    assert (slave.reader.frames != [], master.refused) == (True, [])
    nursery.cancel_scope.cancel()


async def test_where_the_log_here_is_damaged_it_says_so_and_serves(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    _, master = await beside(nursery, SAME)
    file, _, _ = master.log.segment_at(0)
    file.pwrite([bytes(FILE)], 0)
    slave = await RawSlave.connect(nursery, master.network, master.service.port)
    with capture_logs() as logs:
        await slave.report(len(SAME))
        await settle()
    assert [line["event"] for line in logs if line["log_level"] == "warning"] == ["unchecked_slaves.not_compared"]
    assert slave.reader.frames != []
    nursery.cancel_scope.cancel()


async def test_who_was_rebuilt_empty_is_served(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    rocket, master = await beside(nursery)
    rocket.follow(master.service.port)
    await until(lambda: master.refused == ["slave-unfit"])
    rocket.following.cancel()
    rocket.log.files.clear()
    rocket.follow(master.service.port)
    await until(lambda: rocket.log.max_offset == master.log.max_offset)
    await master.write_for(40)
    assert rocket.log.max_offset == master.log.max_offset
    assert (master.states, master.refused) == (["settled"], [])
    nursery.cancel_scope.cancel()


async def test_who_says_its_name_compares_by_itself(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    rocket = Rocket(Resolving(), nursery, OTHER)
    rocket.hangs = True
    master = await master_beside(nursery, rocket)
    slave = await slave_of(master, len(SAME))
    await settle(1.0)
    assert slave.reader.frames == []
    ((host, port),) = master.service.slave_addresses()
    master.service.name_slave(host, int(port), "broker/1")
    await settle(0.2)
    assert slave.reader.frames != []
    nursery.cancel_scope.cancel()


async def test_who_was_refused_stays_so_where_one_question_is_in_vain(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It comes again every few seconds, for hours: once it was served the difference would be hidden for good."""
    rocket, master = await beside(nursery)
    rocket.follow(master.service.port)
    await master.write_for(60)
    rocket.is_there = False
    await master.write_for(12)
    rocket.is_there = True
    await master.write_for(60)
    assert (master.refused, rocket.log.content()) == (["slave-unfit"], OTHER)
    nursery.cancel_scope.cancel()


async def test_what_the_catch_up_knows_counts_where_nobody_answers(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    rocket, master = await beside(nursery)
    await until(lambda: master.states == ["unfit"])
    rocket.is_there = False
    rocket.follow(master.service.port)
    await trio.sleep(8)
    rocket.is_there = True
    await master.write_for(60)
    assert (master.states, rocket.log.content()) == (["unfit"], OTHER)
    nursery.cancel_scope.cancel()


async def test_while_this_process_stood_still_nobody_was_compared(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    rocket, master = await beside(nursery)
    rocket.hangs = True
    slave = await slave_of(master, len(OTHER))
    await settle(0.3)
    autojump_clock.jump(20.0)
    await settle(3)
    assert (slave.reader.frames, slave.is_cut) == ([], True), "it comes again"
    nursery.cancel_scope.cancel()


async def test_who_is_held_does_not_pass_for_one_that_is_back(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    rocket, master = await beside(nursery)
    first = await slave_of(master, len(SAME))
    await first.report(len(OWN))
    rocket.hangs = True
    held = await slave_of(master, len(OTHER))
    first.stream.close()
    await settle()
    assert len(master.service.info().departed) == 1
    ((host, port),) = master.service.slave_addresses()
    master.service.name_slave(host, int(port), "broker/1")
    held.stream.close()
    await settle()
    assert len(master.service.info().departed) == 1
    begun_at = trio.current_time()
    await master.service.take_leave()
    assert trio.current_time() == begun_at
    nursery.cancel_scope.cancel()


async def test_a_refusal_is_told_though_one_that_is_held_leaves(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    rocket, master = await beside(nursery)
    await slave_of(master, len(OTHER))
    await settle(2.5)
    rocket.hangs = True
    two = await RawSlave.connect(nursery, master.network, master.service.port)
    await settle(2.0)
    await two.report(len(OTHER))
    two.stream.close()
    await settle(1)
    assert master.refused == ["slave-unfit"]
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("end", [0, len(OTHER)])
async def test_who_ends_like_a_master_of_another_kind_is_none(
    end: int, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """HaPeers names the old master, which runs as one still: it is nobody's slave."""
    rocket, master = await beside(nursery, OTHER[:end], host="10.9.9.9")
    rocket.broker_id = 0
    slave = await slave_of(master, end)
    await settle(1)
    assert (slave.reader.frames != [], slave.is_cut) == (True, False)
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("answers", [True, False])
async def test_what_the_catch_up_knows_of_a_master_counts_for_no_slave(
    *, answers: bool, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It is unfit, as it is master as well, and its log ends where a sound slave's does; whether it answers or not."""
    rocket, master = await beside(nursery, host="10.9.9.9")
    rocket.broker_id = 0
    await until(lambda: master.states == ["unfit"])
    rocket.is_there = answers
    slave = await slave_of(master, len(OTHER))
    await settle(1)
    assert (slave.reader.frames != [], slave.is_cut) == (True, False)
    nursery.cancel_scope.cancel()


async def test_nobody_is_held_for_as_long_as_makes_him_leave(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """Ours leave a master that is silent for haHousekeepingInterval, which is set alike on both."""
    rocket = Rocket(Resolving(), nursery, OTHER)
    rocket.hangs = True
    master = await master_beside(nursery, rocket, options=ha_options(ha_housekeeping_interval_s=8.0))
    slave = await slave_of(master, len(SAME))
    await settle(3.9)
    assert slave.reader.frames == []
    await settle(0.2)
    assert slave.reader.frames != []
    nursery.cancel_scope.cancel()


async def test_whose_peer_has_said_that_it_fits_waits_for_no_other(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network = Resolving()
    rocket, dead = Rocket(network, nursery, SAME), MasterAddress("10.0.0.7", 9999)

    async def probe(peer: MasterAddress) -> LogRange | None:
        await trio.sleep(3.0 if peer == dead else 0)
        return None if peer == dead else await rocket.probe(peer)

    log = MemoryLog.holding(OWN)
    service = await start_master(nursery, network, log)
    peers = (MasterAddress(ELSEWHERE, rocket.port), dead)
    catch_up = start_catch_up(nursery, network, log, *peers, probe_peer=probe)
    catch_up.watch_slaves(service)
    await rocket.open()
    slave = await RawSlave.connect(nursery, network, service.port)
    await slave.report(len(SAME))
    await settle(0.1)
    assert slave.reader.frames != []
    nursery.cancel_scope.cancel()


async def test_what_was_found_here_counts_where_the_catch_up_has_heard_nothing(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Until it is compared anew: another store may end there."""
    rocket, master = await beside(nursery)
    slaves = UncheckedSlaves(master.asker(), [MasterAddress(ELSEWHERE, rocket.port)], CatchUpPlan([]))
    master.service.before_sending = slaves.meet
    await slave_of(master, len(OTHER))
    await settle(2.5)
    assert master.service.info().refusals == {"slave-unfit": 1}
    rocket.is_there = False
    await slave_of(master, len(OTHER))
    await settle(2.5)
    assert master.service.info().refusals == {"slave-unfit": 2}
    rocket.log.files = JavaLog.holding(OWN[: len(OTHER)], file_size=FILE).files
    for rocket.is_there in (True, False):
        slave = await slave_of(master, len(OTHER))
        await settle(2.5)
        assert slave.reader.frames != []
    nursery.cancel_scope.cancel()


async def test_what_was_found_here_counts_more_than_what_the_catch_up_heard_before(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Its store was replaced meanwhile, by one that does not fit either and ends elsewhere."""
    rocket, master = await beside(nursery)
    await until(lambda: master.states == ["unfit"])
    other = records(COMMON + [b"of a third history"] * 4)
    rocket.log.files = JavaLog.holding(other, file_size=FILE).files
    for rocket.is_there in (True, False):
        slave = await slave_of(master, len(other))
        await settle(2.5)
        assert slave.reader.frames == []
    assert master.service.info().refusals == {"slave-unfit": 2}
    nursery.cancel_scope.cancel()


async def test_what_was_just_compared_counts_more_than_what_the_catch_up_heard_before(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Its store was replaced meanwhile by one that fits, and ends at the same place."""
    rocket, master = await beside(nursery)
    await until(lambda: master.states == ["unfit"])
    rocket.log.files = JavaLog.holding(OWN[: len(OTHER)], file_size=FILE).files
    slave = await slave_of(master, len(OTHER))
    await settle(2.5)
    assert (slave.reader.frames != [], master.service.info().refusals) == (True, {})
    nursery.cancel_scope.cancel()


async def test_of_two_that_end_alike_one_that_fits_elsewhere_does_not_stand_for_the_one_on_its_host(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """That one takes longer to answer."""
    network = Resolving()
    rocket, sound = Rocket(network, nursery, OTHER), Rocket(network, nursery, OWN[: len(OTHER)])
    sound.port = 8888
    here, elsewhere = MasterAddress(ELSEWHERE, rocket.port), MasterAddress("10.0.0.9", sound.port)

    async def probe(peer: MasterAddress) -> LogRange | None:
        await trio.sleep(2.0 if peer == here else 0)
        return await rocket.probe(peer)

    log = MemoryLog.holding(OWN)
    service = await start_master(nursery, network, log)
    catch_up = start_catch_up(nursery, network, log, here, elsewhere, probe_peer=probe)
    catch_up.watch_slaves(service)
    await until(catch_up.opened.is_set)
    await rocket.open()
    await sound.open()
    slave = await RawSlave.connect(nursery, network, service.port)
    await slave.report(len(OTHER))
    await settle(6)
    assert (slave.reader.frames, service.info().refusals) == ([], {"slave-unfit": 1})
    nursery.cancel_scope.cancel()
