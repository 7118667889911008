"""A held pull outlives a cut of the log: what takes the place of what was cut is flushed, and shown, as promptly."""

import pytest
import trio
from trio.testing import MockClock

from rmqha.codec.codes import ResponseCode
from rmqha.codec.record.message import decode_message
from rmqha.codec.remoting import RemotingCommand
from tests.broker.machines import Machine, ask, pull_request, send_request
from tests.sim.sim_net import SimNet


@pytest.mark.parametrize("is_flushing", [False, True])
async def test_a_pull_that_is_held_across_a_cut_has_the_next_message_flushed(
    autojump_clock: MockClock, is_flushing: bool
) -> None:
    machine, answers = Machine(SimNet(), "10.0.0.1", {"brokerRole": "ASYNC_MASTER"}), list[RemotingCommand]()
    async with machine.broker() as broker, machine.client() as client, trio.open_nursery() as nursery:
        await ask(client, send_request(b"first", topic="t"))
        await trio.sleep(20)

        async def pull() -> None:
            answers.append(await ask(client, pull_request(1, topic="t", suspend_ms=30_000)))

        nursery.start_soon(pull)
        await trio.sleep(1)
        machine.disk.faults.slowness = 1000.0
        end = broker.store.max_offset
        if is_flushing:
            await ask(client, send_request(b"of another term", topic="t"))
            assert broker.store.flushed_offset == end, "the flush that the pull demands is under way"
        broker.store.commit_log.truncate(end)
        await broker.store.recover_topic_queue_table()
        machine.disk.faults.slowness = 1.0
        await trio.sleep(10)
        assert answers == [], "a cut is no message"
        await ask(client, send_request(b"second", topic="t"))
        await trio.sleep(0.1)
        assert [answer.code for answer in answers] == [ResponseCode.SUCCESS]
        assert decode_message(answers[0].body).body == b"second"
