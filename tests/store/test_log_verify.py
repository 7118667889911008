"""verify_log and verify_queues: silent about good stores, exact about bad ones."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rmqha.store.log_verify import LogVerification, Problem, verify_log
from rmqha.store.os_disk import OsDataFile, OsDisk
from rmqha.store.queue_verify import QueueVerification, verify_queues
from tests import stores
from tests.memory_log import inner_batch, record


def log_of(root: Path) -> LogVerification:
    return verify_log(OsDisk(), str(root / "commitlog"))


def queues_of(root: Path) -> QueueVerification:
    return verify_queues(OsDisk(), str(root / "commitlog"), str(root / "consumequeue"))


@pytest.mark.parametrize("name", stores.SIDES)
def test_recorded_stores_have_no_problem(name: str, tmp_path: Path) -> None:
    root = stores.unpack(name, tmp_path)
    expected, found = stores.expected_log(name), log_of(root)
    extra_blank = name == "endblank"  # RocketMQ takes it back
    assert found.problems == []
    assert (found.min_offset, found.records) == (max(0, expected["minOffset"]), expected["messages"])
    assert found.end_offset == expected["maxOffset"] + 65536 * extra_blank
    assert found.blanks == len(expected["blanks"]) + extra_blank
    assert found.segments == len(expected["files"])
    last = stores.expected_messages(name)[-1:]
    assert found.last_store_timestamp_ms == (last[0]["storeTimestamp"] if last else 0)
    assert found.tail is None or found.tail.offset == found.end_offset


def test_a_torn_record_at_the_end_is_told_apart(tmp_path: Path) -> None:
    found = log_of(stores.unpack("slave/slave", tmp_path))
    assert found.tail is not None
    assert "PROPERTIES LENGTH 0 does not add up" in found.tail.reason


@pytest.mark.parametrize("name", stores.SIDES)
def test_queues_of_recorded_stores_have_no_problem(name: str, tmp_path: Path) -> None:
    root = stores.unpack(name, tmp_path)
    expected = stores.expected_queues(name)
    units = sum(queue["max"] - queue["min"] for queues in expected.values() for queue in queues.values())
    found = queues_of(root)
    assert found.problems == []
    assert found.units + found.behind == units
    assert (found.behind > 0) == (name == "crashed")


SEGMENT = f"{65536:020d}"
"""The second segment of store-rolled, which ``damage`` below is done to."""


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


@pytest.fixture
def rolled(tmp_path: Path) -> Path:
    return stores.unpack("rolled", tmp_path)


def test_each_bad_record_is_named_and_the_rest_still_read(rolled: Path) -> None:
    path = rolled / "commitlog" / SEGMENT
    messages = [m for m in stores.expected_messages("rolled") if 0 <= m["physicalOffset"] - 65536 < 65536]
    bad = [messages[0], messages[5], messages[6], messages[-1]]
    for message in bad:
        flip(path, message["physicalOffset"] - 65536 + 90)
    found = log_of(rolled)
    assert found.records == 196
    # The one that follows a bad one directly is found with it: reading goes on at the next good record.
    named = [messages[0], messages[5], messages[-1]]
    assert [problem.offset for problem in found.problems] == [message["physicalOffset"] for message in named]
    assert {problem.path for problem in found.problems} == {str(path)}
    assert found.problems[1].position == messages[5]["physicalOffset"] - 65536
    assert "BODYCRC" in str(found.problems[0])
    assert found.end_offset == 789162


def test_zeros_in_the_middle_and_a_bad_blank_are_problems(rolled: Path) -> None:
    blank = stores.expected_log("rolled")["blanks"][0]
    path = rolled / "commitlog" / f"{0:020d}"
    data = bytearray(path.read_bytes())
    data[500:5000] = bytes(4500)
    path.write_bytes(data)
    flip(path, blank["physicalOffset"] + 3)
    found = log_of(rolled)
    first = next(m["physicalOffset"] for m in stores.expected_messages("rolled") if m["physicalOffset"] >= 500)
    assert [problem.position for problem in found.problems] == [first, blank["physicalOffset"]]
    assert found.problems[0].reason == "zeros, no record"
    assert "a blank of" in found.problems[1].reason


def test_zeros_where_a_segment_begins_are_a_problem_if_records_follow(rolled: Path) -> None:
    path = rolled / "commitlog" / SEGMENT
    path.write_bytes(bytes(500) + path.read_bytes()[500:])
    (problem,) = log_of(rolled).problems
    assert (problem.offset, problem.reason) == (65536, "zeros, no record")


def remove(path: Path) -> None:
    path.unlink()


def shorten(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:60000])


def rename(path: Path) -> None:
    path.rename(path.with_name("notes.txt"))


@pytest.mark.parametrize(
    ("change", "reasons"),
    [
        (remove, [f"segment {SEGMENT} is missing"]),
        (shorten, ["60000 bytes, but the first segment has 65536", "is missing, or of a wrong length"]),
        (rename, ["no segment's name", f"segment {SEGMENT} is missing"]),
    ],
)
def test_files_that_do_not_fit_are_problems(rolled: Path, change: Callable[[Path], None], reasons: list[str]) -> None:
    change(rolled / "commitlog" / SEGMENT)
    text = "\n".join(map(str, log_of(rolled).problems))
    for reason in reasons:
        assert reason in text


def test_an_empty_file_is_a_problem(rolled: Path) -> None:
    (rolled / "commitlog" / f"{851968:020d}").touch()
    assert [problem.reason[:13] for problem in log_of(rolled).problems] == ["an empty file"]


def test_a_format_we_do_not_read_is_a_problem_and_ends_it(rolled: Path) -> None:
    path = rolled / "commitlog" / SEGMENT
    data = path.read_bytes()
    path.write_bytes(data[:4] + bytes.fromhex("daa320ab") + data[8:])
    found = log_of(rolled)
    assert (found.segments, len(found.problems)) == (2, 1)
    assert "RocketMQ 5.x" in found.problems[0].reason


def test_an_inner_batch_is_a_problem_and_ends_it(tmp_path: Path) -> None:
    good = record(0, b"good")
    log = (good + inner_batch(len(good))).ljust(4096, b"\0")
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / f"{0:020d}").write_bytes(log)
    found = log_of(tmp_path)
    assert [problem.offset for problem in found.problems] == [len(good)]
    assert "an inner batch of RocketMQ 5.x" in found.problems[0].reason


def queue_file(root: Path) -> Path:
    return root / "consumequeue" / "rolling" / "1" / f"{0:020d}"


@pytest.mark.parametrize(
    ("position", "reason"),
    [(147, "but the record says"), (151, "but the record says"), (155, "but the record says")],
)
def test_a_unit_that_differs_is_named(rolled: Path, position: int, reason: str) -> None:
    flip(queue_file(rolled), position)
    found = queues_of(rolled)
    assert [(problem.offset, problem.position) for problem in found.problems] == [(7, 140)]
    assert reason in found.problems[0].reason
    assert found.units == 199


def test_a_queue_that_is_gone_is_one_problem(rolled: Path) -> None:
    shutil.rmtree(queue_file(rolled).parent)
    found = queues_of(rolled)
    assert [problem.path for problem in found.problems] == [str(queue_file(rolled).parent)]
    assert "has no unit" in found.problems[0].reason


def test_units_without_a_record_are_a_problem(rolled: Path) -> None:
    (rolled / "commitlog" / f"{786432:020d}").unlink()
    found = queues_of(rolled)
    assert sorted(problem.reason for problem in found.problems) == [
        "2 units point at no record",
        "2 units point at no record",
        "3 units point at no record",
        "3 units point at no record",
    ]


class Dispatching(OsDisk):
    """A disk on which a broker fills the queues while their ends are read."""

    def __init__(self, full: dict[Path, bytes]) -> None:
        super().__init__()
        self._full = full
        self._opened: set[str] = set()

    def open(self, path: str, *, writable: bool) -> OsDataFile:
        if "/consumequeue/" in path:
            self._opened.add(path)
            if len(self._opened) == 2:
                for one, data in self._full.items():
                    one.write_bytes(data)
        return super().open(path, writable=writable)


def test_what_is_dispatched_meanwhile_is_no_problem(rolled: Path) -> None:
    """One queue's end was read before its last units came, another's after: "has no unit", of a sound store."""
    full = {path: path.read_bytes() for path in (rolled / "consumequeue").glob("*/*/*")}
    for path, data in full.items():
        path.write_bytes(data[: 40 * 20] + bytes(len(data) - 40 * 20))
    found = verify_queues(Dispatching(full), str(rolled / "commitlog"), str(rolled / "consumequeue"))
    assert (found.problems, found.behind, found.units) == ([], 0, 200)
    assert len(full) > 1


def test_queues_that_do_not_fit_together_are_a_problem(rolled: Path) -> None:
    queue_file(rolled).write_bytes(b"123")
    assert len(queues_of(rolled).problems) == 1


def test_no_queues_and_no_log_are_no_problem(rolled: Path) -> None:
    shutil.rmtree(rolled / "consumequeue")
    assert queues_of(rolled) == QueueVerification()
    shutil.rmtree(rolled / "commitlog")
    assert log_of(rolled) == LogVerification()


def test_progress_is_told_by_segment(rolled: Path) -> None:
    told: list[Any] = []
    verify_log(OsDisk(), str(rolled / "commitlog"), on_segment=lambda found: told.append(found.end_offset))
    assert told == [65536 * number for number in range(1, 13)] + [789162]


def test_a_problem_reads_as_a_sentence() -> None:
    assert str(Problem("/a", 1, 2, "bad")) == "/a, position 1 (offset 2): bad"


def test_a_queue_file_that_a_crash_left_empty_does_not_hide_the_others(rolled: Path) -> None:
    newborn = rolled / "consumequeue" / "another" / "0" / f"{0:020d}"
    newborn.parent.mkdir(parents=True)
    newborn.write_bytes(b"")
    found = queues_of(rolled)
    assert (found.problems, found.units) == ([], 200), "a start removes it, and nothing is wrong"
