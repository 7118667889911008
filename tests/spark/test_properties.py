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


@pytest.mark.parametrize("counted_max", [0, 1 << 20])
@pytest.mark.parametrize("names", [1, 3, len(NAMES)])
def test_a_block_s_properties_are_those_of_each_record(
    names: int, counted_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names that come twice are looked for in one way in small blocks, and in another one in large ones."""
    monkeypatch.setattr(properties, "_COUNTED_MAX", counted_max)
    chance = random.Random(names)
    raws = [stored(chance, names=names) for _ in range(300)]
    ends = np.cumsum([len(raw) for raw in raws])
    raw = gather.binary(pa.py_buffer(b"".join(raws)), ends - [len(raw) for raw in raws], ends)
    found = properties.parse(raw)
    expected = [parse_properties(raw) for raw in raws]
    assert any(raw.count(b"\x01") > len(one) for raw, one in zip(raws, expected, strict=True))
    assert [dict(pairs) for pairs in found.map_array().to_pylist()] == expected
    assert found.counts.tolist() == [len(one) for one in expected]
    for name in NAMES:
        if any(name in one for one in expected):
            assert found.values_of(name).to_pylist() == [one.get(name) for one in expected]
