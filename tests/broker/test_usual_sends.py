"""Whatever sends arrive, and however they are cut: a broker that looks them up stores and answers the same bytes.

Its queues are built of what it just put, the other's of what it reads in the log.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest
import trio
from trio.testing import MockClock

from rmqha.codec.usual.sends import UsualSends
from rmqha.store.recent_records import RecentRecords
from tests.any_sends import cuts, requests
from tests.broker.machines import Machine
from tests.sim.sim_clock import WallClock
from tests.sim.sim_net import SimNet, SimStream
from tests.store.helpers import commit_log

A_CONNECTION = 60
SEGMENT = 131_072
SETTINGS = {"brokerRole": "ASYNC_MASTER", "maxMessageSize": "60000", "mappedFileSizeCommitLog": str(SEGMENT)}


class Outcome(NamedTuple):
    """All that a broker's clients and its store can tell."""

    log: bytes
    files: dict[str, bytes]
    answers: list[bytes]


async def send_and_receive(stream: SimStream, chunks: Iterator[bytes]) -> bytes:
    """Send them, one after the other, unless the broker hangs up; returns all that it sends."""
    received, buffer = bytearray(), memoryview(bytearray(1 << 16))
    async with trio.open_nursery() as nursery:

        async def receive() -> None:
            while count := await stream.receive_into(buffer):
                received.extend(buffer[:count])
            nursery.cancel_scope.cancel()

        nursery.start_soon(receive)
        for chunk in chunks:
            await stream.send_all(chunk)
            await trio.sleep(0.05)
        await trio.sleep(12)
        nursery.cancel_scope.cancel()
    stream.close()
    return bytes(received)


async def run_broker(seed: int, frames: list[bytes]) -> Outcome:
    """Send it all, some frames over each connection: damage may end it."""
    machine, answers = Machine(SimNet(), "10.0.0.1", SETTINGS), list[bytes]()
    network = machine.net.host("10.9.9.9").mount()
    async with machine.broker() as broker:
        for first in range(0, len(frames), A_CONNECTION):
            stream = await network.connect("10.0.0.1", 10911, timeout_s=5)
            chunks = cuts(seed, b"".join(frames[first : first + A_CONNECTION]), size_max=8000)
            answers.append(await send_and_receive(stream, chunks))
        store = broker.store
        log = b"".join(bytes(commit_log(store).view_range(at, SEGMENT)) for at in range(0, store.max_offset, SEGMENT))
    disk, queues = machine.disk.mount(), store.options.consume_queue_dir
    files = {
        path: disk.read_bytes(path)
        for topic in disk.listdir(queues)
        for queue in disk.listdir(f"{queues}/{topic}")
        for name in disk.listdir(f"{queues}/{topic}/{queue}")
        if (path := f"{queues}/{topic}/{queue}/{name}")
    }
    return Outcome(log, files, answers)


def nothing_taken(_usual: UsualSends, _buffer: object, at: int, _end: int, **_limits: object) -> int:
    return at


def nothing_remembered(_recent: RecentRecords, _start: int, _end: int) -> None:
    """The log is read instead."""


def counted(take: Callable[..., int], taken: list[int]) -> Callable[..., int]:
    def take_and_count(usual: UsualSends, buffer: object, at: int, end: int, **limits: object) -> int:
        behind = take(usual, buffer, at, end, **limits)
        taken.append(behind - at)
        return behind

    return take_and_count


def check_both_ways(seed: int, frames: list[bytes], monkeypatch: pytest.MonkeyPatch) -> int:
    """Returns how many bytes were looked up."""
    taken: list[int] = []
    monkeypatch.setattr(WallClock, "__call__", lambda _clock: 1_700_000_000_000)
    with monkeypatch.context() as patch:
        patch.setattr(UsualSends, "take", counted(UsualSends.take, taken))
        looked_up = trio.run(run_broker, seed, frames, clock=MockClock(autojump_threshold=0))
    with monkeypatch.context() as patch:
        patch.setattr(UsualSends, "take", nothing_taken)
        patch.setattr(RecentRecords, "between", nothing_remembered)
        decoded = trio.run(run_broker, seed, frames, clock=MockClock(autojump_threshold=0))
    assert looked_up.log == decoded.log
    assert looked_up.files == decoded.files
    assert looked_up.answers == decoded.answers
    assert looked_up.log
    return sum(taken)


@pytest.mark.parametrize("seed", range(20))
def test_odd_sends_among_usual_ones(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    check_both_ways(seed, requests(seed, 300), monkeypatch)


def test_most_bytes_are_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up = total = 0
    for seed in range(100, 104):
        frames = requests(seed, 1500, odd=0.01)
        looked_up += check_both_ways(seed, frames, monkeypatch)
        total += sum(map(len, frames))
    assert looked_up > total / 2
