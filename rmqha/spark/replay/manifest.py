"""The manifest of a run: what was read and written. A run is committed by its manifest, and by nothing else.

``OUT/_rmqha/manifest-BEGIN-END.json``; each begins where the one before ended. Written whole, then renamed into place.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from rmqha import __version__
from rmqha.errors import StoreError
from rmqha.spark.options import ReadOptions
from rmqha.spark.position import Anchor, Position
from rmqha.spark.replay.options import ReplayOptions
from rmqha.spark.replay.report import OutputFile, ReplayReport

FORMAT: Final = 1
_NOT_KEPT: Final = {
    "starting_offset",
    "ending_offset",
    "starting_timestamp_ms",
    "ending_timestamp_ms",
    "on_corrupt",
    "check_crc",
    "use_consume_queues",
}
"""Options that may differ from run to run without changing what the output as a whole means."""
_NEWER_OPTIONS: Final = {"include_deleted": False}
"""Of which older manifests know nothing."""
_OF_COMMAND: Final = {
    "columns": "--columns",
    "topics": "--topic",
    "topic_pattern": "--topic-pattern",
    "queues": "--queue",
    "keys": "--key",
    "tags": "--tag",
    "include_system_topics": "--system-topics",
    "include_deleted": "--include-deleted",
    "decompress": "--decompress",
    "broker_name": "--broker-name",
    "format": "--format",
}


@dataclass(frozen=True)
class Manifest:
    """What the next run must know; it begins at ``end``."""

    begin: int
    end: Position
    options: dict[str, Any]
    files: tuple[OutputFile, ...]


def manifest_name(begin: int, end: int) -> str:
    """Sorts in log order."""
    return f"manifest-{begin:020d}-{end:020d}.json"


def kept_options(options: ReplayOptions) -> dict[str, Any]:
    """The options that all runs into one output must share."""
    read = asdict(replace(options.read, on_corrupt=ReadOptions.on_corrupt))
    kept = {name: list(value) if isinstance(value, tuple) else value for name, value in read.items()}
    return {name: value for name, value in kept.items() if name not in _NOT_KEPT} | {"format": str(options.format)}


def differing_options(options: ReplayOptions, before: Mapping[str, Any]) -> str:
    """Which of these options are others than those of an earlier run, by the names that the command has for them."""
    now = kept_options(options)
    return ", ".join(
        f"{_OF_COMMAND.get(name, name)}: {_told(before.get(name))} before, {_told(now.get(name))} now"
        for name in sorted(now.keys() | before.keys())
        if now.get(name) != before.get(name)
    )


def _told(value: object) -> str:
    return "not given" if value is None else json.dumps(value, ensure_ascii=False)


def encode(options: ReplayOptions, report: ReplayReport, end: Position) -> bytes:
    """The manifest of this run, for people and programs."""
    value = {
        "format": FORMAT,
        "writtenBy": f"rmqha {__version__}",
        "store": options.store,
        "range": {"begin": report.begin, "end": report.end},
        "records": report.records,
        "messages": report.messages,
        "deleted": report.deleted,
        "systemTopics": report.system,
        "notInflated": report.not_inflated,
        "bytesRead": report.bytes_read,
        "bytesAskedFor": report.bytes_asked_for,
        "corrupt": [one._asdict() for one in report.corrupt],
        "topics": {topic: report.topics[topic].as_json() for topic in sorted(report.topics)},
        "files": [file._asdict() for file in sorted(report.files)],
        "anchor": asdict(end.anchor) if end.anchor else None,
        "blankTo": end.blank_to,
        "options": kept_options(options),
    }
    return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"


def _check(name: str, anchor: Anchor | None, *, path: str) -> None:
    """Raises ValueError: the manifest there has another name than its range, or an anchor that is none."""
    if path.rpartition("/")[2] != name:
        raise ValueError(f"by its range it is {name}")
    if anchor and not all(type(number) is int for number in asdict(anchor).values()):
        raise ValueError(f"{anchor} is none")


def decode(data: bytes, *, path: str) -> Manifest:
    """Read a manifest back.

    Raises:
        StoreError: it is damaged, or says another range than its name, or is of a later format.
    """
    try:
        value = json.loads(data)
        if value["format"] != FORMAT:
            raise StoreError(f"{path} has format {value['format']}, this version of rmqha knows {FORMAT}: upgrade it")
        begin, end = value["range"]["begin"], value["range"]["end"]
        anchor = Anchor(**value["anchor"]) if value["anchor"] else None
        _check(manifest_name(begin, end), anchor, path=path)
        files = tuple(OutputFile(**file) for file in value["files"])
        end_of_run = Position(end, anchor, value.get("blankTo"))
        return Manifest(begin, end_of_run, _NEWER_OPTIONS | value["options"], files)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StoreError(
            f"{path} is no manifest of rmqha replay ({error!r}); restore it or choose another --out"
        ) from error
