"""scan_records: where a walk stops, and why, for every chopping and every kind of damage."""

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.codec.record.dispatch import read_dispatch
from rmqha.codec.record.encoder import prepare
from rmqha.codec.record.layout import encode_blank
from rmqha.codec.record.message import decode_message
from rmqha.codec.record.resync import find_record
from rmqha.codec.record.scan import Stop, scan_records
from tests.memory_log import inner_batch

V4 = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
V6 = bytes(range(16)) + bytes([0, 0, 0x2A, 0x9F])
BASE = 1 << 33

# spec: commitlog §17
VECTOR = bytes.fromhex(
    "00000083 daa320a7 0d4a1185 00000003 00000000 0000000000000007"
    "0000000000000400 00000000 0000018bcfe56800 7f000001 000004d2"
    "0000018bcfe5687b 7f000001 00002a9f 00000000 0000000000000000 0000000b"
    "68656c6c6f20776f726c64 09 546f70696354657374 0014"
    "54414753 01 54616741 02 4b455953 01 6b31206b32"
)


def record(at: int, body: bytes = b"body", *, born: bytes = V4, store: bytes = V4, topic: str = "TopicTest") -> bytes:
    prepared = prepare(
        topic, body, queue_id=1, born_timestamp_ms=1, born_host_raw=born, store_host_raw=store, properties_raw=b"a\x01b"
    )
    return prepared.pack(queue_offset=0, physical_offset=BASE + at, store_timestamp_ms=1000 + at)


def log_of(*bodies: bytes) -> tuple[bytes, list[int]]:
    """Records of all address families in turn, and where each ends."""
    hosts = [(V4, V4), (V6, V4), (V4, V6), (V6, V6)]
    log, ends = b"", []
    for number, body in enumerate(bodies):
        born, store = hosts[number % 4]
        log += record(len(log), body, born=born, store=store)
        ends.append(len(log))
    return log, ends


def test_the_vector_is_one_good_record() -> None:
    scan = scan_records(VECTOR, 0, len(VECTOR), phy_offset_base=1024)
    assert scan == (131, Stop.END, "", 1, 1700000000123)


def test_every_chopping_stops_after_the_last_whole_record() -> None:
    log, ends = log_of(b"", b"one", b"\0" * 40, b"four", b"x" * 300, b"")
    for end in range(len(log) + 1):
        scan = scan_records(log, 0, end, phy_offset_base=BASE)
        whole = [position for position in ends if position <= end]
        assert scan.end == (whole[-1] if whole else 0)
        assert scan.records == len(whole)
        assert scan.stop is (Stop.END if end in (0, *whole) else Stop.INCOMPLETE), (end, scan)


@given(bodies=st.lists(st.binary(max_size=200), max_size=6), start=st.integers(0, 50))
def test_any_run_of_records_is_walked_from_any_position(bodies: list[bytes], start: int) -> None:
    log, _ = log_of(*bodies)
    shifted = bytes(start) + log
    scan = scan_records(memoryview(shifted), start, len(shifted), phy_offset_base=BASE - start)
    assert (scan.end, scan.stop, scan.records) == (len(shifted), Stop.END, len(bodies))


@given(data=st.data())
def test_no_flipped_bit_of_sizes_topic_body_or_offset_goes_unnoticed(data: st.DataObject) -> None:
    log = bytearray(record(0, b"some body", born=V6))
    topic_at = len(log) - 2 - 3 - len("TopicTest") - 1
    checked = [*range(12), *range(28, 36), *range(topic_at - 4 - 9, topic_at + 1), len(log) - 5, len(log) - 4]
    at, bit = data.draw(st.sampled_from(checked)), data.draw(st.integers(0, 7))
    log[at] ^= 1 << bit
    scan = scan_records(log, 0, len(log), phy_offset_base=BASE, file_end=len(log) + 8)
    assert scan.records == 0
    assert scan.stop in (Stop.CORRUPT, Stop.INCOMPLETE, Stop.FOREIGN)


@given(noise=st.binary(max_size=200), check_crc=st.booleans())
def test_noise_never_raises(noise: bytes, check_crc: bool) -> None:
    scan = scan_records(noise, 0, len(noise), phy_offset_base=0, check_crc=check_crc)
    assert scan.end <= len(noise)


@given(noise=st.binary(max_size=120), at=st.integers(0, 200))
def test_a_record_with_noise_inside_never_raises(noise: bytes, at: int) -> None:
    log = bytearray(record(0, b"x" * 60))
    log[at : at + len(noise)] = noise
    scan = scan_records(log, 0, len(log), phy_offset_base=BASE)
    assert scan.end <= len(log)


def put(log: bytes, at: int, layout: str, *values: object) -> bytes:
    changed = bytearray(log)
    struct.pack_into(layout, changed, at, *values)
    return bytes(changed)


GOOD = record(0, b"x" * 50)
BATCH = inner_batch(BASE)


@pytest.mark.parametrize(
    ("damaged", "stop", "reason"),
    [
        (put(GOOD, 0, ">i", 0x7FFFFFFF), Stop.CORRUPT, "reaches beyond the end of this file"),
        (put(GOOD, 0, ">i", -1), Stop.CORRUPT, "TOTALSIZE -1 is smaller"),
        (put(GOOD, 0, ">i", 90), Stop.CORRUPT, "TOTALSIZE 90 is smaller"),
        (put(GOOD, 0, ">i", 0), Stop.CORRUPT, "TOTALSIZE 0 is smaller"),
        (put(GOOD, 0, ">i", len(GOOD) - 1), Stop.CORRUPT, "PROPERTIES LENGTH"),
        (put(GOOD, 4, ">i", 7), Stop.CORRUPT, "MAGICCODE 0x00000007"),
        (put(GOOD, 4, ">i", 0), Stop.CORRUPT, "MAGICCODE 0x00000000"),
        (put(GOOD, 8, ">i", 7), Stop.CORRUPT, "BODYCRC 0x00000007"),
        (put(GOOD, 8, ">i", -1), Stop.CORRUPT, "BODYCRC 0xFFFFFFFF"),
        (put(GOOD, 28, ">q", 5), Stop.CORRUPT, "claims PHYSICALOFFSET 5"),
        (put(GOOD, 36, ">i", 0x10), Stop.CORRUPT, "BODY LENGTH"),
        (put(GOOD, 36, ">i", 0x30), Stop.CORRUPT, "BODY LENGTH"),
        (put(GOOD, 84, ">i", -1), Stop.CORRUPT, "BODY LENGTH -1"),
        (put(GOOD, 84, ">i", 0x7FFFFFFF), Stop.CORRUPT, "BODY LENGTH 2147483647"),
        (put(GOOD, 138, ">b", -1), Stop.CORRUPT, "TOPIC LENGTH 255"),
        (put(GOOD, 138, ">b", 12), Stop.CORRUPT, "illegal characters in the topic"),
        (put(GOOD, 139, ">c", b"/"), Stop.CORRUPT, "illegal characters in the topic b'/opicTest'"),
        (put(GOOD, 148, ">h", -1), Stop.CORRUPT, "PROPERTIES LENGTH 65535"),
        (put(GOOD, 4, ">I", 0xDAA320AB), Stop.FOREIGN, "RocketMQ 5.x"),
        (BATCH, Stop.FOREIGN, "an inner batch of RocketMQ 5.x"),
        (put(BATCH, 90, ">c", b"y"), Stop.CORRUPT, "BODYCRC"),
        (put(BATCH, 28, ">q", 5), Stop.CORRUPT, "claims PHYSICALOFFSET 5"),
        (put(BATCH, 84, ">i", -1), Stop.CORRUPT, "BODY LENGTH -1"),
        (put(BATCH, 84, ">i", 0x7FFFFFFF), Stop.CORRUPT, "BODY LENGTH 2147483647"),
        (BATCH[:100], Stop.INCOMPLETE, "of a record"),
        (BATCH[:-1], Stop.INCOMPLETE, "of a record"),
        (struct.pack(">iiqqq", 1, 90, 0, 3, BASE) + bytes(70), Stop.FOREIGN, "DLedger"),
        (bytes(100), Stop.ZERO, ""),
        (encode_blank(len(GOOD) + 8), Stop.BLANK, ""),
        (encode_blank(len(GOOD) + 7), Stop.CORRUPT, "a blank of"),
        (encode_blank(7), Stop.CORRUPT, "a blank of 7 bytes"),
    ],
)
def test_damage_is_named(damaged: bytes, stop: Stop, reason: str) -> None:
    file_end = max(len(GOOD), len(BATCH) * (damaged[36:40] == BATCH[36:40])) + 8
    scan = scan_records(damaged, 0, len(damaged), phy_offset_base=BASE, file_end=file_end)
    assert (scan.end, scan.records, scan.stop) == (0, 0, stop)
    assert reason in scan.reason


@pytest.mark.parametrize("check_crc", [True, False])
@pytest.mark.parametrize("host", [V4, V6])
def test_an_inner_batch_ends_every_walk(host: bytes, check_crc: bool) -> None:
    """Its body is several messages with places of their own: as one message it would be wrong data."""
    log, _ = log_of(*[b"body"] * 6)
    data = log + inner_batch(BASE + len(log), host=host) + record(0)
    scan = scan_records(data, 0, len(data), phy_offset_base=BASE, check_crc=check_crc)
    assert (scan.end, scan.records, scan.stop) == (len(log), 6, Stop.FOREIGN)
    requests, end = read_dispatch(data, 0, len(data), phy_offset_base=BASE)
    assert (end, len(requests)) == (len(log), 6)


@pytest.mark.parametrize("sys_flag", [0x40, 0x80, 0xC0])
def test_a_sender_s_bits_alone_make_no_inner_batch(sys_flag: int) -> None:
    """RocketMQ 4.9 stores them as they are sent."""
    log = put(GOOD, 36, ">i", sys_flag)
    assert scan_records(log, 0, len(log), phy_offset_base=BASE).records == 1
    assert len(read_dispatch(log, 0, len(log), phy_offset_base=BASE)[0]) == 1


def test_a_last_byte_missing_for_ipv6_hosts_is_named() -> None:
    log = put(record(0, b"", topic="T"), 36, ">i", 0x30)
    scan = scan_records(log, 0, len(log), phy_offset_base=BASE)
    assert "too small for the IPv6 hosts" in scan.reason


def test_a_file_with_no_room_for_a_blank_is_corrupt() -> None:
    log = GOOD + bytes(7)
    scan = scan_records(log, 0, len(log), phy_offset_base=BASE, file_end=len(log))
    assert (scan.end, scan.stop, scan.reason[:17]) == (len(GOOD), Stop.CORRUPT, "only 7 bytes left")


def test_the_walk_stops_at_a_blank_and_after_nothing() -> None:
    log = GOOD + encode_blank(100)
    assert scan_records(log, 0, len(log), phy_offset_base=BASE)[:2] == (len(GOOD), Stop.BLANK)
    assert scan_records(log, 5, 5, phy_offset_base=BASE)[:2] == (5, Stop.END)


def test_without_crc_a_flipped_body_passes() -> None:
    log = put(GOOD, 90, ">c", b"y")
    assert scan_records(log, 0, len(log), phy_offset_base=BASE, check_crc=False).records == 1
    assert scan_records(log, 0, len(log), phy_offset_base=BASE).records == 0


def test_a_hostile_size_allocates_nothing() -> None:
    tracemalloc = pytest.importorskip("tracemalloc", reason="PyPy does not count allocations")
    log = put(GOOD, 0, ">i", 0x7FFFFFFF)
    tracemalloc.start()
    try:
        scan_records(log, 0, len(log), phy_offset_base=BASE)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 100_000


def test_false_ipv6_bits_of_a_sender_are_cleared() -> None:
    prepared = prepare(
        "T", b"x", queue_id=0, born_timestamp_ms=0, born_host_raw=V4, store_host_raw=V6, sys_flag=0x7FFF0010
    )
    packed = prepared.pack(queue_offset=0, physical_offset=0, store_timestamp_ms=0)
    assert prepared.size == len(packed)
    assert decode_message(packed).sys_flag == 0x7FFF0020


def test_properties_that_end_in_zeros_are_torn_only_where_nothing_follows() -> None:
    """No record of ours ends so, but a RocketMQ master's may."""
    plain = decode_message(record(0))
    first = replace(plain, properties_raw=b"a\x01b\0\0", store_size=plain.store_size + 2).encode()
    log = first + record(len(first))
    assert scan_records(log, 0, len(log), phy_offset_base=BASE, torn_from=0).records == 2
    alone = first + bytes(600)
    for torn_from in (0, 50, len(first) - 1):
        scan = scan_records(alone, 0, len(first), phy_offset_base=BASE, torn_from=torn_from)
        assert (scan.end, scan.stop) == (0, Stop.CORRUPT), "durable is what lies before, and this reaches beyond"
    assert scan_records(alone, 0, len(first), phy_offset_base=BASE, torn_from=len(first)).records == 1


@pytest.mark.parametrize("properties", [b"\0", b"\0\0", b"\0\0\0", b"a\0\0"])
def test_properties_of_which_hardly_anything_came_are_torn(properties: bytes) -> None:
    plain = decode_message(record(0))
    size = plain.store_size - len(plain.properties_raw) + len(properties)
    alone = replace(plain, properties_raw=properties, store_size=size).encode()
    scan = scan_records(alone + bytes(600), 0, len(alone), phy_offset_base=BASE, torn_from=0)
    assert (scan.end, scan.stop) == (0, Stop.CORRUPT)


@pytest.mark.parametrize("at", [(1 << 20) - 8, (1 << 20) - 2, (1 << 20) - 1, 1 << 20])
def test_a_record_is_found_wherever_its_magic_lies(at: int) -> None:
    """What is searched is searched in pieces."""
    log = bytes(at) + record(at) + bytes(100)
    assert find_record(log, 0, len(log), phy_offset_base=BASE) == at
    assert find_record(log, at + 1, len(log), phy_offset_base=BASE) is None


def test_a_magic_just_before_a_record_hides_it_not() -> None:
    at = 108
    log = bytes(at - 8) + VECTOR[4:8] + bytes(4) + record(at)
    assert find_record(log, 0, len(log), phy_offset_base=BASE) == at


@pytest.mark.parametrize("beyond", [1, 8, 9])
def test_a_record_that_would_cross_the_end_of_its_file_is_corrupt(beyond: int) -> None:
    log = record(0)
    file_end = len(log) - beyond
    assert scan_records(log, 0, file_end, phy_offset_base=BASE, file_end=file_end).stop is Stop.CORRUPT
