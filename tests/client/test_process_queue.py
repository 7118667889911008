"""Where one queue of a consumer stands: a broker that sends it elsewhere again and again has a pause."""

import pytest

from rmqha.client.process_queue import ProcessQueue


def test_one_answer_that_leads_elsewhere_is_followed_at_once_and_the_next_after_a_pause() -> None:
    queue = ProcessQueue(5)
    assert queue.note_answer(is_moved=True, now=100.0)
    assert queue.not_before <= 100.0
    assert queue.note_answer(is_moved=True, now=100.0)
    assert queue.not_before == pytest.approx(101.0)
    assert queue.note_answer(is_moved=True, now=101.0)
    assert queue.not_before == pytest.approx(102.0)


def test_an_answer_that_leads_nowhere_else_makes_up_for_those_before() -> None:
    queue = ProcessQueue(5)
    queue.note_answer(is_moved=True, now=100.0)
    assert not queue.note_answer(is_moved=False, now=100.0)
    queue.note_answer(is_moved=True, now=100.0)
    assert queue.not_before <= 100.0


def test_who_seeks_waits_for_no_pause_and_for_no_answer_to_what_was_asked_before() -> None:
    queue = ProcessQueue(5)
    for _ in range(2):
        queue.note_answer(is_moved=True, now=100.0)
    queue.pulling, queue.next_offset, queue.delivered_offset = True, 9, 8
    epoch = queue.epoch
    queue.seek(7)
    assert (queue.next_offset, queue.delivered_offset, queue.processed_offset) == (7, 7, 7)
    assert (queue.pulling, queue.not_before) == (False, 0.0)
    assert queue.epoch != epoch
