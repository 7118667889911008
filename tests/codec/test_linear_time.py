"""No request holds the event loop: what decodes peers' bytes takes time in proportion to their size, and no more.

Measured is the thread's own processor time, so that other work on the machine does not count, for an input of the
largest size that is taken and for one of an eighth of it. Eight times as long is linear, 64 times quadratic.
"""

from collections.abc import Callable
from contextlib import suppress
from math import inf
from time import thread_time

import pytest

from tests.codec.worst_inputs import DECODERS, Decoder

TIMES = 8
RATIO_MAX = 24.0
"""Between 8 and 64, and far from both: memory that no longer fits the caches may make it two times slower."""
TURN_STEPS = 15_000_000
"""What a request may take, as so many steps of a plain loop in the same run: some 150 ms."""
MEANINGLESS_S = 0.002
ATTEMPTS = 12


def seconds(run: Callable[[bytes], object], data: bytes) -> float:
    begun_at = thread_time()
    with suppress(Exception):  # what it raises is not the question here, but in tests/fuzz
        run(data)
    return thread_time() - begun_at


def seconds_of_a_turn() -> float:
    def count(_: bytes) -> None:
        for _step in range(TURN_STEPS):
            pass

    return min(seconds(count, b"") for _ in range(2))


def finding(decoder: Decoder, *, turn_s: float) -> str:
    """What is slow, or empty. Only what is slow at each attempt counts."""
    small_inputs = [data for _, data in decoder.inputs(decoder.size_max // TIMES)]
    for small, (name, large) in zip(small_inputs, decoder.inputs(decoder.size_max), strict=True):
        small_s = large_s = inf
        for _ in range(ATTEMPTS):
            small_s, large_s = min(small_s, seconds(decoder.run, small)), min(large_s, seconds(decoder.run, large))
            ratio = large_s / max(small_s, MEANINGLESS_S / TIMES)
            if ratio < RATIO_MAX and (large_s < turn_s or not decoder.in_a_turn):
                break
        else:
            return (
                f"{name[:200]}: {len(large)} bytes take {large_s:.3f} s, {ratio:.0f} times as long as an eighth of them"
            )
    return ""


@pytest.mark.parametrize("name", DECODERS)
def test_what_decodes_peers_bytes_is_linear_and_takes_no_longer_than_a_turn(name: str) -> None:
    assert not finding(DECODERS[name], turn_s=seconds_of_a_turn())


def test_what_is_quadratic_or_too_long_is_found() -> None:
    def quadratic(data: bytes) -> None:
        for at in range(0, len(data), 64):
            bytes(data[at:]).count(b"x")

    def long(data: bytes) -> None:
        for _step in range(120 * len(data)):
            pass

    worst = [("", "x", "")]
    assert "times as long" in finding(Decoder(quadratic, 1 << 18, worst, []), turn_s=inf)
    assert "times as long" in finding(Decoder(long, 1 << 18, worst, []), turn_s=seconds_of_a_turn())
    assert not finding(Decoder(bytes.split, 1 << 18, worst, []), turn_s=seconds_of_a_turn())
