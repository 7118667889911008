"""The simulated network: what arrives is what was sent, in order, unless the network may take it."""

from random import Random

import pytest
import trio
from trio.testing import MockClock

from tests.sim.journal import NodeDied
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_net import SimNet, SimNetwork, SimStream

A, B = "10.0.0.1", "10.0.0.2"


@pytest.fixture
def net() -> SimNet:
    return SimNet(Random(1))


async def connected(net: SimNet) -> tuple[SimStream, SimStream, SimNetwork, SimNetwork]:
    one, other = net.host(A).mount(), net.host(B).mount()
    listener = await other.listen(B, 10912)
    client = await one.connect(B, 10912, timeout_s=1)
    return client, await listener.accept(), one, other


async def receive(stream: SimStream, size: int) -> bytes:
    received = bytearray()
    buffer = memoryview(bytearray(4096))
    while len(received) < size:
        count = await stream.receive_into(buffer[: size - len(received)])
        if count == 0:
            break
        received += buffer[:count]
    return bytes(received)


async def test_bytes_arrive_in_order_and_in_odd_pieces(net: SimNet, autojump_clock: MockClock) -> None:
    client, server, _, _ = await connected(net)
    data = Random(2).randbytes(300_000)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.send_all, data)
        assert await receive(server, len(data)) == data
    assert net.journal.counts["net.received"] > 300_000 // 4096


async def test_a_sender_waits_when_nobody_reads(net: SimNet, autojump_clock: MockClock) -> None:
    client, server, _, _ = await connected(net)
    assert client.send_nowait(bytes(net.capacity + 1)) == net.capacity
    assert client.send_nowait(b"x") == 0
    await receive(server, 4096)
    assert client.send_nowait(b"x") == 1


async def test_what_is_late_when_all_is_healed_is_late_no_longer(net: SimNet, autojump_clock: MockClock) -> None:
    client, server, _, _ = await connected(net)
    net.delays[A, B] = 6.0
    await client.send_all(b"late, ")
    net.heal()
    await client.send_all(b"and what follows it")
    with trio.fail_after(0.1):
        assert await receive(server, 25) == b"late, and what follows it"


async def test_an_end_that_is_late_when_all_is_healed_is_late_no_longer(net: SimNet, autojump_clock: MockClock) -> None:
    client, server, _, _ = await connected(net)
    net.delays[A, B] = 6.0
    await client.send_all(b"late")
    net.host(A).kill()
    net.heal()
    with trio.fail_after(0.1):
        assert await receive(server, 5) == b"late"


async def test_a_black_hole_delays_one_direction_and_breaks_nothing(net: SimNet, autojump_clock: MockClock) -> None:
    client, server, _, _ = await connected(net)
    net.cut(A, B)
    await client.send_all(b"late")
    await server.send_all(b"now")
    assert await receive(client, 3) == b"now"
    with trio.move_on_after(30) as waited:
        await receive(server, 4)
    assert waited.cancelled_caught
    net.heal()
    assert await receive(server, 4) == b"late"


async def test_closing_ends_the_stream_behind_what_was_sent(net: SimNet, autojump_clock: MockClock) -> None:
    client, server, _, _ = await connected(net)
    await client.send_all(b"last words")
    client.close()
    assert await receive(server, 100) == b"last words"
    assert await receive(server, 100) == b""
    with pytest.raises(trio.ClosedResourceError):
        await client.send_all(b"x")
    await server.send_all(b"x")  # a kernel takes it; the answer is RST
    await trio.sleep(1)
    with pytest.raises(trio.BrokenResourceError):
        await server.send_all(b"x")


async def test_a_killed_process_hangs_up(net: SimNet, autojump_clock: MockClock) -> None:
    client, server, _, other = await connected(net)
    net.host(B).kill()
    with pytest.raises(NodeDied):
        await server.send_all(b"x")
    assert await receive(client, 1) == b""
    with pytest.raises(NodeDied):
        await other.connect(A, 1, timeout_s=1)


async def test_after_a_power_cut_the_connection_is_stale_until_used(net: SimNet, autojump_clock: MockClock) -> None:
    client, _, one, _ = await connected(net)
    net.host(B).power_cut()
    with pytest.raises(TimeoutError):
        await one.connect(B, 10912, timeout_s=5)
    with trio.move_on_after(60) as silence:
        await receive(client, 1)
    assert silence.cancelled_caught
    net.host(B).mount()
    with trio.move_on_after(60) as silence:
        await receive(client, 1)
    assert silence.cancelled_caught
    await client.send_all(b"are you there?")
    with pytest.raises(trio.BrokenResourceError):
        await receive(client, 1)
    with pytest.raises(ConnectionRefusedError):
        await one.connect(B, 10912, timeout_s=5)


async def test_what_was_sent_to_a_dead_machine_meets_its_next_life(net: SimNet, autojump_clock: MockClock) -> None:
    client, _, _, _ = await connected(net)
    net.host(B).power_cut()
    await client.send_all(b"into the void")
    net.host(B).mount()
    with pytest.raises(trio.BrokenResourceError):
        await receive(client, 1)


async def test_a_reset_reaches_both_ends(net: SimNet, autojump_clock: MockClock) -> None:
    client, server, _, _ = await connected(net)
    net.reset_between(A, B)
    for stream in (client, server):
        with pytest.raises(trio.BrokenResourceError):
            await receive(stream, 1)


async def test_closing_wakes_the_task_inside(net: SimNet, autojump_clock: MockClock) -> None:
    client, _, _, _ = await connected(net)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(_expect_closed, client)
        await trio.sleep(1)
        client.close()


async def _expect_closed(stream: SimStream) -> None:
    with pytest.raises(trio.ClosedResourceError):
        await receive(stream, 1)


async def test_a_listener_can_be_closed_and_its_port_used_again(net: SimNet, autojump_clock: MockClock) -> None:
    one, other = net.host(A).mount(), net.host(B).mount()
    listener = await other.listen(B, 10912)
    with pytest.raises(OSError, match="taken"):
        await other.listen(B, 10912)
    waiting = await one.connect(B, 10912, timeout_s=1)
    listener.close()
    with pytest.raises(trio.ClosedResourceError):
        await listener.accept()
    with pytest.raises(trio.BrokenResourceError):
        await receive(waiting, 1)
    assert (await other.listen(B, 10912)).port == 10912


async def test_what_has_arrived_is_received_together(autojump_clock: MockClock) -> None:
    client, server, _, _ = await connected(SimNet(Random(1), chopping=0.0))
    for part in (b"head", b"er", b"body"):
        await client.send_all(part)
    await trio.sleep(1.0)
    assert await server.receive_into(memoryview(bytearray(100))) == 10


async def test_a_frame_may_arrive_in_two_parts(autojump_clock: MockClock) -> None:
    client, server, mine, _ = await connected(SimNet(Random(1), chopping=1.0, latency_s=(0.1, 0.9)))
    assert mine.host.net.is_chopped()
    file = SimDisk().mount().create("/segment", 512)
    await client.send_file(b"header", file, 0, 4)
    arrivals = [arrival for arrival, _ in server.incoming.chunks]
    assert len(arrivals) == 2
    assert arrivals[0] < arrivals[1]
    assert await receive(server, 10) == b"header" + bytes(4)
