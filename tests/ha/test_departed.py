"""When slaves go: one line in the log, one when they are back, and who they were."""

from math import inf
from typing import Any

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.codec.host import host_of
from rmqha.ha.departed_replicas import DepartedReplicas
from rmqha.ha.ha_service import HAService
from rmqha.ha.in_sync_watch import InSyncWatch
from rmqha.replication.slave_identity import SlaveIdentity
from tests.fakes import MemoryNetwork
from tests.ha.harness import RawSlave, settle, start_master
from tests.memory_log import MemoryLog, records
from tests.settings import ha_options

DATA = records([b"x" * 100] * 4)


async def slave_from(
    host: str, nursery: trio.Nursery, network: MemoryNetwork, service: HAService, *, name: str = ""
) -> RawSlave:
    network.host = host
    slave = await RawSlave.connect(nursery, network, service.port)
    await settle()
    if name:
        service.name_slave(host, slave.stream.local_port, name)
    await slave.report(0)
    await slave.report(len(DATA))
    await settle()
    return slave


def told(logs: list[Any]) -> list[tuple[str, str]]:
    return [(entry["event"], entry["log_level"]) for entry in logs if "in_sync" in entry["event"]]


async def test_losing_the_only_slave_is_one_warning_and_its_return_one_line(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network = MemoryNetwork()
    with capture_logs() as logs:
        service = await start_master(nursery, network, MemoryLog.holding(DATA), ha_options(in_sync_replicas=2))
        unsafe = 0
        service.in_sync_watch.count_unsafe = lambda: unsafe
        await trio.sleep(2)
        slave = await slave_from("10.0.0.2", nursery, network, service, name="pair/1")
        slave.stream.close()
        await trio.sleep(3)
        (gone,) = service.info().departed
        assert (gone.name, gone.peer.split(":")[0], gone.slave_ack_offset) == ("pair/1", "10.0.0.2", len(DATA))
        assert gone.last_s_ago == pytest.approx(3, abs=0.2)
        unsafe = 5
        await slave_from("10.0.0.2", nursery, network, service, name="pair/1")
        assert service.info().departed == ()
    assert told(logs) == [
        ("ha_service.in_sync", "info"),
        ("ha_service.not_in_sync", "warning"),
        ("ha_service.in_sync", "info"),
    ]
    lost = next(entry for entry in logs if entry["event"] == "ha_service.not_in_sync")
    assert (lost["name"], lost["slave_ack_offset"], lost["reason"]) == (
        "pair/1", len(DATA), "the slave ended the connection",
    )  # fmt: skip
    back = [entry for entry in logs if entry["event"] == "ha_service.in_sync"][-1]
    assert (round(back["lasted_s"]), back["answers_not_send_ok"]) == (3, 5)
    nursery.cancel_scope.cancel()


async def test_how_long_slaves_are_missed_counts_from_the_start(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A machine's clock began long before."""
    network = MemoryNetwork()
    await trio.sleep(1000)
    service = await start_master(nursery, network, MemoryLog.holding(DATA), ha_options(in_sync_replicas=2))
    await trio.sleep(5)
    assert service.info().below_needed_s == pytest.approx(5)
    slave = await slave_from("10.0.0.2", nursery, network, service)
    assert service.info().below_needed_s is None
    slave.stream.close()
    await trio.sleep(3)
    assert service.info().below_needed_s == pytest.approx(3, abs=0.2)
    nursery.cancel_scope.cancel()


async def test_one_that_was_behind_when_it_left_is_behind_since_then_until_it_has_caught_up(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network, log = MemoryNetwork(), MemoryLog.holding(DATA)
    service = await start_master(nursery, network, log, ha_options(in_sync_replicas=2))
    slave = await slave_from("10.0.0.2", nursery, network, service, name="pair/1")
    log.extend(DATA)
    await trio.sleep(5)
    slave.stream.close()
    await trio.sleep(3)
    (gone,) = service.info().departed
    assert gone.lag_s == pytest.approx(8, abs=0.3)
    assert gone.last_s_ago == pytest.approx(3, abs=0.3)
    back = await slave_from("10.0.0.2", nursery, network, service, name="pair/1")
    await trio.sleep(2)
    (here,) = service.info().connections
    assert here.state.value == "catch-up"
    assert here.lag_s == pytest.approx(10, abs=0.3)
    await back.report(len(DATA) * 2)
    await settle()
    (here,) = service.info().connections
    assert (here.state.value, here.lag_s) == ("in-sync", 0)
    nursery.cancel_scope.cancel()


async def test_what_came_while_it_was_away_counts_from_its_leaving_until_it_has_it(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """With nobody connected no one looks at where the log ends."""
    network, log = MemoryNetwork(), MemoryLog.holding(DATA)
    service = await start_master(nursery, network, log, ha_options(in_sync_replicas=2))
    (await slave_from("10.0.0.2", nursery, network, service, name="pair/1")).stream.close()
    await trio.sleep(30)
    log.extend(DATA)
    await trio.sleep(1)
    back = await slave_from("10.0.0.2", nursery, network, service, name="pair/1")
    (here,) = service.info().connections
    assert (here.state.value, round(here.lag_s)) == ("catch-up", 31)
    await back.report(2 * len(DATA))
    await settle()
    log.extend(DATA)
    await trio.sleep(2)
    (here,) = service.info().connections
    assert round(here.lag_s) == 2
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("names", [("pair/1", "pair/1"), ("pair/1", "pair/2"), ("", "")])
async def test_a_slave_is_left_behind_by_none_of_its_connections_if_one_has_everything(
    nursery: trio.Nursery, autojump_clock: MockClock, names: tuple[str, str]
) -> None:
    """The one that it had before may still be open; without its name that one may be another slave's."""
    network, log = MemoryNetwork(), MemoryLog.holding(DATA)
    service = await start_master(nursery, network, log, ha_options(in_sync_replicas=2))
    await slave_from("10.0.0.2", nursery, network, service, name=names[0])
    log.extend(DATA)
    slave = await slave_from("10.0.0.2", nursery, network, service, name=names[1])
    await slave.report(2 * len(DATA))
    with capture_logs() as logs:
        await service.take_leave()
    left = [entry for entry in logs if entry["event"] == "ha_service.slave_left_behind"]
    assert len(left) == (0 if names == ("pair/1", "pair/1") else 1)
    nursery.cancel_scope.cancel()


async def test_a_second_slave_that_goes_is_no_warning_but_departed(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network = MemoryNetwork()
    with capture_logs() as logs:
        service = await start_master(nursery, network, MemoryLog.holding(DATA), ha_options(in_sync_replicas=2))
        await slave_from("10.0.0.2", nursery, network, service)
        second = await slave_from("10.0.0.3", nursery, network, service)
        second.stream.close()
        await settle()
    assert told(logs) == [("ha_service.in_sync", "info")]
    assert [gone.peer.split(":")[0] for gone in service.info().departed] == ["10.0.0.3"]
    nursery.cancel_scope.cancel()


async def test_a_slave_that_took_nothing_is_named_too(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """One that found other bytes goes after its first report, and does not come back."""
    network = MemoryNetwork(host="10.0.0.2")
    service = await start_master(nursery, network, MemoryLog.holding(DATA), ha_options(in_sync_replicas=2))
    slave = await RawSlave.connect(nursery, network, service.port)
    await slave.report(len(DATA))
    await settle()
    slave.stream.close()
    await settle()
    (gone,) = service.info().departed
    assert "its own status says what it found" in gone.reason
    nursery.cancel_scope.cancel()


async def test_a_slave_that_has_another_connection_has_not_left(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog.holding(DATA), ha_options(in_sync_replicas=2))
    old = await slave_from("10.0.0.2", nursery, network, service)
    await slave_from("10.0.0.2", nursery, network, service)
    old.stream.close()
    await settle()
    assert service.info().departed == ()
    nursery.cancel_scope.cancel()


async def test_a_master_that_caught_up_from_this_slave_is_no_slave_that_is_gone(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Monitors were told of a lost slave after each restart of a master with haPeers. It says no name."""
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog.holding(DATA), ha_options(is_slave=True))
    for name in ("", "pair/2"):
        (await slave_from("10.0.0.1", nursery, network, service, name=name)).stream.close()
        await settle()
    assert [gone.name for gone in service.info().departed] == ["pair/2"]
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("host", ["10.0.0.2", "127.0.0.1"])
async def test_slaves_that_share_an_address_are_told_apart_by_name(
    host: str, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Both were called "pair/1 or pair/2", and the return of one made the other forgotten."""
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog.holding(DATA), ha_options(in_sync_replicas=2))
    one, two, _ = [await slave_from(host, nursery, network, service, name=f"pair/{number}") for number in (1, 2, 3)]
    assert [connection.name for connection in service.info().connections] == ["pair/1", "pair/2", "pair/3"]
    for slave in (one, two):
        slave.stream.close()
        await settle()
    assert [(gone.name, gone.peer) for gone in service.info().departed] == [
        ("pair/1", one.peer),
        ("pair/2", two.peer),
    ]
    await slave_from(host, nursery, network, service, name="pair/1")
    assert [gone.name for gone in service.info().departed] == ["pair/2"]
    nursery.cancel_scope.cancel()


async def test_a_slave_that_comes_back_from_another_address_is_no_longer_missed(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog.holding(DATA), ha_options(in_sync_replicas=2))
    (await slave_from("10.0.0.2", nursery, network, service, name="pair/1")).stream.close()
    await settle()
    back = await slave_from("10.0.0.3", nursery, network, service)
    assert [gone.name for gone in service.info().departed] == ["pair/1"]
    service.name_slave("10.0.0.3", back.stream.local_port, "pair/1")
    assert service.info().departed == ()
    nursery.cancel_scope.cancel()


async def test_a_send_that_waits_for_two_slaves_is_answered_when_they_say_that_they_are_two(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """While nothing more is sent no report follows: it timed out. Both are on the host of a trial."""
    network, log = MemoryNetwork(), MemoryLog.holding(DATA)
    service = await start_master(nursery, network, log, ha_options(in_sync_replicas=3))
    slaves = [await slave_from("127.0.0.1", nursery, network, service) for _ in range(2)]
    answers: list[tuple[bool, int]] = []
    service.group_transfer.acked.add(len(DATA), inf, lambda *answer: answers.append(answer))
    assert answers == [], "they may be one"
    for number, slave in enumerate(slaves, 1):
        service.name_slave("127.0.0.1", slave.stream.local_port, f"pair/{number}")
    assert answers == [(True, len(DATA))]
    nursery.cancel_scope.cancel()


async def test_a_name_is_taken_only_from_the_host_of_the_connection_it_names(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    slave = await slave_from("10.0.0.2", nursery, network, service)
    service.name_slave("10.0.0.3", slave.stream.local_port, "other/9")
    service.name_slave("10.0.0.2", slave.stream.local_port + 1, "other/9")
    (there,) = service.info().connections
    assert there.name == ""
    nursery.cancel_scope.cancel()


async def test_a_frozen_slave_is_told_of_once(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """It was in status as departed and, for a minute, as turned away."""
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog.holding(DATA), ha_options(in_sync_replicas=2))
    with capture_logs() as logs:
        await slave_from("10.0.0.2", nursery, network, service)
        await trio.sleep(25)
    (gone,) = service.info().departed
    assert "20 s" in gone.reason
    assert service.info().refused == ()
    assert [line["refusal"] for line in logs if line["event"] == "ha_connection.refused"] == ["silent"]
    nursery.cancel_scope.cancel()


async def test_the_end_of_the_master_is_no_loss(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    with capture_logs() as logs:
        service = await start_master(nursery, network, MemoryLog.holding(DATA), ha_options(in_sync_replicas=2))
        await slave_from("10.0.0.2", nursery, network, service)
        service.stop()
        await settle()
    assert told(logs) == [("ha_service.in_sync", "info")]
    nursery.cancel_scope.cancel()


def test_what_is_remembered_is_bounded() -> None:
    departed = DepartedReplicas()
    for number in range(1000):
        who = SlaveIdentity(f"10.0.{number // 250}.{number % 250}", f"pair/{number}" if number % 2 else "")
        departed.note(who, peer=f"{who.address}:1", slave_ack_offset=0, reason="x", now=number)
    assert [gone.peer for gone in departed.info(now=1000)][-1] == "10.0.3.249:1"
    assert len(departed.info(now=1000)) == 64


def test_who_left_again_is_the_last_that_left() -> None:
    departed = DepartedReplicas()
    for number, peer in enumerate(["10.0.0.1:1", "10.0.0.2:1", "10.0.0.1:2"]):
        departed.note(SlaveIdentity(host_of(peer)), peer=peer, slave_ack_offset=0, reason="x", now=number)
    assert [gone.peer for gone in departed.info(now=3)] == ["10.0.0.2:1", "10.0.0.1:2"]


def test_a_slave_that_left_before_it_had_a_name_is_back_with_one() -> None:
    """It was missed for ever, as nobody without a name comes from there any more."""
    departed, peer = DepartedReplicas(), "10.0.0.2:1"
    departed.note(SlaveIdentity(host_of(peer)), peer=peer, slave_ack_offset=0, reason="x", now=10.0, lag_s=3.0)
    assert departed.forget(SlaveIdentity(host_of(peer), "pair/1")) == 7.0
    assert departed.info(now=20.0) == ()


def test_a_slave_that_left_without_a_name_and_with_it_has_lagged_since_the_first_time() -> None:
    departed, host = DepartedReplicas(), "10.0.0.2"
    for who, left_at in ((SlaveIdentity(host), 10.0), (SlaveIdentity(host, "pair/1"), 30.0)):
        departed.note(who, peer=f"{host}:1", slave_ack_offset=0, reason="x", now=left_at, lag_s=1.0)
    assert departed.forget(SlaveIdentity(host, "pair/1")) == 9.0


async def test_a_slave_that_left_is_back_when_it_reports_and_not_when_it_is_named(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog.holding(DATA), ha_options(in_sync_replicas=2))
    slave = await slave_from("10.0.0.2", nursery, network, service, name="pair/1")
    slave.stream.close()
    await settle()
    back = await RawSlave.connect(nursery, network, service.port)
    await settle()
    service.name_slave("10.0.0.2", back.stream.local_port, "pair/1")
    assert [gone.name for gone in service.info().departed] == ["pair/1"], "it has not said yet what it holds"
    await back.report(0)
    assert service.info().departed == ()
    nursery.cancel_scope.cancel()


async def test_who_never_reports_is_turned_away_and_named(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    network = MemoryNetwork(host="10.0.0.2")
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    await RawSlave.connect(nursery, network, service.port)
    await trio.sleep(11)
    assert [(info.address, info.reason) for info in service.info().refused] == [("10.0.0.2", "silent")]
    assert service.info().departed == ()
    nursery.cancel_scope.cancel()


async def test_a_stranger_on_its_host_is_not_the_slave_that_left(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network = MemoryNetwork(host="10.0.0.2")
    service = await start_master(nursery, network, MemoryLog.holding(DATA), ha_options(in_sync_replicas=2))
    await RawSlave.connect(nursery, network, service.port)
    slave = await slave_from("10.0.0.2", nursery, network, service)
    slave.stream.close()
    await settle()
    assert [gone.peer for gone in service.info().departed] == [slave.peer]
    assert service.slave_addresses() == []
    nursery.cancel_scope.cancel()


def test_who_flaps_does_not_fill_the_log() -> None:
    watch = InSyncWatch(1)
    with capture_logs() as logs:
        for _ in range(1000):
            watch.on_joined(1, now=0)
            watch.on_left(0, peer="p", name="", slave_ack_offset=0, reason="x", now=0)
    assert len(logs) <= 20


async def test_who_comes_and_goes_does_not_fill_the_log(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """Not even one that takes what it is sent each time."""
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    with capture_logs() as logs:
        for _ in range(200):
            (await slave_from("10.0.0.5", nursery, network, service)).stream.close()
            await settle()
    lines = [entry for entry in logs if entry["log_level"] != "debug"]
    assert len(lines) < 100
    nursery.cancel_scope.cancel()
