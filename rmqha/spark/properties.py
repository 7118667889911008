"""Properties of all records of a block as one ``map<string, string>`` array.

``name 0x01 value 0x02 name 0x01 value``: where a record's separators simply alternate, all names and values of the
block are cut out by one gather. The few other records (old writers' oddities, invalid UTF-8, duplicate names) go
through the codec's parser one by one, which knows Java's rules.  Source: spec: commitlog §2.5
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from rmqha.codec.properties import parse_properties
from rmqha.spark import gather
from rmqha.spark.fields import Mask
from rmqha.spark.lane_walk import Positions
from rmqha.spark.property_cuts import Cuts, cut_all_alike, cut_each

_COUNTED_MAX = 1 << 20


class PropertyPairs(NamedTuple):
    """All pairs in record order: ``counts[i]`` of them belong to record i; a record has no name twice."""

    names: pa.Array
    codes: pa.DictionaryArray  # the names again, coded: there are few different ones
    values: pa.Array
    counts: Positions

    def map_array(self) -> pa.Array:
        """As a map column; a record without properties has an empty map."""
        offsets = np.zeros(self.counts.size + 1, np.int32)
        np.cumsum(self.counts, out=offsets[1:])
        return pa.MapArray.from_arrays(gather.numbers(offsets), self.names, self.values)

    def values_of(self, name: str) -> pa.Array:
        """This property of each record, null where it has none."""
        code = self.codes.dictionary.index(name).as_py()
        found = np.flatnonzero(self.codes.indices.to_numpy() == code)
        if found.size == self.counts.size:  # every record has one
            return self.values.take(gather.numbers(found))
        record_of_pair = np.repeat(np.arange(self.counts.size), self.counts)
        pair = np.full(self.counts.size, -1, np.int64)
        pair[record_of_pair[found]] = found
        return self.values.take(pa.array(pair, mask=pair < 0))


def parse(raw: pa.Array) -> PropertyPairs:
    """Every record's properties, from their stored bytes: a binary array as ``gather.binary`` makes it."""
    cuts, regular = cut_all_alike(raw) or cut_each(raw)
    try:
        raw.cast(pa.string())
    except pa.ArrowInvalid:
        regular &= _are_ascii(raw)
        cuts = cuts.of(regular)
    names = _text(raw, cuts.name_begin, cuts.name_end)
    codes = names.dictionary_encode()
    regular &= _have_no_name_twice(codes, cuts.record, len(raw))
    if regular.all():
        values = _text(raw, cuts.value_begin, cuts.value_end)
        return PropertyPairs(names, codes, values, np.bincount(cuts.record, minlength=len(raw)))
    return _parse_mixed(raw, cuts.of(regular), regular)


def _text(raw: pa.Array, begins: Positions, ends: Positions) -> pa.Array:
    """Pieces of valid UTF-8, cut at separators: valid themselves."""
    return gather.text(gather.binary(raw.buffers()[2], begins, ends))


def _have_no_name_twice(coded: pa.DictionaryArray, record: Positions, records: int) -> Mask:
    unique = np.ones(records, np.bool_)
    kinds = len(coded.dictionary)
    key = record * kinds + coded.indices.to_numpy()
    if kinds * records <= _COUNTED_MAX:
        twice = np.flatnonzero(np.bincount(key, minlength=1) > 1)
    else:
        key.sort()
        twice = key[1:][key[1:] == key[:-1]]
    unique[twice // max(kinds, 1)] = False
    return unique


def _are_ascii(raw: pa.Array) -> Mask:
    offsets = gather.offsets_of(raw).astype(np.int64)
    high = np.flatnonzero(gather.bytes_of(raw)[: offsets[-1]] >= 0x80)
    ascii_only: Mask = np.searchsorted(high, offsets[:-1]) == np.searchsorted(high, offsets[1:])
    return ascii_only


def _parse_mixed(raw: pa.Array, cuts: Cuts, regular: Mask) -> PropertyPairs:
    """Regular records by the gather, the others by the codec's parser, put together in record order."""
    slow = np.flatnonzero(~regular)
    parsed = [parse_properties(raw[int(i)].as_py()) for i in slow]
    fast_names = _text(raw, cuts.name_begin, cuts.name_end)
    fast_values = _text(raw, cuts.value_begin, cuts.value_end)
    slow_names = pa.array([name for pairs in parsed for name in pairs], pa.string())
    slow_values = pa.array([value for pairs in parsed for value in pairs.values()], pa.string())
    record = np.concatenate([cuts.record, np.repeat(slow, [len(pairs) for pairs in parsed])])
    order = pa.array(np.argsort(record, kind="stable"))
    names = pa.concat_arrays([fast_names, slow_names]).take(order)
    return PropertyPairs(
        names,
        names.dictionary_encode(),
        pa.concat_arrays([fast_values, slow_values]).take(order),
        np.bincount(record, minlength=len(raw)),
    )
