"""What a slave shows to consumers is on its own disk: durable, not only written."""

import pytest
import trio
from trio.testing import MockClock

from rmqha.codec.codes import ResponseCode
from rmqha.codec.record.message import decode_message
from rmqha.codec.remoting import RemotingCommand
from tests.broker.machines import Machine, ask, pull_request, replication_of, send_request
from tests.sim.sim_net import SimNet

HANGS_S = 8.0


@pytest.mark.parametrize("ha_ack", ["durable", "written"])
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
async def test_a_slave_shows_nothing_that_its_disk_does_not_hold(
    ha_ack: str, flush: str, autojump_clock: MockClock
) -> None:
    """Its disk hangs: what it has received and written is not seen, by no pull, until the flush returns."""
    net = SimNet()
    master = Machine(net, "10.0.0.1", {"brokerRole": "SYNC_MASTER"})
    slave = Machine(
        net,
        "10.0.0.2",
        {
            "brokerRole": "SLAVE",
            "brokerId": "1",
            "haMasterAddress": "10.0.0.1:10912",
            "masterAddress": "10.0.0.1:10911",
            "haAck": ha_ack,
            "flushDiskType": flush,
        },
    )
    async with master.broker() as sender, slave.broker() as shower, master.client() as client:
        while not replication_of(sender).ha_service.is_slave_ok(0):  # noqa: ASYNC110 - virtual time
            await trio.sleep(0.1)
        assert (await ask(client, send_request(b"durable"))).code == ResponseCode.SUCCESS
        async with slave.client() as consumer, trio.open_nursery() as nursery:
            while not (await ask(consumer, pull_request(0))).body:  # noqa: ASYNC110 - virtual time
                await trio.sleep(0.1)
            seen: list[tuple[float, RemotingCommand]] = []

            async def wait_for_next() -> None:
                answer = await ask(consumer, pull_request(1, suspend_ms=20_000))
                seen.append((trio.current_time(), answer))

            nursery.start_soon(wait_for_next)
            back_at = slave.disk.faults.hung_until = trio.current_time() + HANGS_S
            nursery.start_soon(ask, client, send_request(b"written"))
            await trio.sleep(1)
            assert shower.store.max_offset == sender.store.max_offset, "it is written there"
            assert shower.store.flushed_offset < shower.store.max_offset, "and not durable"
            while trio.current_time() < back_at - 0.5:
                assert (await ask(consumer, pull_request(1))).code == ResponseCode.PULL_NOT_FOUND
                await trio.sleep(0.5)
            assert not seen
        ((at, answer),) = seen
        assert at >= back_at
        assert decode_message(answer.body).body == b"written"


async def test_a_master_shows_what_its_slave_holds_before_its_own_disk_does(autojump_clock: MockClock) -> None:
    """An acknowledgement makes it visible at once: a consumer does not wait for the flush."""
    net = SimNet()
    master = Machine(net, "10.0.0.1", {"brokerRole": "SYNC_MASTER"})
    slave = Machine(net, "10.0.0.2", {"brokerRole": "SLAVE", "brokerId": "1", "haMasterAddress": "10.0.0.1:10912"})
    async with master.broker() as sender, slave.broker(), master.client() as client:
        while not replication_of(sender).ha_service.is_slave_ok(0):  # noqa: ASYNC110 - virtual time
            await trio.sleep(0.1)
        await ask(client, send_request(b"before"))
        await trio.sleep(2)
        back_at = master.disk.faults.hung_until = trio.current_time() + HANGS_S
        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, client, send_request(b"now"))
            answer = await ask(client, pull_request(1, suspend_ms=20_000))
            assert decode_message(answer.body).body == b"now"
            assert trio.current_time() < back_at - 0.5 * HANGS_S
