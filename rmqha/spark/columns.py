"""Hot path: selected records as a RecordBatch with the wanted columns; what is not wanted is not computed."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from rmqha.spark import entries, gather, properties
from rmqha.spark.fields import Fields
from rmqha.spark.hosts import host_strings
from rmqha.spark.properties import PropertyPairs
from rmqha.spark.schema import KAFKA_COLUMNS

_TWO_DAYS_MS = 2 * 24 * 3600 * 1000
_TIME_MS_MIN = -62_135_596_800_000 + _TWO_DAYS_MS
_TIME_MS_MAX = 253_402_300_799_999 - _TWO_DAYS_MS
"""What Spark and Python can show in any time zone: the years 1 to 9999 there. Producers' clocks hold anything.

Of a local time, as Spark makes of each, Python looks a day further back, and no zone is more than a day away.
"""
_LOG_APPEND_TIME = 1
"""Kafka's TimestampType: the broker's clock."""


@dataclass
class Rows:
    """Selected records of one block, still as positions; ``topics`` is a dictionary array of binary, row by row.

    With ``are_bare`` they are entries that hold no messages: no columns are there but those of :mod:`entries`.
    """

    buffer: pa.Buffer
    fields: Fields
    topics: pa.DictionaryArray
    broker_name: str
    are_bare: bool = False

    @property
    def count(self) -> int:
        """How many rows."""
        return int(self.fields.starts.size)

    @cached_property
    def pairs(self) -> PropertyPairs:
        """The properties; parsed only if a column or filter asks."""
        if self.are_bare:
            return properties.parse(entries.properties_of(self.fields))
        raw = gather.binary(self.buffer, self.fields.properties_begin, self.fields.properties_end)
        return properties.parse(raw)

    def take(self, rows: npt.NDArray[np.int64]) -> "Rows":
        """Only these rows."""
        topics = self.topics.take(gather.numbers(rows))
        return Rows(self.buffer, self.fields.take(rows), topics, self.broker_name, self.are_bare)

    def batch(self, schema: pa.Schema) -> pa.RecordBatch:
        """These columns of the rows."""
        return pa.RecordBatch.from_arrays([_COLUMNS[name](self) for name in schema.names], schema=schema)


def _fixed(name: str) -> Callable[[Rows], pa.Array]:
    return lambda rows: gather.numbers(rows.fields.column(name))


def _time(name: str) -> Callable[[Rows], pa.Array]:
    return lambda rows: _timestamps(rows.fields.column(name))


def _host(name: str) -> Callable[[Rows], pa.Array]:
    return lambda rows: pa.nulls(rows.count, pa.string()) if rows.are_bare else host_strings(rows.fields, name)


def _property(name: str) -> Callable[[Rows], pa.Array]:
    return lambda rows: rows.pairs.values_of(name)


def _timestamps(milliseconds: npt.NDArray[np.int64]) -> pa.Array:
    outside = (milliseconds < _TIME_MS_MIN) | (milliseconds > _TIME_MS_MAX)
    if outside.any():
        milliseconds = np.where(outside, 0, milliseconds)
        return pa.array(milliseconds * 1000, mask=outside).view(pa.timestamp("us", tz="UTC"))
    return gather.numbers(milliseconds * 1000).view(pa.timestamp("us", tz="UTC"))


def _topics(rows: Rows) -> pa.Array:
    return gather.text(rows.topics.dictionary).take(rows.topics.indices)


def _body(rows: Rows) -> pa.Array:
    return gather.binary(rows.buffer, rows.fields.body_begin, rows.fields.body_end)


def _bytes(values: pa.Array) -> pa.Array:
    """The same text as bytes, uncopied."""
    return values.cast(pa.binary())


def _headers(rows: Rows) -> pa.Array:
    """The properties as Kafka's headers; null without any, as there."""
    names, _, values, counts = rows.pairs
    offsets = np.zeros(counts.size + 1, np.int32)
    np.cumsum(counts, out=offsets[1:])
    kind = KAFKA_COLUMNS.field("headers").type
    pairs = pa.StructArray.from_arrays([names, _bytes(values)], fields=list(kind.value_type))
    return pa.ListArray.from_arrays(gather.numbers(offsets), pairs, type=kind, mask=pa.array(counts == 0))


_COLUMNS: dict[str, Callable[[Rows], pa.Array]] = {
    "topic": _topics,
    "queueId": _fixed("queue_id"),
    "queueOffset": _fixed("queue_offset"),
    "body": _body,
    "properties": lambda rows: rows.pairs.map_array(),
    "keys": _property("KEYS"),
    "tags": _property("TAGS"),
    "bornTimestamp": _time("born_timestamp"),
    "storeTimestamp": _time("store_timestamp"),
    "brokerName": lambda rows: pa.repeat(pa.scalar(rows.broker_name, pa.string()), rows.count),
    "physicalOffset": _fixed("physical_offset"),
    "flag": _fixed("flag"),
    "sysFlag": _fixed("sys_flag"),
    "reconsumeTimes": _fixed("reconsume_times"),
    "preparedTransactionOffset": _fixed("prepared_transaction_offset"),
    "bornHost": _host("born_host"),
    "storeHost": _host("store_host"),
    "bodyCrc": _fixed("body_crc"),
    "storeSize": _fixed("total_size"),
    "key": lambda rows: _bytes(rows.pairs.values_of("KEYS")),
    "value": _body,
    "partition": _fixed("queue_id"),
    "offset": _fixed("queue_offset"),
    "timestamp": _time("store_timestamp"),
    "timestampType": lambda rows: pa.repeat(pa.scalar(_LOG_APPEND_TIME, pa.int32()), rows.count),
    "headers": _headers,
}
