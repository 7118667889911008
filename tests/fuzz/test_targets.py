"""Every target under Hypothesis: noise, and good inputs with damage. RMQHA_FUZZ_EXAMPLES makes it longer."""

import os
from functools import cache

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.request_targets import ALL_TARGETS
from tests.fuzz.targets import Target

EXAMPLES = int(os.environ.get("RMQHA_FUZZ_EXAMPLES", "150"))


@cache
def seeds_of(name: str) -> list[bytes]:
    seeds = ALL_TARGETS[name].seeds()
    assert seeds, "a target without a good input tests little"
    return seeds


@st.composite
def damaged(draw: st.DrawFn, seeds: list[bytes]) -> bytes:
    """A good input of which pieces were overwritten, taken out, doubled or cut off."""
    data = bytearray(draw(st.sampled_from(seeds)))
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(data)))
        size = draw(st.integers(0, 16))
        match draw(st.sampled_from(["overwrite", "remove", "insert", "double", "cut"])):
            case "overwrite":
                noise = draw(EDGES | st.binary(min_size=size, max_size=size))
                data[at : at + len(noise)] = noise
            case "remove":
                del data[at : at + size]
            case "insert":
                data[at:at] = draw(EDGES | st.binary(max_size=16))
            case "double":
                data[at:at] = data[at : at + 4 * size]
            case _:
                del data[at:]
    return bytes(data)


EDGES = st.sampled_from([
    *(value.to_bytes(size, "big", signed=True) for size in (4, 8) for value in (0, 1, -1, 0x7FFFFFFF, -0x80000000)),
    b"\x7f" + b"\xff" * 7,
    b"\x80" + bytes(7),
    b"\xff\xff",
    b"\x7f\xff",
])  # fmt: skip


@pytest.mark.timeout(300 + EXAMPLES)
@pytest.mark.parametrize("name", ALL_TARGETS)
def test_no_finding(name: str) -> None:
    pytest.importorskip("tracemalloc", reason="PyPy does not count allocations")
    target = ALL_TARGETS[name]

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        derandomize=EXAMPLES <= 150,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.one_of(st.binary(max_size=200), damaged(seeds_of(name))))
    def examine(data: bytes) -> None:
        peak = peak_of(target, data)
        if peak > target.memory_bytes_max:
            peak = min(peak, peak_of(target, data))
        assert peak <= target.memory_bytes_max, f"{peak} bytes allocated for an input of {len(data)}"

    examine()


def peak_of(target: Target, data: bytes) -> int:
    """Bytes that a run held at most; what is made once for the process (modules, caches) is the first one's, too."""
    tracemalloc = pytest.importorskip("tracemalloc", reason="PyPy does not count allocations")
    tracemalloc.start()
    try:
        target.run(data)
        return int(tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def test_what_a_run_allocates_is_seen() -> None:
    def run(_: bytes) -> None:
        bytes(1 << 22)

    assert peak_of(Target(run, lambda: [b""]), b"") >= 1 << 22


@pytest.mark.parametrize("name", ALL_TARGETS)
def test_the_good_inputs_pass(name: str) -> None:
    for seed in seeds_of(name):
        ALL_TARGETS[name].run(seed)
