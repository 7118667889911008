"""Properties, tags and delays, down to Java's corner cases."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.codec.delay_level import DELAY_LEVELS_MS, delivery_time_ms, parse_delay_levels
from rmqha.codec.hashing import body_crc, java_string_hash, key_hash, tags_code
from rmqha.codec.properties import decode_utf8, find_property, format_properties, parse_properties
from rmqha.codec.record.dispatch import queue_tags_code
from rmqha.errors import ConfigError, LocalProtocolError


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        (b"", {}),
        (b"a\x01b", {"a": "b"}),
        (b"a\x01b\x02", {"a": "b"}),
        (b"a\x01b\x02c\x01d", {"a": "b", "c": "d"}),
        (b"\x02\x02a\x01b\x02\x02", {"a": "b"}),
        (b"a\x01b\x02a\x01c", {"a": "c"}),
        (b"a\x01b\x02a\x01", {"a": "b"}),
        (b"a\x01\x02b\x02\x01c\x02\x01", {}),
        (b"a\x01b\x01c", {"a": "b\x01c"}),
        ("标\x01签".encode(), {"标": "签"}),
        (b"a\x01\xff", {"a": "�"}),
        (b"a\x01x\xed\xa0\x80y", {"a": "x�y"}),
        (b"a\x01\xed\xa0", {"a": "�"}),
        (b"a\x01\xed\xa0x\xe2\x82\xed\xbf\xbf", {"a": "�x��"}),
        (b"a\x01\xf4\x90\x80\x80", {"a": "����"}),
    ],
)
def test_parsing(raw: bytes, wanted: dict[str, str]) -> None:
    assert parse_properties(raw) == wanted


def test_text_is_parsed_as_it_is() -> None:
    assert parse_properties("a\x01b\x02") == {"a": "b"}


NAMES = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=["Cs"]), min_size=1)


@given(st.dictionaries(NAMES, NAMES))
def test_round_trip(properties: dict[str, str]) -> None:
    raw = format_properties(properties).encode()
    assert parse_properties(raw) == properties
    for name, value in properties.items():
        assert find_property(raw, name.encode()) == value.encode()


@pytest.mark.parametrize("properties", [{"a\x01": "b"}, {"a": "b\x02"}, {"a\x02b": "c"}, {"a": "\x01"}])
def test_separators_cannot_be_stored(properties: dict[str, str]) -> None:
    with pytest.raises(LocalProtocolError, match=r"U\+0001"):
        format_properties(properties)


PIECES = st.lists(st.sampled_from([b"TAGS", b"TAG", b"S", b"\x01", b"\x02", b"x", b"\xff"]), max_size=12)


@given(PIECES)
def test_finding_one_property_agrees_with_parsing_all(pieces: list[bytes]) -> None:
    raw = b"".join(pieces)
    found = find_property(raw, b"TAGS")
    assert (found and decode_utf8(found)) == parse_properties(raw).get("TAGS")
    assert queue_tags_code("T", raw, store_timestamp_ms=0) == tags_code(parse_properties(raw).get("TAGS"))


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("TagA", 2598919),
        ("标签", 857175),
        ("TopicTest#k1", 2746024),
        ("polygenelubricants", -2147483648),
        ("\U0001f600", 1772899),
    ],
)
def test_java_string_hash(text: str, code: int) -> None:
    assert java_string_hash(text) == code


def test_key_hashes_are_never_negative() -> None:
    assert key_hash("TopicTest", "k1") == 2746024
    topic, key = "a", "b"
    assert key_hash(topic, key) == abs(java_string_hash("a#b"))
    assert java_string_hash("polygenelubricants") == -(1 << 31)


def test_body_crc_has_no_top_bit() -> None:
    assert body_crc(b"123456789") == 0x4BF43926
    assert body_crc(b"hello world") == 0x0D4A1185
    assert body_crc(b"") == 0


LEVEL = b"DELAY\x01%d\x02TAGS\x01TagA"


@pytest.mark.parametrize(
    ("delay", "wanted"),
    [(b"1", 1_000), (b"3", 10_000), (b"18", 7_200_000), (b"99", 7_200_000), (b"0", None), (b"-1", None), (b"x", None)],
)
def test_units_of_delayed_messages_carry_the_delivery_time(delay: bytes, wanted: int | None) -> None:
    raw = b"DELAY\x01" + delay + b"\x02TAGS\x01TagA"
    code = queue_tags_code("SCHEDULE_TOPIC_XXXX", raw, store_timestamp_ms=1_700_000_000_000)
    assert code == (2598919 if wanted is None else 1_700_000_000_000 + wanted)
    assert queue_tags_code("Other", raw, store_timestamp_ms=1_700_000_000_000) == 2598919


def test_delay_levels() -> None:
    assert len(DELAY_LEVELS_MS) == 18
    assert parse_delay_levels("1s 2m 3h 4d") == (1_000, 120_000, 10_800_000, 345_600_000)
    assert delivery_time_ms("2", 5, levels_ms=()) == 1_005
    assert delivery_time_ms("1", 2**63 - 1, levels_ms=(1_000,)) == -(2**63) + 999
    assert delivery_time_ms("1", -(2**63), levels_ms=(1_000,)) == -(2**63) + 1_000
    assert delivery_time_ms("9999999999", 5, levels_ms=(1,)) is None
    for text in ("1x", "s", "1.5s", "-1s"):
        with pytest.raises(ConfigError, match="messageDelayLevel"):
            parse_delay_levels(text)


@pytest.mark.parametrize(
    "raw",
    [b"k\1v\2TAGS\1a\2TAGS\1", b"TAGS\1a\2k\1v\2TAGS\1\2TAGS\1", b"TAGS\1b\2TAGS\1a\2TAGS\1\2", b"TAGS\1\2TAGS\1a"],
)
def test_an_empty_pair_hides_no_earlier_one(raw: bytes) -> None:
    assert find_property(raw, b"TAGS") == b"a"
    assert parse_properties(raw)["TAGS"] == "a"
    assert queue_tags_code("T", raw, store_timestamp_ms=0) == ord("a")
