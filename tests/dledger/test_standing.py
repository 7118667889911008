"""When a leader gives up, and when a member does not stand: a table of who refuses, and what is committed."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from types import SimpleNamespace

import pytest
import trio
from trio.testing import MockClock

from rmqha.codec.dledger_wire import MemberStatus, MetadataResponse
from rmqha.dledger.membership import MEMBERS_FILE
from rmqha.dledger.standing import Standing
from tests.dledger.servers import STORE, ServerGroup
from tests.sim.sim_disk import SimDisk

TERM = 7
INHERITED = 40


@dataclass
class Leader:
    """A leader of the term, whose log ended with the inherited index when it was elected."""

    refusing: dict[str, bool]
    """The other members: whether each does not cut its log."""
    told: dict[str, int | None]
    """What each that refuses says of whose cut it refused: a term."""
    committed: int = INHERITED
    asked: list[str] = field(default_factory=list)
    wakeups: int = 0

    def standing(self) -> Standing:
        dispatchers = {peer: SimpleNamespace(is_refused=refuses) for peer, refuses in self.refusing.items()}
        self.handler = SimpleNamespace(has_leaders_log=False)
        checker = SimpleNamespace(inherited_index=INHERITED)
        self.pusher = SimpleNamespace(dispatchers=dispatchers, checker=checker, handler=self.handler)
        self.state = SimpleNamespace(curr_term=TERM)
        store = SimpleNamespace(committed_index=self.committed, member_state=self.state)
        return Standing(store, self.pusher, ask=self._ask, wakeup=self._wakeup)  # type: ignore[arg-type]

    def _ask(self, peer: str, on_answer: Callable[[MetadataResponse | None], None]) -> None:
        self.asked.append(peer)
        if peer not in self.told:
            on_answer(None)
        else:
            on_answer(MetadataResponse(rmqha_status=MemberStatus(refused_term=self.told[peer])))

    def _wakeup(self) -> None:
        self.wakeups += 1


@pytest.mark.parametrize(
    ("leader", "gives_up"),
    [
        (Leader({"a": True, "b": True}, {"a": TERM, "b": TERM}), True),
        (Leader({"a": True, "b": False}, {"a": TERM}), False),  # b is down, and may have what it has
        (Leader({"a": True, "b": True}, {"a": TERM, "b": -1}), False),  # b's disk is full
        (Leader({"a": True, "b": True}, {"a": TERM, "b": TERM - 1}), False),  # that was another leader's
        (Leader({"a": True, "b": True}, {"a": TERM}), False),  # b does not answer
        (Leader({"a": True, "b": True}, {"a": TERM, "b": None}), False),  # nor does one of Java's say so
        (Leader({"a": True, "b": True}, {"a": TERM, "b": TERM}, committed=INHERITED + 1), False),
        (Leader({"a": True}, {"a": TERM}), False),  # nobody else could be elected
        (Leader({"a": True, "b": True, "c": False}, dict.fromkeys("ab", TERM)), False),
        (Leader({"a": True, "b": True, "c": True}, dict.fromkeys("abc", TERM)), True),
        (Leader({}, {}), False),
        (Leader(dict.fromkeys("abcd", True) | {"a": False}, dict.fromkeys("bcd", TERM)), True),
        (Leader(dict.fromkeys("abcd", False) | {"a": True, "b": True}, dict.fromkeys("ab", TERM)), False),
    ],
)
async def test_a_leader_gives_up_where_no_majority_is_left_that_could_take_its_log(
    leader: Leader, gives_up: bool
) -> None:
    standing = leader.standing()
    for now in range(10):
        standing.step(now=now)
    assert standing.may_stand(now=9) is not gives_up
    assert leader.wakeups == gives_up
    if gives_up:
        assert not standing.may_stand(now=30)
        leader.pusher.checker = None  # it leads no more
        assert standing.due_at == 31
        standing.step(now=31)
        assert (standing.may_stand(now=31), leader.wakeups) == (True, 2)


def test_refusals_of_an_earlier_term_do_not_count() -> None:
    leader = Leader({"a": True, "b": True}, {"a": TERM, "b": -1})
    standing = leader.standing()
    standing.step(now=0)
    leader.state.curr_term, leader.told = TERM + 1, {"a": TERM, "b": TERM + 1}
    for now in range(1, 5):
        standing.step(now=now)
    assert standing.may_stand(now=5)


def test_who_has_been_cut_meanwhile_does_not_count() -> None:
    leader = Leader({"a": True, "b": True}, {"a": TERM, "b": -1})
    standing = leader.standing()
    standing.step(now=0)
    leader.pusher.dispatchers["a"].is_refused = False
    standing.step(now=1)
    leader.pusher.dispatchers["a"].is_refused = True
    leader.told = {"b": TERM}
    standing.step(now=2)
    standing.step(now=3)
    assert standing.may_stand(now=3)


async def test_whose_log_is_found_to_be_the_leader_s_stands_at_once() -> None:
    leader = Leader({"a": True, "b": True}, {"a": TERM, "b": TERM})
    standing = leader.standing()
    standing.listen_first(12, frozenset({"a", "b"}), now=100)
    standing.step(now=101)
    assert (standing.may_stand(now=101), leader.wakeups) == (False, 0)
    leader.handler.has_leaders_log = True
    standing.step(now=102)
    assert (standing.may_stand(now=102), leader.wakeups) == (True, 1)


def test_it_asks_once_a_second() -> None:
    leader = Leader({"a": True, "b": True}, {})
    standing = leader.standing()
    for tenth in range(20):
        standing.step(now=tenth / 10)
    assert leader.asked == ["a", "b"] * 2


@pytest.mark.parametrize("is_noted", [False, True])
async def test_entries_without_a_note_of_whose_they_are_listen_first(
    is_noted: bool, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    group = ServerGroup(nursery)
    await group.start()
    await group.append(b"ours")
    await group.wait_same()
    await trio.sleep(3)
    for member in group.members.values():
        member.kill()
        if not is_noted:
            member.disk.mount().unlink(f"{STORE}/dledger-{member.name}/{MEMBERS_FILE}")
    begun_at = trio.current_time()
    await group.start()
    await group.wait_leader()
    assert (trio.current_time() - begun_at >= 12) is not is_noted
    await group.append(b"again")


async def test_a_group_without_entries_does_not_listen(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    group = ServerGroup(nursery)
    await group.start()
    begun_at = trio.current_time()
    await group.wait_leader()
    assert trio.current_time() - begun_at < 10


@pytest.mark.parametrize("is_noted", [False, True])
@pytest.mark.parametrize("gap_s", [0, 2])
@pytest.mark.parametrize("order", [("n0", "n1", "n2"), ("n1", "n0", "n2")])
async def test_beside_empty_members_the_only_one_with_entries_stands_at_once(
    order: tuple[str, ...], gap_s: int, is_noted: bool, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Most members are lost for good. While it listened the empty ones elected one of them: its log was left out."""
    group = ServerGroup(nursery)
    await group.start()
    await group.append(*[b"ours"] * 5)
    await group.wait_same()
    await trio.sleep(3)
    for name, member in group.members.items():
        member.kill()
        if name != "n0":
            member.disk = SimDisk(random.Random(name), latency_s=(0.0005, 0.002))
        elif not is_noted:
            member.disk.mount().unlink(f"{STORE}/dledger-{name}/{MEMBERS_FILE}")
    for name in order:
        await group.members[name].start()
        await trio.sleep(gap_s)
    assert await group.wait_leader() == "n0"
    await group.append(b"again")
    await group.wait_same()


def answer(*, end_index: int = -1, leader_id: str | None = None) -> MetadataResponse:
    return MetadataResponse(leader_id=leader_id, rmqha_status=MemberStatus(end_index=end_index))


HAS_SOME = answer(end_index=3)


@pytest.mark.parametrize(
    ("told", "listens"),
    [
        ({"a": answer(), "b": answer()}, False),
        ({"a": answer(), "b": None}, False),  # b is not there
        ({"a": answer()}, False),
        ({"a": None, "b": None}, True),
        ({"a": answer(), "b": HAS_SOME}, True),  # b may have what was acknowledged since
        ({"b": HAS_SOME, "a": answer()}, True),
        ({"a": HAS_SOME, "b": HAS_SOME}, True),
        ({"a": answer(leader_id="b"), "b": answer()}, True),  # it follows, and has yet to be sent them
        ({"a": answer(), "b": MetadataResponse()}, True),  # one of Java's does not say so
        ({"a": answer(), "b": answer(), "c": None, "d": None}, False),
        ({"a": answer(), "b": None, "c": None, "d": None}, True),
        ({"a": answer(), "b": answer(), "c": HAS_SOME, "d": answer()}, True),
    ],
)
async def test_who_listens_does_so_unless_all_that_it_hears_are_empty(
    told: dict[str, MetadataResponse | None], listens: bool
) -> None:
    standing, asked, woken = listening(told)
    for peer in told:
        standing.on_change(peer, now=0)
    assert standing.due_at == 0.1
    asked.answer()
    standing.step(now=0.1)
    assert (standing.may_stand(now=11), bool(woken)) == (not listens, not listens)
    assert standing.due_at == (12 if listens else inf)


async def test_who_has_yet_to_answer_is_awaited() -> None:
    """The one that has entries may be the last to say so."""
    standing, asked, _ = listening({"a": answer(), "b": HAS_SOME})
    for peer in ("a", "b"):
        standing.on_change(peer, now=0)
    asked.answer("a")
    for now in (0.1, 0.3, 0.5):
        standing.step(now=now)
        assert standing.due_at == pytest.approx(now + 0.1)
        assert not standing.may_stand(now=now)
    asked.answer("b")
    standing.step(now=0.7)
    assert (standing.may_stand(now=11), standing.due_at) == (False, 12)
    standing.on_change("b", now=5)  # it was emptied, and is there again
    asked.told["b"] = answer()
    asked.answer("b")
    standing.step(now=5.1)
    assert standing.may_stand(now=5.1)


class Asked:
    """Members that answer when they are let."""

    def __init__(self, told: dict[str, MetadataResponse | None]) -> None:
        self.told = told
        self.waiting: dict[str, Callable[[MetadataResponse | None], None]] = {}

    def ask(self, peer: str, on_answer: Callable[[MetadataResponse | None], None]) -> None:
        self.waiting[peer] = on_answer

    def answer(self, *peers: str) -> None:
        for peer in peers or self.told:
            self.waiting.pop(peer)(self.told[peer])


def listening(told: dict[str, MetadataResponse | None]) -> tuple[Standing, Asked, list[str]]:
    woken, asked = list[str](), Asked(told)
    pusher = SimpleNamespace(checker=None, handler=SimpleNamespace(has_leaders_log=False))
    store = SimpleNamespace(member_state=None)
    standing = Standing(store, pusher, ask=asked.ask, wakeup=lambda: woken.append("woken"))  # type: ignore[arg-type]
    for peer in told:
        standing.on_change(peer, now=0)
    assert (standing.may_stand(now=0), asked.waiting) == (True, {}), "it does not listen first"
    standing.listen_first(12.0, frozenset(told), now=0)
    return standing, asked, woken


@pytest.mark.parametrize("gap_s", [0, 2])
@pytest.mark.parametrize("order", [("n1", "n2", "n0"), ("n2", "n1", "n0"), ("n2", "n0", "n1"), ("n1", "n0", "n2")])
async def test_beside_an_empty_member_and_one_that_has_more_it_does_not_lead(
    order: tuple[str, ...], gap_s: int, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """It was away, as a store of Java's without a note; the empty one's vote made it the leader, and cut the third."""
    group = ServerGroup(nursery)
    await group.start()
    await group.append(*[b"ours"] * 5)
    await group.wait_same()
    await trio.sleep(3)
    group.members["n0"].kill()
    await group.append(*[b"more"] * 5)
    await trio.sleep(3)
    for name in ("n1", "n2"):
        group.members[name].kill()
    group.members["n2"].disk = SimDisk(random.Random("n2"), latency_s=(0.0005, 0.002))
    group.members["n0"].disk.mount().unlink(f"{STORE}/dledger-n0/{MEMBERS_FILE}")
    for name in order:
        await group.members[name].start()
        if gap_s and (name, order[0]) != ("n0", "n2"):
            await trio.sleep(gap_s)
    assert await group.wait_leader() == "n1"
    await group.append(b"again")
    await group.wait_same()
    assert group.members["n0"].running.store.ledger_end_index >= 10
