"""Where a slave asks a stream to begin."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.errors import CorruptLogError
from rmqha.replication.master_session import LogRange
from rmqha.replication.overlap import SlaveAhead, SlaveBelowMin, StreamStart, choose_start, find_overlap
from tests.memory_log import record, records

FILE = 4096
OWN = StreamStart(first_report=5000, own_end=6000, comparable_end=6000, boundary=6000)


@given(st.lists(st.integers(0, 600), min_size=1, max_size=20), st.integers(0, 5000))
def test_the_overlap_starts_with_a_record_far_enough_back(sizes: list[int], overlap: int) -> None:
    log = records([bytes([i]) * size for i, size in enumerate(sizes)], file_size=FILE)
    file_offset = (len(log) - 1) // FILE * FILE
    view = memoryview(log)[file_offset:]
    found = find_overlap(view, file_offset, file_size=FILE, overlap_size=overlap)
    starts, at = [], file_offset
    while at < len(log):
        starts.append(at)
        at += int.from_bytes(log[at : at + 4], "big")
    expected = max(start for start in starts if start <= max(len(log) - overlap, file_offset))
    assert found.first_report == (expected or 1), "0 would mean: I have nothing"
    assert found.prefix == (b"" if expected else log[:1])
    assert found.own_end == found.comparable_end == found.boundary == len(log)


def test_the_magic_code_inside_a_body_is_not_taken_for_a_record() -> None:
    """Neither bare, nor as a whole record of another place."""
    trap = b"\xda\xa3\x20\xa7" * 5 + record(7, b"inner") + b"\xda\xa3\x20\xa7"
    log = record(0, b"first") + record(len(record(0, b"first")), trap)
    for overlap in range(1, len(log) + 10):
        found = find_overlap(memoryview(log), 0, file_size=FILE, overlap_size=overlap)
        assert found.first_report in {1, len(record(0, b"first"))}


def test_a_record_larger_than_the_search_window_is_found() -> None:
    first = record(0, b"a")
    log = first + record(len(first), b"b" * (3 << 20))
    found = find_overlap(memoryview(log), 0, file_size=1 << 23, overlap_size=10)
    assert found.first_report == len(first)


def test_a_blank_at_the_end_is_compared_up_to_its_header() -> None:
    log = records([b"x" * 3000, b"y" * 3000], file_size=FILE)[:FILE]
    found = find_overlap(memoryview(log), 0, file_size=FILE, overlap_size=1)
    blank_at = len(record(0, b"x" * 3000))
    assert found == StreamStart(1, FILE, blank_at + 8, FILE, b"\0")


def test_a_log_that_ends_inside_a_blank_knows_its_boundary() -> None:
    log = records([b"x" * 3000, b"y" * 3000], file_size=FILE)[: FILE - 100]
    blank_at = len(record(0, b"x" * 3000))
    found = find_overlap(memoryview(log), 0, file_size=FILE, overlap_size=1)
    assert found == StreamStart(1, FILE - 100, blank_at + 8, blank_at, b"\0")


@pytest.mark.parametrize("cut", [1, 50, 91])
def test_a_log_that_ends_inside_a_record_needs_recovery(cut: int) -> None:
    log = records([b"x" * 300] * 3, file_size=FILE)
    with pytest.raises(CorruptLogError, match="needs recovery"):
        find_overlap(memoryview(log)[:-cut], 0, file_size=FILE, overlap_size=100)


@pytest.mark.parametrize(
    ("own", "master", "start"),
    [
        (None, None, StreamStart(0)),
        (None, LogRange(-1, 0), StreamStart(0)),
        (None, LogRange(0, 0), StreamStart(0)),
        (None, LogRange(0, 999), StreamStart(1, prefix=b"\0")),
        (None, LogRange(8192, 9999), StreamStart(8192, 8192, 8192, 8192)),
        (OWN, None, OWN),
        (OWN, LogRange(0, 6000), OWN),
        (OWN, LogRange(0, 9999), OWN),
        (OWN, LogRange(0, 5999), SlaveAhead(1)),
        (OWN, LogRange(8192, 9999), SlaveBelowMin(8192)),
        (StreamStart(8000, 8192, 8100, 8192), LogRange(8192, 9999), SlaveBelowMin(8192)),
        (StreamStart(8000, 8192, 8100, 8192), LogRange(8192, 8192), SlaveBelowMin(8192)),
        (StreamStart(8192, 9000, 9000, 9000), LogRange(8192, 9999), StreamStart(8192, 9000, 9000, 9000)),
        (StreamStart(4097, 8192, 8192, 8192), LogRange(4096, 9999), StreamStart(4097, 8192, 8192, 8192)),
    ],
)
def test_the_first_report_by_what_is_known_of_the_master(
    own: StreamStart | None, master: LogRange | None, start: StreamStart | SlaveAhead | SlaveBelowMin
) -> None:
    assert choose_start(own, master) == start
