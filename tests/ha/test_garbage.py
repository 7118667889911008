"""However a connection of either side ends, nothing of it is left to the collector (tests/remoting/test_garbage.py)."""

from collections.abc import Callable

import pytest
import trio
from trio.testing import MockClock

from rmqha.codec.transfer import encode_frame_header, encode_report
from rmqha.ha.runtime_info import ClientState
from tests.fakes import MemoryNetwork, MemoryStream
from tests.garbage import FEW, PEERS, counted_garbage
from tests.ha.harness import start_master, start_slave, until
from tests.memory_log import MemoryLog, records
from tests.settings import ha_options

DATA = records([bytes([i]) * (i * 31 % 900) for i in range(40)])
PORT = 10912

End = Callable[[MemoryStream], None]
reset, close = MemoryStream.reset, MemoryStream.close


def stay(_peer: MemoryStream) -> None:
    """It is the master that ends the connection."""


@pytest.mark.parametrize(
    ("data", "end"),
    [
        pytest.param(b"", reset, id="a reset without a word"),
        pytest.param(encode_report(0), reset, id="a reset while it is sent the log"),
        pytest.param(encode_report(0), close, id="the end while it is sent the log"),
        pytest.param(encode_report(1 << 40), stay, id="a report that is ahead"),
        pytest.param(b"GET / HTTP/1.1\r\n\r\n", stay, id="a stranger"),
        pytest.param(encode_report(0) + bytes(3), stay, id="half a report and nothing more"),
    ],
)
async def test_a_slave_that_ends_leaves_nothing_to_its_master(
    data: bytes, end: End, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network = MemoryNetwork()
    options = ha_options(max_ha_connections=PEERS, max_ha_connections_per_address=PEERS)
    service = await start_master(nursery, network, MemoryLog.holding(DATA), options)
    for _ in range(2):  # the first time some things are made that stay
        with counted_garbage() as left:
            peers = [await network.connect("master", service.port, timeout_s=1) for _ in range(PEERS)]
            for peer in peers:
                peer.send_nowait(data)
            await trio.sleep(1)
            for peer in peers:
                end(peer)
            await trio.sleep(60)
            assert not service.connections
    assert left.total() < FEW, left.most_common(20)
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize(
    ("data", "end"),
    [
        pytest.param(b"", reset, id="a reset"),
        pytest.param(b"", close, id="the end"),
        pytest.param(encode_frame_header(0, 0)[:5], reset, id="half a frame"),
        pytest.param(encode_frame_header(5, 100), stay, id="a frame from elsewhere"),
        pytest.param(encode_frame_header(0, 100) + b"x" * 100, stay, id="what is no record"),
    ],
)
async def test_a_master_that_ends_leaves_nothing_to_its_slave(
    data: bytes, end: End, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    network, count = MemoryNetwork(), 20
    listener = await network.listen("master", PORT)
    slave = start_slave(nursery, network, MemoryLog(), PORT)

    async def serve_one() -> None:
        peer = await listener.accept()
        peer.send_nowait(data)
        await trio.sleep(0.1)
        end(peer)
        await until(lambda: slave.info().state is not ClientState.TRANSFER)
        network.connections.clear()

    await serve_one()
    with counted_garbage() as left:
        for _ in range(count):
            await serve_one()
    assert left.total() < count, left.most_common(20)
    nursery.cancel_scope.cancel()
