"""Members whose disks take long to save a term: whole groups of StateMaintainers, on a network that loses nothing."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from rmqha.dledger.elector_options import ElectorOptions
from rmqha.dledger.leader_elector import DLedgerLeaderElector
from rmqha.dledger.member_state import MemberState, Role
from rmqha.dledger.state_maintainer import StateMaintainer
from rmqha.dledger.vote import HeartBeatRequest, Outgoing, VoteRequest
from tests.dledger.defaults import default

OPTIONS = default(ElectorOptions)
_WAY_S = 0.001


@dataclass
class SlowTerms:
    """As TermFile; each save takes so long."""

    save_s: float

    async def save_in_thread(self, _term: object) -> None:
        await trio.sleep(self.save_s)


@dataclass
class Store:
    """As DLedgerMmapFileStore, of which a StateMaintainer knows no more."""

    member_state: MemberState


class Member:
    """One of a group; it asks the others at once, and hears them a moment later."""

    def __init__(self, name: str, group: "dict[str, Member]", *, chance: random.Random, save_s: float) -> None:
        self.name, self.group = name, group
        self.state = MemberState(name)
        names = frozenset(group)
        self.elector = DLedgerLeaderElector(
            self.state, names, options=OPTIONS, random=chance.random, now=trio.current_time()
        )
        self.terms = SlowTerms(save_s)
        self.maintainer = StateMaintainer(self.elector, cast("Any", self.terms), cast("Any", Store(self.state)), self)
        self.is_up, self.is_mute = True, False
        self.nursery: trio.Nursery

    def on_role(self, *, is_durable: bool) -> None:
        """Nobody acts on it here."""

    def lose(self, leader: str, now: float) -> None:
        """Its process has ended."""
        self.elector.on_leader_gone(leader, now=now)

    def send(self, outgoing: Outgoing) -> None:
        if self.is_mute:
            return
        self.nursery.start_soon(self._ask, outgoing)

    async def _ask(self, outgoing: Outgoing) -> None:
        answered, told = trio.Event(), list[Any]()
        other, request = self.group[outgoing.peer], outgoing.request

        def judge(now: float) -> Callable[[], None]:
            if isinstance(request, VoteRequest):
                answer: object = other.elector.handle_vote(request, now=now, asker=self)
            else:
                assert isinstance(request, HeartBeatRequest)
                answer = other.elector.handle_heart_beat(request, now=now)

            def tell() -> None:
                told.append(answer)
                answered.set()

            return tell

        await trio.sleep(_WAY_S)
        if other.is_up:
            other.maintainer.do(judge)
        with trio.move_on_after(3.0):
            await answered.wait()
        await trio.sleep(_WAY_S)
        self.maintainer.do(lambda now: self._hear(outgoing, told[0] if told else None, now=now))

    def _hear(self, outgoing: Outgoing, answer: Any, *, now: float) -> None:
        if isinstance(outgoing.request, VoteRequest):
            self.elector.on_vote_answer(outgoing.peer, outgoing.number, answer, now=now)
        else:
            self.elector.on_heart_beat_answer(outgoing.peer, outgoing.number, answer, now=now)


def agree(members: list[Member]) -> bool:
    """One leads, and all others follow it."""
    are_settled = all(one.state.role is not Role.CANDIDATE for one in members)
    return are_settled and len({one.state.leader_id for one in members} - {None}) == 1


@pytest.mark.parametrize("away", [0, 1])
@pytest.mark.parametrize("save_s", [0.02, 0.7, 1.2])
async def test_a_group_whose_disks_are_slow_finds_a_leader(save_s: float, away: int, autojump_clock: MockClock) -> None:
    """Who was told of a higher term asked for votes in the next as soon as that was durable, and so did all."""
    for seed in range(12):
        chance, group = random.Random(seed), dict[str, Member]()
        group |= dict.fromkeys(("n0", "n1", "n2"))  # type: ignore[arg-type]
        for name in group:
            group[name] = Member(name, group, chance=chance, save_s=save_s)
        well = list(group.values())[away:]
        for member in list(group.values())[:away]:
            member.is_up = False
        with trio.fail_after(10 + 60 * save_s):
            async with trio.open_nursery() as nursery:
                for member in well:
                    member.nursery = nursery
                    nursery.start_soon(member.maintainer.run)
                while not agree(well):  # noqa: ASYNC110 - a look from outside
                    await trio.sleep(0.1)
                nursery.cancel_scope.cancel()


@pytest.mark.parametrize("save_s", [0.02, 0.5, 1.5])
async def test_what_saves_took_in_an_earlier_election_delays_no_later_one(
    save_s: float, autojump_clock: MockClock
) -> None:
    """A group that was started while its disks were busy took up to nine seconds to replace a leader days later."""
    for seed in range(12):
        chance, group = random.Random(seed), dict[str, Member]()
        group |= dict.fromkeys(("n0", "n1", "n2"))  # type: ignore[arg-type]
        for name in group:
            group[name] = Member(name, group, chance=chance, save_s=save_s)
        async with trio.open_nursery() as nursery:
            for member in group.values():
                member.nursery = nursery
                nursery.start_soon(member.maintainer.run)
            while not agree(list(group.values())):  # noqa: ASYNC110 - a look from outside
                await trio.sleep(0.1)
            await trio.sleep(60)
            (leader,) = [member for member in group.values() if member.state.role is Role.LEADER]
            leader.is_up, leader.is_mute = False, True
            others = [member for member in group.values() if member is not leader]
            for member in others:
                member.terms.save_s = 0.02
                member.maintainer.do(partial(member.lose, leader.name))
            with trio.fail_after(2.5):
                while not agree(others) or others[0].state.leader_id == leader.name:  # noqa: ASYNC110 - as above
                    await trio.sleep(0.01)
            nursery.cancel_scope.cancel()
