"""The columns, their Arrow types (exactly the ones Spark wants) and their order.

Names are those of rocketmq-spark where it has one, so that jobs port. All are nullable because Spark compares
nullability; only ``keys``, ``tags`` and a time that not every zone has in the years 1..9999 ever are null, and what
Kafka's columns make of them. Both kinds of names can be asked for side by side: they differ, but for ``topic``, which
is the same.
"""

from typing import Final

import pyarrow as pa

from rmqha.errors import ConfigError

_TIME: Final = pa.timestamp("us", tz="UTC")

COLUMNS: Final = pa.schema(
    [
        ("topic", pa.string()),
        ("queueId", pa.int32()),
        ("queueOffset", pa.int64()),
        ("body", pa.binary()),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("keys", pa.string()),
        ("tags", pa.string()),
        ("bornTimestamp", _TIME),
        ("storeTimestamp", _TIME),
        ("brokerName", pa.string()),
        ("physicalOffset", pa.int64()),
        ("flag", pa.int32()),
        ("sysFlag", pa.int32()),
        ("reconsumeTimes", pa.int32()),
        ("preparedTransactionOffset", pa.int64()),
        ("bornHost", pa.string()),
        ("storeHost", pa.string()),
        ("bodyCrc", pa.int32()),
        ("storeSize", pa.int32()),
    ]
)

KAFKA_COLUMNS: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        COLUMNS.field("topic"),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", _TIME),
        ("timestampType", pa.int32()),
        ("headers", pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))),
    ]
)
"""As Spark's source for Kafka has them, with ``includeHeaders``."""
BODY_COLUMNS: Final = ("body", "value")
"""What ``decompress`` inflates."""
_FIELDS: Final = {field.name: field for field in (*COLUMNS, *KAFKA_COLUMNS)}


def inflated(wanted: pa.Schema) -> pa.Schema | None:
    """Columns that ``decompress`` needs: these, with a body among them; None: they have nothing that it changes."""
    if not set(BODY_COLUMNS).isdisjoint(wanted.names):
        return wanted
    return wanted.append(_FIELDS["body"]) if "sysFlag" in wanted.names else None


def select(columns: tuple[str, ...] | None) -> pa.Schema:
    """The schema of these columns, in this order; None: all but Kafka's.

    Raises:
        ConfigError: a name is unknown, or there twice.
    """
    if columns is None:
        return COLUMNS
    unknown = [name for name in columns if name not in _FIELDS]
    if unknown:
        raise ConfigError(f"unknown column {unknown[0]!r}; there are {', '.join(_FIELDS)}")
    twice = [name for number, name in enumerate(columns) if name in columns[:number]]
    if twice:
        raise ConfigError(f"column {twice[0]!r} is there twice")
    return pa.schema([_FIELDS[name] for name in columns])
