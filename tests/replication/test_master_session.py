"""What a master decides for one slave: which reports count, what is sent, and when."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.choices import HaStartFrom
from rmqha.codec.transfer import BODY_SIZE_MAX
from rmqha.replication.master_session import (
    LogRange,
    MasterSession,
    Refusal,
    RefusedSlaveError,
    SendHeartbeat,
    SendRange,
    WaitUntil,
)
from tests.settings import master_settings

FILE = 65536
LOG = LogRange(2 * FILE, 5 * FILE + 1000)


def session(*, first: int | None = None, log: LogRange = LOG, **settings: object) -> MasterSession:
    made = MasterSession(master_settings(file_size=FILE, **settings), now=0.0)
    if first is not None:
        made.on_report(first, log=log)
    return made


def refusal_of(made: MasterSession, offset: int, log: LogRange = LOG) -> Refusal:
    before = made.slave_ack_offset
    with pytest.raises(RefusedSlaveError) as caught:
        made.on_report(offset, log=log)
    assert made.slave_ack_offset == before, "nothing of a refused report counts"
    return caught.value.refusal


@pytest.mark.parametrize("offset", [-1, -(2**63)])
def test_a_negative_report_is_refused_first_or_later(offset: int) -> None:
    assert refusal_of(session(), offset) is Refusal.NEGATIVE
    assert refusal_of(session(first=LOG.max_offset), offset) is Refusal.NEGATIVE


@pytest.mark.parametrize("offset", [LOG.max_offset + 1, 2**62])
def test_a_slave_ahead_is_refused_and_the_message_says_by_how_much(offset: int) -> None:
    made = session()
    assert refusal_of(made, offset) is Refusal.AHEAD
    assert not made.is_transferring
    with pytest.raises(RefusedSlaveError, match=f"ahead by {offset - LOG.max_offset} bytes"):
        made.on_report(offset, log=LOG)


@pytest.mark.parametrize("offset", [1, FILE, 2 * FILE - 1])
def test_a_slave_that_needs_deleted_bytes_is_refused(offset: int) -> None:
    assert refusal_of(session(), offset) is Refusal.BELOW_MIN


@pytest.mark.parametrize("offset", [LOG.min_offset, LOG.min_offset + 1, 4 * FILE + 77, LOG.max_offset])
def test_transfer_starts_exactly_where_the_slave_asks(offset: int) -> None:
    made = session(first=offset)
    assert (made.next_transfer_from_where, made.slave_ack_offset) == (offset, offset)


def test_a_slave_without_data_gets_the_whole_log_or_the_last_file() -> None:
    assert session(first=0).next_transfer_from_where == LOG.min_offset
    assert session(first=0, start_from=HaStartFrom.LAST).next_transfer_from_where == 5 * FILE
    assert session(first=0, log=LogRange(-1, 0)).next_transfer_from_where == 0


def test_a_slave_without_data_holds_nothing_and_may_say_so_again() -> None:
    made = session(first=0)
    made.on_report(0, log=LOG)
    assert (made.slave_ack_offset, made.has_taken) == (0, False)


def test_a_slave_without_data_may_report_the_start_it_was_sent() -> None:
    """A Java slave opens the file at a heartbeat's offset and reports it; see the capture fresh-multifile."""
    made = session(first=0, start_from=HaStartFrom.LAST)
    made.on_report(5 * FILE, log=LOG)
    assert made.slave_ack_offset == 5 * FILE


def test_a_later_report_must_not_exceed_what_was_sent_nor_fall() -> None:
    made = session(first=3 * FILE)
    assert refusal_of(made, 3 * FILE + 1) is Refusal.NOT_SENT
    sent = made.next_action(now=0.0, min_offset=LOG.min_offset, limit=LOG.max_offset)
    assert isinstance(sent, SendRange)
    made.on_report(3 * FILE + sent.size, log=LOG)
    assert refusal_of(made, 3 * FILE + sent.size + 1) is Refusal.NOT_SENT
    assert refusal_of(made, 3 * FILE + sent.size - 1) is Refusal.FALLING
    made.on_report(3 * FILE + sent.size, log=LOG)


@given(st.lists(st.integers(-2, 6 * FILE), max_size=20), st.integers(0, 6 * FILE))
def test_no_reports_whatever_acknowledge_more_than_was_sent(reports: list[int], limit: int) -> None:
    made = session()
    for offset in reports:
        try:
            made.on_report(offset, log=LOG)
        except RefusedSlaveError:
            continue
        made.next_action(now=0.0, min_offset=LOG.min_offset, limit=max(limit, made.next_transfer_from_where))
        assert 0 <= made.first_report <= made.slave_ack_offset <= max(made.next_transfer_from_where, 0)
        assert made.slave_ack_offset <= LOG.max_offset


@given(
    st.integers(LOG.min_offset, LOG.max_offset),
    st.integers(1, FILE * 2),
    st.lists(st.floats(0, 3), max_size=30),
)
def test_what_is_sent_is_the_log_without_gap_overlap_or_crossing(start: int, batch: int, pauses: list[float]) -> None:
    made = session(first=start, transfer_batch_size=batch)
    now, at = 0.0, start
    for pause in [*pauses, *[0.0] * 20]:
        action = made.next_action(now=now, min_offset=LOG.min_offset, limit=LOG.max_offset)
        if isinstance(action, SendRange):
            assert action.offset == at
            assert 0 < action.size <= BODY_SIZE_MAX
            assert action.offset // FILE == (action.offset + action.size - 1) // FILE
            at += action.size
        now += pause
        made.on_sent(now=now)
    assert at == made.next_transfer_from_where <= LOG.max_offset


def test_nothing_is_sent_beyond_the_limit() -> None:
    made = session(first=LOG.max_offset - 10)
    assert made.next_action(now=0.0, min_offset=0, limit=LOG.max_offset - 4) == SendRange(LOG.max_offset - 10, 6)
    made.on_sent(now=0.0)
    assert made.next_action(now=0.0, min_offset=0, limit=LOG.max_offset - 4) == WaitUntil(5.0, LOG.max_offset - 3)


def test_a_slave_may_hold_more_than_is_durable_here() -> None:
    made = session(first=LOG.max_offset)
    assert isinstance(made.next_action(now=0.0, min_offset=0, limit=LOG.max_offset - 100), WaitUntil)


def test_a_heartbeat_follows_five_seconds_of_silence_and_no_less() -> None:
    made = session(first=LOG.max_offset)
    assert made.next_action(now=4.9, min_offset=0, limit=LOG.max_offset) == WaitUntil(5.0, LOG.max_offset + 1)
    assert made.next_action(now=5.0, min_offset=0, limit=LOG.max_offset) == SendHeartbeat(LOG.max_offset)
    made.on_sent(now=5.5)
    assert made.next_action(now=5.5, min_offset=0, limit=LOG.max_offset) == WaitUntil(10.5, LOG.max_offset + 1)


def test_data_is_sent_before_a_heartbeat_that_is_due() -> None:
    made = session(first=LOG.max_offset - 10)
    assert made.next_action(now=9.0, min_offset=0, limit=LOG.max_offset) == SendRange(LOG.max_offset - 10, 10)


def test_a_slave_that_the_cleaning_overtook_is_refused() -> None:
    made = session(first=2 * FILE)
    with pytest.raises(RefusedSlaveError, match="too slow for the cleaning") as caught:
        made.next_action(now=0.0, min_offset=3 * FILE, limit=LOG.max_offset)
    assert caught.value.refusal is Refusal.BELOW_MIN


def frame_sizes(made: MasterSession, *, limit: int, took_s: float, count: int) -> list[int]:
    sizes = []
    now = 0.0
    for _ in range(count):
        action = made.next_action(now=now, min_offset=0, limit=limit)
        assert isinstance(action, SendRange)
        sizes.append(action.size)
        now += took_s
        made.on_sent(now=now)
    return sizes


def test_frames_grow_in_catch_up_to_the_most_a_java_slave_takes() -> None:
    made = MasterSession(master_settings(file_size=1 << 30), now=0.0)
    made.on_report(0, log=LogRange(0, 1 << 30))
    sizes = frame_sizes(made, limit=1 << 30, took_s=0.01, count=10)
    assert sizes == [32768 << i for i in range(7)] + [BODY_SIZE_MAX] * 3


def test_frames_shrink_on_a_slow_line_and_stay_small_when_idle() -> None:
    made = MasterSession(master_settings(file_size=1 << 30), now=0.0)
    made.on_report(0, log=LogRange(0, 1 << 30))
    frame_sizes(made, limit=1 << 30, took_s=0.01, count=5)
    assert frame_sizes(made, limit=1 << 30, took_s=2.0, count=7) == [32768 << i for i in (5, 4, 3, 2, 1, 0, 0)]
    at = made.next_transfer_from_where
    assert frame_sizes(made, limit=at + 100, took_s=0.0, count=1) == [100]
    assert frame_sizes(made, limit=1 << 30, took_s=0.5, count=3) == [32768] * 3


def test_a_silent_slave_is_given_up_after_twenty_seconds() -> None:
    made = session(first=0)
    assert made.read_deadline == 20.0
    made.on_read(0, now=7.0)
    assert made.read_deadline == 27.0
    assert made.on_read_deadline().refusal is Refusal.SILENT


def test_a_stranger_that_never_reports_is_given_up_after_ten() -> None:
    made = session()
    made.on_read(3, now=9.0)
    assert made.read_deadline == 10.0
    assert made.on_read_deadline().refusal is Refusal.SILENT
    assert session(housekeeping_s=2.0).read_deadline == 2.0


def test_a_slave_follows_once_it_acknowledges_what_it_was_sent() -> None:
    assert not session().is_following(now=0.0)
    made = session(first=0, log=LogRange(0, 4096))
    assert made.is_following(now=1000.0), "it was sent nothing"
    made.next_action(now=1000.0, min_offset=0, limit=4096)
    assert made.is_following(now=1009.9)
    assert not made.is_following(now=1010.0)
    made.next_action(now=1010.0, min_offset=0, limit=8192)
    assert not made.is_following(now=1010.0), "it owes since the first frame, however many follow"
    made.on_report(made.next_transfer_from_where, log=LogRange(0, 4096))
    assert made.is_following(now=5000.0)


@pytest.mark.parametrize(
    ("first", "start"), [(0, LOG.min_offset), (3 * FILE, 3 * FILE), (LOG.max_offset, LOG.max_offset)]
)
def test_a_slave_has_taken_something_when_it_reports_more_than_where_its_stream_began(first: int, start: int) -> None:
    made = session(first=first)
    assert (made.stream_start, made.proves_from, made.has_taken) == (start, start, False)
    made.on_report(start, log=LOG)
    assert not made.has_taken, "it may have made the file that a heartbeat named"
    made.next_action(now=0.0, min_offset=LOG.min_offset, limit=LOG.max_offset + 1)
    made.on_report(start + 1, log=LOG)
    assert made.has_taken


def test_who_asks_from_one_has_byte_zero() -> None:
    """It is the same in every log, and a report of 0 would mean "I have nothing"."""
    made = session(first=1, log=LogRange(0, 4096))
    assert (made.stream_start, made.proves_from) == (1, 0)


def test_a_report_must_not_stay_unfinished_though_bytes_trickle() -> None:
    made = session(first=0)
    made.on_read(3, now=5.0)
    made.on_read(5, now=24.0)
    assert made.read_deadline == 25.0
    assert made.on_read_deadline().refusal is Refusal.STRAY_BYTES
    made.on_read(0, now=24.5)
    assert made.read_deadline == 44.5
