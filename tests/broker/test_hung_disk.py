"""A disk that hangs: every send is answered in time, and nothing is stored that was refused."""

import trio
from trio.testing import MockClock

from rmqha.codec.codes import ResponseCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.codec.send_answers import decode_send_response
from tests.broker.machines import Machine, ask, send_request
from tests.sim.sim_net import SimNet

SEGMENT = 4096
BODY = bytes(1200)


def sorted_answers(answers: dict[int, tuple[float, RemotingCommand]]) -> list[tuple[float, RemotingCommand]]:
    return [answers[number] for number in sorted(answers)]


async def test_sends_that_wait_for_a_segment_are_answered_in_time_and_in_order(autojump_clock: MockClock) -> None:
    """The disk hangs while the next segment is made: what fits is stored, the rest waits five seconds at most."""
    machine = Machine(SimNet(), "10.0.0.1", {"mappedFileSizeCommitLog": str(SEGMENT), "brokerRole": "ASYNC_MASTER"})
    answers: dict[int, tuple[float, RemotingCommand]] = {}
    async with machine.broker() as broker, machine.client() as client, trio.open_nursery() as nursery:

        async def send(number: int) -> None:
            begun_at = trio.current_time()
            answer = await ask(client, send_request(BODY, topic="t"))
            answers[number] = trio.current_time() - begun_at, answer

        await send(0)
        await trio.sleep(1)
        machine.disk.faults.hung_until = trio.current_time() + 60
        for number in range(1, 13):
            nursery.start_soon(send, number)
            await trio.sleep(1)
        await trio.sleep(10)
        codes = [answer.code for _, answer in sorted_answers(answers)]
        stored = codes.count(ResponseCode.SUCCESS)
        assert codes == [ResponseCode.SUCCESS] * stored + [ResponseCode.SYSTEM_ERROR] * (13 - stored)
        assert 3 <= stored <= 9, "what is there already takes some, and nothing can be made"
        assert all(waited_s < 5.1 for waited_s, _ in answers.values())
        assert "nothing is stored. Does the disk hang?" in (answers[12][1].remark or "")
        await trio.sleep_until(machine.disk.faults.hung_until + 1)
        await send(13)
        assert decode_send_response(answers[13][1]).queue_offset == stored
    assert broker.store.write_error is None
