"""A slave whose queue begins behind what a consumer asks for, while its master is away."""

import trio
from trio.testing import MockClock

from rmqha.codec.codes import ResponseCode
from tests.broker.machines import Machine, ask, pull_request, send_request

SLAVE = {"brokerRole": "SLAVE", "brokerId": "1", "haMasterAddress": "10.0.0.9:10912"}


async def test_who_asks_for_what_it_never_had_is_let_go_soon(machine: Machine, autojump_clock: MockClock) -> None:
    """Its files are gone, and the master may have them: the consumer goes there, and asks here no faster than so."""
    async with machine.broker(fileReservedTime="1") as broker:
        async with machine.client() as client:
            for _ in range(8):
                await ask(client, send_request(bytes(30_000)))
        await trio.sleep(1.5 * 3600)
        broker.store.cleaner.execute_delete_files_manually()
        assert await broker.store.cleaner.clean() > 0
    async with machine.broker(**SLAVE) as slave, machine.client() as client:
        first, end = slave.store.queues.readable_range_of("t", 0)
        assert 0 < first < end
        await trio.sleep(5)  # it has found out that its master does not answer
        for offset, pause_s in ((0, 1.0), (first - 1, 1.0), (end + 1, 15.0)):
            begun_at = trio.current_time()
            answer = await ask(client, pull_request(offset, suspend_ms=15_000))
            assert answer.code in {ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_NOT_FOUND}
            assert int(answer.ext_fields["nextBeginOffset"]) == offset, "a slave sends nobody anywhere"
            assert pause_s <= trio.current_time() - begun_at < pause_s + 0.5
