"""What a manifest keeps of a run's options: runs into one output share all that says what the output means."""

import json
from dataclasses import fields, replace
from typing import Any

import pytest

from rmqha.errors import StoreError
from rmqha.spark import OnCorrupt, ReadOptions
from rmqha.spark.position import Anchor, Position
from rmqha.spark.replay import OutputFormat, ReplayOptions, ReplayReport
from rmqha.spark.replay.manifest import Manifest, decode, differing_options, encode, kept_options, manifest_name

MAY_DIFFER = {
    "starting_offset": 7,
    "ending_offset": 7,
    "starting_timestamp_ms": 7,
    "ending_timestamp_ms": 7,
    "on_corrupt": OnCorrupt.SKIP,
    "check_crc": False,
    "use_consume_queues": False,
}
"""Where a run begins and ends, and how it reads: it reads the same."""
SHARED = {
    "columns": ("body",),
    "topics": ("orders",),
    "topic_pattern": "o.*",
    "queues": (1,),
    "keys": ("k",),
    "tags": ("t",),
    "include_system_topics": True,
    "include_deleted": True,
    "decompress": True,
    "inflated_bytes_max": 1000,
    "broker_name": "b",
}
BEFORE = ReplayOptions("/store", "/out")


def differs(options: ReplayOptions) -> str:
    return differing_options(options, kept_options(BEFORE))


def test_each_option_is_judged() -> None:
    assert MAY_DIFFER.keys() | SHARED.keys() == {field.name for field in fields(ReadOptions)}
    assert not MAY_DIFFER.keys() & SHARED.keys()


@pytest.mark.parametrize(("name", "value"), MAY_DIFFER.items())
def test_how_a_run_reads_may_differ(name: str, value: Any) -> None:
    assert differs(replace(BEFORE, read=ReadOptions(**{name: value}))) == ""


@pytest.mark.parametrize(("name", "value"), SHARED.items())
def test_what_is_written_is_the_same_in_all_runs(name: str, value: Any) -> None:
    """Whichever of the two runs had the option."""
    other = replace(BEFORE, read=ReadOptions(**{name: value}))
    assert differs(other).count(" before, ") == 1
    assert differing_options(BEFORE, kept_options(other)).count(" before, ") == 1


def test_one_format_is_written() -> None:
    assert differs(replace(BEFORE, format=OutputFormat.JSON)) == '--format: "parquet" before, "json" now'


def read_back(options: ReplayOptions, *, without: str | None = None) -> Manifest:
    """What the next run knows of a run with these options; ``without`` one that rmqha did not know then."""
    value = json.loads(encode(options, ReplayReport(5, 7), Position(7)))
    if without is not None:
        del value["options"][without]
    return decode(json.dumps(value).encode(), path=f"/out/_rmqha/{manifest_name(5, 7)}")


@pytest.mark.parametrize(("name", "value"), SHARED.items())
def test_the_next_run_with_the_same_options_goes_on(name: str, value: Any) -> None:
    """Refused, nothing but another output would help: what is there would be written once more."""
    options = replace(BEFORE, read=ReadOptions(**{name: value}))
    manifest = read_back(options)
    assert differing_options(options, manifest.options) == ""
    assert manifest.options == json.loads(json.dumps(kept_options(options)))
    assert (manifest.begin, manifest.end) == (5, Position(7))


def test_a_manifest_that_is_older_than_an_option_is_of_a_run_without_it() -> None:
    before = read_back(BEFORE, without="include_deleted").options
    assert differing_options(BEFORE, before) == ""
    now = replace(BEFORE, read=ReadOptions(include_deleted=True))
    assert differing_options(now, before) == "--include-deleted: false before, true now"


@pytest.mark.parametrize(
    ("place", "found"),
    [
        (("range", "end"), 6),
        (("range", "end"), 8),
        (("range", "begin"), 4),
        (("range", "end"), None),
        (("range", "end"), "7"),
        (("range", "end"), 7.0),
        (("anchor", "offset"), "5"),
        (("anchor", "crc32"), None),
    ],
)
def test_what_another_program_made_of_it_is_told(place: tuple[str, str], found: Any) -> None:
    """Rows were written a second time, or left out, by a range that the manifest's own name contradicts."""
    value = json.loads(encode(BEFORE, ReplayReport(5, 7), Position(7, Anchor(5, 2, 9))))
    value[place[0]][place[1]] = found
    path = f"/out/_rmqha/{manifest_name(5, 7)}"
    with pytest.raises(StoreError, match="is no manifest of rmqha replay"):
        decode(json.dumps(value).encode(), path=path)
    with pytest.raises(StoreError, match="is no manifest of rmqha replay"):
        decode(b"[" * 100_000, path=path)
