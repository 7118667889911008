"""The replication stream's bytes, against the examples of the wire format and every chopping."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.codec.transfer import (
    BODY_SIZE_MAX,
    OFFSET_MAX,
    FrameHeader,
    ReportDecoder,
    decode_frame_header,
    encode_frame_header,
    encode_report,
)
from rmqha.errors import LocalProtocolError, RemoteProtocolError


def test_the_examples_of_the_wire_format() -> None:
    assert encode_report(1024).hex() == "0000000000000400"
    assert encode_frame_header(1024, 0).hex() == "000000000000040000000000"
    assert encode_frame_header(1024, 2).hex() == "000000000000040000000002"
    assert decode_frame_header(bytes.fromhex("000000000000040000000002abcd")) == FrameHeader(1024, 2)


@given(st.integers(0, OFFSET_MAX - BODY_SIZE_MAX), st.integers(0, BODY_SIZE_MAX), st.binary(max_size=5))
def test_a_header_survives_the_wire_at_any_position(offset: int, size: int, before: bytes) -> None:
    assert decode_frame_header(before + encode_frame_header(offset, size), len(before)) == (offset, size)


@pytest.mark.parametrize(("offset", "size"), [(0, BODY_SIZE_MAX + 1), (0, -1), (-1, 0), (-(2**63), 5), (OFFSET_MAX, 1)])
def test_impossible_headers_are_refused_both_ways(offset: int, size: int) -> None:
    with pytest.raises(LocalProtocolError, match=str(offset)):
        encode_frame_header(offset, size)
    raw = offset.to_bytes(8, "big", signed=True) + size.to_bytes(4, "big", signed=True)
    with pytest.raises(RemoteProtocolError):
        decode_frame_header(raw)


@given(st.lists(st.integers(-(2**63), 2**63 - 1)), st.binary(max_size=7), st.data())
def test_reports_do_not_depend_on_how_they_were_chopped(reports: list[int], stray: bytes, data: st.DataObject) -> None:
    wire = b"".join(map(encode_report, reports)) + stray
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)))))
    decoder = ReportDecoder()
    got: list[int] = []
    for start, end in zip([0, *cuts], [*cuts, len(wire)], strict=True):
        got += decoder.receive_data(memoryview(wire)[start:end])
    assert (got, decoder.unfinished_size) == (reports, len(stray))
