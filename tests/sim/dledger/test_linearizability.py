"""The checker refuses what no single log can have answered, and nothing else: a search through all orders agrees."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from rmqha.dledger.dledger_exception import DLedgerResponseCode
from tests.sim.dledger.history import History, Operation, Place, Told
from tests.sim.dledger.linearizability import why_not_linearizable


def appended(body: bytes, index: int, *, at: tuple[int, int], term: int = 1) -> Operation:
    return Operation("a", at[0], body, told=Told.APPENDED, returned=at[1], place=Place(index, term, index))


def open_append(body: bytes, *, at: int, told: Told = Told.OPEN) -> Operation:
    return Operation("a", at, body, told=told, returned=None if told is Told.OPEN else at + 1)


def found(body: bytes, index: int, *, at: tuple[int, int], term: int = 1) -> Operation:
    place = Place(index, term, index)
    return Operation("g", at[0], index=index, told=Told.FOUND, returned=at[1], place=place, found=body)


def missing(index: int, *, at: tuple[int, int]) -> Operation:
    return Operation("g", at[0], index=index, told=Told.MISSING, returned=at[1])


def gone(index: int, *, at: tuple[int, int]) -> Operation:
    return Operation("g", at[0], index=index, told=Told.GONE, returned=at[1])


GOOD: dict[str, list[Operation]] = {
    "nothing": [],
    "one behind the other": [appended(b"x", 0, at=(1, 2)), appended(b"y", 1, at=(3, 4)), found(b"x", 0, at=(5, 6))],
    "at the same time, whichever was first": [appended(b"x", 1, at=(1, 4)), appended(b"y", 0, at=(2, 3))],
    "read while it is appended": [appended(b"x", 0, at=(1, 6)), found(b"x", 0, at=(2, 3)), missing(1, at=(4, 5))],
    "missing while it is appended": [appended(b"x", 0, at=(1, 6)), missing(0, at=(2, 3)), found(b"x", 0, at=(4, 5))],
    "unknown, and there": [open_append(b"x", at=1), found(b"x", 0, at=(2, 3))],
    "unknown, and there much later": [
        open_append(b"x", at=1, told=Told.PERHAPS), missing(0, at=(5, 6)), found(b"x", 0, at=(7, 8))
    ],
    "unknown, and never there": [open_append(b"x", at=1), appended(b"y", 0, at=(2, 3)), missing(1, at=(9, 10))],
    "refused, and not there": [open_append(b"x", at=1, told=Told.REFUSED), missing(0, at=(3, 4))],
    "a hole that nobody knows": [appended(b"x", 5, at=(1, 2)), missing(6, at=(3, 4))],
    "deleted": [appended(b"x", 0, at=(1, 2)), gone(0, at=(3, 4))],
}  # fmt: skip

WRONG: dict[str, list[Operation]] = {
    "two at one index": [appended(b"x", 0, at=(1, 2)), appended(b"y", 0, at=(3, 4))],
    "another one is read": [appended(b"x", 0, at=(1, 2)), open_append(b"y", at=3), found(b"y", 0, at=(4, 5))],
    "an index falls": [appended(b"x", 1, at=(1, 2)), appended(b"y", 0, at=(3, 4))],
    "acknowledged and lost": [appended(b"x", 0, at=(1, 2)), missing(0, at=(3, 4))],
    "acknowledged, and all before it is lost": [appended(b"x", 3, at=(1, 2)), missing(2, at=(3, 4))],
    "read and lost": [open_append(b"x", at=1), found(b"x", 0, at=(2, 3)), missing(0, at=(4, 5))],
    "a stale read": [
        appended(b"x", 0, at=(1, 2)), appended(b"y", 1, at=(3, 4)), found(b"y", 1, at=(5, 6)), missing(1, at=(7, 8))
    ],
    "read before it was asked for": [found(b"x", 0, at=(1, 2)), appended(b"x", 0, at=(3, 4))],
    "nobody appended it": [found(b"x", 0, at=(1, 2))],
    "refused, and there": [open_append(b"x", at=1, told=Told.REFUSED), found(b"x", 0, at=(3, 4))],
    "there twice": [appended(b"x", 0, at=(1, 2)), found(b"x", 1, at=(3, 4))],
    "another term": [appended(b"x", 0, at=(1, 2)), found(b"x", 0, at=(3, 4), term=2)],
    "the wrong one is found": [
        appended(b"x", 0, at=(1, 2)), replace(found(b"x", 0, at=(3, 4)), index=1)
    ],
    "behind one that came later": [open_append(b"x", at=3), found(b"x", 0, at=(4, 5)), appended(b"y", 1, at=(1, 2))],
    "a later one was missing, and this one is read before": [
        open_append(b"x", at=1), found(b"x", 2, at=(2, 3)), missing(1, at=(4, 5))
    ],
    "deleted before it was there": [gone(0, at=(1, 2)), appended(b"x", 0, at=(3, 4))],
    "deleted, and never there": [gone(1, at=(1, 2)), missing(1, at=(3, 4))],
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_what_a_log_answers_is_linearizable(name: str) -> None:
    assert why_not_linearizable(GOOD[name]) == []


@pytest.mark.parametrize("name", WRONG)
def test_what_no_log_answers_is_refused(name: str) -> None:
    assert why_not_linearizable(WRONG[name])


def test_an_entry_of_the_group_s_own_was_appended_by_nobody() -> None:
    history = [found(b"own", 0, at=(1, 2)), found(b"own", 3, at=(3, 4))]
    assert why_not_linearizable(history, is_foreign=b"own".__eq__) == []
    assert why_not_linearizable(history)


def test_codes_are_told_apart() -> None:
    history = History()
    codes = (DLedgerResponseCode.SUCCESS, DLedgerResponseCode.WAIT_QUORUM_ACK_TIMEOUT, DLedgerResponseCode.NOT_LEADER)
    for number, code in enumerate(codes):
        history.answered(history.append("a", b"%d" % number), code, place=Place(0, 0, 0))
        history.answered(history.get("a", number), code, place=Place(0, 0, 0), found=b"0")
    history.answered(history.get("a", 7), DLedgerResponseCode.INDEX_OUT_OF_RANGE)
    appends = [one.told for one in history.operations if one.is_append]
    assert appends == [Told.APPENDED, Told.PERHAPS, Told.REFUSED]
    reads = [one.told for one in history.operations if not one.is_append]
    assert reads == [Told.FOUND, Told.NOTHING, Told.NOTHING, Told.MISSING]
    assert history.completed == 5


_OWN = b"an entry of the group's own, which nobody reads here"
_LONGEST = 7


def is_linearizable(history: Sequence[Operation]) -> bool:
    """By trying every order (Wing and Gong): slow, and hard to get wrong."""
    todo = [one for one in history if one.told not in {Told.REFUSED, Told.NOTHING}]
    refused = {one.body for one in history if one.told is Told.REFUSED}
    seen = {one.found for one in history if one.told is Told.FOUND}
    return not refused & seen and _try(todo, ())


def _try(todo: list[Operation], log: tuple[bytes, ...]) -> bool:
    if all(one.told in {Told.OPEN, Told.PERHAPS} for one in todo):
        return True
    ends = min(one.returned for one in todo if one.returned is not None and one.told is not Told.PERHAPS)
    for at, one in enumerate(todo):
        if one.invoked > ends:
            continue
        after = _after(one, log)
        if after is not None and _try(todo[:at] + todo[at + 1 :], after):
            return True
    return len(log) < _LONGEST and _try(todo, (*log, _OWN))


def _after(one: Operation, log: tuple[bytes, ...]) -> tuple[bytes, ...] | None:
    """The log behind this operation; None: it was not answered so by this log."""
    if one.body is not None:
        fits = one.told is not Told.APPENDED or (one.place is not None and one.place.index == len(log))
        return (*log, one.body) if fits else None
    is_there = one.index < len(log)
    if one.told is Told.MISSING:
        return None if is_there else log
    return log if is_there and log[one.index] == one.found else None


def draw_history(random: Random) -> list[Operation]:
    """A few operations that overlap, mostly answered as a log would, and sometimes not."""
    count = random.randint(2, 6)
    moments = iter(random.sample(range(40), 2 * count))
    history: list[Operation] = []
    log: list[bytes] = []
    for number in range(count):
        invoked, returned = sorted((next(moments), next(moments)))
        body, index = b"%d" % number, random.randint(0, max(len(log), 1))
        lied = random.random() < 0.15
        if random.random() < 0.5:
            told = random.choice([Told.APPENDED] * 4 + [Told.PERHAPS, Told.OPEN, Told.REFUSED])
            place = Place(random.randint(0, len(log)) if lied else len(log), 1, 0) if told is Told.APPENDED else None
            if told is Told.APPENDED or random.random() < 0.5:
                log.append(body)
            end = None if told is Told.OPEN else returned
            history.append(Operation("c", invoked, body, told=told, returned=end, place=place))
        elif index < len(log) and not lied:
            history.append(replace(found(log[index], index, at=(invoked, returned)), place=Place(index, 1, 0)))
        else:
            history.append(missing(index, at=(invoked, returned)))
    return history


def test_it_is_of_one_opinion_with_a_search_through_all_orders() -> None:
    verdicts = {True: 0, False: 0}
    for seed in range(3000):
        history = draw_history(Random(seed))
        verdict = is_linearizable(history)
        assert (why_not_linearizable(history) == []) is verdict, "\n".join(one.describe() for one in history)
        verdicts[verdict] += 1
    assert min(verdicts.values()) > 500, verdicts
