"""SegmentReader: how much of a segment is read at once."""

import pytest
from trio.testing import MockClock

from rmqha.codec.delay_level import DELAY_LEVELS_MS
from rmqha.store import segment_reader
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import commit_log, message, put, running


async def test_a_record_larger_than_a_round_does_not_have_the_whole_segment_read(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_reader, "_ROUND_BYTES", 250)
    monkeypatch.setattr(segment_reader, "_RECORD_BYTES", 1500)
    async with running(SimDisk().mount(), mapped_file_size_commit_log=1 << 16) as store:
        large, *_ = await put(store, message(size=1000), *[message(size=100) for _ in range(100)])
        reader = segment_reader.SegmentReader(commit_log(store).queue, DELAY_LEVELS_MS)
        requests, end = reader.records(0, store.max_offset)
        assert [request.commit_log_offset for request in requests] == [0, *range(large.end_offset, 1500, 100)]
        assert end == 1500
