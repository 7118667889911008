import io
import time
from typing import IO

import pytest

from rmqha.cli.sources import all_of, generated, lines


class Dripping(io.BytesIO):
    """Gives one piece at a time, as a pipe does."""

    def __init__(self, *pieces: bytes) -> None:
        super().__init__()
        self._pieces = list(pieces)

    def read(self, _size: int | None = -1) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


async def collect(stream: IO[bytes]) -> list[list[bytes]]:
    return [chunk async for chunk in lines(stream)]


async def test_lines_come_as_they_arrive_and_whole() -> None:
    stream = Dripping(b"one\ntw", b"o\n", b"th", b"ree\r\n\nfour")
    assert await collect(stream) == [[b"one"], [b"two"], [b"three"], [b"four"]]


async def test_a_line_of_many_pieces_is_read_in_linear_time() -> None:
    """Joined anew for each piece, these would be 4 GB to copy."""
    pieces = [bytes(16384)] * 700
    took = []
    for _ in range(4):
        begun_at = time.thread_time()
        assert await collect(Dripping(b"a\nb", *pieces, b"c\nd")) == [[b"a"], [b"b" + b"".join(pieces) + b"c"], [b"d"]]
        took.append(time.thread_time() - begun_at)
    assert min(took) < 1


async def test_a_file_comes_in_large_chunks() -> None:
    assert await collect(io.BytesIO(b"a\nb\nc\n")) == [[b"a", b"b", b"c"]]


async def test_nothing_is_nothing() -> None:
    assert await collect(io.BytesIO(b"")) == []


@pytest.mark.parametrize("size", [1, 3, 100])
async def test_generated_bodies_have_their_size_and_number(size: int) -> None:
    chunks = [list(chunk) async for chunk in all_of(generated(12, size))]
    (bodies,) = chunks
    assert [len(body) for body in bodies] == [size] * 12
    assert all(body.startswith(b"%d " % number) for number, body in enumerate(bodies) if size > 2)
