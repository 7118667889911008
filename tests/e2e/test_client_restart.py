"""rmqha's own clients and a broker that is killed and comes back."""

import trio

from rmqha.client import Message, open_producer
from tests.e2e.conftest import Pair

RESTART_S_MAX = 60.0


async def test_a_send_with_retries_bridges_the_restart_of_a_killed_master(pair: Pair) -> None:
    await pair.master.start()
    addresses = f"{pair.master.address};{pair.slave.address}"
    async with open_producer(addresses) as producer, trio.open_nursery() as nursery:
        await producer.send(Message("orders", b"before"))
        await pair.slave.start()
        await pair.master.kill()

        async def restart() -> None:
            await trio.sleep(1)
            await pair.master.start()

        nursery.start_soon(restart)
        result = await producer.send(Message("orders", b"after"), retries=1000, timeout_s=RESTART_S_MAX)
        assert result.offset_msg_id
