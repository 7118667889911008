"""What an operator deleted is not delivered, while the log still holds it; what came after it is."""

import json
from pathlib import Path
from typing import Any

import pytest

from rmqha.codec import java_json
from rmqha.codec.deleted_topic import DeletedTopic
from rmqha.errors import CorruptLogError, StoreError
from rmqha.spark import OnCorrupt, ReadOptions, ReadReport
from rmqha.spark.commit_log import open_log
from rmqha.spark.partitions import plan_tasks
from tests.spark.logs import LogWriter
from tests.spark.readers import offsets, split_offsets


@pytest.fixture
def log(tmp_path: Path) -> LogWriter:
    """Ten messages in two queues each of two topics, in turn: one topic is deleted after six of them."""
    writer = LogWriter(tmp_path)
    for number in range(20):
        topic = b"kept" if number % 2 else b"gone"
        writer.append(b"x", topic=topic, queue_id=number // 2 % 2, queue_offset=number // 4)
    delete(tmp_path, {"gone": DeletedTopic(writer.offsets[12], {0: 3, 1: 3})})
    return writer


def delete(root: Path, topics: dict[str, DeletedTopic]) -> None:
    (root / "config").mkdir(exist_ok=True)
    table = {"topicConfigTable": {}, "deletedTopics": topics}
    (root / "config" / "topics.json").write_text(java_json.dumps(table))


def numbers(log: LogWriter, found: list[int]) -> list[int]:
    return [log.offsets.index(offset) for offset in found]


REST = [number for number in range(20) if number % 2 or number >= 12]


@pytest.mark.parametrize("inner", ["", "commitlog"])
def test_what_is_deleted_is_left_out(log: LogWriter, inner: str) -> None:
    assert numbers(log, offsets(log.root / inner)) == REST
    assert numbers(log, offsets(log.root / inner, topics=("gone",))) == [12, 14, 16, 18]
    assert offsets(log.root / inner, include_deleted=True) == log.offsets


@pytest.mark.parametrize("name", ["data", "commitlog", "dledger-all"])
@pytest.mark.parametrize("inner", ["", "commitlog"])
def test_so_it_is_where_the_store_has_a_name_of_what_is_in_one(
    log: LogWriter, name: str, inner: str, tmp_path: Path
) -> None:
    root = tmp_path / "s" / name
    root.mkdir(parents=True)
    for part in ("commitlog", "config"):
        (tmp_path / part).rename(root / part)
    assert numbers(log, offsets(root / inner)) == REST


def test_what_is_not_wanted_is_not_counted_as_deleted(log: LogWriter) -> None:
    report = ReadReport()
    assert offsets(log.root, report, topics=("kept",))
    assert report.deleted == 0


def test_any_split_leaves_out_the_same(log: LogWriter) -> None:
    found, _ = split_offsets(log.root, 300)
    assert numbers(log, found) == REST


def test_both_bounds_count(log: LogWriter) -> None:
    """A queue that the deletion did not know, and what lies behind it, are there."""
    delete(log.root, {"gone": DeletedTopic(log.offsets[12], {0: 3})})
    assert numbers(log, offsets(log.root, topics=("gone",))) == [2, 6, 10, 12, 14, 16, 18]
    delete(log.root, {"gone": DeletedTopic(log.offsets[8], {0: 100, 1: 100})})
    assert numbers(log, offsets(log.root, topics=("gone",))) == [8, 10, 12, 14, 16, 18]


@pytest.mark.parametrize("mode", OnCorrupt)
def test_a_name_that_is_none_is_damage_beside_deleted_topics_too(log: LogWriter, mode: OnCorrupt) -> None:
    """It ended in a bare UnicodeDecodeError, without a place, whatever was to be done with damage."""
    path = log.path(log.offsets[9])
    data = bytearray(path.read_bytes())
    data[data.index(b"kept", log.offsets[9])] = 0xFF
    path.write_bytes(data)
    if mode is OnCorrupt.FAIL:
        with pytest.raises(CorruptLogError, match=f"{log.offsets[9]:,}|{log.offsets[9]}"):
            offsets(log.root, on_corrupt=mode)
        return
    found = [number for number in REST if number != 9 and (number < 9 or mode is OnCorrupt.SKIP)]
    assert numbers(log, offsets(log.root, on_corrupt=mode)) == found


def test_no_table_says_that_nothing_is_deleted(log: LogWriter, caplog: pytest.LogCaptureFixture) -> None:
    """A copy of the log alone has none; of more of a store it is told, once."""
    table = log.root / "config" / "topics.json"
    table.unlink()
    assert offsets(log.root) == offsets(log.root) == log.offsets
    assert [record.getMessage() for record in caplog.records] == [
        f"topics_table.missing: {table} is missing: messages of topics that were deleted cannot be told from others"
    ]
    caplog.clear()
    table.parent.rename(log.root / "elsewhere")
    assert offsets(log.root) == log.offsets
    assert not caplog.records


def test_the_backup_tells_where_the_table_is_missing(log: LogWriter, caplog: pytest.LogCaptureFixture) -> None:
    table = log.root / "config" / "topics.json"
    table.rename(f"{table}.bak")
    assert numbers(log, offsets(log.root)) == REST
    assert f"{table} is missing: its backup says which topics are deleted" in caplog.text
    Path(f"{table}.bak").write_text("{")
    with pytest.raises(StoreError, match=r"topics\.json\.bak does not say which topics are deleted"):
        offsets(log.root)


@pytest.mark.parametrize(
    "text", ["", "7", "{", '{"deletedTopics":[]}', '{"deletedTopics":{"a":{"before":-1,"queues":{}}}}']
)
def test_a_table_that_nobody_understands_is_an_error(log: LogWriter, text: str) -> None:
    (log.root / "config" / "topics.json").write_text(text)
    with pytest.raises(StoreError, match="does not say which topics are deleted"):
        offsets(log.root)
    assert offsets(log.root, include_deleted=True) == log.offsets


def test_a_table_of_rocketmq_deletes_nothing(log: LogWriter) -> None:
    (log.root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {"gone": {}}}))
    assert offsets(log.root) == log.offsets


def test_tasks_carry_only_what_concerns_them(log: LogWriter) -> None:
    found = open_log(str(log.root))

    def carried(begin: int, **options: Any) -> set[str]:
        (task,) = plan_tasks(found, begin, found.end, options=ReadOptions(**options), split_bytes=1 << 20)
        return set(task.deleted)

    assert carried(0) == {"gone"}
    assert carried(0, topics=("kept",)) == set()
    assert carried(log.offsets[12]) == set()


def test_a_table_that_cannot_be_read_is_an_error(log: LogWriter) -> None:
    table = log.root / "config" / "topics.json"
    table.unlink()
    table.mkdir()
    with pytest.raises(StoreError, match="which says what topics are deleted, cannot be read"):
        offsets(log.root)
