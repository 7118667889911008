"""What a broker says that it knows of operators' words, and what another makes of it."""

from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.classic.later_peers import LaterPeers
from rmqha.broker.older_master import OlderMaster
from rmqha.broker.tables.change_stamps import ChangeStamps
from rmqha.broker.tables.known_words import KnownWords, Words, lacking, words_of, words_to_json
from rmqha.errors import RemoteProtocolError
from rmqha.ha.ha_client import MasterAddress
from rmqha.replication.master_session import LogRange

PEER = MasterAddress("10.0.0.2", 10912)
SEVEN: Words = (KnownWords(7), KnownWords(7), KnownWords(7))


@pytest.mark.parametrize(
    ("known", "stamp", "lacks"),
    [
        (KnownWords(), 0, False),
        (KnownWords(), 1, True),
        (KnownWords(7), 7, False),
        (KnownWords(7), 8, True),
        (KnownWords(7, noted_from=9), 8, True),
        (KnownWords(7, noted_from=9), 9, False),
        (KnownWords(7, noted_from=9), 12, False),
    ],
)
def test_a_word_is_unknown_that_is_later_than_all_from_before_and_earlier_than_those_since(
    known: KnownWords, stamp: int, *, lacks: bool
) -> None:
    """What was decided in this process a slave has from it."""
    assert known.lack(stamp) == lacks


def test_each_table_counts_by_itself() -> None:
    assert lacking(SEVEN, (7, 8, 6)) == ["consumerOffset.json"]
    assert lacking(SEVEN, (8, 7, 8)) == ["topics.json", "subscriptionGroup.json"]


@pytest.mark.parametrize("stamps", [(), (0, 0, 0)])
def test_of_who_says_nothing_nothing_is_later(stamps: tuple[int, ...]) -> None:
    assert lacking(SEVEN, stamps) == []
    assert lacking((), (8, 8, 8)) == []


def test_words_come_back_from_a_status() -> None:
    words = (KnownWords(1, 2), KnownWords(3), KnownWords())
    assert words_of({"tables_changed": words_to_json(words)}) == words


@pytest.mark.parametrize("told", [{}, {"tables_changed": None}, {"tables_changed": [1]}])
def test_a_status_without_words_tells_none(told: dict[str, Any]) -> None:
    assert words_of(told) == ()


@pytest.mark.parametrize("stamp", [None, "7", True, -1, 7.5, 1 << 63])
def test_what_is_no_stamp_is_none(stamp: object) -> None:
    told = {"tables_changed": {"topics.json": {"heard_to": stamp}, "consumerOffset.json": stamp}}
    assert words_of(told) == (KnownWords(),) * 3


def test_what_was_said_here_was_not_heard() -> None:
    stamps = ChangeStamps(lambda: 100)
    stamps.replace({"a": 5, "b": 9})
    assert (stamps.heard_to, stamps.told_to, stamps.noted_from) == (9, 9, 0)
    stamps.note("b")
    stamps.note("c")
    assert (stamps.heard_to, stamps.told_to, stamps.noted_from) == (9, 5, 100)
    stamps.adopt("c", 200)
    assert (stamps.heard_to, stamps.told_to) == (200, 200)
    stamps.replace({"a": 5})
    assert (stamps.heard_to, stamps.told_to) == (200, 5)


def test_who_was_heard_though_its_words_were_not_later_is_known_to_be_heard() -> None:
    stamps = ChangeStamps(lambda: 100)
    stamps.note("a")
    stamps.hear({"a": 60, "": 99})
    assert (stamps.heard_to, stamps.of("a"), stamps.next_stamp()) == (60, 100, 101)
    stamps.hear(None)
    assert stamps.heard_to == 60


def test_a_name_that_is_too_long_for_a_stamp_is_not_kept() -> None:
    stamps = ChangeStamps(lambda: 100)
    stamps.note("x" * 2000)
    assert stamps.to_json() == {}
    assert stamps.told_to == 0


async def test_each_peer_is_looked_at_once_and_one_that_does_not_answer_not_all_the_time(
    autojump_clock: MockClock,
) -> None:
    tables: Any = SimpleNamespace(words=SEVEN)
    later = LaterPeers(tables)
    assert later.is_due(PEER)
    assert not later.look(PEER, None)
    assert not later.is_due(PEER)
    await trio.sleep(10)
    assert later.is_due(PEER)
    assert later.look(PEER, LogRange(0, 9, tables_heard_to=(7, 7, 8)))
    await trio.sleep(3600)
    assert not later.is_due(PEER)
    assert not later.look(PEER, LogRange(0, 9)), "RocketMQ's does not say"


def test_a_master_has_a_while_to_ask_and_is_told_of_once_for_each_word() -> None:
    tables: Any = SimpleNamespace(told_to=(7, 8, 7), files=SimpleNamespace(lost={}))
    older = OlderMaster(tables)
    for now in (0.0, 21.0):
        with pytest.raises(RemoteProtocolError, match=r"consumerOffset\.json"):
            older.check("10.0.0.1:10911", SEVEN, now=now)
    older.check("10.0.0.1:10911", SEVEN, now=22.0)
    assert "consumerOffset.json" in str(tables.files.lost)
    older.check("10.0.0.1:10911", SEVEN, now=23.0)
    tables.told_to = (7, 9, 7)
    with pytest.raises(RemoteProtocolError):
        older.check("10.0.0.1:10911", SEVEN, now=24.0)
    older.check("10.0.0.1:10911", (KnownWords(9),) * 3, now=25.0)
    with pytest.raises(RemoteProtocolError):
        older.check("10.0.0.1:10911", SEVEN, now=100.0)
