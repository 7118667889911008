"""Rows to messages: which columns make what, and by what a row is known again."""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, MapType, StringType, StructField, StructType

from rmqha.client import Message
from rmqha.errors import ConfigError, MQClientError, RmqhaError
from rmqha.spark.sink.options import forbidden_problem

ROW_ID: Final = "SPARK_ROW"
"""The property that all copies of one row share, and no other row of the write has."""
_ROWS_AT_ONCE: Final = 256

_HEADERS: Final = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_TYPES: Final = {
    "topic": (StringType(),),
    "body": (BinaryType(), StringType()),
    "value": (BinaryType(), StringType()),
    "keys": (StringType(),),
    "key": (StringType(), BinaryType()),
    "tags": (StringType(),),
    "properties": (MapType(StringType(), StringType()),),
    "headers": (_HEADERS,),
    "flag": (IntegerType(),),
}
_SAME: Final = (("body", "value"), ("keys", "key"), ("properties", "headers"))
"""RocketMQ's and Kafka's names of one thing."""


def check_columns(schema: StructType, *, topic: str | None) -> None:
    """Whether these columns make messages; known before anything is sent.

    Raises:
        ConfigError: a column is unknown, has another type, or says what another one says; or one is missing.
    """
    for field in schema.fields:
        if field.name not in _TYPES:
            raise ConfigError(
                f"column {field.name} is no part of a message: select what is to be sent, of {', '.join(_TYPES)}"
            )
        wanted = _TYPES[field.name]
        if not any(_is_alike(field.dataType, one) for one in wanted):
            kinds = " or ".join(one.simpleString() for one in wanted)
            raise ConfigError(f"column {field.name} is {field.dataType.simpleString()}, not {kinds}: cast it")
    names = set(schema.names)
    for ours, theirs in _SAME:
        if {ours, theirs} <= names:
            raise ConfigError(f"columns {ours} and {theirs} are two names of one thing: leave one of them out")
    if names.isdisjoint({"body", "value"}):
        raise ConfigError("there is no column body (or value): it is what a message holds")
    if topic is None and "topic" not in names:
        raise ConfigError("where to? Give the option topic, or a column topic")


def _is_alike(found: Any, wanted: Any) -> bool:
    """Whether types are the same, whatever may be null in them."""
    same: bool = found.simpleString() == wanted.simpleString()
    return same


class Row:
    """A row on its way: ``message`` is as it is sent, ``number`` counts the rows of its partition from 0."""

    __slots__ = ("message", "number")

    def __init__(self, number: int, message: Message) -> None:
        self.number = number
        self.message = message


def read_rows(batches: Iterator[pa.RecordBatch], *, topic: str | None, partition: str) -> Iterator[Row]:
    """All rows of a partition, named ``write id:partition`` to consumers.

    Raises:
        MQClientError: a row makes no message.
    """
    number = 0
    for batch in batches:
        for begin in range(0, batch.num_rows, _ROWS_AT_ONCE):
            rows = batch.slice(begin, _ROWS_AT_ONCE)
            for row, values in enumerate(_as_python(rows)):
                try:
                    message = _message(values or _read_one(rows.slice(row, 1)), topic)
                except RmqhaError as error:
                    raise MQClientError(f"row {number} of partition {partition} makes no message: {error}") from None
                message.properties = {**(message.properties or {}), ROW_ID: f"{partition}:{number}:{_digest(message)}"}
                yield Row(number, message)
                number += 1


def _as_python(rows: pa.RecordBatch) -> Sequence[dict[str, Any]]:
    """Empty ones if a text among them is not UTF-8, of which Spark knows nothing."""
    try:
        values: list[dict[str, Any]] = rows.to_pylist()
    except UnicodeDecodeError:
        return [{}] * rows.num_rows
    return values


def _read_one(row: pa.RecordBatch) -> dict[str, Any]:
    """Raises MQClientError: a text in it is not UTF-8."""
    values = dict[str, Any]()
    for name, column in zip(row.schema.names, row.columns, strict=True):
        try:
            values[name] = column[0].as_py()
        except UnicodeDecodeError:
            told = "as a string has to be: cast it to binary where that may be"
            raise MQClientError(f"its {name} is not UTF-8, {told}") from None
    return values


def _message(values: Mapping[str, Any], topic: str | None) -> Message:
    topic = topic or values["topic"]
    if not topic:
        raise MQClientError("its topic is null or empty")
    if problem := forbidden_problem(topic):
        raise MQClientError(problem)
    body = values.get("body") if "body" in values else values.get("value")
    if not body:
        raise MQClientError("its body is null or empty, which RocketMQ's clients refuse: leave the row out")
    keys = values.get("keys") or values.get("key") or ()
    properties = _properties(values.get("properties") or values.get("headers") or ())
    return Message(
        topic,
        body.encode() if isinstance(body, str) else body,
        tags=values.get("tags"),
        keys=_decoded("key", keys) if isinstance(keys, bytes) else keys,
        properties=properties,
        flag=values.get("flag") or 0,
    )


def _properties(pairs: Sequence[Any]) -> dict[str, str]:
    """Of a map's pairs, or of headers."""
    found = dict[str, str]()
    for pair in pairs:
        if pair is None:
            raise MQClientError("a header is null: leave it out")
        name, value = (pair["key"], pair["value"]) if isinstance(pair, dict) else pair
        if value is None:
            raise MQClientError(f"property {name!r} is null: leave it out")
        if name in found:
            raise MQClientError(f"header {name!r} is there twice: a message's properties have a name once")
        if name == ROW_ID:  # a message that was written by this sink, read, and is written again
            continue
        found[name] = _decoded(f"header {name!r}", value) if isinstance(value, bytes) else value
    return found


def _decoded(name: str, value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise MQClientError(f"its {name} is not UTF-8, as all of a message but its body is") from None


def _digest(message: Message) -> str:
    """Rows of other contents never share an id, even if Spark makes a partition anew in another order."""
    digest = blake2b(message.body, digest_size=8)
    properties = sorted((message.properties or {}).items())
    rest = (len(message.body), message.topic, message.tags, message.keys, properties, message.flag)
    digest.update(repr(rest).encode(errors="surrogatepass"))
    return digest.hexdigest()
