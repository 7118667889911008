"""The options of ``spark.read.format("rmqha")``: strings in, checked values out. Their case does not matter.

Kafka's and rocketmq-spark's names where they mean the same.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

import pyarrow as pa

from rmqha.errors import ConfigError
from rmqha.spark.commit_log import CommitLog
from rmqha.spark.confirmed import Masters, confirmed_end, split_addresses
from rmqha.spark.option_values import boolean, byte_count, count, json_object, parse_values, time_ms, words
from rmqha.spark.options import OnCorrupt, ReadOptions
from rmqha.spark.schema import COLUMNS, KAFKA_COLUMNS, select

MAX_BYTES_PER_TRIGGER: Final = 512 << 20
"""Without a limit a stream's first batch is the whole log, and a crash in it starts all over."""

Bound = int | str | Mapping[str, int | str]
"""A physical offset, ``earliest`` or ``latest``; or one of them by broker name."""
_NUMBERED: Final = {-2: "earliest", -1: "latest"}
"""As Kafka's and RocketMQ's sources write them within JSON."""


class Layout(StrEnum):
    """Which columns a table has."""

    ROCKETMQ = "rocketmq"
    KAFKA = "kafka"


@dataclass(frozen=True)
class SourceOptions:
    """What the options of one ``load()`` mean.

    Attributes:
        logs: broker name to path or URI; one log unless ``path`` was a JSON object.
        read: filters, times and choices that all logs share.
        starting: where to begin, ending: where to end (a stream refuses it).
        split_bytes: log bytes of one task at most; None: a batch's by its cores, ``SPLIT_BYTES`` of a stream.
        partitions_min: wanted number of tasks at least.
        bytes_per_trigger_max: log bytes of one micro-batch of a stream.
        layout: whose columns are delivered unless the query's schema names some.
        include_headers: whether Kafka's headers are among them.
        masters: who says what replicas hold, if no more than that is to be read.
        fail_on_data_loss: whether missing (deleted or cut) ranges are an error or only a warning.
    """

    logs: Mapping[str, str]
    read: ReadOptions
    starting: Bound = "earliest"
    ending: Bound = "latest"
    split_bytes: int | None = None
    partitions_min: int = 1
    bytes_per_trigger_max: int = MAX_BYTES_PER_TRIGGER
    layout: Layout = Layout.ROCKETMQ
    include_headers: bool = True
    masters: Masters | None = None
    fail_on_data_loss: bool = True

    def columns(self) -> pa.Schema:
        """What is delivered when no schema names columns.

        Raises:
            ConfigError: Kafka's columns would not tell apart messages of several logs.
        """
        if self.layout is Layout.ROCKETMQ:
            return COLUMNS
        if len(self.logs) > 1:
            raise ConfigError(
                f"layout=kafka of {len(self.logs)} logs ({', '.join(self.logs)}): each broker counts partitions and "
                "offsets for itself, so two messages could have the same; load each log by itself, or name the columns "
                "by schema(...), brokerName among them"
            )
        return KAFKA_COLUMNS if self.include_headers else select(tuple(KAFKA_COLUMNS.names[:-1]))

    def starts_at_end_of(self, broker: str) -> bool:
        """Whether reading of a broker's log begins at its end, as it is then."""
        return bool(_of_broker(self.starting, broker) == "latest")

    def end_of(self, broker: str) -> int | None:
        """The offset at which reading of a broker's log is to end; None if that is its end, or a time tells."""
        ending = _of_broker(self.ending, broker)
        return None if ending == "latest" else int(ending)

    def range_of(self, broker: str, log: CommitLog) -> tuple[int, int]:
        """The physical range that was asked for. Its begin is not limited to what the log holds, its end is.

        So it may begin behind its end, where the log was cut: nothing is to be read then.

        Raises:
            ConfigError: no offset is given for this broker.
            StoreError: it is not known what replicas hold; see :func:`confirmed_end`.
        """
        last = confirmed_end(log, self.masters)
        begin, end = self._asked_range(broker, log, last)
        return begin, min(end, last)

    def begin_of_stream(self, broker: str, log: CommitLog) -> int:
        """Where a new stream begins: with a time, not beyond what replicas hold, as a failover may cut there.

        What it reads first may then have been stored before that time.

        Raises:
            ConfigError, StoreError: as for :meth:`range_of`.
        """
        last = confirmed_end(log, self.masters)
        begin, _ = self._asked_range(broker, log, last)
        return begin if self.read.starting_timestamp_ms is None else min(begin, last)

    def _asked_range(self, broker: str, log: CommitLog, last: int) -> tuple[int, int]:
        starting, ending = _of_broker(self.starting, broker), _of_broker(self.ending, broker)
        read = replace(
            self.read,
            starting_offset={"earliest": None, "latest": last}.get(starting, starting),
            ending_offset=None if ending == "latest" else ending,
        )
        begin, end = log.range_of(read)
        return log.record_of(starting) if isinstance(starting, int) else begin, end


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Check every option.

    Raises:
        ConfigError: an option is unknown (with the nearest known one), has a bad value, or contradicts another.
    """
    return _source_options(parse_values(options, _PARSERS, _OF_KAFKA))


def _source_options(values: Mapping[str, Any]) -> SourceOptions:
    if "path" not in values:
        raise ConfigError("option path is missing: load(PATH) with a store's directory or URI")
    for offset, time in (("startingOffsets", "startingTimestamp"), ("endingOffsets", "endingTimestamp")):
        if offset in values and time in values:
            raise ConfigError(f"give {offset} or {time}, not both")
    if "includeHeaders" in values and values.get("layout") is not Layout.KAFKA:
        raise ConfigError("includeHeaders is for layout=kafka; the column properties is always there")
    masters = _masters(values)
    logs = values["path"]
    if isinstance(logs, str):
        logs = {values.get("brokerName", ReadOptions.broker_name): logs}
    elif "brokerName" in values:
        raise ConfigError("brokerName names a single log; a path of several logs names each of them itself")
    for name in ("startingOffsets", "endingOffsets"):
        named = values.get(name)
        if unknown := sorted(named.keys() - logs.keys()) if isinstance(named, Mapping) else ():
            raise ConfigError(f"{name} names {', '.join(unknown)}, but the path has {', '.join(logs)}")
    read = ReadOptions(**{ours: values[name] for name, ours in _READ.items() if name in values})
    source = {ours: values[name] for name, ours in _SOURCE.items() if name in values}
    return SourceOptions(logs, read, masters=masters, **source)


def _masters(values: Mapping[str, Any]) -> Masters | None:
    """Whom to ask; nobody unless ``until=confirmed``."""
    if not values.get("until", False):
        if asking := sorted(_ASKING & values.keys()):
            raise ConfigError(f"{asking[0]} is for until=confirmed: otherwise no broker is asked")
        return None
    if "tlsKey" in values and "tlsCert" not in values:
        raise ConfigError("tlsKey is the key of tlsCert, which is missing")
    return Masters.by_files(
        values.get("addresses", ()),
        credentials=values.get("credentials", ""),
        trust=values.get("tlsTrust", ""),
        cert=values.get("tlsCert", ""),
        key=values.get("tlsKey", ""),
    )


def _of_broker(bound: Bound, broker: str) -> Any:
    if not isinstance(bound, Mapping):
        return bound
    if broker not in bound:
        raise ConfigError(f"no offset is given for broker {broker!r}, only for {', '.join(bound)}")
    return bound[broker]


def _path(text: str) -> str | dict[str, str]:
    logs = dict(json_object(text, str)) if text.startswith("{") else text
    if not logs or (isinstance(logs, dict) and not all(logs.values())):
        raise ValueError("it is empty, as that of an unset variable is; name a store's directory or URI")
    return logs


def _broker_name(text: str) -> str:
    if not text:
        raise ValueError("it is empty, as that of an unset variable is; leave it out, or name the log's broker")
    return text


def _starting(text: str) -> Bound:
    return text if text in _NUMBERED.values() else _bound(text)


def _ending(text: str) -> Bound:
    bound = text if text == "latest" else _bound(text)
    if isinstance(bound, Mapping) and "earliest" in bound.values():
        raise ValueError("-2, which is earliest, is no end")
    return bound


def _bound(text: str) -> Bound:
    if not text.startswith("{"):
        return count(text, 0)
    offsets = json_object(text, int)
    for broker, offset in offsets.items():
        if offset < min(_NUMBERED):
            raise ValueError(f"{offset} of {broker!r} is no offset, nor -1 (latest) or -2 (earliest)")
    return {broker: _NUMBERED.get(offset, offset) for broker, offset in offsets.items()}


def _until(text: str) -> bool:
    choices = {"written": False, "confirmed": True}
    if text.lower() not in choices:
        raise ValueError("must be written or confirmed")
    return choices[text.lower()]


def _addresses(text: str) -> tuple[str, ...]:
    return split_addresses([text])


def _check_crc(text: str) -> bool:
    choices = {"all": True, "none": False, "true": True, "false": False}
    if text.lower() not in choices:
        raise ValueError("must be all or none")
    return choices[text.lower()]


def _layout(text: str) -> Layout:
    try:
        return Layout(text.lower())
    except ValueError:
        raise ValueError("must be rocketmq or kafka") from None


def _on_corrupt(text: str) -> OnCorrupt:
    try:
        return OnCorrupt(text.lower())
    except ValueError:
        raise ValueError("must be fail, skip or stop") from None


def _queues(text: str) -> tuple[int, ...]:
    return tuple(count(word, 0) for word in words(text))


_PARSERS: Final[dict[str, Callable[[str], Any]]] = {
    "path": _path,
    "brokerName": _broker_name,
    "subscribe": words,
    "subscribePattern": str,
    "queues": _queues,
    "keys": words,
    "tags": words,
    "startingOffsets": _starting,
    "endingOffsets": _ending,
    "startingTimestamp": time_ms,
    "endingTimestamp": time_ms,
    "splitBytes": byte_count,
    "minPartitions": count,
    "maxBytesPerTrigger": byte_count,
    "until": _until,
    "addresses": _addresses,
    "credentials": str,
    "tlsTrust": str,
    "tlsCert": str,
    "tlsKey": str,
    "failOnDataLoss": boolean,
    "checkCrc": _check_crc,
    "onCorrupt": _on_corrupt,
    "includeSystemTopics": boolean,
    "includeDeleted": boolean,
    "useConsumeQueues": boolean,
    "decompress": boolean,
    "maxInflatedBytes": byte_count,
    "layout": _layout,
    "includeHeaders": boolean,
}
_ASKING: Final = frozenset({"addresses", "credentials", "tlsTrust", "tlsCert", "tlsKey"})
_READ: Final = {
    "subscribe": "topics",
    "subscribePattern": "topic_pattern",
    "queues": "queues",
    "keys": "keys",
    "tags": "tags",
    "startingTimestamp": "starting_timestamp_ms",
    "endingTimestamp": "ending_timestamp_ms",
    "checkCrc": "check_crc",
    "onCorrupt": "on_corrupt",
    "includeSystemTopics": "include_system_topics",
    "includeDeleted": "include_deleted",
    "useConsumeQueues": "use_consume_queues",
    "decompress": "decompress",
    "maxInflatedBytes": "inflated_bytes_max",
}
_SOURCE: Final = {
    "startingOffsets": "starting",
    "endingOffsets": "ending",
    "splitBytes": "split_bytes",
    "minPartitions": "partitions_min",
    "maxBytesPerTrigger": "bytes_per_trigger_max",
    "failOnDataLoss": "fail_on_data_loss",
    "layout": "layout",
    "includeHeaders": "include_headers",
}
_BY_TIME: Final = "{} is for all queues: milliseconds since 1970 or ISO 8601"
_OF_KAFKA: Final = {
    "assign": "name topics with subscribe, and queues of them with queues",
    "maxoffsetspertrigger": "maxBytesPerTrigger limits a batch by bytes of the log",
    "minoffsetspertrigger": "a batch is what the log has grown by: choose the trigger's interval",
    "maxtriggerdelay": "a batch is what the log has grown by: choose the trigger's interval",
    "startingoffsetsbytimestamp": _BY_TIME.format("startingTimestamp"),
    "endingoffsetsbytimestamp": _BY_TIME.format("endingTimestamp"),
    "kafka.bootstrap.servers": "the log is read, not a broker: load(STORE)",
    "groupidprefix": "the log is read, not a broker: there are no consumer groups",
}
"""By lower-case name: what is there instead."""
