"""No request holds the event loop: how long a task runs at most before it gives the loop back, by its processor time.

The real clock runs, since turns end by it; nothing here waits for it.
"""

import gc
from collections.abc import Awaitable, Callable
from time import thread_time
from typing import Self

import pytest
import trio

from rmqha.broker.clients.rebalance_lock_manager import LOCK_MAX_LIVE_TIME_S, RebalanceLockManager
from rmqha.broker.pull_request_hold_service import HELD_MAX, PullRequestHoldService
from rmqha.codec.batch import BATCH_MESSAGES_MAX, BatchEntry, encode_batch
from rmqha.codec.codes import ResponseCode
from rmqha.codec.lock_batch import MessageQueue
from rmqha.remoting.client import RemotingClient, open_remoting_client
from tests.broker.dledger_brokers import BrokerGroup
from tests.broker.machines import Machine, ask, send_request
from tests.codec.test_linear_time import seconds_of_a_turn
from tests.reachable import count_entries
from tests.sim.sim_net import SimNet

STEPS_A_TURN = 1.6
"""A step takes at most such a part of what one request may take in tests/codec/test_linear_time.py: some 75 ms."""
ATTEMPTS = 16
"""The least of some counts: caches are shared with whatever else runs on the machine."""


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
    for _ in range(ATTEMPTS):
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


async def step_of_a_message(nursery: trio.Nursery) -> float:
    holds, ended = await hold_as_many_as_may_be(deadline=trio.current_time() + 60)
    nursery.start_soon(holds.run)
    await trio.lowlevel.checkpoint()
    with LongestStep() as step:
        await trio.lowlevel.checkpoint()
        holds.notify_message_arriving("t", 0, 8)
        while len(ended) < HELD_MAX:
            await trio.lowlevel.checkpoint()
    assert ended == [True] * HELD_MAX
    return step.s


async def step_of_time_over(nursery: trio.Nursery) -> float:
    holds, ended = await hold_as_many_as_may_be(deadline=trio.current_time())
    with LongestStep() as step:
        await trio.lowlevel.checkpoint()
        nursery.start_soon(holds.run)
        while len(ended) < HELD_MAX:
            await trio.lowlevel.checkpoint()
    assert ended == [False] * HELD_MAX
    return step.s


async def step_of_a_stop(nursery: trio.Nursery) -> float:
    holds, ended = await hold_as_many_as_may_be(deadline=trio.current_time() + 60)
    nursery.start_soon(holds.run)
    await trio.lowlevel.checkpoint()
    with LongestStep() as step:
        await trio.lowlevel.checkpoint()
        holds.release_all()
        while len(ended) < HELD_MAX:
            await trio.lowlevel.checkpoint()
    assert ended == [False] * HELD_MAX
    return step.s


@pytest.mark.parametrize("longest_step", [step_of_a_message, step_of_time_over, step_of_a_stop])
async def test_held_pulls_that_end_together(longest_step: Callable[[trio.Nursery], Awaitable[float]]) -> None:
    took = []
    for _ in range(ATTEMPTS):
        async with trio.open_nursery() as nursery:
            took.append(await longest_step(nursery))
            nursery.cancel_scope.cancel()
        if took[-1] < seconds_of_a_turn() / STEPS_A_TURN:
            return
    raise AssertionError(f"the longest step takes {took} s")


def seconds_until_many_locks_are_over() -> float:
    locks = RebalanceLockManager()
    for number in range(60_000):
        locks.try_lock_batch("g", [MessageQueue("t", "b", number)], client_id="a", host="", now=0)
    begun_at = thread_time()
    for _ in range(60):
        locks.try_lock_batch("g", [MessageQueue("t", "b", 60_000)], client_id="b", host="", now=LOCK_MAX_LIVE_TIME_S)
    seconds = thread_time() - begun_at
    assert count_entries(locks) < 100
    return seconds


def test_many_locks_that_end_together() -> None:
    """In a dictionary from which the first is taken again and again, finding the next one takes ever longer."""
    took = []
    for _ in range(ATTEMPTS):
        took.append(seconds_until_many_locks_are_over())
        if took[-1] < 6 * seconds_of_a_turn():
            return
    raise AssertionError(f"60 rounds take {took} s")
