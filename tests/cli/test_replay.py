import json
import sys
from functools import partial
from pathlib import Path

import pytest

from rmqha.cli.main import run
from rmqha.codec import java_json
from rmqha.codec.deleted_topic import DeletedTopic
from tests.stores import expected_log, expected_messages, unpack

pytest.importorskip("pyarrow", reason="pyarrow is in the extra [spark]")

from rmqha.spark import java, replay
from rmqha.spark.options import SYSTEM_PREFIXES, SYSTEM_TOPICS
from rmqha.spark.replay import job, output
from tests.spark.in_process import in_process
from tests.spark.queues import large_store

Output = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command on a Spark of its own: tests/spark/test_replay_spark.py."""
    monkeypatch.setattr(replay, "replay", partial(replay.replay, start=in_process))


def test_a_store_is_replayed_and_the_next_run_finds_nothing_new(tmp_path: Path, capsys: Output) -> None:
    store, out = str(unpack("basic", tmp_path)), str(tmp_path / "out")
    arguments = ["replay", store, "--out", out, "--system-topics"]
    assert run(arguments) == 0
    head, *topics, summary, manifest = capsys.readouterr().out.splitlines()
    assert head.split() == ["topic", "messages", "body", "bytes"]
    assert len(topics) == len({message["topic"] for message in expected_messages("basic")})
    count, end = len(expected_messages("basic")), expected_log("basic")["maxOffset"]
    assert summary.startswith(f"{count} messages of [0, {end}), {count} records read")
    assert json.loads(Path(manifest.removeprefix("Manifest: ")).read_text())["messages"] == count
    assert run(arguments) == 0
    assert capsys.readouterr().out == f"Nothing new before offset {end}.\n"


def test_filters_and_json(tmp_path: Path) -> None:
    store, out = str(unpack("basic", tmp_path)), tmp_path / "out"
    filters = ["--topic", "order-events", "--tag", "TagA", "--columns", "physicalOffset,tags", "--format", "json"]
    assert run(["replay", store, "--out", str(out), *filters]) == 0
    lines = [json.loads(line) for line in "".join(map(Path.read_text, out.rglob("*.jsonl"))).splitlines()]
    wanted = [
        {"physicalOffset": message["physicalOffset"], "tags": "TagA"}
        for message in expected_messages("basic")
        if message["topic"] == "order-events" and (message["properties"] or {}).get("TAGS") == "TagA"
    ]
    assert lines == wanted != []


def test_what_is_left_out_as_the_brokers_own_is_counted(tmp_path: Path, capsys: Output) -> None:
    """A run without choices wrote fewer messages than the log has, and no word of that."""
    store = str(unpack("basic", tmp_path))
    topics = [message["topic"] for message in expected_messages("basic")]
    count = sum(topic in SYSTEM_TOPICS or topic.startswith(SYSTEM_PREFIXES) for topic in topics)
    assert count
    told = f"{count} messages of the broker's own topics, retry and dead-letter topics among them, are left out"
    assert run(["replay", store, "--out", str(tmp_path / "out")]) == 0
    captured = capsys.readouterr()
    assert told in captured.err
    manifest = Path(captured.out.splitlines()[-1].removeprefix("Manifest: "))
    assert json.loads(manifest.read_text())["systemTopics"] == count
    for choice in (["--system-topics"], ["--topic", "order-events"], ["--topic-pattern", ".*"]):
        assert run(["replay", store, "--out", str(tmp_path / "".join(choice)), *choice]) == 0
        assert "broker's own" not in capsys.readouterr().err


def test_how_much_was_read_is_told_where_queues_spare_some(tmp_path: Path, capsys: Output) -> None:
    store = large_store(tmp_path / "store", count=4000)
    replay_to = ["replay", str(store.log.root), "--topic", "rare", "--out"]
    assert run([*replay_to, str(tmp_path / "few")]) == 0
    *_, told, manifest = capsys.readouterr().out.splitlines()
    values = json.loads(Path(manifest.removeprefix("Manifest: ")).read_text())
    assert told == (
        f"{values['bytesRead']:,} bytes read of {store.log.end:,}: the others hold other topics, by the consume queues"
    )
    assert (values["messages"], values["bytesRead"] < store.log.end / 10) == (4, True)
    assert run([*replay_to, str(tmp_path / "all"), "--full-scan"]) == 0
    captured = capsys.readouterr().out
    assert "4 messages" in captured
    assert "consume queues" not in captured
    assert run(["replay", str(store.log.root), "--topic", "common-11", "--out", str(tmp_path / "none")]) == 0
    assert "is one of these meant? common-1" in capsys.readouterr().err


def test_a_run_goes_on_with_the_record_before_it_however_little_was_read(tmp_path: Path, capsys: Output) -> None:
    """Between the last wanted message and the log's end another log's records would not have been noticed."""
    store = large_store(tmp_path / "store", count=4000)
    replay_to = ["replay", str(store.log.root), "--topic", "rare", "--out", str(tmp_path / "out")]
    assert run(replay_to) == 0
    store.log.write(store.log.offsets[-1] + 200, b"another")
    store.put("rare", 0, b"later")
    assert run([*replay_to, "--no-crc"]) == 1
    assert f"another record is at {store.log.offsets[-2]}" in capsys.readouterr().err


def test_a_topic_that_nothing_is_of_is_warned_of_with_names_that_may_be_meant(tmp_path: Path, capsys: Output) -> None:
    """It was a success with a manifest, and no word."""
    store, out = str(unpack("basic", tmp_path)), str(tmp_path / "out")
    misspelt = ["replay", store, "--out", out, "--topic", "order-event", "--topic", "zzz"]
    assert run(misspelt) == 0
    captured = capsys.readouterr()
    end = expected_log("basic")["maxOffset"]
    assert captured.err.splitlines() == [
        f"Warning: --topic order-event: no message of [0, {end}) is of it: is one of these meant? order-events",
        f"Warning: --topic zzz: no message of [0, {end}) is of it",
    ]
    assert "Manifest: " in captured.out
    assert run(["replay", store, "--out", f"{out}2", "--topic", "order-events", "--to-offset", str(end - 1)]) == 0
    assert run(["replay", store, "--out", f"{out}2", "--topic", "order-events"]) == 0
    assert capsys.readouterr().err == "", "an earlier run has found some"
    assert run(["replay", store, "--out", f"{out}3", "--tag", "nothing"]) == 0
    assert "is a message that was asked for" in capsys.readouterr().err


def test_messages_of_deleted_topics_are_counted(tmp_path: Path, capsys: Output) -> None:
    store = unpack("basic", tmp_path)
    gone = [message for message in expected_messages("basic") if message["topic"] == "order-events"]
    end = expected_log("basic")["maxOffset"]
    deleted = {"order-events": DeletedTopic(end, dict.fromkeys(range(16), 1000))}
    (store / "config").mkdir(exist_ok=True)
    (store / "config" / "topics.json").write_text(java_json.dumps({"topicConfigTable": {}, "deletedTopics": deleted}))
    assert run(["replay", str(store), "--out", str(tmp_path / "out")]) == 0
    captured = capsys.readouterr()
    assert f"{len(gone)} messages of deleted topics are left out: --include-deleted" in captured.err
    manifest = captured.out.splitlines()[-1].removeprefix("Manifest: ")
    assert json.loads(Path(manifest).read_text())["deleted"] == len(gone) > 0
    assert run(["replay", str(store), "--out", str(tmp_path / "out2"), "--include-deleted"]) == 0
    assert "deleted topics" not in capsys.readouterr().err


def test_a_committed_run_whose_files_cannot_be_moved_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    """With all that is told of any other run: the next one has totals of its own."""
    store, out = str(unpack("basic", tmp_path)), str(tmp_path / "out")

    def full(path: str) -> None:
        if path.startswith(f"{out}/topic="):
            raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(output, "sync", full)
        assert run(["replay", store, "--out", out]) == 1
    told = capsys.readouterr()
    assert "records read" in told.out
    assert "the broker's own topics" in told.err
    assert "the run is committed, but files of it cannot be put in their places" in told.err
    assert run(["replay", store, "--out", out]) == 0
    assert "Nothing new" in capsys.readouterr().out


def test_damage_is_named_and_exits_with_1(tmp_path: Path, capsys: Output) -> None:
    store = unpack("bench", tmp_path)
    bad = expected_messages("bench")[7]["physicalOffset"]
    with (store / "commitlog" / ("0" * 20)).open("r+b") as file:
        file.seek(bad + 100)
        file.write(b"\xff\xff\xff\xff")
    out = str(tmp_path / "out")
    assert run(["replay", str(store), "--out", out]) == 1
    assert f"corrupt log at physical offset {bad}: 1 damaged range(s), nothing was written" in capsys.readouterr().err
    assert run(["replay", str(store), "--out", out, "--on-corrupt", "skip"]) == 0
    assert f"Left out: [{bad}, " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--columns", "payload"], 2, "unknown column 'payload'"),
        (["--since", "soon"], 2, "soon"),
        (["--from-offset", "5", "--to-offset", "4"], 2, "empty"),
        (["--since", "2026-11-21", "--until", "2026-11-20"], 2, "empty"),
        (["--columns", "topic, body,topic"], 2, "column 'topic' is there twice"),
        (["--columns", "topic"], 2, "the directory's name"),
        (["--topic-pattern", "("], 2, "pattern"),
        (["--topic-pattern", "a", "--topic", "b"], 2, "not both"),
        (["--out", ""], 2, "no name"),
        (["--out", "/dev/null"], 1, "'/dev/null/_rmqha'"),
    ],
)
def test_wrong_usage(arguments: list[str], code: int, message: str, tmp_path: Path, capsys: Output) -> None:
    store = str(unpack("bench", tmp_path))
    assert run(["replay", store, "--out", str(tmp_path / "out"), *arguments]) == code
    printed = capsys.readouterr().err
    assert message in printed
    assert "config reference" not in printed


def test_an_empty_path_is_no_store(tmp_path: Path, capsys: Output) -> None:
    """It would be the directory in which the command runs."""
    assert run(["replay", "", "--out", str(tmp_path / "out")]) == 2
    assert "the store's path is empty" in capsys.readouterr().err


def test_no_store_there(tmp_path: Path, capsys: Output) -> None:
    assert run(["replay", str(tmp_path / "none"), "--out", str(tmp_path / "out")]) == 1
    assert "no such directory" in capsys.readouterr().err


def test_without_spark_the_error_says_what_to_install(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert run(["replay", str(unpack("bench", tmp_path)), "--out", str(tmp_path / "out")]) == 1
    printed = capsys.readouterr().err
    assert "pip install 'rmqha[spark]'" in printed
    assert "rmqha log dump" in printed


@pytest.mark.parametrize(
    ("master", "code", "message"),
    [
        ("spork", 2, "'spork' is no master of Spark"),
        ("spark://127.0.0.1:9", 1, "nothing of Spark answers at 127.0.0.1:9: [Errno 111] Connection refused"),
        ("spark://a b:x", 1, "nothing of Spark answers at a b:x: "),
        ("sc://127.0.0.1:9/;x=y", 1, "nothing of Spark answers at 127.0.0.1:9: "),
        ("local[1]", 2, "Spark needs Java 17 or newer: none is installed"),
    ],
)
def test_spark_that_cannot_start(
    master: str, code: int, message: str, tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With no JVM: that is looked at first."""
    pytest.importorskip("pyspark", reason="pyspark is in the extra [spark]")
    from pyspark import SparkContext  # noqa: PLC0415

    monkeypatch.setattr(replay, "replay", job.replay)
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(java, "find_spec", lambda _name: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert run(["replay", str(unpack("bench", tmp_path)), "--out", str(tmp_path / "out"), "--master", master]) == code
    assert message in capsys.readouterr().err
