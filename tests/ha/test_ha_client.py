"""The receiving side: connecting, coming back, and what an operator sees."""

import errno
import struct
from itertools import count, pairwise

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.choices import HaAck
from rmqha.codec.record.layout import FIXED_SIZE_V4, encode_blank
from rmqha.codec.transfer import encode_frame_header
from rmqha.errors import CorruptLogError
from rmqha.ha.ha_client import HAClient, MasterAddress
from rmqha.ha.log_receiver import first_difference, own_tail
from rmqha.ha.runtime_info import ClientState
from rmqha.replication.group import GroupMember
from rmqha.replication.master_session import LogRange
from tests.fakes import MemoryNetwork
from tests.ha.harness import FILE, RawMaster, settle, start_master, start_slave, until
from tests.memory_log import MemoryLog, forged, record, records
from tests.settings import ha_client_options

DATA = records([bytes([i]) * (i * 31 % 900) for i in range(40)])


async def test_it_reports_at_once_and_not_after_five_seconds(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    network, master = MemoryNetwork(), RawMaster()
    await nursery.start(master.run, network)
    start_slave(nursery, network, MemoryLog(), master.port)
    await settle()
    assert master.reports() == [0]
    nursery.cancel_scope.cancel()


async def test_failed_attempts_back_off_and_are_logged_once(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    with capture_logs() as logs:
        client = start_slave(nursery, network, MemoryLog(), 7)
        await trio.sleep(60.0)
    assert client.info().state is ClientState.WAITING
    assert "nobody listens" in client.info().last_error
    assert [entry["event"] for entry in logs] == ["ha_client.disconnected"]
    nursery.cancel_scope.cancel()


async def test_each_end_of_a_connection_that_was_told_is_followed_by_its_return(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A log that only says how connections end leaves open how it stands."""
    network, master = MemoryNetwork(), RawMaster()
    with capture_logs() as logs:
        client = start_slave(nursery, network, MemoryLog(), 7)
        await trio.sleep(60.0)
        await nursery.start(master.run, network)
        client.update_master_address("master", master.port)
        await trio.sleep(10.0)
        master.streams[0].close()
        await trio.sleep(10.0)
    told = [entry["event"] for entry in logs if entry["log_level"] != "debug"]
    assert told.count("ha_client.group_unknown") == 1
    assert [event for event in told if event != "ha_client.group_unknown"] == [
        "ha_client.disconnected",
        "ha_client.connected",
    ] * 2
    nursery.cancel_scope.cancel()


async def test_a_loss_is_told_again_even_if_it_is_for_the_same_reason(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The second time a master is killed its slave's log did not say so."""
    network = MemoryNetwork()
    with capture_logs() as logs:
        service = await start_master(nursery, network, MemoryLog.holding(DATA))
        start_slave(nursery, network, MemoryLog(), service.port)
        for _ in range(3):
            await trio.sleep(30.0)
            (stream,) = service.connections
            stream.close()
        await trio.sleep(30.0)
    told = [entry["event"] for entry in logs if entry["log_level"] != "debug"]
    assert [event for event in told if event in {"ha_client.connected", "ha_client.disconnected"}] == [
        *("ha_client.connected", "ha_client.disconnected") * 3,
        "ha_client.connected",
    ]
    nursery.cancel_scope.cancel()


async def test_closes_without_progress_back_off_one_two_four_five(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network, master = MemoryNetwork(), RawMaster()
    await nursery.start(master.run, network)
    start_slave(nursery, network, MemoryLog(), master.port)

    async def close_each() -> None:
        for number in count():
            await until(lambda number=number: len(master.streams) > number)  # type: ignore[misc]
            master.streams[number].close()

    nursery.start_soon(close_each)
    await trio.sleep(18.0)
    gaps = [round(b - a) for a, b in pairwise(master.accepted_at)]
    assert gaps == [1, 2, 4, 5, 5]
    nursery.cancel_scope.cancel()


async def test_after_progress_it_comes_back_at_once_and_compares_what_it_has(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network, master = MemoryNetwork(), RawMaster()
    await nursery.start(master.run, network)
    log = MemoryLog()
    client = start_slave(nursery, network, log, master.port, options=ha_client_options(overlap_size=500))
    await settle()
    await master.send(encode_frame_header(0, FILE - 1000) + DATA[: FILE - 1000])
    end = log.max_offset
    assert 2000 < end <= FILE - 1000
    master.streams[0].close()
    await settle()
    (asked,) = master.reports(1)
    assert end - 500 - 1000 < asked <= end - 500
    assert client.info().state is ClientState.COMPARING
    await master.send(encode_frame_header(asked, FILE - asked) + DATA[asked:FILE])
    assert log.content() == DATA[:FILE]
    assert client.info().state is ClientState.TRANSFER
    assert master.reports(1) == [asked, FILE]
    nursery.cancel_scope.cancel()


async def test_it_says_when_a_master_is_joined_and_when_it_is_lost(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A connection whose master has shown nothing of this log was not joined, and its end changes nothing."""
    network, master, log, told = MemoryNetwork(), RawMaster(), MemoryLog.holding(DATA[:FILE]), list[bool]()
    await nursery.start(master.run, network)
    client = start_slave(nursery, network, log, master.port, options=ha_client_options(overlap_size=500))
    client.on_link = lambda: told.append(client.is_joined)
    await settle()
    master.streams[0].close()
    await trio.sleep(2.0)
    assert (len(master.streams), told) == (2, [])
    (asked,) = master.reports(1)
    await master.send(encode_frame_header(asked, FILE - asked) + DATA[asked:FILE])
    await settle()
    assert told == [True]
    master.streams[1].close()
    await settle()
    assert told == [True, False]
    nursery.cancel_scope.cancel()


async def test_what_a_connection_left_is_shown_until_the_next_one(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network, master, log = MemoryNetwork(), RawMaster(), MemoryLog()
    await nursery.start(master.run, network)
    client = start_slave(nursery, network, log, master.port, options=ha_client_options(overlap_size=500))
    await settle()
    await master.send(encode_frame_header(0, FILE) + DATA[:FILE])
    network.listeners.clear()
    master.streams[0].close()
    await settle()
    assert (client.info().state, client.info().reported_offset) == (ClientState.WAITING, FILE)
    nursery.cancel_scope.cancel()


async def test_what_is_here_counts_as_received_while_it_is_compared(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network, master, log = MemoryNetwork(), RawMaster(), MemoryLog.holding(DATA[:FILE])
    await nursery.start(master.run, network)
    client = start_slave(nursery, network, log, master.port, options=ha_client_options(overlap_size=500))
    await settle()
    assert (client.info().state, client.info().received_offset) == (ClientState.COMPARING, FILE)
    nursery.cancel_scope.cancel()


async def test_a_long_comparison_that_brought_nothing_is_no_progress(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network, master, log = MemoryNetwork(), RawMaster(), MemoryLog.holding(DATA[:FILE])
    await nursery.start(master.run, network)
    start_slave(nursery, network, log, master.port, options=ha_client_options(overlap_size=500))
    await settle()
    asked = master.reports()[0]
    for at in range(asked, asked + 6):
        await master.send(encode_frame_header(at, 1) + DATA[at : at + 1])
        await trio.sleep(5.0)
    master.streams[0].close()
    await until(lambda: len(master.accepted_at) == 2)
    assert master.ended_at[0] is not None
    assert master.accepted_at[1] - master.ended_at[0] == pytest.approx(1.0, abs=0.1)
    nursery.cancel_scope.cancel()


async def test_a_master_that_does_not_turn_away_who_is_ahead_is_left(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Its slave would hold one connection more with every attempt."""
    network, master = MemoryNetwork(), RawMaster()
    await nursery.start(master.run, network)

    async def probe(_address: MasterAddress) -> LogRange:
        return LogRange(0, 100, checks_reports=True)

    client = start_slave(nursery, network, MemoryLog.holding(DATA), master.port, probe_master=probe)
    await trio.sleep(60.0)
    assert client.info().state is ClientState.AHEAD
    assert len(master.streams) > 2
    assert sum(ended_at is None for ended_at in master.ended_at) <= 1
    nursery.cancel_scope.cancel()


async def test_a_master_of_another_group_is_not_even_asked_for_its_log(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network, master = MemoryNetwork(), RawMaster()
    await nursery.start(master.run, network)

    async def probe(_address: MasterAddress) -> LogRange | None:
        return LogRange(0, len(DATA), checks_reports=True, member=GroupMember("other"))

    client = HAClient(
        MemoryLog(),
        network,
        options=ha_client_options(),
        chance=lambda: 0.0,
        probe_master=probe,
        meet=lambda member: f"it is of {member.broker_name}",
    )
    client.update_master_address("master", master.port)
    nursery.start_soon(client.run)
    await trio.sleep(30.0)
    assert (master.reports(), client.info().connections) == ([], 0)
    assert master.streams, "its operator is told, as it sees from where this one comes"
    assert (client.info().state, "it is of other" in client.info().last_error) == (ClientState.MISCONFIGURED, True)
    nursery.cancel_scope.cancel()


async def test_it_is_far_behind_only_while_much_comes(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    file_size = 4 << 20
    data = records([bytes([i]) * 100_000 for i in range(30)], file_size=file_size)
    network, master = MemoryNetwork(capacity=file_size), RawMaster()
    await nursery.start(master.run, network)
    client = start_slave(nursery, network, MemoryLog(file_size), master.port)
    await settle()
    assert not client.is_far_behind()
    await master.send(encode_frame_header(0, len(data) - 1000) + data[:-1000])
    await until(lambda: client.info().received_offset == len(data) - 1000)
    assert client.is_far_behind()
    await master.send(encode_frame_header(len(data) - 1000, 1000) + data[-1000:])
    assert not client.is_far_behind()
    nursery.cancel_scope.cancel()


async def test_a_corrupt_stream_is_counted_and_asked_for_again_from_the_last_good_record(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network, master = MemoryNetwork(), RawMaster()
    await nursery.start(master.run, network)
    log = MemoryLog()
    client = start_slave(nursery, network, log, master.port, options=ha_client_options(overlap_size=1))
    await settle()
    good, bad = record(0, b"good"), bytearray(record(96, b"body"))
    bad[90] ^= 1
    await master.send(encode_frame_header(0, 192) + good + bad)
    assert (log.content(), client.info().corrupt_streams) == (good, 1)
    assert "BODYCRC" in client.info().last_error
    assert master.reports(0)[-1] <= len(good)
    await settle(2.0)
    await master.send(encode_frame_header(1, 191) + good[1:] + record(96, b"body"))
    assert log.content() == good + record(96, b"body")
    nursery.cancel_scope.cancel()


async def test_a_new_master_address_ends_the_connection_to_the_old_one(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network = MemoryNetwork()
    old, new = RawMaster(), RawMaster()
    await nursery.start(old.run, network)
    await nursery.start(new.run, network)
    client = start_slave(nursery, network, MemoryLog(), old.port)
    await settle()
    client.update_master_address("master", old.port)
    await settle()
    assert old.ended_at == [None], "the same address changes nothing"
    client.update_master_address("master", new.port)
    await settle()
    assert old.ended_at[0] is not None
    assert new.reports() == [0]
    assert client.info().master == f"master:{new.port}"
    nursery.cancel_scope.cancel()


async def test_a_new_master_address_ends_the_attempt_to_reach_the_old_one(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network = MemoryNetwork()
    old, new = RawMaster(), RawMaster()
    await nursery.start(old.run, network)
    await nursery.start(new.run, network)

    async def probe(address: MasterAddress) -> None:
        await trio.sleep(3 if address.port == old.port else 0)

    client = start_slave(nursery, network, MemoryLog.holding(DATA), old.port, probe_master=probe)
    await trio.sleep(1)
    client.update_master_address("master", new.port)
    await trio.sleep(10)
    assert not old.accepted_at
    assert new.accepted_at == pytest.approx([1])
    nursery.cancel_scope.cancel()


async def test_a_master_is_told_twice_whose_connection_it_is(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """The first time it may not serve the connection yet; a master that has been told is not asked for ever."""
    network, master, told = MemoryNetwork(), RawMaster(), []
    await nursery.start(master.run, network)

    async def introduce(address: MasterAddress, local_port: int) -> LogRange:
        told.append((trio.current_time(), address.port, local_port))
        return LogRange(0, 0, member=GroupMember("a", 0))

    client = HAClient(MemoryLog(), network, options=ha_client_options(), chance=lambda: 0.0, introduce=introduce)
    nursery.start_soon(client.run)
    client.update_master_address("master", master.port)
    for _ in range(20):
        await trio.sleep(5)
        await master.send(encode_frame_header(0, 0))
    port = master.streams[0].peer.rpartition(":")[2]
    assert [(round(at), *where) for at, *where in told] == [(0, master.port, int(port)), (2, master.port, int(port))]
    nursery.cancel_scope.cancel()


async def test_a_master_of_ours_is_told_again_and_again(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """What others say from the same address may have had it forget."""
    network, master, told = MemoryNetwork(), RawMaster(), list[int]()
    await nursery.start(master.run, network)

    async def introduce(_address: MasterAddress, _local_port: int) -> LogRange | None:
        told.append(round(trio.current_time()))
        is_silent = len(told) == 4
        return None if is_silent else LogRange(0, 0, checks_reports=True, member=GroupMember("a", 0))

    client = HAClient(MemoryLog(), network, options=ha_client_options(), chance=lambda: 0.0, introduce=introduce)
    nursery.start_soon(client.run)
    client.update_master_address("master", master.port)
    with capture_logs() as logs:
        for _ in range(10):
            await trio.sleep(5)
            await master.send(encode_frame_header(0, 0))
    assert told == [0, 2, 12, 22, 32, 42]
    assert [line for line in logs if line["event"] == "ha_client.group_unknown"] == []
    await client.show_face()
    await trio.sleep(1)
    assert len(master.streams) == 2, "its remoting port did not answer before this connection, and has since"
    nursery.cancel_scope.cancel()


def test_one_is_made_before_there_is_an_event_loop() -> None:
    """As a broker makes it."""
    client = HAClient(MemoryLog(), MemoryNetwork(), options=ha_client_options(), chance=lambda: 0.0)
    assert (client.info().state, client.info().apart_s) == (ClientState.NO_MASTER, None)


async def test_for_how_long_no_master_was_followed(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    network, master = MemoryNetwork(), RawMaster()
    client = HAClient(MemoryLog(), network, options=ha_client_options(), chance=lambda: 0.0)
    nursery.start_soon(client.run)
    await trio.sleep(7)
    assert client.info().apart_s == 7
    await nursery.start(master.run, network)
    client.update_master_address("master", master.port)
    await trio.sleep(3)
    await master.send(encode_frame_header(0, 0))
    await settle()
    assert (client.info().state, client.info().apart_s) == (ClientState.TRANSFER, None)
    client.update_master_address("gone", 1)
    await trio.sleep(4)
    assert client.info().apart_s == 4
    nursery.cancel_scope.cancel()


async def test_states_without_a_master_and_after_the_end(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    client = HAClient(MemoryLog(), MemoryNetwork(), options=ha_client_options(), chance=lambda: 0.0)
    assert (client.info().state, client.info().master) == (ClientState.NO_MASTER, None)
    async with trio.open_nursery() as life:
        life.start_soon(client.run)
        await settle()
        life.cancel_scope.cancel()
    assert client.info().state is ClientState.STOPPED


async def test_who_is_ahead_is_so_until_another_log_was_compared(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Its master may be gone for good: what it held alone it holds still. Once it has followed one, it waits again."""
    network, data = MemoryNetwork(), records([b"one", b"two"])
    master = await start_master(nursery, network, MemoryLog.holding(data))
    ends = {1: len(data) - 10}

    async def probe(address: MasterAddress) -> LogRange:
        await trio.lowlevel.checkpoint()
        if address.port not in ends:
            raise ConnectionRefusedError(f"nobody listens on {address}")
        return LogRange(0, ends[address.port])

    client = start_slave(nursery, network, MemoryLog.holding(data), 1, probe_master=probe)
    await until(lambda: client.info().state is ClientState.AHEAD)
    del ends[1]
    await trio.sleep(30)
    assert (client.info().state, client.is_apart) == (ClientState.AHEAD, True)
    assert "nobody listens on master:1" in client.info().last_error
    client.update_master_address("master", 2)
    assert not client.is_apart, "nothing is known of that one"
    await trio.sleep(30)
    await until(lambda: client.info().state is ClientState.WAITING)
    ends[master.port] = len(data) - 10
    client.update_master_address("master", master.port)
    await until(lambda: client.info().state is ClientState.AHEAD)
    ends[master.port] = len(data)
    await until(lambda: client.info().state is ClientState.TRANSFER)
    del ends[master.port]
    network.connections[-1].reset()
    await trio.sleep(10)
    await until(lambda: client.info().state is ClientState.WAITING)
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(("ack", "reported"), [(HaAck.RECEIVED, 150), (HaAck.WRITTEN, 92), (HaAck.DURABLE, 0)])
async def test_what_an_acknowledgement_promises(
    ack: HaAck, reported: int, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """One whole record and a part of the next have come, and the disk is slow."""
    network, master, log = MemoryNetwork(), RawMaster(), MemoryLog(flush_s=1.0)
    await nursery.start(master.run, network)
    client = start_slave(nursery, network, log, master.port, options=ha_client_options(ha_ack=ack))
    await settle()
    data = record(0, b"") + record(92, b"x" * 100)
    await master.send(encode_frame_header(0, 150) + data[:150])
    assert (master.reports()[-1], log.max_offset) == (reported, 92)
    info = client.info()
    assert (info.received_offset, info.verified_offset, info.durable_offset) == (150, 92, 0)
    await trio.sleep(1.0)
    assert master.reports()[-1] == max(reported, 0 if ack is not HaAck.DURABLE else 92)
    nursery.cancel_scope.cancel()


async def test_receiving_goes_on_while_a_flush_runs_and_the_next_takes_all_that_came(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network, master, log = MemoryNetwork(), RawMaster(), MemoryLog(flush_s=1.0)
    await nursery.start(master.run, network)
    start_slave(nursery, network, log, master.port)
    await settle()
    at = 0
    for _ in range(10):
        one = record(at, b"x" * 20)
        await master.send(encode_frame_header(at, len(one)) + one)
        at += len(one)
    assert log.max_offset == at
    await trio.sleep(2.5)
    assert master.reports() == [0, 112, at]
    assert log.flushes == 2
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("flush_s", [5.0, 15.0])
async def test_the_first_report_after_a_reconnect_waits_for_the_flush(
    flush_s: float, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It acknowledges like any other, and what the connection before has written need not be durable yet."""
    network, master, log = MemoryNetwork(), RawMaster(), MemoryLog(flush_s=flush_s)
    await nursery.start(master.run, network)
    start_slave(nursery, network, log, master.port, options=ha_client_options(overlap_size=1))
    await settle()
    await master.send(encode_frame_header(0, 184) + record(0, b"") + record(92, b""))
    master.streams[0].close()
    await trio.sleep(flush_s - 1.0)
    assert (len(master.streams), log.max_offset, log.flushed.value) == (2, 184, 0)
    assert master.reports(1) == []
    await trio.sleep(flush_s)
    assert master.reports(1)[:1] == [92]
    nursery.cancel_scope.cancel()


async def test_a_segment_that_is_still_being_made_is_waited_for(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    log = MemoryLog()
    log.allocated = trio.Event()
    client = start_slave(nursery, network, log, service.port)
    await trio.sleep(60.0)
    assert (log.max_offset, client.info().connections) == (0, 1), "meanwhile it is not the master that is silent"
    log.allocated.set()
    await until(lambda: log.content() == DATA)
    nursery.cancel_scope.cancel()


async def test_what_waits_for_its_file_does_not_hold_up_the_flush_of_what_is_stored(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network, master, log = MemoryNetwork(), RawMaster(), MemoryLog(flush_s=1.0)
    await nursery.start(master.run, network)
    start_slave(nursery, network, log, master.port)
    await settle()
    for begin, end in ((0, 92), (92, log.file_size)):
        await master.send(encode_frame_header(begin, end - begin) + DATA[begin:end])
    log.allocated = trio.Event()
    rest = DATA[log.file_size : 2 * log.file_size]
    await master.send(encode_frame_header(log.file_size, len(rest)) + rest)
    await trio.sleep(2.5)
    assert master.reports() == [0, 92, log.file_size]
    log.allocated.set()
    await trio.sleep(1.5)
    assert master.reports()[-1] == 2 * log.file_size
    nursery.cancel_scope.cancel()


async def test_a_slow_line_delays_reports_but_cuts_none(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    """Reports that do not fit are sent whole later, the newest for all that were passed over."""
    network, master, log = MemoryNetwork(), RawMaster(), MemoryLog()
    await nursery.start(master.run, network)
    client = start_slave(nursery, network, log, master.port)
    await settle()
    outgoing = network.connections[0].outgoing
    outgoing.capacity = 3
    first, second = record(0, b"a"), record(93, b"b")
    master_stream = master.streams[0]
    await master_stream.send_all(encode_frame_header(0, 93) + first)
    await master_stream.send_all(encode_frame_header(93, 93) + second)
    await settle()
    reports = master.reports()
    assert reports in ([0, 93, 186], [0, 186])
    await trio.sleep(12.0)
    assert master.reports() == [*reports, 186, 186]
    assert client.info().reported_offset == 186
    nursery.cancel_scope.cancel()


async def test_an_own_log_that_needs_recovery_stops_the_client(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    client = start_slave(nursery, network, MemoryLog.holding(DATA[:1000]), service.port)
    await settle()
    assert client.info().state is ClientState.FAILED
    assert "needs recovery" in client.info().last_error
    with pytest.raises(CorruptLogError):
        await own_tail(MemoryLog.holding(DATA[:1000]), overlap_size=10)
    nursery.cancel_scope.cancel()


async def test_what_a_client_writes_into_a_body_neither_ends_acknowledgements_nor_the_comparison(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """A record and a blank in a body, for the place where they came to lie: the rest of the file was taken for one."""
    network = MemoryNetwork()
    first = record(0, b"first")
    trap = forged(len(first), lambda at: record(at, b""), lambda at: encode_blank(FILE - at % FILE))
    inside = trap[FIXED_SIZE_V4:-4]
    log, another = (first + record(len(first), inside + rest) for rest in (b"x" * 300, b"y" * 300))
    master = MemoryLog.holding(log)
    service, options = await start_master(nursery, network, master), ha_client_options(overlap_size=320)
    same = start_slave(nursery, network, MemoryLog.holding(log), service.port, options=options)
    other = start_slave(nursery, network, MemoryLog.holding(another), service.port, options=options)
    await settle()
    master.extend(record(len(log), b"new"))
    await settle()
    assert (same.info().state, same.info().reported_offset) == (ClientState.TRANSFER, master.max_offset)
    assert other.info().state is ClientState.DIVERGED
    nursery.cancel_scope.cancel()


async def test_an_allocation_failure_is_final(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    network = MemoryNetwork()
    service = await start_master(nursery, network, MemoryLog.holding(DATA))
    log = MemoryLog()
    log.write_error = OSError(errno.ENOSPC, "injected")
    client = start_slave(nursery, network, log, service.port)
    await trio.sleep(60.0)
    assert (client.info().state, client.info().connections) == (ClientState.FAILED, 1)
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("a", "b", "at"), [(b"", b"", 0), (b"abc", b"abc", 3), (b"abc", b"xbc", 0), (b"abcd", b"abxx", 2)]
)
def test_the_first_difference(a: bytes, b: bytes, at: int) -> None:
    assert first_difference(a, b) == at


async def test_an_empty_log_has_no_tail() -> None:
    assert await own_tail(MemoryLog(start=2 * FILE), overlap_size=10) is None


async def test_a_frame_that_ends_where_no_report_reaches_is_refused(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network, master, log = MemoryNetwork(), RawMaster(), MemoryLog()
    await nursery.start(master.run, network)
    client = start_slave(nursery, network, log, master.port)
    await settle()
    begin = 2**63 - FILE
    one = record(begin, b"x")
    blank = encode_blank(FILE - len(one)).ljust(FILE - len(one), b"\0")
    await master.send(struct.pack(">qi", begin, FILE) + one + blank)
    await trio.sleep(20.0)
    assert (log.max_offset, master.reports(0)) == (0, [0])
    assert "end where no log can" in client.info().last_error
    nursery.cancel_scope.cancel()
