"""GivingWay without servers: whom it asks, and to whom it hands over."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs

from rmqha.codec.dledger_wire import MemberStatus, MetadataResponse
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.giving_way import GivingWay
from tests.dledger.members import lead, leader
from tests.sim.sim_disk import SimDisk

Code = DLedgerResponseCode
OnMetadata = Callable[[MetadataResponse | None], None]
LAGS = {"n1": 7, "n2": 3, "n3": 5, "n4": 9}
FULL = "the disk is too full"


class Leader:
    """Of term 1, n0 in a group of five; n1 to n4 answer when the test says so."""

    def __init__(self) -> None:
        self.store = leader(SimDisk(latency_s=(0, 0)).mount())
        self.connected = frozenset(LAGS)
        self.refusal = FULL
        self.asked: dict[str, OnMetadata] = {}
        self.handed: list[str] = []
        self.codes: list[int] = []
        """Of those who are asked to take over; of the rest success."""
        self.on_handed: Callable[[], None] = lambda: None
        self.now = 0.0
        pusher: Any = SimpleNamespace(checker=object(), dispatchers=dict.fromkeys(LAGS))
        self.pusher = pusher
        transfer: Any = SimpleNamespace(lag=LAGS.__getitem__, hand_over_to=self._hand_over_to)
        self.giving_way = GivingWay(
            self.store,
            pusher,
            transfer,
            quorum=3,
            refusal=lambda: self.refusal,
            ask=self.asked.__setitem__,
            connected=lambda: self.connected,
        )

    def _hand_over_to(self, peer: str, answer: Callable[[int], None]) -> None:
        self.handed.append(peer)
        self.on_handed()
        answer(self.codes.pop(0) if self.codes else Code.SUCCESS)

    def follow(self) -> None:
        """It leads no more."""
        self.pusher.checker = None

    def look(self) -> list[str]:
        """A second has passed; who is asked."""
        self.asked.clear()
        self.now += 1.0
        self.giving_way.step(now=self.now)
        return list(self.asked)

    def answer(self, **refusals: str | None) -> None:
        """These members answer why they take nothing; None: they do."""
        for peer, refusal in refusals.items():
            status = MemberStatus("FOLLOWER", 1, 0, 0, 0, 0, version="1", write_error=refusal)
            self.asked[peer](MetadataResponse(Code.SUCCESS, "n0", {}, status))


@pytest.fixture
def full() -> Leader:
    return Leader()


async def test_who_lags_least_takes_over(full: Leader) -> None:
    assert full.look() == ["n1", "n2", "n3", "n4"]
    full.answer(n1=None, n2=FULL, n4=None)
    assert full.handed == [], "one has not answered"
    full.answer(n3=None)
    assert full.handed == ["n3"]


async def test_the_next_is_asked_if_that_one_does_not(full: Leader) -> None:
    full.codes = [Code.TAKE_LEADERSHIP_FAILED, Code.FALL_BEHIND_TOO_MUCH]
    full.look()
    full.answer(n1=None, n2=None, n3=None, n4=None)
    assert full.handed == ["n2", "n3", "n1"]


async def test_nobody_else_is_asked_once_there_is_room_again(full: Leader) -> None:
    full.codes, full.on_handed = [Code.TAKE_LEADERSHIP_FAILED], lambda: setattr(full, "refusal", "")
    full.look()
    full.answer(n1=None, n2=None, n3=None, n4=None)
    assert full.handed == ["n2"]


async def test_who_cannot_be_reached_is_not_waited_for(full: Leader) -> None:
    full.connected = frozenset({"n1", "n3", "n4"})
    assert full.look() == ["n1", "n3", "n4"]
    full.answer(n1=None, n3=None, n4=None)
    assert full.handed == ["n3"]


async def test_an_answer_that_is_none_is_no_room(full: Leader) -> None:
    full.look()
    full.answer(n1=None, n2=None)
    full.asked["n3"](None)
    full.asked["n4"](MetadataResponse(Code.UNKNOWN, "n0", {}, None))
    assert full.handed == []


async def test_answers_of_a_former_leadership_do_not_count(full: Leader) -> None:
    full.look()
    lead(full.store, 2)
    full.answer(n1=None, n2=None, n3=None, n4=None)
    assert full.handed == []
    assert full.look() == ["n1", "n2", "n3", "n4"]
    full.answer(n1=None, n2=None, n3=None, n4=None)
    assert full.handed == ["n2"]


async def test_that_nobody_has_room_is_said_once_each_time(full: Leader) -> None:
    structlog.configure(wrapper_class=structlog.BoundLogger)
    with capture_logs() as logs:
        for _ in range(2):
            for _ in range(3):
                full.look()
                full.answer(n1=FULL, n2=FULL, n3=None, n4=FULL)
            full.refusal = ""
            full.look()
            full.refusal = FULL
    told = [line for line in logs if line["event"] == "dledger.no_room"]
    assert [line["others"]["n3"] for line in told] == ["it has room"] * 2
    assert full.handed == []


async def test_a_follower_takes_over_once_it_has_had_room_for_some_time(full: Leader) -> None:
    """Else a disk at its limit has the leadership go round and round."""
    full.follow()
    full.look()
    full.refusal = ""
    assert not full.giving_way.may_take_over(now=10.9)
    assert full.giving_way.may_take_over(now=11)
    full.refusal = FULL
    assert not full.giving_way.may_take_over(now=11)


async def test_nobody_is_asked_twice_or_during_a_transfer(full: Leader) -> None:
    full.look()
    assert full.look() == [], "they have yet to answer"
    late = Leader()
    late.store.member_state.transferee = "n1"
    assert late.look() == []
    late.store.member_state.transferee = None
    assert late.look() != []
