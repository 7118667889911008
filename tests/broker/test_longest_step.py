"""No request holds the event loop: how long a task runs at most before it gives the loop back, by its processor time.

The real clock runs, since turns end by it; nothing here waits for it.
"""

import gc
from time import thread_time
from typing import Self

import trio

from rmqha.broker.pull_request_hold_service import HELD_MAX, PullRequestHoldService
from rmqha.codec.batch import BATCH_MESSAGES_MAX, BatchEntry, encode_batch
from rmqha.codec.codes import ResponseCode
from rmqha.remoting.client import RemotingClient, open_remoting_client
from tests.broker.dledger_brokers import BrokerGroup
from tests.broker.machines import Machine, ask, send_request
from tests.codec.test_linear_time import seconds_of_a_turn
from tests.sim.sim_net import SimNet

STEPS_A_TURN = 2
"""A step takes at most such a part of what one request may take in tests/codec/test_linear_time.py: some 75 ms."""


class LongestStep(trio.abc.Instrument):
    """Measures steps of tasks while it is installed.

    The collector's pauses are left out: they are as long as what other tests have left behind.
    """

    def __init__(self) -> None:
        self.s = 0.0
        self._begun_at = thread_time()

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._begun_at = thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.s = max(self.s, thread_time() - self._begun_at)

    def __enter__(self) -> Self:
        gc.disable()
        trio.lowlevel.add_instrument(self)
        return self

    def __exit__(self, *_: object) -> None:
        trio.lowlevel.remove_instrument(self)
        gc.enable()


async def send_the_largest_batch(client: RemotingClient) -> None:
    body, took = encode_batch([BatchEntry(0, b"x", b"")] * BATCH_MESSAGES_MAX), list[tuple[float, float]]()
    await ask(client, send_request(b"x"))
    for _ in range(8):  # the least of some counts: caches are shared with whatever else runs on the machine
        with LongestStep() as step:
            answer = await client.invoke(send_request(body, batch=True), timeout_s=60)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        took.append((step.s, seconds_of_a_turn() / STEPS_A_TURN))
        if step.s < took[-1][1]:
            return
    raise AssertionError(f"the longest step each time, and what it may take: {took}")


async def test_a_batch_of_as_many_messages_as_may_be() -> None:
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker(mappedFileSizeCommitLog=str(64 << 20)), machine.client() as client:
        await send_the_largest_batch(client)


async def test_as_many_messages_as_may_be_in_entries_of_dledger(nursery: trio.Nursery) -> None:
    sizes = {"mappedFileSizeCommitLog": str(64 << 20), "mappedFileSizeForEntryIndex": str(32 << 20)}
    group = BrokerGroup(nursery, size=1, heartBeatTimeIntervalMs="5000", **sizes)
    await group.start()
    node = await group.wait_master()
    network = group.net.host("10.9.9.9").mount()
    async with open_remoting_client(network, f"{group.addresses[node.name]}:10911") as client:
        await send_the_largest_batch(client)
    await node.stop()


async def hold_as_many_as_may_be(*, deadline: float) -> tuple[PullRequestHoldService, list[bool]]:
    holds, ended = PullRequestHoldService(), list[bool]()
    for number in range(HELD_MAX):
        holds.suspend_pull_request("t", 0, offset=7, queue_end=7, deadline=deadline, retry=ended.append)
        if number % 1000 == 0:
            await trio.lowlevel.checkpoint()
    return holds, ended


async def test_held_pulls_that_one_message_ends(nursery: trio.Nursery) -> None:
    holds, ended = await hold_as_many_as_may_be(deadline=trio.current_time() + 60)
    nursery.start_soon(holds.run)
    await trio.lowlevel.checkpoint()
    with LongestStep() as step:
        await trio.lowlevel.checkpoint()
        holds.notify_message_arriving("t", 0, 8)
        while len(ended) < HELD_MAX:
            await trio.lowlevel.checkpoint()
    assert step.s < seconds_of_a_turn() / STEPS_A_TURN
    assert ended == [True] * HELD_MAX
    nursery.cancel_scope.cancel()


async def test_held_pulls_whose_time_is_over_at_once(nursery: trio.Nursery) -> None:
    holds, ended = await hold_as_many_as_may_be(deadline=trio.current_time())
    with LongestStep() as step:
        await trio.lowlevel.checkpoint()
        nursery.start_soon(holds.run)
        while len(ended) < HELD_MAX:
            await trio.lowlevel.checkpoint()
    assert step.s < seconds_of_a_turn() / STEPS_A_TURN
    assert ended == [False] * HELD_MAX
    nursery.cancel_scope.cancel()


async def test_held_pulls_that_a_stop_ends(nursery: trio.Nursery) -> None:
    holds, ended = await hold_as_many_as_may_be(deadline=trio.current_time() + 60)
    nursery.start_soon(holds.run)
    await trio.lowlevel.checkpoint()
    with LongestStep() as step:
        await trio.lowlevel.checkpoint()
        holds.release_all()
        while len(ended) < HELD_MAX:
            await trio.lowlevel.checkpoint()
    assert step.s < seconds_of_a_turn() / STEPS_A_TURN
    assert ended == [False] * HELD_MAX
    nursery.cancel_scope.cancel()
