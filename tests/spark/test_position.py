"""Where a reader ended, and whether the log goes on from there: without its last record, an offset says little."""

import json
import random
from pathlib import Path

import pytest

from rmqha.errors import ConfigError
from rmqha.spark.commit_log import open_log
from rmqha.spark.position import Anchor, Position, from_json, last_record_before, position_at
from tests.spark.logs import LogWriter, record


@pytest.fixture
def log(tmp_path: Path) -> LogWriter:
    """Some messages in three files, the oldest of which have expired."""
    writer, chance = LogWriter(tmp_path, file_size=4096), random.Random(3)
    while writer.end < 5 * writer.file_size:
        writer.append(chance.randbytes(chance.randint(300, 900)))
    for base in (0, writer.file_size):
        writer.path(base).unlink()
    return writer


def kept(log: LogWriter) -> list[int]:
    return [at for at in log.offsets if at >= 2 * log.file_size]


def behind(log: LogWriter, at: int) -> int:
    """The end of the record there."""
    path, start = log.path(at), at % log.file_size
    return at + int.from_bytes(path.read_bytes()[start : start + 4], "big")


def ended(log: LogWriter, at: int) -> Position:
    """As a checkpoint has it, of who read up to the end of that record."""
    position = position_at(open_log(str(log.root)), behind(log, at))
    assert position.anchor is not None
    assert position.anchor.offset == at
    return from_json(position.as_json())


def test_another_record_before_a_position_is_told_wherever_it_lies(log: LogWriter) -> None:
    """Also the oldest file's first, at the very begin of the log; and what another log has before it is its own."""
    for at in kept(log):
        position, size = ended(log, at), behind(log, at) - at
        assert position.problem(open_log(str(log.root))) == ""
        before = log.path(at).read_bytes()
        log.write(at, record(at, b"?" * (size - len(record(at, b"")))))
        assert behind(log, at) == position.offset
        assert f"another record is at {at}: " in position.problem(open_log(str(log.root)))
        log.path(at).write_bytes(before)


@pytest.mark.parametrize(("at_byte", "bits"), [(100, 0xFF), (0, 0x40), (4, 0xFF)])
def test_damage_before_it_does_not_hide_the_last_record(log: LogWriter, at_byte: int, bits: int) -> None:
    """What was noted lay before the damage: a tail that was cut and written anew behind it was taken for read.

    In a body, a size and a magic code. One whose body alone is damaged is still what lies there.
    """
    places, sound = kept(log), {at: log.path(at).read_bytes() for at in kept(log)}
    for damaged in places:
        data = bytearray(sound[damaged])
        data[damaged % log.file_size + at_byte] ^= bits
        log.path(damaged).write_bytes(data)
        here = open_log(str(log.root))
        for last in [at for at in places if at > damaged or (at == damaged and at_byte == 100)]:
            anchor = last_record_before(here, behind(log, last))
            assert (anchor and anchor.offset) == last
        if at_byte == 100:
            good = last_record_before(here, behind(log, damaged), is_sound=True)
            assert (good and good.offset) == (places[places.index(damaged) - 1] if damaged > places[0] else None)
        log.path(damaged).write_bytes(sound[damaged])


@pytest.mark.parametrize("size", [80_000, 700_000])
def test_a_large_record_before_it_is_the_last_one(size: int, tmp_path: Path) -> None:
    """It begins before what is looked at first: without it, a log that was cut and went on elsewhere is the same."""
    log = LogWriter(tmp_path, file_size=1 << 20)
    log.append(b"before")
    large = log.append(b"x" * size)
    position = ended(log, large)
    log.write(large, record(large, b"?" * size))
    assert position.offset == log.end
    assert f"another record is at {large}: " in position.problem(open_log(str(log.root)))


def test_a_record_whose_file_has_expired_is_not_missed(log: LogWriter) -> None:
    """As long as reading goes on where the log begins now."""
    begin = 3 * log.file_size
    last = max(at for at in kept(log) if at < begin)
    position = position_at(open_log(str(log.root)), begin)
    assert position.anchor is not None
    assert position.anchor.offset == last
    log.path(last).unlink()
    assert position.problem(open_log(str(log.root))) == ""
    log.path(begin).unlink()
    assert "the files between were deleted" in position.problem(open_log(str(log.root)))


def test_behind_a_blank_only_that_may_be_missing(log: LogWriter) -> None:
    """A file's last record was read, and nothing of what follows: the next file's loss is no blank's."""
    last = max(at for at in kept(log) if at < 3 * log.file_size)
    position = ended(log, last)
    assert position.blank_to == 3 * log.file_size
    log.path(last).unlink()
    assert position.problem(open_log(str(log.root))) == ""
    assert not position.lacks_files(open_log(str(log.root)))
    log.path(position.blank_to).unlink()
    assert "the files between were deleted" in position.problem(open_log(str(log.root)))
    assert position.lacks_files(open_log(str(log.root)))


def test_a_log_that_ends_before_a_position_was_cut(log: LogWriter) -> None:
    position = ended(log, log.offsets[-1])
    log.write(log.offsets[-1], bytes(log.end - log.offsets[-1]))
    assert "it ends at " in position.problem(open_log(str(log.root)))


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        "512",
        -1,
        1 << 63,
        1.5,
        [512],
        {},
        {"offset": 512},
        {"offset": "512", "record": None, "blankTo": None},
        {"offset": -1, "record": None, "blankTo": None},
        {"offset": 512, "record": [0, 512], "blankTo": None},
        {"offset": 512, "record": [0, 1 << 40, 7], "blankTo": None},
        {"offset": 512, "record": [0, 512, "7"], "blankTo": None},
        {"offset": 512, "record": 7, "blankTo": None},
        {"offset": 512, "record": None, "blankTo": "4096"},
    ],
    ids=repr,
)
def test_what_is_no_position_is_told(value: object) -> None:
    """As a checkpoint has it that was written by hand."""
    with pytest.raises(ConfigError, match=r"the checkpoint has .* where a position in a log is to be"):
        from_json(value)


@pytest.mark.parametrize(
    "position",
    [Position(0, was_empty=True), Position(512), Position(512, Anchor(0, 512, 7)), Position(512, None, 4096)],
)
def test_what_a_checkpoint_has_is_read_again(position: Position) -> None:
    assert from_json(json.loads(json.dumps(position.as_json()))) == position
    assert from_json(position.offset) == Position(position.offset), "as rmqha 0.1 wrote it"
