"""What columns make of values that producers' clocks and senders can hold."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

pytest.importorskip("pyarrow", reason="pyarrow is in the extra [spark]")

from rmqha.spark import ReadOptions, iter_batches
from tests.spark.logs import LogWriter

YEAR_1_MS = -62_135_596_800_000
YEAR_10000_MS = 253_402_300_800_000
HOUR_MS = 3_600_000


def times(root: Path, column: str) -> list[int | None]:
    """As Spark hands them to Python: microseconds since 1970."""
    batches = iter_batches(str(root), ReadOptions(columns=(column,)))
    return [each.value for batch in batches for each in batch.column(0)]


@pytest.mark.parametrize("column", ["bornTimestamp", "storeTimestamp", "timestamp"])
@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "XST+12", "XST-14", "XST+24", "XST-24"], indirect=True)
def test_any_time_that_is_delivered_can_be_shown_in_any_zone(column: str, zone: str, tmp_path: Path) -> None:
    """Spark makes local times of them: one odd clock would have collect() fail, whatever else it has found."""
    log, hours = LogWriter(tmp_path), range(-72, 73)
    around = [edge + hour * HOUR_MS + ms for edge in (YEAR_1_MS, YEAR_10000_MS) for hour in hours for ms in (-1, 0)]
    for ms in (*around, -(1 << 63) + 5, (1 << 63) - 6):
        log.append(b"", stored_ms=ms + (5 if column == "bornTimestamp" else 0))
    *found, least, most = times(tmp_path, column)
    assert least is most is None
    shown = [us for us in found if us is not None]
    assert [datetime.fromtimestamp(us // 1_000_000).year for us in shown], zone  # noqa: DTZ006 - as Spark does
    assert shown == [ms * 1000 for ms in around if YEAR_1_MS + 48 * HOUR_MS <= ms < YEAR_10000_MS - 48 * HOUR_MS]
    assert datetime.fromtimestamp(shown[0] // 1_000_000, UTC).isoformat() == "0001-01-03T00:00:00+00:00"
    assert datetime.fromtimestamp(shown[-1] // 1_000_000, UTC).isoformat() == "9999-12-29T23:59:59+00:00"
