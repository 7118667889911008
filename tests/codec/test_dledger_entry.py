"""DLedger's records: what is one, and why what is none is not."""

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.codec.dledger_entry import (
    BLANK_MAGIC_CODE,
    BODY_OFFSET,
    CURRENT_MAGIC,
    INDEX_UNIT_SIZE,
    MAGIC_1,
    MIN_BLANK_LEN,
    Blank,
    DLedgerEntry,
    End,
    EntryHeader,
    decode_entry,
    decode_index,
    encode_header,
    encode_index,
    read_record,
    start_position,
)
from rmqha.codec.dledger_properties import (
    CHECK_POINT_FILE,
    COMMITTED_INDEX_KEY,
    END_INDEX_KEY,
    LedgerCheckpoint,
    decode_check_point,
    encode_check_point,
)
from tests.dledger.ledgers import blank, entry

FIRST = EntryHeader(magic=1, size=53, index=7, term=3, pos=512, channel=0, chain_crc=0, body_crc=0, body_length=5)


def record(data: bytes, *, previous: EntryHeader | None = None, at: int = 0) -> EntryHeader | Blank | End:
    return read_record(data.ljust(256, b"\0"), at, base=512, previous=previous)


def test_the_order_and_meaning_of_all_ten_fields() -> None:
    """Seed checklist, step 3: encode, computeSizeInBytes, order and meaning of all ten fields (spec: dledger §1.2)."""
    raw = entry(7, pos=512, term=3) + entry(8, pos=565, term=3, body=b"")
    assert record(raw) == FIRST
    assert raw[48:53] == b"hello"
    made = DLedgerEntry(b"hello", index=7, term=3, pos=512)
    made.size = made.compute_size_in_bytes()
    assert encode_header(made) + made.body == raw[:53]
    assert decode_entry(raw[:53]) == made
    following = record(raw, previous=FIRST, at=53)
    assert following == replace(FIRST, size=48, index=8, pos=565, body_length=0)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (entry(7, pos=513), "an entry's pos would be 513"),
        (entry(7, pos=512, magic=2), "an entry's magic would be 2, not 1"),
        (entry(7, pos=512)[:4] + struct.pack(">i", 54) + entry(7, pos=512)[8:], "size 54 is not 48 + bodyLength 5"),
        (entry(7, pos=512, body=bytes(209)), "an entry of 257 bytes does not fit into the 256 that are left"),
        (struct.pack(">iiqqqiiii", 1, 45, 7, 3, 512, 0, 0, 0, -3), "size 45 is not 48 + bodyLength -3"),
    ],
)
def test_what_is_no_entry_is_said(raw: bytes, reason: str) -> None:
    found = read_record(raw.ljust(256, b"\0")[:256], 0, base=512, previous=None)
    assert isinstance(found, End)
    assert reason in found.reason


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (entry(7, pos=565, term=3), "index is 7, behind one of index 7"),
        (entry(9, pos=565, term=3), "index is 9, behind one of index 7"),
        (entry(8, pos=565, term=2), "term is 2, behind one of term 3"),
    ],
)
def test_the_index_is_unique_and_ascending(raw: bytes, reason: str) -> None:
    """Seed checklist: index unique and ascending (spec: dledger §1.2)."""
    found = record(bytes(53) + raw, previous=FIRST, at=53)
    assert isinstance(found, End)
    assert reason in found.reason


def test_zeros_are_the_end_and_a_blank_is_the_rest_of_the_file() -> None:
    """Seed checklist: MIN_BLANK_LEN, BLANK_MAGIC_CODE (spec: dledger §1.4)."""
    assert record(b"") == End("")
    assert record(bytes(53) + blank(203), at=53) == Blank(565, 203)
    assert record(b"", at=249) == End("7 bytes are left, fewer than a blank has")
    assert record(bytes(220) + b"\1" * 36, at=220) == End("36 bytes are left, fewer than an entry's header has")


def test_dledger_s_constants() -> None:
    """Seed checklist: MAGIC_1, CURRENT_MAGIC, INDEX_UNIT_SIZE, CHECK_POINT_FILE (spec: dledger §1.1 to §1.4)."""
    assert (MAGIC_1, CURRENT_MAGIC, INDEX_UNIT_SIZE, BODY_OFFSET) == (1, 1, 32, 48)
    assert (MIN_BLANK_LEN, BLANK_MAGIC_CODE) == (8, -1)
    assert (CHECK_POINT_FILE, END_INDEX_KEY, COMMITTED_INDEX_KEY) == ("checkpoint", "endIndex", "committedIndex")


def test_a_unit_of_the_index() -> None:
    """Seed checklist, step 9: encodeIndex(pos, size, magic, index, term, buffer) (spec: dledger §1.3)."""
    unit = encode_index(pos=512, size=53, magic=1, index=7, term=3)
    assert unit == struct.pack(">iqiqq", 1, 512, 53, 7, 3)
    assert decode_index(unit) == (512, 53)


def test_a_first_file_may_begin_with_a_blank_before_its_first_entry() -> None:
    assert start_position(blank(100).ljust(256, b"\0")) == 100
    for whole in (blank(256), blank(249), blank(7), blank(-5), entry(0, pos=0), b""):
        assert start_position(whole.ljust(256, b"\0")) == 0


@given(st.binary(max_size=300), st.integers(0, 300), st.integers(-(2**40), 2**40))
def test_any_bytes_are_an_entry_that_lies_within_them_or_none(data: bytes, at: int, base: int) -> None:
    found = read_record(data, min(at, len(data)), base=base, previous=None)
    if isinstance(found, EntryHeader):
        assert 48 <= found.size <= len(data) - at
    assert 0 <= start_position(data) <= len(data)


def test_the_checkpoint() -> None:
    """Seed checklist: CHECK_POINT_FILE, END_INDEX_KEY, COMMITTED_INDEX_KEY (spec: dledger §1.12)."""
    assert decode_check_point(b"committedIndex=54\nendIndex=57\n") == LedgerCheckpoint(57, 54)
    assert decode_check_point(b"endIndex= 57 \r\n") == LedgerCheckpoint(57, -1)
    for nothing in (b"", b"\xff\xfe=3\n", b"endIndex=\ncommittedIndex=x\n", b"endIndex=-7"):
        assert decode_check_point(nothing) == LedgerCheckpoint(-1, -1)


@pytest.mark.parametrize("floor", [(-1, -1), (0, 0), (3, 0), (2, 17)])
@pytest.mark.parametrize("index_proves", [True, False])
@pytest.mark.parametrize("cut_from", [-1, 0, 55])
def test_a_checkpoint_comes_back_whole(floor: tuple[int, int], cut_from: int, *, index_proves: bool) -> None:
    checkpoint = LedgerCheckpoint(57, 54, index_proves, floor, cut_from)
    assert decode_check_point(encode_check_point(checkpoint)) == checkpoint


@pytest.mark.parametrize(("end", "committed", "kept"), [(57, 54, 54), (51, 80, 51), (-1, 3, -1), (9, -1, -1)])
def test_what_a_checkpoint_vouches_for(end: int, committed: int, kept: int) -> None:
    assert LedgerCheckpoint(end, committed).kept_index == kept
