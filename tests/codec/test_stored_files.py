"""The smaller stored things: batches, queue units, the checkpoint, compressed bodies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.codec.batch import BatchEntry, encode_batch, merge_properties
from rmqha.codec.checkpoint import CHECKPOINT_SIZE, Checkpoint, decode_checkpoint, encode_checkpoint
from rmqha.codec.consume_queue import FILLER, UNIT_SIZE, ConsumeQueueUnit, decode_units, encode_units
from rmqha.codec.record.dispatch import read_dispatch
from rmqha.codec.record.encoder import prepare
from rmqha.errors import LocalProtocolError, RemoteProtocolError
from tests.batches import decode_batch

INT = st.integers(-(1 << 31), (1 << 31) - 1)
LONG = st.integers(-(1 << 63), (1 << 63) - 1)


@given(st.lists(st.builds(BatchEntry, INT, st.binary(max_size=50), st.binary(max_size=50)), max_size=5))
def test_batch_round_trip_and_every_chopping(entries: list[BatchEntry]) -> None:
    body = encode_batch(entries)
    assert decode_batch(body) == entries
    ends = {len(encode_batch(entries[:count])) for count in range(len(entries) + 1)}
    for end in range(len(body)):
        if end not in ends:
            with pytest.raises(RemoteProtocolError, match="batch entry"):
                decode_batch(body[:end])


@pytest.mark.parametrize("lengths", ["ffffffff 0000", "7fffffff 0000", "00000000 ffff", "00000000 7fff"])
def test_hostile_batch_lengths_are_refused(lengths: str) -> None:
    with pytest.raises(RemoteProtocolError, match="batch entry 0"):
        decode_batch(bytes.fromhex("00000016 00000000 00000000 00000000" + lengths))


def test_batch_properties_that_do_not_fit_are_refused() -> None:
    with pytest.raises(LocalProtocolError, match="32768 bytes"):
        encode_batch([BatchEntry(0, b"", bytes(32768))])


@pytest.mark.parametrize(
    ("own", "shared", "wanted"),
    [
        (b"", b"", b""),
        (b"a\x01b", b"", b"a\x01b"),
        (b"", b"c\x01d", b"c\x01d"),
        (b"a\x01b", b"c\x01d", b"a\x01b\x02c\x01d"),
        (b"a\x01b\x02", b"c\x01d", b"a\x01b\x02c\x01d"),
    ],
)
def test_merged_properties(own: bytes, shared: bytes, wanted: bytes) -> None:
    assert merge_properties(own, shared) == wanted


@given(st.lists(st.builds(ConsumeQueueUnit, LONG, INT, LONG), max_size=5), st.binary(max_size=UNIT_SIZE - 1))
def test_units_round_trip(units: list[ConsumeQueueUnit], rest: bytes) -> None:
    raw = encode_units(units)
    assert len(raw) == UNIT_SIZE * len(units)
    assert decode_units(raw + rest) == units
    assert decode_units(raw + rest, UNIT_SIZE, 2 * UNIT_SIZE) == units[1:2]


def test_what_a_unit_is() -> None:
    (filler,) = decode_units(FILLER)
    (unused,) = decode_units(bytes(UNIT_SIZE))
    assert (filler.is_filler, filler.is_written) == (True, True)
    assert (unused.is_filler, unused.is_written) == (False, False)
    assert ConsumeQueueUnit(0, 92, 0).is_written
    assert not ConsumeQueueUnit(-1, 92, 0).is_written


def test_checkpoint() -> None:
    raw = encode_checkpoint(Checkpoint(1, 2, 3, 4, 5))
    assert len(raw) == CHECKPOINT_SIZE
    assert raw[:24] == bytes.fromhex("0000000000000001 0000000000000002 0000000000000003")
    assert decode_checkpoint(raw) == Checkpoint(1, 2, 3, 4, 5)
    assert decode_checkpoint(b"") == decode_checkpoint(bytes(4096)) == Checkpoint()
    assert decode_checkpoint(raw[:16]) == Checkpoint(1, 2)
    by_rocketmq = (9).to_bytes(8, "big") + raw[8:]  # 4.9 moves a time, and the log's end with it
    assert decode_checkpoint(by_rocketmq) == Checkpoint(9, 2, 3)
    assert decode_checkpoint(b"\x7f" * 4096).master_flushed_offset == 0
    assert decode_checkpoint(b"\xff" * 4096) == Checkpoint()
    assert Checkpoint(10_000, 9_000, 1).min_timestamp_ms == 6_000
    assert Checkpoint(10_000, 0).min_timestamp_ms == 0


HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
HOST_V6 = bytes(19) + b"\1"


def test_dispatch_reads_what_queues_need_and_stops_where_records_stop() -> None:
    log, ends = b"", []
    for number, (born, store) in enumerate([(HOST, HOST), (HOST_V6, HOST), (HOST, HOST_V6), (HOST_V6, HOST_V6)] * 2):
        prepared = prepare(
            f"T{number % 3}",
            bytes(number * 10),
            queue_id=number,
            born_timestamp_ms=1,
            born_host_raw=born,
            store_host_raw=store,
            properties_raw=b"TAGS\x01TagA" if number % 2 else b"",
            sys_flag=8,
        )
        log += prepared.pack(queue_offset=number + 7, physical_offset=100 + len(log), store_timestamp_ms=number)
        ends.append(len(log))
    for end in range(len(log) + 1):
        requests, stop = read_dispatch(log, 0, end, phy_offset_base=100)
        assert stop == max([position for position in ends if position <= end], default=0)
        assert len(requests) == len([position for position in ends if position <= end])
    for number, request in enumerate(requests):
        start = ends[number - 1] if number else 0
        assert request[:4] == (f"T{number % 3}", number, 100 + start, ends[number] - start)
        assert request.tags_code == (2598919 if number % 2 else 0)
        assert request[5:7] == (number, number + 7)
        assert request.sys_flag & 0xC == 8
    assert read_dispatch(log, 0, len(log), phy_offset_base=101) == ([], 0)


@given(st.binary(max_size=200), st.integers(0, 150))
def test_dispatch_never_raises_on_noise(noise: bytes, at: int) -> None:
    prepared = prepare("T", bytes(50), queue_id=0, born_timestamp_ms=1, born_host_raw=HOST, store_host_raw=HOST)
    log = bytearray(prepared.pack(queue_offset=0, physical_offset=0, store_timestamp_ms=0))
    log[at : at + len(noise)] = noise
    assert read_dispatch(log, 0, len(log), phy_offset_base=0)[1] <= len(log)
