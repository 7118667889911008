"""A slave's two addresses: tables are taken from the master whose log is copied, and from no other of its name."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
import trio

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.log_source import LogSource
from rmqha.cli.pages import Page
from rmqha.cli.verdict import Verdict, judge
from rmqha.codec.codes import RequestCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import RemoteProtocolError
from rmqha.replication.log_master import BrokerProcess, rocketmq_process_of, why_another
from tests.broker.machines import Machine
from tests.broker.test_master_link import ROCKETMQ, answering, link_with
from tests.broker.test_pair import SLAVE, status
from tests.sim.sim_clock import VirtualClock
from tests.sim.sim_net import SimNet

MASTER = {"brokerRole": "ASYNC_MASTER"}
OTHER = "10.0.0.9:10911"
MIXED_UP = SLAVE | {"masterAddress": OTHER}
HA = ("10.0.0.1", 10912)
PROCESS = BrokerProcess("a:1", "5", is_master=True, ha_port=10912)


class Group:
    """A pair, and the master of another group that has the same brokerName."""

    def __init__(self, **slave: str) -> None:
        self.net = SimNet()
        self.master = Machine(self.net, "10.0.0.1", MASTER)
        self.other = Machine(self.net, "10.0.0.9", MASTER)
        self.slave = Machine(self.net, "10.0.0.2", MIXED_UP | slave)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[tuple[BrokerController, BrokerController]]:
        """The pair's master and slave; the masters did not begin in the same millisecond."""
        async with self.other.broker() as other:
            other.offsets.commit_offset("group", "theirs", 0, offset=7)
            await trio.sleep(1)
            async with self.master.broker() as master:
                master.offsets.commit_offset("group", "ours", 0, offset=3)
                await trio.sleep(1)
                async with self.slave.broker() as slave:
                    yield master, slave


async def verdict_of(machine: Machine) -> Verdict:
    async with machine.client() as client:
        return judge(await status(client))


async def test_a_slave_takes_no_tables_of_another_master_than_that_of_its_log(virtual_clock: VirtualClock) -> None:
    group = Group()
    async with group.running() as (_, slave):
        await trio.sleep(30)
        verdict = await verdict_of(group.slave)
        offsets = slave.offsets.query_offset("group", "theirs", 0), slave.offsets.query_offset("group", "ours", 0)
    assert offsets == (None, None)
    (reason,) = verdict.reasons
    assert (verdict.level, verdict.in_sync) == ("degraded", False)
    assert "were not taken over" in reason
    assert "Set masterAddress to the listenPort of the master whose log is copied" in reason
    assert reason.endswith(Page.MIXED_UP)


async def test_two_masters_stay_two_while_the_right_one_is_away(virtual_clock: VirtualClock) -> None:
    """Else each of its restarts would let the other's tables in."""
    group = Group()
    async with group.running() as (master, slave):
        await trio.sleep(30)
        master.stop()
        await trio.sleep(60)
        assert slave.offsets.query_offset("group", "theirs", 0) is None
        assert (await verdict_of(group.slave)).level == "degraded"


async def test_while_the_master_of_the_log_has_yet_to_be_heard_no_other_one_is_believed(
    virtual_clock: VirtualClock,
) -> None:
    """A slave that started while its master was away took the other group's tables, and kept them."""
    group = Group()
    async with group.other.broker() as other:
        other.offsets.commit_offset("group", "theirs", 0, offset=7)
        async with group.slave.broker() as slave:
            await trio.sleep(60)
            assert slave.offsets.query_offset("group", "theirs", 0) is None
            assert "is the master of the log here is not known yet" in str((await verdict_of(group.slave)).reasons)


async def test_a_master_with_another_layout_of_ports_is_believed_once_its_log_comes(
    virtual_clock: VirtualClock,
) -> None:
    group = Group(masterAddress="10.0.0.1:10911", haMasterAddress="10.0.0.1:20912")
    async with group.master.broker(haListenPort="20912") as master, group.slave.broker() as slave:
        master.offsets.commit_offset("group", "ours", 0, offset=3)
        await trio.sleep(30)
        assert slave.offsets.query_offset("group", "ours", 0) == 3
        assert (await verdict_of(group.slave)).level == "ok"


async def test_a_master_that_is_named_as_usual_is_asked_once(virtual_clock: VirtualClock) -> None:
    group = Group(masterAddress="10.0.0.1:10911")
    async with group.running() as (_, slave):
        await trio.sleep(30)
        assert slave.offsets.query_offset("group", "ours", 0) == 3
        assert (await verdict_of(group.slave)).level == "ok"


@pytest.mark.parametrize(
    ("source", "is_known"), [(PROCESS, True), (None, False), (replace(PROCESS, ha_port=20912), False)]
)
async def test_one_master_by_two_names_is_one(source: BrokerProcess | None, is_known: bool) -> None:
    async def ask_process(address: str) -> BrokerProcess | None:
        assert address == "10.0.0.1:10911"
        return source

    log_source = LogSource(ask_process)
    await log_source.check("master-a:10911", PROCESS, ha_address=HA, is_joined=True)
    assert bool(log_source.master) == is_known


async def test_at_the_end_of_a_chain_the_master_is_that_of_the_slave_above(virtual_clock: VirtualClock) -> None:
    group = Group(masterAddress="10.0.0.1:10911")
    below = {"brokerId": "2", "haMasterAddress": "10.0.0.2:10912"}
    right = Machine(group.net, "10.0.0.3", SLAVE | below)
    wrong = Machine(group.net, "10.0.0.4", MIXED_UP | below | {"brokerId": "3"})
    async with group.running(), right.broker() as last, wrong.broker() as mixed_up:
        await trio.sleep(30)
        assert last.offsets.query_offset("group", "ours", 0) == 3
        assert mixed_up.offsets.query_offset("group", "theirs", 0) in (None, 7), "asked before the slave above knew"
        assert (await verdict_of(right)).level == "ok"
        assert (await verdict_of(wrong)).level == "degraded"


async def test_a_master_that_is_made_a_slave_is_no_other_master_any_more(virtual_clock: VirtualClock) -> None:
    group = Group()
    async with group.other.broker() as other:
        await trio.sleep(1)
        async with group.master.broker(), group.slave.broker():
            await trio.sleep(30)
            assert (await verdict_of(group.slave)).level == "degraded"
            other.stop()
            await trio.sleep(5)
            async with group.other.broker(**(SLAVE | {"brokerId": "5"})):
                await trio.sleep(30)
                assert (await verdict_of(group.slave)).level == "ok"


@pytest.mark.parametrize(
    ("told", "source", "are_two"),
    [
        (PROCESS, PROCESS, False),
        (PROCESS, replace(PROCESS, address="b:1"), True),
        (PROCESS, replace(PROCESS, boot="6"), True),
        (PROCESS, replace(PROCESS, boot=""), False),
        (PROCESS, replace(PROCESS, address="s:1", is_master=False), False),
        (replace(PROCESS, boot="6"), replace(PROCESS, address="s:1", is_master=False, master="a:1"), False),
        (PROCESS, replace(PROCESS, address="s:1", is_master=False, master="b:1"), True),
        (replace(PROCESS, address="s:1", is_master=False, master="b:1"), PROCESS, True),
        (replace(PROCESS, address="s:1", is_master=False), PROCESS, False),
    ],
    ids=[
        "one", "other address", "other run", "a run unknown", "slave that knows no master", "restarted", "other chain",
        "other's slave", "slave of nobody",
    ],
)  # fmt: skip
def test_who_is_another(told: BrokerProcess, source: BrokerProcess, are_two: bool) -> None:
    assert bool(why_another(told, source, ha_address="h:2")) == are_two


KEYS = (
    b"brokerName=broker-a\nbrokerId=0\nbrokerRole=ASYNC_MASTER\n"
    b"brokerIP1=10.0.0.%d\nlistenPort=10911\nhaListenPort=10912\n"
)


async def test_masters_of_rocketmq_are_told_apart_too(virtual_clock: VirtualClock) -> None:
    net = SimNet()
    configuration = {RequestCode.GET_BROKER_CONFIG: RemotingCommand(0, body=KEYS % 1)}
    async with answering(net, ROCKETMQ | {"bootTimestamp": "17"}, configuration):
        config = Machine(net, "10.0.0.2", MIXED_UP).controller().config
        link = link_with(net, "10.0.0.2", config, ha_master=lambda: HA)
        async with Machine(net, "10.0.0.9", MASTER).broker(), link.open(OTHER) as client:
            with pytest.raises(RemoteProtocolError, match="another master than the one whose log is copied"):
                await link.check_group(client)
        async with link.open("10.0.0.1:10911") as client:
            await link.check_group(client)
        assert link.log_source.master == "10.0.0.1:10911"


@pytest.mark.parametrize("keys", [{}, {"brokerIP1": "h", "listenPort": "1"}, {"brokerIP1": "h", "haListenPort": "x"}])
def test_a_broker_of_rocketmqs_that_does_not_say_is_nobody(keys: dict[str, str]) -> None:
    assert rocketmq_process_of({"bootTimestamp": "1"}, keys) is None


async def test_the_master_of_a_log_that_comes_by_two_slaves_is_that_of_both() -> None:
    above = replace(PROCESS, is_master=False, master="10.0.0.7:10911")

    async def ask_process(_: str) -> BrokerProcess | None:
        return above

    log_source = LogSource(ask_process)
    told = replace(PROCESS, address="10.0.0.7:10911", boot="1")
    await log_source.check("10.0.0.7:10911", told, ha_address=HA, is_joined=True)
    assert log_source.master == "10.0.0.7:10911"
