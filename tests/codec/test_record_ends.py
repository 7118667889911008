"""The ends of records: what is looked up is what would be understood anew."""

from hypothesis import given
from hypothesis import strategies as st

from rmqha.codec.host import parse_host
from rmqha.codec.properties import parse_properties
from rmqha.codec.record.dispatch import DispatchRequest, read_dispatch
from rmqha.codec.record.encoder import prepare
from rmqha.codec.record.ends import KNOWN_MAX, RecordEnds, facts_in

HOST = parse_host("127.0.0.1:10911")
_NAMES = st.sampled_from([b"UNIQ_KEY", b"KEYS", b"TAGS", b"XKEYS", b"UNIQ_KEYS", b"W", b""])
_VALUES = st.sampled_from([b"7F01", b"7F02", b"A1B2", b"a b", b"ab", b"", b"\xff", b"KEYS", b"UNIQ_KEY", b"7F01\x01x"])
SEEN = RecordEnds()
"""Of all examples."""
_PAIRS = st.tuples(_NAMES, st.sampled_from([b"\x01", b""]), _VALUES).map(b"".join)
_PROPERTIES = st.lists(_PAIRS, max_size=5).map(b"\x02".join)


def records_of(properties: list[bytes], topics: list[str]) -> bytes:
    log = b""
    for number, (raw, topic) in enumerate(zip(properties, topics, strict=True)):
        record = prepare(
            topic,
            b"",
            queue_id=0,
            born_timestamp_ms=1,
            born_host_raw=HOST,
            store_host_raw=HOST,
            properties_raw=raw,
        )
        log += record.pack(queue_offset=number, physical_offset=len(log), store_timestamp_ms=5)
    return log


def each_alone(log: bytes) -> list[DispatchRequest]:
    found: list[DispatchRequest] = []
    at = 0
    while at < len(log):
        end = at + int.from_bytes(log[at : at + 4], "big")
        found += read_dispatch(log, at, end, phy_offset_base=0)[0]
        at = end
    return found


@given(st.lists(st.tuples(_PROPERTIES, st.sampled_from(["T", "Other", "SCHEDULE_TOPIC_XXXX"])), min_size=1, max_size=9))
def test_records_read_together_say_what_each_says_alone(ends: list[tuple[bytes, str]]) -> None:
    log = records_of([raw for raw, _ in ends], [topic for _, topic in ends])
    together, behind = read_dispatch(log, 0, len(log), phy_offset_base=0, ends=SEEN)
    assert (together, behind) == (each_alone(log), len(log))
    for request, (raw, _) in zip(together, ends, strict=True):
        properties = parse_properties(raw.decode("latin-1"))
        assert request.uniq_key.decode("latin-1") == properties.get("UNIQ_KEY", "")
        assert request.keys.decode("latin-1") == properties.get("KEYS", "")


def test_a_key_that_stands_elsewhere_as_well_hides_nothing_of_what_differs_there() -> None:
    """Its first place is in the topic, or in KEYS: what differs there would be taken for another unique key."""
    raws = [b"UNIQ_KEY\x01A"] * 3 + [b"KEYS\x01%b\x02UNIQ_KEY\x01A" % keys for keys in (b"A", b"B")]
    log = records_of(raws, ["TA", "TB", "TA", "T", "T"])
    together, behind = read_dispatch(log, 0, len(log), phy_offset_base=0)
    assert behind == len(log)
    assert [(one.topic, one.uniq_key, one.keys) for one in together] == [
        *((topic, b"A", b"") for topic in ("TA", "TB", "TA")),
        *(("T", b"A", keys) for keys in (b"A", b"B")),
    ]


def test_ends_of_too_many_kinds_are_not_looked_up() -> None:
    ends = RecordEnds()
    raws = [b"KEYS\x01%d\x02UNIQ_KEY\x017F%02d" % (number, number) for number in range(99)]
    log = records_of(raws, ["T"] * len(raws))
    assert [request.keys for request in read_dispatch(log, 0, len(log), phy_offset_base=0)[0]] == [
        b"%d" % number for number in range(99)
    ]
    for number in range(KNOWN_MAX + 9):
        assert ends.understand(end_with(number)) is not None
    assert (len(ends.known), ends.places) == (KNOWN_MAX, {})
    for number in range(20 * KNOWN_MAX):
        assert ends.understand(end_with(number % 3)) is not None
    assert len(ends.known) == 3
    assert ends.places


def end_with(number: int) -> bytes:
    raw = b"KEYS\x01%09d\x02UNIQ_KEY\x017F" % number
    return b"\x01T" + len(raw).to_bytes(2, "big") + raw


def test_large_ends_are_not_kept() -> None:
    ends = RecordEnds()
    raw = b"UNIQ_KEY\x017F\x02a\x01" + b"x" * 2000
    assert ends.understand(b"\x01T" + len(raw).to_bytes(2, "big") + raw) == ("T", 0, b"7F", b"")
    assert not ends.known
    for number in range(KNOWN_MAX + 9):
        assert ends.understand(b"\x05T%04d\0\0" % number) == (f"T{number:04d}", 0, b"", b"")


def test_long_keys_are_read_from_the_log_later() -> None:
    """Thousands of messages wait for dispatch, and each may have 32 KB of them."""
    assert facts_in(b"UNIQ_KEY\x01" + b"k" * 257, 0) == (None, b"", b"")
    assert facts_in(b"KEYS\x01" + b"k" * 256, 0) == (0, b"", b"k" * 256)
