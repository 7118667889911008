"""What an operator is told of messages that no consumer sees any more."""

from rmqha.store.hidden_messages import HiddenMessages

KEY = ("t", 0)


def test_each_beginning_of_a_queue_counts_once() -> None:
    hidden = HiddenMessages()
    for _ in range(2):
        hidden.note(KEY, 3, before=100, end=9)
    hidden.note(KEY, 2, before=200, end=9)
    hidden.note(("u", 1), 0, before=200, end=9)
    facts = hidden.facts(log_begins_at=0, log_ends_at=1000)
    assert facts == {"messages": 5, "queues": {"t/0": 5}}


def test_what_the_log_does_not_hold_any_more_is_not_told() -> None:
    hidden = HiddenMessages()
    hidden.note(KEY, 3, before=100, end=9)
    hidden.note(("u", 1), 4, before=300, end=9)
    assert hidden.facts(log_begins_at=100, log_ends_at=1000) == {"messages": 4, "queues": {"u/1": 4}}
    assert hidden.facts(log_begins_at=0, log_ends_at=200) is None, "that log has begun elsewhere"


def test_those_of_a_deleted_topic_are_not_told() -> None:
    hidden = HiddenMessages()
    hidden.note(KEY, 3, before=100, end=9)
    hidden.forget(KEY)
    assert hidden.facts(log_begins_at=0, log_ends_at=1000) is None


def test_ten_queues_are_named() -> None:
    hidden = HiddenMessages()
    for number in range(12):
        hidden.note(("t", number), number + 1, before=100, end=9)
    facts = hidden.facts(log_begins_at=0, log_ends_at=1000)
    assert facts is not None
    assert (facts["messages"], len(facts["queues"]), next(iter(facts["queues"]))) == (78, 10, "t/11")


def test_where_their_positions_end_is_known_until_they_are_deleted() -> None:
    hidden = HiddenMessages()
    hidden.note(KEY, 3, before=100, end=3)
    hidden.note(KEY, 2, before=200, end=2)
    hidden.note(KEY, 7, before=200, end=7)
    assert (hidden.end_of(KEY), hidden.end_of(("u", 1))) == (3, 0)
    hidden.forget(KEY)
    assert hidden.end_of(KEY) == 0
