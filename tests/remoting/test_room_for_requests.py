"""Who is read again, and when, of those that had too much in flight: by their own share, and by the room of all."""

import pytest
import trio
import trio.testing

from rmqha.remoting.in_flight import REQUEST_BYTES, InFlight
from rmqha.remoting.limits import Capacity
from tests.settings import remoting_limits

ROOM, MOST, SHARE = 100_000, 60_000, 10_000
LIMITS = remoting_limits(max_in_flight_bytes=ROOM, max_in_flight_bytes_per_connection=MOST, in_flight_share_bytes=SHARE)


class Reader:
    """A connection that is not read while it is full."""

    def __init__(self, capacity: Capacity, nursery: trio.Nursery, *, size: int) -> None:
        self.account = InFlight(LIMITS, capacity)
        self.account.add(1, size - REQUEST_BYTES)
        self.is_read = False
        nursery.start_soon(self._wait)

    async def _wait(self) -> None:
        while self.account.is_full:
            await self.account.wait_released()
        self.is_read = True


async def test_one_with_less_than_its_share_is_read_though_others_fill_the_room(nursery: trio.Nursery) -> None:
    """They may never give it back: a client that has its answers would wait for theirs."""
    capacity = Capacity(LIMITS)
    others = [Reader(capacity, nursery, size=MOST) for _ in range(2)]
    one = InFlight(LIMITS, capacity)
    one.add(4, 4 * 5_000)
    assert one.is_full
    reader = Reader(capacity, nursery, size=SHARE)
    reader.account.add(3, 1_000)
    await trio.testing.wait_all_tasks_blocked()
    assert not reader.is_read
    reader.account.release(3, 1_000 - 1)
    await trio.testing.wait_all_tasks_blocked()
    assert not reader.is_read, "it has its share to the byte"
    reader.account.let_go(2)
    reader.account.add(1, 0)
    reader.account.release(1, REQUEST_BYTES)
    await trio.testing.wait_all_tasks_blocked()
    assert reader.is_read
    assert capacity.used_bytes >= ROOM
    assert not any(other.is_read for other in others)


@pytest.mark.parametrize("leaves", [False, True])
async def test_all_are_read_once_there_is_room(nursery: trio.Nursery, *, leaves: bool) -> None:
    capacity = Capacity(LIMITS)
    large = Reader(capacity, nursery, size=MOST)
    others = [Reader(capacity, nursery, size=2 * SHARE) for _ in range(2)]
    await trio.testing.wait_all_tasks_blocked()
    assert not any(one.is_read for one in (large, *others))
    if leaves:
        large.account.forget()
    else:
        large.account.release(1, 0)
    await trio.testing.wait_all_tasks_blocked()
    assert all(one.is_read for one in (large, *others))
    assert capacity.used_bytes == 4 * SHARE


async def test_one_with_too_much_of_its_own_is_not_read_however_much_room_there_is(nursery: trio.Nursery) -> None:
    capacity = Capacity(LIMITS)
    one, other = Reader(capacity, nursery, size=MOST), InFlight(LIMITS, capacity)
    other.add(1, 0)
    other.release(1, 0)
    await trio.testing.wait_all_tasks_blocked()
    assert not one.is_read
    one.account.add(1, 0)
    one.account.release(1, 1)
    await trio.testing.wait_all_tasks_blocked()
    assert one.is_read
