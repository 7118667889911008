"""What a slave makes of a stream, however it was cut and chopped."""

import itertools
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.codec.record.layout import MESSAGE_MAGIC_V2
from rmqha.codec.transfer import BODY_SIZE_MAX, encode_frame_header
from rmqha.errors import RemoteProtocolError
from rmqha.replication.overlap import StreamStart
from rmqha.replication.slave_session import AppendChunk, CompareChunk, CorruptStreamError, SlaveSession
from tests.memory_log import inner_batch, record, records

FILE = 2048
BODIES = [bytes([i]) * (i * 137 % 700) for i in range(14)]
LOG = records(BODIES, file_size=FILE, blank_rest=b"stale bytes")


def frames(log: bytes, cuts: list[int], *, start: int = 0) -> bytes:
    """``log`` (which begins at offset ``start``) in frames cut at ``cuts`` and at every file end."""
    edges = range(0, start + len(log) + FILE, FILE)
    ends = sorted({cut + start for cut in cuts} | {edge for edge in edges if edge > start} | {start + len(log)})
    wire, at = b"", start
    for end in ends:
        if at <= end <= start + len(log):
            wire += encode_frame_header(at, end - at) + log[at - start : end - start]
            at = end
    return wire


class Taker:
    """Feeds a session and keeps what comes out."""

    def __init__(self, session: SlaveSession, *, own: bytes = b"", begins_at: int = 0) -> None:
        self.session = session
        self.begins_at = begins_at
        self.log = bytearray(own)
        self.compared = bytearray()
        self.boundaries: list[int] = []

    def feed(self, wire: bytes, step: int = 1 << 30) -> None:
        while wire:
            space = self.session.space()
            count = min(len(space), len(wire), step)
            assert count > 0
            space[:count] = wire[:count]
            wire = wire[count:]
            self.session.on_received(count)
            self.take()

    def take(self) -> None:
        while (chunk := self.session.next_chunk()) is not None:
            match chunk:
                case AppendChunk(phy_offset, data):
                    assert phy_offset == self.begins_at + len(self.log)
                    self.log += data
                case CompareChunk(_, data):
                    self.compared += data
            self.boundaries.append(self.session.boundary_offset)


@settings(deadline=None)
@given(st.lists(st.integers(0, len(LOG))), st.integers(1, 3000), st.sampled_from([64, 100, 1000, 1 << 20]))
def test_the_log_arrives_however_it_was_framed_chopped_and_buffered(cuts: list[int], step: int, buffer: int) -> None:
    taker = Taker(SlaveSession(StreamStart(0), file_size=FILE, buffer_size=buffer))
    taker.feed(frames(LOG, cuts), step)
    assert bytes(taker.log) == LOG
    assert taker.session.position == taker.session.boundary_offset == len(LOG)


def test_every_cut_position_of_a_frame_pair() -> None:
    """Checklist 7: frames cut at every byte position; two frames in one segment; header alone, body later."""
    log = LOG[:400]
    whole = {92, 92 + 92 + 137}
    for cut, step in itertools.product(range(len(log)), (7, 12, 13, 5000)):
        taker = Taker(SlaveSession(StreamStart(0), file_size=FILE, buffer_size=4096))
        wire = frames(log, [cut])
        taker.feed(wire, step)
        assert log.startswith(taker.log)
        assert taker.session.position == len(log)
        assert len(taker.log) == max(whole)


@settings(deadline=None)
@given(st.integers(0, len(LOG)), st.integers(1, 700))
def test_what_came_out_always_ends_with_a_whole_record(end: int, step: int) -> None:
    taker = Taker(SlaveSession(StreamStart(0), file_size=FILE, buffer_size=64))
    taker.feed(frames(LOG[:end], []), step)
    ends = {len(records(BODIES[:n], file_size=FILE)) for n in range(len(BODIES) + 1)}
    blanks = set(range(0, len(LOG), FILE))
    assert set(taker.boundaries) <= ends | blanks
    assert len(taker.log) in ends | blanks


def test_a_record_larger_than_the_buffer_makes_it_grow() -> None:
    log = records([bytes(100_000), b"x" * 300_000], file_size=1 << 20)
    taker = Taker(SlaveSession(StreamStart(0), file_size=1 << 20, buffer_size=1024))
    taker.feed(encode_frame_header(0, len(log)) + log, 7777)
    assert taker.log == log


def test_a_blank_that_is_too_large_to_hold_back_comes_piecewise_and_counts_only_when_whole() -> None:
    log = records([b"first", b"y" * 1900, b"last"], file_size=FILE, blank_rest=b"\xda\xa3\x20\xa7")
    blank_at = len(record(0, b"first"))
    taker = Taker(SlaveSession(StreamStart(0), file_size=FILE, buffer_size=256, record_size_max=1000))
    with pytest.raises(CorruptStreamError, match="more than 1000"):
        taker.feed(frames(log, []), 100)
    assert bytes(taker.log) == log[:FILE]
    assert set(taker.boundaries) == {blank_at, FILE}


def test_a_file_that_is_all_blank_arrives() -> None:
    """RocketMQ burns whole files on a record that does not fit; see the store `burned`."""
    burned = FILE.to_bytes(4, "big") + b"\xcb\xd4\x31\x94" + b"old" * 1000
    log = burned[:FILE] + record(FILE, b"after")
    for limit in (100, FILE):
        taker = Taker(SlaveSession(StreamStart(0), file_size=FILE, buffer_size=64, record_size_max=limit))
        if limit == 100:
            taker.feed(frames(log[:FILE], [5, 9]), 13)
        else:
            taker.feed(frames(log, [5, 9]), 13)
        assert log.startswith(taker.log)
        assert taker.session.boundary_offset == len(taker.log) >= FILE


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (encode_frame_header(1, 10), "expected 0"),
        (encode_frame_header(FILE - 8, 9), "expected 0"),
        ((0).to_bytes(8, "big") + (-1).to_bytes(4, "big", signed=True), "body size -1"),
        ((0).to_bytes(8, "big") + (BODY_SIZE_MAX + 1).to_bytes(4, "big"), f"body size {BODY_SIZE_MAX + 1}"),
        ((-5).to_bytes(8, "big", signed=True) + bytes(4), "negative"),
        (encode_frame_header(0, FILE + 1), "crosses the end of a file"),
    ],
)
def test_a_header_that_must_not_follow_is_refused_and_nothing_is_kept(header: bytes, message: str) -> None:
    taker = Taker(SlaveSession(StreamStart(0, prefix=b""), file_size=FILE))
    taker.feed(encode_frame_header(0, 0))
    with pytest.raises(RemoteProtocolError, match=message):
        taker.feed(header + LOG[:100])
    assert not taker.log


def test_the_first_frame_of_an_empty_slave_must_begin_a_file() -> None:
    with pytest.raises(RemoteProtocolError, match="mappedFileSizeCommitLog must be the same"):
        Taker(SlaveSession(StreamStart(0), file_size=FILE)).feed(encode_frame_header(FILE + 512, 0))


@pytest.mark.parametrize("heartbeats", [0, 1, 3])
def test_an_empty_slave_starts_where_the_master_does(heartbeats: int) -> None:
    taker = Taker(SlaveSession(StreamStart(0), file_size=FILE), begins_at=2 * FILE)
    taker.feed(encode_frame_header(2 * FILE, 0) * heartbeats)
    taker.feed(frames(LOG[2 * FILE :], [], start=2 * FILE))
    assert bytes(taker.log) == LOG[2 * FILE :]


def test_the_first_byte_of_a_log_is_supplied_when_the_stream_starts_at_one() -> None:
    taker = Taker(SlaveSession(StreamStart(1, prefix=b"\0"), file_size=FILE))
    wire = encode_frame_header(1, FILE - 1) + LOG[1:FILE] + frames(LOG[FILE:], [], start=FILE)
    taker.feed(wire, 17)
    assert bytes(taker.log) == LOG


@given(st.integers(0, 10**6), st.integers(0, 7), st.integers(1, 400))
def test_a_flipped_bit_is_never_kept_where_the_format_can_show_it(at: int, bit: int, step: int) -> None:
    """Size, magic, CRC, physical offset, body length, body: a record with a wrong one is not taken, nor waited for."""
    first = record(0, b"a" * 50)
    bad = bytearray(first + record(len(first), b"b" * 50))
    checked = [*range(12), *range(28, 36), *range(84, 88 + 50)]
    at = checked[at % len(checked)] + len(first) * (at % 2)
    bad[at] ^= 1 << bit
    taker = Taker(SlaveSession(StreamStart(0), file_size=FILE))
    can_wait = at % len(first) < 4  # a larger size may be waited for
    with suppress(CorruptStreamError) if can_wait else pytest.raises(CorruptStreamError):
        taker.feed(encode_frame_header(0, len(bad)) + bytes(bad), step)
    assert bytes(taker.log) == (b"" if at < len(first) else first)


@pytest.mark.parametrize("garbage", [bytes(200), b"\xff" * 200, b"\x7f\xff\xff\xff\xda\xa3\x20\xa7" + bytes(192)])
def test_garbage_is_refused_after_the_good_records_were_given_out(garbage: bytes) -> None:
    good = record(0, b"good")
    taker = Taker(SlaveSession(StreamStart(0), file_size=FILE))
    with pytest.raises(CorruptStreamError) as caught:
        taker.feed(encode_frame_header(0, len(good) + 200) + good + garbage)
    assert (bytes(taker.log), caught.value.offset) == (good, len(good))


@pytest.mark.parametrize("is_batch", [False, True])
def test_a_record_of_a_format_that_is_not_read_here_is_refused_and_not_waited_for(is_batch: bool) -> None:
    """More bytes do not help: they would fill the memory."""
    good = record(0, b"good")
    newer = bytearray(inner_batch(len(good)) if is_batch else record(len(good), b"of a later version"))
    if not is_batch:
        newer[4:8] = MESSAGE_MAGIC_V2.to_bytes(4, "big", signed=True)
    taker = Taker(SlaveSession(StreamStart(0), file_size=FILE))
    with pytest.raises(CorruptStreamError, match=r"RocketMQ 5\.x"):
        taker.feed(encode_frame_header(0, len(good) + len(newer)) + good + bytes(newer))
    assert bytes(taker.log) == good


def test_a_size_that_no_record_has_is_refused_before_it_is_waited_for() -> None:
    claim = (20 << 20).to_bytes(4, "big") + record(0, b"x" * 100)[4:]
    session = SlaveSession(StreamStart(0), file_size=1 << 30)
    with pytest.raises(CorruptStreamError, match="it claims 20971520 bytes"):
        Taker(session).feed(encode_frame_header(0, 150) + claim[:150])


def own(end: int, *, first: int, comparable: int | None = None, boundary: int | None = None) -> StreamStart:
    return StreamStart(
        first, end, end if comparable is None else comparable, boundary=end if boundary is None else boundary
    )


@settings(deadline=None)
@given(st.integers(1, 10), st.integers(1, 4000))
def test_what_is_here_already_is_compared_and_the_rest_appended(count: int, step: int) -> None:
    first = len(records(BODIES[: count - 1], file_size=FILE))
    end = len(records(BODIES[: count + 3], file_size=FILE))
    taker = Taker(SlaveSession(own(end, first=first), file_size=FILE, buffer_size=64), own=LOG[:end])
    assert taker.session.boundary_offset == first
    taker.feed(frames(LOG[first:], [], start=first), step)
    assert bytes(taker.compared) == LOG[first:end]
    assert bytes(taker.log) == LOG
    assert min(taker.boundaries) == first, "nothing is acknowledged before the overlap was compared"


def test_the_arbitrary_rest_of_a_blank_is_not_compared() -> None:
    first = record(0, b"x" * 1000)
    log = first + (FILE - len(first)).to_bytes(4, "big") + b"\xcb\xd4\x31\x94" + b"?" * (FILE - len(first) - 8)
    after = record(FILE, b"next")
    taker = Taker(SlaveSession(own(FILE, first=0, comparable=len(first) + 8), file_size=FILE), own=log)
    taker.feed(frames(log + after, []), 100)
    assert bytes(taker.compared) == log[: len(first) + 8]
    assert bytes(taker.log) == log + after


def test_a_stream_goes_on_inside_a_blank_that_was_received_in_part() -> None:
    first = record(0, b"x")
    log = first + (FILE - len(first)).to_bytes(4, "big") + b"\xcb\xd4\x31\x94" + b"?" * (FILE - len(first) - 8)
    log += record(FILE, b"next")
    start = own(1000, first=0, comparable=len(first) + 8, boundary=len(first))
    taker = Taker(SlaveSession(start, file_size=FILE, record_size_max=500), own=log[:1000])
    taker.feed(frames(log, []), 100)
    assert bytes(taker.log) == log
    assert sorted(set(taker.boundaries)) == [0, len(first), FILE, len(log)]


def test_a_master_that_is_shorter_shows_by_two_heartbeats_in_a_row() -> None:
    taker = Taker(SlaveSession(own(500, first=0), file_size=FILE), own=LOG[:500])
    taker.feed(encode_frame_header(0, 0))
    taker.feed(encode_frame_header(0, 300) + LOG[:300])
    taker.feed(encode_frame_header(300, 0))
    assert not taker.session.is_master_shorter
    taker.feed(encode_frame_header(300, 0))
    assert taker.session.is_master_shorter
    taker.feed(encode_frame_header(300, 200) + LOG[300:500] + encode_frame_header(500, 0) * 2)
    assert not taker.session.is_master_shorter
