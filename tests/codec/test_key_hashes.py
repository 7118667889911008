"""Hashes of many keys at once are those of each alone, and what is remembered for it is bounded."""

from hypothesis import given
from hypothesis import strategies as st

from rmqha.codec.hashing import java_string_hash, key_hash
from rmqha.codec.key_hashes import TEXTS_MAX, KeyHashes
from rmqha.codec.properties import decode_utf8

_TEXTS = st.one_of(
    st.text("0123456789ABCDEF", min_size=32, max_size=32), st.text("0123456789ABCDEFxyz#", max_size=70), st.text()
)
_KEYS = st.one_of(_TEXTS.map(str.encode), st.binary(min_size=32, max_size=32), st.binary(max_size=70))


@given(st.lists(st.tuples(st.sampled_from(["", "T", "%RETRY%group"]), _KEYS)))
def test_they_are_java_s(pairs: list[tuple[str, bytes]]) -> None:
    topics, keys = [topic for topic, _ in pairs], [key for _, key in pairs]
    expected = [key_hash(topic, decode_utf8(key)) for topic, key in pairs]
    hashes = KeyHashes()
    assert hashes.of(topics, keys) == hashes.of(topics, keys) == expected


def test_keys_of_every_length_are_java_s() -> None:
    """Those of an SHA-256 in hexadecimal have 64 characters, the most that are hashed by their powers."""
    keys = [(b"0123456789abcdef" * 5)[:size] for size in range(81)]
    for topic in ("T", "%RETRY%group"):
        expected = [key_hash(topic, key.decode()) for key in keys]
        assert KeyHashes().of([topic] * len(keys), keys) == expected


def test_the_smallest_number_has_no_positive_twin() -> None:
    """Java's Math.abs of it is negative: RocketMQ takes 0."""
    topic, key = "T", _key_with_code(0x8000_0000, "T#")
    assert key_hash(topic, key) == 0
    assert KeyHashes().of([topic] * 2, [key.encode(), b"A" * 32])[0] == 0


def _key_with_code(code: int, before: str) -> str:
    """Some text behind ``before`` with which it has this hash, digit by digit of base 31."""
    start = java_string_hash(before) * 31**7
    rest = (code - start - sum(64 * 31**place for place in range(7))) % (1 << 32)
    digits = [rest // 31**place % 31 for place in range(6, -1, -1)]
    return "".join(chr(64 + digit) for digit in digits)


def test_what_is_remembered_is_bounded() -> None:
    hashes = KeyHashes()
    count = 3 * TEXTS_MAX
    topics = [f"topic-{number}" for number in range(count)]
    keys = [b"%032d" % number for number in range(count)]
    assert hashes.of(topics, keys)[-1] == key_hash(topics[-1], keys[-1].decode())
    assert max(hashes.remembered) <= TEXTS_MAX
