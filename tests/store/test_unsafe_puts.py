"""Since when sends are not answered SEND_OK, and how: one while of them, until a minute without any."""

from rmqha.store.status import PutMessageStatus
from rmqha.store.unsafe_puts import UnsafePuts

LATE, ALONE = PutMessageStatus.FLUSH_SLAVE_TIMEOUT, PutMessageStatus.SLAVE_NOT_AVAILABLE


def test_a_while_is_told_from_its_first_answer_to_its_last() -> None:
    unsafe = UnsafePuts()
    assert unsafe.facts(now=7) is None
    unsafe.note([LATE], now=10)
    unsafe.note([], now=30)
    unsafe.note([ALONE, ALONE], now=50)
    answers = {"FLUSH_SLAVE_TIMEOUT": 1, "SLAVE_NOT_AVAILABLE": 2}
    assert unsafe.facts(now=55) == {"for_s": 40, "last_s_ago": 5, "answers": answers}


def test_after_a_minute_without_any_the_next_begins_another() -> None:
    unsafe = UnsafePuts()
    unsafe.note([LATE], now=10)
    unsafe.note([LATE], now=70)
    assert unsafe.facts(now=70) == {"for_s": 60, "last_s_ago": 0, "answers": {"FLUSH_SLAVE_TIMEOUT": 2}}
    unsafe.note([ALONE], now=131)
    assert unsafe.facts(now=131) == {"for_s": 0, "last_s_ago": 0, "answers": {"SLAVE_NOT_AVAILABLE": 1}}


def test_a_while_lasts_as_long_as_they_come_each_minute() -> None:
    unsafe = UnsafePuts()
    for now in (10, 60, 110):
        unsafe.note([LATE], now=now)
    assert unsafe.facts(now=110) == {"for_s": 100, "last_s_ago": 0, "answers": {"FLUSH_SLAVE_TIMEOUT": 3}}
