"""OutgoingQueue: order, gathering, and what happens when the peer takes nothing or is gone."""

import gc
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from rmqha.memory import BytesLike
from rmqha.remoting.outgoing import OutgoingQueue


class Stream:
    """Takes up to ``room`` bytes at once, and remembers each call."""

    peer = "10.0.0.9:9"
    local_port = 10911

    def __init__(self, room: int = 1 << 30) -> None:
        self.room = room
        self.sends: list[bytes] = []
        self.broken = False

    def send_nowait(self, data: BytesLike) -> int:
        if self.broken:
            raise trio.BrokenResourceError("gone")
        taken = min(self.room, len(data))
        if taken:
            self.sends.append(bytes(data[:taken]))
        return taken

    def send_eof(self) -> None:
        pass

    async def send_all(self, data: BytesLike) -> None:
        await trio.lowlevel.checkpoint()
        if self.room == 0:
            await trio.sleep_forever()
        if self.broken:
            raise trio.BrokenResourceError("gone")
        self.sends.append(bytes(data))

    async def receive_into(self, buffer: memoryview) -> int:
        raise NotImplementedError

    async def send_file(self, header: bytes, file: Any, at: int, size: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        self.broken = True


@asynccontextmanager
async def writing(stream: Stream) -> AsyncIterator[OutgoingQueue]:
    queue = OutgoingQueue(stream, write_timeout_s=5)
    with trio.fail_after(1000):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(queue.run)
            await trio.testing.wait_all_tasks_blocked()
            yield queue
            queue.close()


async def test_small_parts_go_out_together_large_ones_uncopied_and_in_pieces(autojump_clock: MockClock) -> None:
    stream = Stream()
    large = memoryview(bytes(range(256)) * 4096 * 2 + b"end")
    async with writing(stream) as queue:
        for part in (b"a", b"b", large, b"c", b"d"):
            queue.put(part)
        assert queue.size == len(large) + 4
        await queue.wait_below(1)
    assert [len(sent) for sent in stream.sends] == [2, 1 << 20, 1 << 20, 3, 2]
    assert b"".join(stream.sends) == b"ab" + large + b"cd"


async def test_many_small_parts_are_sent_a_mebibyte_at_a_time(autojump_clock: MockClock) -> None:
    stream = Stream()
    async with writing(stream) as queue:
        for _ in range(3000):
            queue.put(bytes(1000))
        await queue.wait_below(1)
    assert sum(map(len, stream.sends)) == 3_000_000
    assert len(stream.sends) == 3


async def test_all_parts_of_an_answer_are_put_in_one_step(autojump_clock: MockClock) -> None:
    stream = Stream()
    async with writing(stream) as queue:
        queue.put(b"before")
        queue.put_all([b"header", memoryview(b"first"), memoryview(b"second")])
        queue.put_all([])
        assert queue.size == len("beforeheaderfirstsecond")
        await queue.wait_below(1)
    queue.put_all([b"too late"])
    assert (stream.sends, queue.size) == ([b"beforeheaderfirstsecond"], 0)


async def test_what_exceeds_a_mebibyte_together_is_sent_in_pieces_of_it(autojump_clock: MockClock) -> None:
    stream = Stream()
    async with writing(stream) as queue:
        queue.put_all([bytes(1 << 15)] * 32)
        await queue.wait_below(1)
        queue.put_all([bytes(1 << 15)] * 33)
        await queue.wait_below(1)
    assert [len(sent) for sent in stream.sends] == [1 << 20, 1 << 20, 1 << 15]


async def test_a_lone_answer_is_sent_at_once_and_the_rest_of_it_later(autojump_clock: MockClock) -> None:
    stream = Stream(room=3)
    async with writing(stream) as queue:
        queue.put_nowait(b"one")
        assert stream.sends == [b"one"]
        queue.put_nowait(b"second")
        queue.put_nowait(b"third")  # must not overtake what is left of the second
        assert stream.sends == [b"one", b"sec"]
        await queue.wait_below(1)
    assert b"".join(stream.sends) == b"onesecondthird"


class SlowStream(Stream):
    """Takes a second for what does not fit at once."""

    async def send_all(self, data: BytesLike) -> None:
        await trio.sleep(1)
        await super().send_all(data)


async def test_an_answer_waits_while_another_is_on_its_way(autojump_clock: MockClock) -> None:
    stream = SlowStream(room=3)
    async with writing(stream) as queue:
        queue.put(b"first")
        await trio.sleep(0.5)
        assert stream.sends == [b"fir"]
        queue.put_nowait(b"second")  # there is room by now, but what is left of the first comes before
        await queue.wait_below(1)
    assert b"".join(stream.sends) == b"firstsecond"


async def test_what_is_taken_slowly_is_sent_now_and_not_when_it_was_put(autojump_clock: MockClock) -> None:
    """A client that takes a large answer piece by piece is not idle."""
    async with writing(SlowStream(room=3)) as queue:
        queue.put(bytes(4 << 20))
        await queue.wait_below(1)
        assert trio.current_time() == pytest.approx(4)
        assert queue.sent_at == trio.current_time()


async def test_who_was_idle_has_not_taken_nothing_since_then(autojump_clock: MockClock) -> None:
    """It would be the first to be ended, for an answer that it has not had the time to take."""
    async with writing(SlowStream(room=3)) as queue:
        queue.put(b"first")
        await queue.wait_below(1)
        await trio.sleep(100)
        queue.put(b"second")
        begun_at = trio.current_time()
        assert queue.sent_at == begun_at
        await trio.sleep(0.5)
        queue.put(b"behind it")
        assert queue.sent_at == begun_at
        await queue.wait_below(1)


async def test_a_peer_that_takes_nothing_breaks_the_queue_in_time(autojump_clock: MockClock) -> None:
    queue = OutgoingQueue(Stream(room=0), write_timeout_s=5)
    queue.put_nowait(b"x")
    with trio.fail_after(60), pytest.raises(trio.BrokenResourceError, match="slow reader: 1 bytes not taken in 5 s"):
        await queue.run()
    assert trio.current_time() == pytest.approx(5)
    queue.put(b"y")  # goes nowhere, and holds nothing
    assert queue.size == 0
    await queue.wait_below(1)


async def test_a_peer_that_is_gone_is_met_by_the_writer(autojump_clock: MockClock) -> None:
    stream = Stream()
    queue = OutgoingQueue(stream, write_timeout_s=5)
    stream.broken = True
    queue.put_nowait(b"x")
    with pytest.raises(trio.BrokenResourceError, match="gone"):
        await queue.run()


async def test_what_was_put_before_the_end_still_goes_out(autojump_clock: MockClock) -> None:
    stream = Stream()
    async with writing(stream) as queue:
        queue.put(b"last")
        queue.close()
        queue.put(b"too late")
    assert stream.sends == [b"last"]


async def test_nothing_is_kept_of_what_was_sent(autojump_clock: MockClock) -> None:
    """Of a client that sits there it would be up to 16 MiB, or a part of a file that was deleted."""
    async with writing(Stream()) as queue:
        part = memoryview(b"x" * 100)  # unlike bytes, it can be asked for when it is gone
        sent = weakref.ref(part)
        queue.put(part)
        del part
        await trio.testing.wait_all_tasks_blocked()
        gc.collect()
        assert (queue.size, sent()) == (0, None)


@pytest.mark.parametrize("room", [0, 10])
async def test_nothing_is_kept_of_what_was_not_taken(room: int, autojump_clock: MockClock) -> None:
    """Not even by the error, which lives until the collector runs."""
    stream = Stream(room)
    queue = OutgoingQueue(stream, write_timeout_s=5)
    part = memoryview(b"x" * 100)
    untaken = weakref.ref(part)
    for _ in range(2):
        queue.put(part)
    del part
    stream.broken = room > 0
    with pytest.raises(trio.BrokenResourceError) as raised:
        await queue.run()
    gc.collect()  # PyPy drops nothing before; what the error keeps would stay, as the error is still here
    assert (raised.value.__traceback__ is not None, untaken()) == (True, None)
