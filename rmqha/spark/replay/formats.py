"""One topic's file: Parquet or JSON lines. Each write is a run of rows in log order."""

import base64
import json
from datetime import datetime
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from rmqha.spark.replay.options import OutputFormat
from rmqha.spark.replay.sink import ChecksumSink

EXTENSIONS: Final = {OutputFormat.PARQUET: "parquet", OutputFormat.JSON: "jsonl"}

_ZSTD_LEVEL: Final = 1
_REPEATING: Final = {"tags", "brokerName", "bornHost", "storeHost", "queueId", "flag", "sysFlag", "reconsumeTimes"}
_WITHOUT_STATISTICS: Final = {"body", "properties", "keys"}


class MessageFile(Protocol):
    """A file being written."""

    def write(self, table: pa.Table) -> None:
        """Append these rows."""

    def close(self) -> None:
        """Finish the file."""


def open_file(sink: ChecksumSink, schema: pa.Schema, *, output_format: OutputFormat) -> MessageFile:
    """Begin a file of this format."""
    return ParquetFile(sink, schema) if output_format is OutputFormat.PARQUET else JsonFile(sink)


class ParquetFile:
    """zstd at level 1; dictionaries only where values repeat, as building them for bodies costs a third of the time."""

    def __init__(self, sink: ChecksumSink, schema: pa.Schema) -> None:
        self._sink = sink
        dictionaries = [name for name in schema.names if name in _REPEATING]
        if "properties" in schema.names:
            dictionaries.append("properties.key_value.key")
        self._writer = pq.ParquetWriter(
            sink,
            schema,
            compression="zstd",
            compression_level=_ZSTD_LEVEL,
            use_dictionary=dictionaries,
            write_statistics=[name for name in schema.names if name not in _WITHOUT_STATISTICS],
        )

    def write(self, table: pa.Table) -> None:
        """Append a row group."""
        self._writer.write_table(table, row_group_size=len(table))

    def close(self) -> None:
        """Write the footer."""
        self._writer.close()
        self._sink.close()


class JsonFile:
    """An object a line, keys as the columns; bytes that are not UTF-8 are under ``bodyBase64`` instead of ``body``."""

    def __init__(self, sink: ChecksumSink) -> None:
        self._sink = sink

    def write(self, table: pa.Table) -> None:
        """Append a line a row."""
        lines = [json.dumps(_plain(row), ensure_ascii=False, separators=(",", ":")) for row in table.to_pylist()]
        self._sink.write("".join(line + "\n" for line in lines).encode())

    def close(self) -> None:
        """Finish the file."""
        self._sink.close()


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for name, value in row.items():
        match value:
            case datetime():
                plain[name] = value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            case bytes():
                plain |= _text(name, value)
            case list() if name == "properties":
                plain[name] = dict(value)
            case list():
                plain[name] = [_plain(header) for header in value]
            case _:
                plain[name] = value
    return plain


def _text(name: str, value: bytes) -> dict[str, str]:
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}Base64": base64.b64encode(value).decode()}
