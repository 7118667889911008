"""TlsRecords: everything comes out in order, however it came in, and little at once."""

from hypothesis import given
from hypothesis import strategies as st

from rmqha.codec.tls_records import RECORDS_AT_ONCE, TlsRecords


def record(size: int) -> bytes:
    return b"\x17\3\3" + size.to_bytes(2, "big") + bytes(size)


@given(st.lists(st.integers(0, 40) | st.integers(0, 17_000), max_size=60), st.lists(st.integers(1, 20_000), min_size=1))
def test_all_comes_out_in_order_and_few_records_at_once(sizes: list[int], cuts: list[int]) -> None:
    sent, taken, at = b"".join(map(record, sizes)), b"", 0
    ends = [sum(5 + size for size in sizes[: number + 1]) for number in range(len(sizes))]
    records = TlsRecords()
    while at < len(sent):
        space = records.space()
        count = min(cuts[at % len(cuts)], len(space), len(sent) - at)
        space[:count] = sent[at : at + count]
        records.on_received(count)
        at += count
        while records.more:
            portion = records.take()
            assert portion
            assert sum(len(taken) < end <= len(taken) + len(portion) for end in ends) <= RECORDS_AT_ONCE + 1
            taken += portion
        assert at - len(taken) < 5, "no more than a part of a header is held"
    assert taken == sent


@given(st.binary(max_size=3000), st.integers(1, 700))
def test_what_is_no_tls_comes_out_all_the_same(sent: bytes, cut: int) -> None:
    records, taken = TlsRecords(), b""
    for at in range(0, len(sent), cut):
        part = sent[at : at + cut]
        records.space()[: len(part)] = part
        records.on_received(len(part))
        while records.more:
            taken += records.take()
    assert sent.startswith(taken)
    assert len(sent) - len(taken) < 5
