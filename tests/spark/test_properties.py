"""Properties of a whole block: what the codec's parser makes of each record alone, whichever way they are counted."""

import random

import numpy as np
import pyarrow as pa
import pytest

from rmqha.codec.properties import parse_properties
from rmqha.spark import gather, properties

NAMES = ["TAGS", "KEYS", "UNIQ_KEY", "a", "b", "\u00fc"]


def stored(chance: random.Random, *, names: int) -> bytes:
    """Some pairs; now and then with a name that comes again, next to its first place or far from it."""
    pairs = [f"{name}\x01{chance.randint(0, 99)}" for name in chance.sample(NAMES, names)]
    if pairs and chance.random() < 0.3:
        pairs.insert(chance.randint(0, len(pairs)), f"{chance.choice(pairs).partition(chr(1))[0]}\x01again")
    return "\x02".join(pairs).encode()


def parsed(raws: list[bytes]) -> properties.PropertyPairs:
    """Of one block."""
    ends = np.cumsum([len(raw) for raw in raws])
    return properties.parse(gather.binary(pa.py_buffer(b"".join(raws)), ends - [len(raw) for raw in raws], ends))


@pytest.mark.parametrize("counted_max", [0, 1 << 20])
@pytest.mark.parametrize("names", [1, 3, len(NAMES)])
def test_a_block_s_properties_are_those_of_each_record(
    names: int, counted_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names that come twice are looked for in one way in small blocks, and in another one in large ones."""
    monkeypatch.setattr(properties, "_COUNTED_MAX", counted_max)
    chance = random.Random(names)
    raws = [stored(chance, names=names) for _ in range(300)]
    found = parsed(raws)
    expected = [parse_properties(raw) for raw in raws]
    assert any(raw.count(b"\x01") > len(one) for raw, one in zip(raws, expected, strict=True))
    assert [dict(pairs) for pairs in found.map_array().to_pylist()] == expected
    assert found.counts.tolist() == [len(one) for one in expected]
    for name in NAMES:
        if any(name in one for one in expected):
            assert found.values_of(name).to_pylist() == [one.get(name) for one in expected]


@pytest.mark.parametrize("byte", [0x7F, 0x80, 0x81, 0xBF, 0xC0, 0xC3, 0xFE, 0xFF], ids=hex)
@pytest.mark.parametrize("place", [b"KEYS\x01%b", b"KEYS\x01a%bz", b"%b\x01k"])
def test_a_byte_that_is_no_text_alone_is_none_beside_text(byte: int, place: bytes) -> None:
    """What Spark is given as a string has to be one; other records are read as ever."""
    raws = [b"TAGS\x01a", place % bytes([byte]), "KEYS\x01\u00fc".encode(), b"", b"TAGS\x01b\x02KEYS\x01k"]
    found = parsed(raws)
    table = found.map_array()
    table.validate(full=True)
    assert [dict(pairs) for pairs in table.to_pylist()] == [parse_properties(raw) for raw in raws]
