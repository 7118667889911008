"""Who counts as a replica where several share an address: slaves on their master's host, and those behind a tunnel."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from rmqha.client import Message, Producer, ProducerOptions, SendStatus, open_producer
from tests.e2e.processes import RmqhaBroker, reaping

Brokers = tuple[RmqhaBroker, RmqhaBroker, RmqhaBroker]
PATIENT = ProducerOptions(timeout_s=60)  # it is the broker's answer that counts, however slow the machine is


class Tunnel:
    """Passes bytes on, and keeps the far end open when the near end is gone, as a tunnel may for a long while."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def serve(self, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        """Accept until cancelled; reports the port."""
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        task_status.started(listener.socket.getsockname()[1])
        await trio.serve_listeners(self._connect, [listener])

    async def _connect(self, near: trio.SocketStream) -> None:
        far = await trio.open_tcp_stream("127.0.0.1", self._port)
        async with near, far, trio.open_nursery() as nursery:
            nursery.start_soon(_pass_on, near, far)
            nursery.start_soon(_pass_on, far, near)
            await trio.sleep_forever()


async def _pass_on(source: trio.SocketStream, sink: trio.SocketStream) -> None:
    try:
        async for data in source:
            await sink.send_all(data)
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        return


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Brokers]:
    """A master that needs two slaves for SEND_OK, and these; not started yet."""
    common = {"mappedFileSizeCommitLog": 1 << 20}
    master = RmqhaBroker(
        tmp_path / "master", {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 3, "slaveTimeout": 500, **common}
    )
    one, two = (
        RmqhaBroker(
            tmp_path / f"slave{number}",
            {"brokerRole": "SLAVE", "brokerId": number, "haMasterAddress": master.ha_address, **common},
        )
        for number in (1, 2)
    )
    with reaping(master, one, two):
        yield master, one, two


async def _send_ok_within(producer: Producer, limit_s: float) -> bool:
    with trio.move_on_after(limit_s):
        while (await producer.send(Message("orders", b"x"))).status is not SendStatus.SEND_OK:  # noqa: ASYNC110 - each try asks
            await trio.sleep(0.1)
        return True
    return False


async def test_two_slaves_on_their_masters_host_are_two_replicas(three: Brokers) -> None:
    for broker in three:
        await broker.start()
    async with open_producer(three[0].address, options=PATIENT) as producer:
        assert await _send_ok_within(producer, 120)
        await three[2].kill()
        assert not await _send_ok_within(producer, 2)


async def test_a_slave_that_is_back_through_a_tunnel_is_one_replica(three: Brokers) -> None:
    """Its first connection is still open at the master, which waits for nobody: it knows of one slave at most."""
    master, slave, _ = three
    await master.start()
    async with trio.open_nursery() as nursery, open_producer(master.address, options=PATIENT) as producer:
        slave.conf["haMasterAddress"] = f"127.0.0.1:{await nursery.start(Tunnel(master.ports.ha).serve)}"
        slave.conf["masterAddress"] = master.address
        for connections in (1, 2):
            await slave.start()
            await slave.running.wait_output("ha_client.connected")
            await master.running.wait_output(rf"(?s)(ha_connection\.transfer_started.*){{{connections}}}")
            await trio.sleep(2.5)
            assert (await producer.send(Message("orders", b"x"))).status is SendStatus.SLAVE_NOT_AVAILABLE
            await slave.kill()
        assert master.running.output().count("ha_connection.transfer_started") == 2
        nursery.cancel_scope.cancel()
