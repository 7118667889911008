"""Who reads a queue to its end, and does not wait there, leaves nothing out that was acknowledged before."""

from collections.abc import Callable

import pytest
import trio

from rmqha.codec.codes import RequestCode, ResponseCode
from rmqha.codec.headers import QueueRequestHeader, SearchOffsetRequestHeader, encode_header
from rmqha.codec.remoting import RemotingCommand
from rmqha.remoting.client import RemotingClient
from tests.broker.machines import Machine, ask, pull_request, send_request
from tests.sim.sim_clock import VirtualClock
from tests.sim.sim_net import SimNet

ROLES = ["ASYNC_MASTER", "SYNC_MASTER"]
FAR_FUTURE_MS = 4_000_000_000_000


async def send(client: RemotingClient, count: int, *, topic: str = "t") -> None:
    for _ in range(count):
        assert (await ask(client, send_request(b"x", topic=topic))).code in {
            ResponseCode.SUCCESS,
            ResponseCode.SLAVE_NOT_AVAILABLE,
        }


async def drain(client: RemotingClient, at: int = 0, *, tags: str = "*") -> int:
    """Pull until nothing more is found."""
    more = {ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY}
    while (answer := await ask(client, pull_request(at, subscription=tags))).code in more:
        at = int(answer.ext_fields["nextBeginOffset"])
    assert answer.code == ResponseCode.PULL_NOT_FOUND
    assert answer.ext_fields["maxOffset"] == str(at)
    return at


def max_offset(topic: str = "t") -> RemotingCommand:
    return RemotingCommand(RequestCode.GET_MAX_OFFSET, ext_fields=encode_header(QueueRequestHeader(topic, 0)))


def last_offset() -> RemotingCommand:
    header = SearchOffsetRequestHeader("t", 0, FAR_FUTURE_MS)
    return RemotingCommand(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, ext_fields=encode_header(header))


@pytest.mark.parametrize("pause_s", [0, 1, 6])
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("first", [drain, max_offset, last_offset])
async def test_all_that_was_acknowledged_is_there_for_the_first_who_asks(
    first: Callable[..., object], role: str, pause_s: float, virtual_clock: VirtualClock
) -> None:
    """A flush is up to 10 s away where little was written: it was not waited for."""
    machine = Machine(SimNet(), "10.0.0.1", {"brokerRole": role})
    async with machine.broker(), machine.client() as client:
        await send(client, 20)
        assert await drain(client) == 20
        await send(client, 20)
        await trio.sleep(pause_s)
        begun_at = trio.current_time()
        if first is drain:
            assert await drain(client) == 40
        else:
            answer = await ask(client, max_offset() if first is max_offset else last_offset())
            assert answer.ext_fields["offset"] == ("40" if first is max_offset else "39")
        assert trio.current_time() - begun_at < 0.3


async def test_who_reads_while_others_send_comes_to_an_end(virtual_clock: VirtualClock) -> None:
    """At each pull there is something that is being flushed: it was waited for again and again."""
    machine = Machine(SimNet(), "10.0.0.1", {"brokerRole": "ASYNC_MASTER"})
    machine.disk.latency_s = (0.02, 0.02)
    async with machine.broker(), machine.client() as sender, machine.client() as client, trio.open_nursery() as nursery:
        acknowledged = 0

        async def send_on() -> None:
            nonlocal acknowledged
            while True:
                await send(sender, 1)
                acknowledged += 1

        nursery.start_soon(send_on)
        at = 0
        for _ in range(5):
            await trio.sleep(1)
            before = acknowledged
            with trio.fail_after(0.3):
                at = await drain(client, at)
            assert at >= before
        for _ in range(20):
            before = acknowledged
            at = await drain(client, at)
            assert at >= before, "who asks again at once begins anew"
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("count", [1, 3])
async def test_who_sends_and_pulls_in_turns_finds_each(count: int, virtual_clock: VirtualClock) -> None:
    """Who had got all that there was, without being told so, was not waited for at the next pull."""
    machine = Machine(SimNet(), "10.0.0.1", {"brokerRole": "ASYNC_MASTER"})
    async with machine.broker(), machine.client() as client:
        at = 0
        for turn in range(1, 11):
            await send(client, count)
            while at < turn * count:
                answer = await ask(client, pull_request(at))
                assert answer.code == ResponseCode.SUCCESS, (turn, at)
                at = int(answer.ext_fields["nextBeginOffset"])
            await trio.sleep(0.1)


async def test_who_wants_none_of_what_comes_waits_no_longer_than_for_it(virtual_clock: VirtualClock) -> None:
    """What its tags leave out could be seen, and it was held on for the rest of half a second."""
    machine = Machine(SimNet(), "10.0.0.1", {"brokerRole": "ASYNC_MASTER"})
    async with machine.broker(), machine.client() as client:
        await send(client, 1)
        assert await drain(client) == 1
        await send(client, 1)
        begun_at = trio.current_time()
        assert await drain(client, 1, tags="A") == 2
        assert trio.current_time() - begun_at < 0.3


async def test_nobody_waits_for_what_other_queues_have(virtual_clock: VirtualClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1", {"brokerRole": "ASYNC_MASTER"})
    async with machine.broker() as broker, machine.client() as client:
        await send(client, 1, topic="other")
        await send(client, 1)
        assert await drain(client) == 1
        machine.disk.faults.hung_until = trio.current_time() + 5
        await send(client, 1, topic="other")
        assert broker.store.reput_from_offset < broker.store.max_offset
        begun_at = trio.current_time()
        assert (await ask(client, pull_request(1))).code == ResponseCode.PULL_NOT_FOUND
        assert (await ask(client, max_offset())).ext_fields["offset"] == "1"
        assert trio.current_time() - begun_at < 0.1


@pytest.mark.parametrize("has_room", [True, False])
async def test_what_cannot_be_seen_soon_is_not_waited_for_long(
    virtual_clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, *, has_room: bool
) -> None:
    """The disk hangs; and where too many wait already, nobody waits."""
    if not has_room:
        monkeypatch.setattr("rmqha.broker.pull_request_hold_service.HELD_MAX", 0)
    machine = Machine(SimNet(), "10.0.0.1", {"brokerRole": "ASYNC_MASTER"})
    async with machine.broker() as broker, machine.client() as client:
        await send(client, 1)
        assert (await ask(client, pull_request(0, suspend_ms=1000))).body or not has_room
        await trio.sleep(11)
        machine.disk.faults.hung_until = trio.current_time() + 5
        await send(client, 1)
        for request in (pull_request(1), max_offset(), last_offset()):
            begun_at = trio.current_time()
            answer = await ask(client, request)
            assert trio.current_time() - begun_at < (0.6 if has_room else 0.1)
            assert answer.ext_fields.get("offset", answer.ext_fields.get("maxOffset")) in {"0", "1"}
        assert broker.holds.held == 0


@pytest.mark.parametrize(("asked", "expected"), [(max_offset, "3"), (last_offset, "2")])
async def test_what_a_flush_under_way_leaves_out_is_waited_for_as_well(
    asked: Callable[[], RemotingCommand], expected: str, virtual_clock: VirtualClock
) -> None:
    """The end moved on with the first message that came to be seen, and others had been acknowledged by then."""
    machine = Machine(SimNet(), "10.0.0.1", {"brokerRole": "ASYNC_MASTER"})
    machine.disk.latency_s = (0.05, 0.05)
    async with machine.broker() as broker, machine.client() as client:
        await send(client, 1)
        assert await drain(client) == 1
        await trio.sleep(1)
        await send(client, 1)
        broker.store.request_flush()
        await trio.sleep(0.02)
        await send(client, 1)
        assert broker.store.get_max_offset_in_queue("t", 0) == 1, "the flush is under way"
        assert (await ask(client, asked())).ext_fields["offset"] == expected
