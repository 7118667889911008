"""Where a slave asks a stream to begin."""

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.codec.record.layout import encode_blank
from rmqha.codec.record.scan import scan_records
from rmqha.errors import CorruptLogError
from rmqha.replication.master_session import LogRange
from rmqha.replication.overlap import SlaveAhead, SlaveBelowMin, StreamStart, choose_start, find_overlap
from tests.memory_log import forged, record, records

FILE = 4096
OWN = StreamStart(first_report=5000, own_end=6000, comparable_end=6000, boundary=6000)


def search(
    view: memoryview, file_offset: int, *, file_size: int, overlap_size: int, is_whole: bool = True
) -> StreamStart:
    """Take all its steps."""
    steps = find_overlap(view, file_offset, file_size=file_size, overlap_size=overlap_size, is_whole=is_whole)
    while True:
        try:
            next(steps)
        except StopIteration as found:
            return cast("StreamStart", found.value)


@given(st.lists(st.integers(0, 600), min_size=1, max_size=20), st.integers(0, 5000))
def test_the_overlap_starts_with_a_record_far_enough_back(sizes: list[int], overlap: int) -> None:
    log = records([bytes([i]) * size for i, size in enumerate(sizes)], file_size=FILE)
    file_offset = (len(log) - 1) // FILE * FILE
    view = memoryview(log)[file_offset:]
    found = search(view, file_offset, file_size=FILE, overlap_size=overlap)
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
        found = search(memoryview(log), 0, file_size=FILE, overlap_size=overlap)
        assert found.first_report in {1, len(record(0, b"first"))}


def test_a_record_larger_than_the_search_window_is_found() -> None:
    first = record(0, b"a")
    log = first + record(len(first), b"b" * (3 << 20))
    found = search(memoryview(log), 0, file_size=1 << 23, overlap_size=10)
    assert found.first_report == len(first)


def test_a_blank_at_the_end_is_compared_up_to_its_header() -> None:
    log = records([b"x" * 3000, b"y" * 3000], file_size=FILE)[:FILE]
    found = search(memoryview(log), 0, file_size=FILE, overlap_size=1)
    blank_at = len(record(0, b"x" * 3000))
    assert found == StreamStart(1, FILE, blank_at + 8, FILE, b"\0")


def test_a_log_that_ends_inside_a_blank_knows_its_boundary() -> None:
    log = records([b"x" * 3000, b"y" * 3000], file_size=FILE)[: FILE - 100]
    blank_at = len(record(0, b"x" * 3000))
    found = search(memoryview(log), 0, file_size=FILE, overlap_size=1)
    assert found == StreamStart(1, FILE - 100, blank_at + 8, blank_at, b"\0")


def a_record(at: int) -> bytes:
    return record(at, b"inner")


def a_blank(at: int) -> bytes:
    return encode_blank(FILE - at % FILE)


@pytest.mark.parametrize("tail", [0, 1, 200, 700])
def test_a_blank_in_a_body_ends_no_comparison(tail: int) -> None:
    """Behind it nothing was compared, and nothing acknowledged before the next file."""
    log = record(0, b"first")
    log += forged(len(log), a_record, a_record, a_blank, lambda _: b"x" * 300)
    log += record(len(log), b"y" * tail) if tail else b""
    for overlap_size in range(1, len(log) + 10):
        found = search(memoryview(log), 0, file_size=FILE, overlap_size=overlap_size)
        assert found.own_end == found.comparable_end == found.boundary == len(log)
        assert found.first_report <= max(len(log) - overlap_size, 1)


def test_a_full_file_is_compared_up_to_its_own_blank() -> None:
    log = record(0, b"first")
    log += forged(len(log), a_record, a_record, a_blank, lambda _: b"x" * 300)
    log += record(len(log), b"y" * 1000)
    blank_at = len(log)
    log += a_blank(blank_at) + bytes(FILE - blank_at - 8)
    for overlap_size in range(1, FILE + 10):
        found = search(memoryview(log), 0, file_size=FILE, overlap_size=overlap_size)
        assert (found.own_end, found.comparable_end, found.boundary) == (FILE, blank_at + 8, FILE)


def test_a_blank_in_a_body_that_begins_far_before_it_is_not_the_logs() -> None:
    """The record that holds it begins several steps of the search earlier: what is behind it was not compared."""
    file_size = 1 << 20
    log = first = record(0, b"first")
    log += forged(len(log), lambda _: b"x" * 300_000, a_record, lambda at: encode_blank(file_size - at))
    blank_at = len(log)
    log += encode_blank(file_size - blank_at) + bytes(file_size - blank_at - 8)
    for overlap_size in (1, 1000, file_size - blank_at):
        found = search(memoryview(log), 0, file_size=file_size, overlap_size=overlap_size)
        assert (found.first_report, found.comparable_end, found.boundary) == (len(first), blank_at + 8, file_size)


def test_where_a_log_that_is_cut_short_ends_no_blank_in_a_body_matters() -> None:
    log = record(0, b"first")
    log += forged(len(log), a_record, a_blank, lambda _: b"x" * 300)
    log += record(len(log), b"y" * 500)
    for end in range(1, len(log)):
        found = search(memoryview(log)[:end], 0, file_size=FILE, overlap_size=50, is_whole=False)
        assert found.own_end == found.comparable_end == found.boundary == end


def test_what_looks_like_records_in_a_body_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of a few thousand that leads nowhere was followed from each of them: a slave stood still for minutes."""
    looked_at = 0

    def counting(*args: object, **options: object) -> object:
        nonlocal looked_at
        scan = scan_records(*args, **options)  # type: ignore[arg-type]
        looked_at += 1 + scan.records
        return scan

    monkeypatch.setattr("rmqha.replication.overlap.scan_records", counting)
    count, first = 3000, record(0, b"first")
    log = first + forged(len(first), *[a_record] * count, lambda _: b"that is all")
    log += record(len(log), b"last")
    found = search(memoryview(log), 0, file_size=1 << 20, overlap_size=200)
    assert (found.first_report, found.own_end) == (len(first), len(log))
    assert looked_at < 3 * count


def test_the_search_is_made_of_short_steps() -> None:
    log = record(0, b"first")
    log += forged(len(log), *[a_record] * 3000, lambda _: b"\xda\xa3\x20\xa7" * 50_000)
    log += record(len(log), b"last")
    steps = list(find_overlap(memoryview(log), 0, file_size=1 << 20, overlap_size=200))
    assert len(steps) > 5


@pytest.mark.parametrize("cut", [1, 50, 91])
def test_a_log_that_ends_inside_a_record_needs_recovery(cut: int) -> None:
    log = records([b"x" * 300] * 3, file_size=FILE)
    with pytest.raises(CorruptLogError, match="needs recovery"):
        search(memoryview(log)[:-cut], 0, file_size=FILE, overlap_size=100)


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
