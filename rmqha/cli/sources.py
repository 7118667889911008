"""Where the bodies of ``rmqha send`` come from. A chunk is what is there now: it can be sent without waiting."""

from collections.abc import AsyncIterator, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import IO, Final

import trio

_READ_SIZE: Final = 256 * 1024


async def lines(stream: IO[bytes]) -> AsyncIterator[list[bytes]]:
    """Yield the lines of ``stream`` without their ends, as many at a time as have arrived; empty ones are left out.

    It is read below its buffer: a thread that waits in that has its lock, over which an interrupted process aborts.
    """
    begun: list[bytes] = []
    read = partial(getattr(stream, "raw", stream).read, _READ_SIZE)
    while data := await trio.to_thread.run_sync(read, abandon_on_cancel=True):
        begun.append(data)
        if b"\n" not in data:
            continue  # to join a long line for each of its pieces would take time with its square
        *complete, rest = b"".join(begun).split(b"\n")
        begun = [rest]
        if found := [body for line in complete if (body := line.removesuffix(b"\r"))]:
            yield found
    if rest := b"".join(begun):
        yield [rest]


async def all_of(bodies: Iterable[bytes], limit: int | None = None) -> AsyncIterator[Iterator[bytes]]:
    """Yield everything as one chunk."""
    yield islice(bodies, limit)


def generated(count: int, size: int) -> Iterator[bytes]:
    """Yield ``count`` bodies of ``size`` bytes; each begins with its number, as far as that fits."""
    filler = bytes(b"abcdefghijklmnopqrstuvwxyz"[i % 26] for i in range(size))
    for number in range(count):
        head = b"%d " % number
        yield (head + filler)[:size]
