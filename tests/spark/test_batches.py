"""`iter_batches` over a log that changes while it is read: rows of two logs are never taken for those of one."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rmqha.errors import StoreError
from rmqha.spark import ReadOptions, ReadReport, iter_batches
from tests.spark.logs import LogWriter


@pytest.fixture
def log(tmp_path: Path) -> LogWriter:
    """Some 170 KB in files of 64 KiB."""
    writer = LogWriter(tmp_path)
    for number in range(400):
        writer.append(f"{number:06d}".encode() + bytes(300))
    return writer


def cut(log: LogWriter, at: int) -> None:
    """As a failover does."""
    for path in sorted((log.root / "commitlog").iterdir()):
        if int(path.name) > at:
            path.unlink()
    log.write(at, bytes(log.file_size - at % log.file_size))
    log.offsets = [offset for offset in log.offsets if offset < at]
    log.end = at


@pytest.mark.parametrize("record", [10, 300])
@pytest.mark.parametrize("grows", [False, True])
def test_a_log_that_is_cut_while_it_is_read_is_told(log: LogWriter, record: int, grows: bool) -> None:
    """Wherever the reader was: what it gave before the cut and what it gave behind it are of two logs."""
    batches = iter_batches(str(log.root))
    next(batches)
    cut(log, log.offsets[record])
    while grows and log.end < 400_000:
        log.append(b"another" + bytes(500))
    with pytest.raises(StoreError, match=r"was cut while it was read|lost a file"):
        list(batches)


def test_a_file_that_is_deleted_before_it_is_read_is_told(log: LogWriter) -> None:
    batches = iter_batches(str(log.root))
    next(batches)
    sorted((log.root / "commitlog").iterdir())[1].unlink()
    with pytest.raises(StoreError, match="as old ones expire; begin again"):
        list(batches)


def test_a_log_that_grows_is_read_to_where_it_ended(log: LogWriter) -> None:
    batches = iter_batches(str(log.root))
    rows = next(batches).num_rows
    log.append(b"later")
    assert rows + sum(batch.num_rows for batch in batches) == 400


@pytest.mark.parametrize("end", [lambda log: log.end, lambda log: log.offsets[7]])
def test_reading_goes_on_where_it_ended(log: LogWriter, end: Callable[[LogWriter], int]) -> None:
    at = end(log)
    assert sum(batch.num_rows for batch in iter_batches(str(log.root), ReadOptions(ending_offset=at))) > 0
    later = sum(batch.num_rows for batch in iter_batches(str(log.root), ReadOptions(starting_offset=at)))
    assert later == sum(offset >= at for offset in log.offsets)


def test_a_begin_that_the_log_does_not_reach_is_told(log: LogWriter) -> None:
    """No row would have said that the log was cut since."""
    report = ReadReport()
    assert sum(batch.num_rows for batch in iter_batches(str(log.root), report=report)) == 400
    assert report.next == log.end
    cut(log, log.offsets[100])
    with pytest.raises(StoreError, match=f"ends at {log.end}, before offset {report.next}: it was cut"):
        list(iter_batches(str(log.root), ReadOptions(starting_offset=report.next)))
