"""A broker that only starts: its port is open, it says how far it is, and everybody else is put off."""

import json

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.cli.verdict import judge, read_status
from rmqha.client import open_producer
from rmqha.client.message import Message
from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import QueryConsumerOffsetRequestHeader, encode_header
from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import RemotingSendRequestError
from rmqha.store.recovery_progress import RecoveryProgress
from tests.broker.machines import Machine, ask, pull_request, send_request
from tests.sim.sim_net import SimNet

SILENT_PEER = {"haPeers": "10.0.0.2:10912", "haCatchUpAtStart": "require"}


def machine_that_keeps_starting() -> Machine:
    """It has to ask a peer that does not answer."""
    net = SimNet()
    machine = Machine(net, "10.0.0.1", SILENT_PEER)
    net.host("10.0.0.2").mount()
    net.cut("10.0.0.2", "10.0.0.1")
    return machine


async def test_it_says_how_far_it_is_and_tells_no_offsets(autojump_clock: MockClock) -> None:
    machine = machine_that_keeps_starting()
    broker = machine.controller()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.run)
        await trio.sleep(0.1)
        async with machine.client() as client:
            answer = await ask(client, RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO))
        broker.stop()
    table = json.loads(answer.body)["table"]
    assert [key for key in table if "Offset" in key] == []
    verdict = judge(read_status(table))
    assert (verdict.level, verdict.in_sync) == ("degraded", False)
    assert verdict.summary.endswith(", recovering"), "nothing has been done that is counted in bytes"
    assert "it serves nobody yet: asking haPeers" in verdict.reasons[0]


async def test_everything_else_is_put_off_with_the_reason(autojump_clock: MockClock) -> None:
    machine = machine_that_keeps_starting()
    broker = machine.controller()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.run)
        await trio.sleep(0.1)
        async with machine.client() as client:
            for request in (send_request(b"x"), pull_request(0), RemotingCommand(RequestCode.GET_ALL_TOPIC_CONFIG)):
                answer = await ask(client, request)
                assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
                assert (answer.remark or "").endswith("the broker is starting: asking haPeers for what this log lacks")
        broker.stop()
    assert broker.store.max_offset == 0


async def test_trap_7_no_consumer_is_told_that_it_has_no_offset(autojump_clock: MockClock) -> None:
    """Java's takes any refusal of 14 for that, and consumes everything again; without an answer it asks again."""
    machine = machine_that_keeps_starting()
    broker = machine.controller()
    fields = encode_header(QueryConsumerOffsetRequestHeader("g", "t", 0))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(broker.run)
        await trio.sleep(0.1)
        async with machine.client() as client:
            with pytest.raises(RemotingSendRequestError):
                await ask(client, RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=fields))
        broker.stop()


async def test_a_send_with_retries_bridges_a_start_of_which_the_log_tells(
    autojump_clock: MockClock,
) -> None:
    machine = Machine(SimNet(), "10.0.0.1")
    late = machine.controller()
    load = late.store.load_in_thread

    async def load_slowly() -> None:
        await trio.sleep(12)
        await load()

    late.store.load_in_thread = load_slowly  # type: ignore[method-assign]
    network = machine.net.host("10.9.9.9").mount()
    with capture_logs() as logs:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(late.run)
            await trio.sleep(0.1)
            async with open_producer("10.0.0.1:10911", network=network) as producer:
                result = await producer.send(Message("t", b"x"), retries=1000, timeout_s=60)
                assert result.queue_offset == 0
            late.stop()
    assert [entry["for_s"] for entry in logs if entry["event"] == "broker.starting"] == [0.0, 5.0, 10.0]


def test_what_is_measured_never_exceeds_its_total() -> None:
    progress = RecoveryProgress()
    progress.begin("verifying", 10, done=lambda: 16)
    assert (progress.what, progress.done_bytes, progress.total_bytes) == ("verifying", 10, 10)
    progress.begin("asking", done=lambda: 16)
    assert progress.done_bytes == 16
