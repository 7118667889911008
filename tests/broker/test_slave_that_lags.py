"""A slave that lacks what a consumer asks for: who reads from it goes on where the message is."""

import pytest
import trio
from trio.testing import MockClock

from rmqha.codec.codes import ResponseCode
from rmqha.remoting.client import RemotingClient
from tests.broker.machines import ask, pull_request, send_request
from tests.broker.test_pair import Pair


@pytest.mark.parametrize(("is_master_there", "held_s"), [(True, 0.1), (False, 15.0)])
async def test_the_consumer_is_sent_to_a_master_that_lives(
    is_master_there: bool, held_s: float, autojump_clock: MockClock
) -> None:
    """It was held for 15 s, and got a batch of the master's once in that time; RocketMQ's slave answers at once.

    Where the master is gone there is nobody else to ask: the consumer would come again without a pause.
    """
    pair = Pair()
    async with pair.slave.broker(), pair.slave.client() as client:
        async with pair.master.broker(), pair.master.client() as producer:
            await trio.sleep(5)
            assert (await ask(producer, send_request(b"x"))).code == ResponseCode.SUCCESS
            await trio.sleep(12)
            if is_master_there:
                await asks_beyond_the_end(client, held_s)
        if not is_master_there:
            await trio.sleep(12)
            await asks_beyond_the_end(client, held_s)


async def asks_beyond_the_end(client: RemotingClient, held_s: float) -> None:
    begun_at = trio.current_time()
    answer = await ask(client, pull_request(9, suspend_ms=15_000))
    assert held_s <= trio.current_time() - begun_at < held_s + 0.2
    assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
    assert (answer.ext_fields["nextBeginOffset"], answer.ext_fields["suggestWhichBrokerId"]) == ("9", "0")
