"""The tasks of a member, each alone: its elector's, a way to another member, and a transfer of leadership."""

import errno
import os
from collections.abc import Callable
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rmqha.codec.dledger_wire import DLedgerRequestCode, LeadershipTransferRequest
from rmqha.dledger.dledger_entry_pusher import DLedgerEntryPusher
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.elector_options import ElectorOptions
from rmqha.dledger.leader_elector import DLedgerLeaderElector
from rmqha.dledger.leadership_transfer import LeadershipTransfer, TransferOptions
from rmqha.dledger.member_state import Role
from rmqha.dledger.peer_connection import RPC_TIMEOUT_S, PeerConnection
from rmqha.dledger.push_service import PushService
from rmqha.dledger.quorum_ack_checker import QuorumAckChecker
from rmqha.dledger.state_maintainer import StateMaintainer
from rmqha.dledger.term_file import TermFile
from rmqha.dledger.vote import VoteRequest
from rmqha.transport import Stream
from tests.dledger.defaults import default, pusher_options
from tests.dledger.members import LEADER, follower, lead, leader, opened, put
from tests.fakes import MemoryNetwork, MemoryStream
from tests.sim.sim_disk import SimDisk

Code = DLedgerResponseCode
PEERS = frozenset({"n0", "n1", "n2"})


async def test_what_comes_while_a_term_is_saved_is_taken_up_then(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """And not when the next round of votes is due: a vote that somebody waits for may be in it."""
    disk = SimDisk(latency_s=(0.1, 0.1)).mount()
    store, done = opened(disk), list[float]()
    elector = DLedgerLeaderElector(
        store.member_state, frozenset({"n0", "n1", "n2"}), options=default(ElectorOptions), random=lambda: 0.5, now=0.0
    )
    observer: Any = SimpleNamespace(on_role=lambda *, is_durable: None, send=lambda _outgoing: None)
    maintainer = StateMaintainer(elector, TermFile(disk, "/store/dledger-n0"), store, observer)
    nursery.start_soon(maintainer.run)
    await trio.sleep(0.05)
    maintainer.do(done.append)
    assert done == [], "its vote for itself is being saved"
    await trio.sleep(0.1)
    assert len(done) == 1


async def test_who_cannot_save_the_term_in_which_it_was_elected_does_not_say_that_it_leads(
    autojump_clock: MockClock,
) -> None:
    """Alone in its group it is elected at once, before its term is saved; and it decides nothing any more."""
    sim = SimDisk()
    store = opened(sim.mount())
    elector = DLedgerLeaderElector(
        store.member_state,
        frozenset({"n0"}),
        options=default(ElectorOptions),
        random=lambda: 0.5,
        now=0.0,
        may_lead=lambda: store.write_error is None,
    )
    observer: Any = SimpleNamespace(on_role=lambda *, is_durable: None, send=lambda _outgoing: None)
    maintainer = StateMaintainer(elector, TermFile(sim.mount(), "/store/dledger-n0"), store, observer)
    sim.faults.read_only = True
    await maintainer.run()
    assert store.write_error is not None
    assert (store.member_state.role, store.member_state.leader_id) == (Role.CANDIDATE, None)


async def test_who_waits_hears_of_the_end_of_a_leadership_before_the_next_term_is_saved(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The disk may take seconds for that, or have no room: clients are to ask another member meanwhile."""
    disk, told = SimDisk(latency_s=(0.1, 0.1)).mount(), list[int]()
    store = leader(disk)
    elector = DLedgerLeaderElector(
        store.member_state, PEERS, options=default(ElectorOptions), random=lambda: 0.5, now=0.0
    )
    pusher = DLedgerEntryPusher[Any](store, PEERS, options=pusher_options(acks_flushed=False))

    def on_role(*, is_durable: bool) -> None:
        pusher.end_leading()
        if is_durable:
            pusher.begin_leading()

    def hear_of_term_7(now: float) -> None:
        elector.handle_vote(VoteRequest("n1", 7, ledger_end_index=5, ledger_end_term=6), now=now)

    observer: Any = SimpleNamespace(on_role=on_role, send=lambda _outgoing: None)
    maintainer = StateMaintainer(elector, TermFile(disk, "/store/dledger-n0"), store, observer)
    nursery.start_soon(maintainer.run)
    await trio.sleep(0.01)
    pusher.append(b"one", lambda _entry, code: told.append(code), now=trio.current_time())
    assert told == []
    maintainer.do(hear_of_term_7)
    await trio.sleep(0.05)
    assert (told, store.member_state.is_saved) == ([Code.TERM_CHANGED], False)


async def test_a_connection_on_which_nothing_comes_back_is_replaced(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """The other end is gone, and has told nobody: a new connection may know a way."""
    network, accepted = MemoryNetwork(), list[Stream]()
    answers = list[bytes | None]()
    listener = await network.listen("10.0.0.1", 20911)
    connection = PeerConnection(
        network, "n1", "10.0.0.1:20911", on_change=lambda _peer: None, on_gone=lambda _peer: None
    )

    async def accept() -> None:
        while True:
            accepted.append(await listener.accept())

    nursery.start_soon(accept)
    nursery.start_soon(connection.run)
    await trio.sleep(0.1)
    connection.ask(DLedgerRequestCode.VOTE, b"{}", answers.append)
    await trio.sleep(RPC_TIMEOUT_S + 1)
    assert answers == [None]
    assert (len(accepted), connection.is_connected) == (2, True)


@pytest.mark.parametrize(
    ("error", "gone"),
    [(errno.ECONNREFUSED, ["n1"]), (errno.ETIMEDOUT, []), (errno.EHOSTUNREACH, []), (errno.EMFILE, [])],
)
async def test_only_who_refuses_connections_has_gone(
    nursery: trio.Nursery, autojump_clock: MockClock, error: int, gone: list[str]
) -> None:
    """A leader behind a network that is cut may still lead the others: who lost it must not disturb them."""
    told = list[str]()

    class Network(MemoryNetwork):
        is_cut = False

        async def connect(self, host: str, port: int, *, timeout_s: float) -> MemoryStream:
            if self.is_cut:
                await trio.lowlevel.checkpoint()
                raise OSError(error, os.strerror(error))
            return await super().connect(host, port, timeout_s=timeout_s)

    network = Network()
    listener = await network.listen("10.0.0.1", 20911)
    connection = PeerConnection(network, "n1", "10.0.0.1:20911", on_change=lambda _peer: None, on_gone=told.append)
    nursery.start_soon(connection.run)
    stream = await listener.accept()
    await trio.sleep(0.1)
    network.is_cut = True
    stream.close()
    await trio.sleep(10)
    assert (connection.is_connected, told) == (False, gone)


async def test_when_a_member_was_last_heard_is_known_though_it_is_gone_or_says_nothing_since(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Status tells it; and leadership goes to nobody who stands still, as one may that is connected once more."""
    network = MemoryNetwork()
    listener = await network.listen("10.0.0.1", 20911)
    connection = PeerConnection(
        network, "n1", "10.0.0.1:20911", on_change=lambda _peer: None, on_gone=lambda _peer: None
    )
    nursery.start_soon(connection.run)
    stream = await listener.accept()
    await trio.sleep(10)
    await stream.send_all(bytes(3))
    await trio.sleep(1)
    heard_at = connection.heard_at
    assert heard_at == pytest.approx(trio.current_time() - 1, abs=0.1)
    listener.close()
    stream.close()
    await trio.sleep(5)
    assert (connection.is_connected, connection.heard_at) == (False, heard_at)
    await (await network.listen("10.0.0.1", 20911)).accept()
    await trio.sleep(5)
    assert (connection.is_connected, connection.heard_at) == (True, heard_at)


async def test_who_was_connected_for_long_is_tried_again_at_once(
    nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """However long nobody listened there before: a leader that is killed is to be found dead by its port."""
    network = MemoryNetwork()
    connection = PeerConnection(
        network, "n1", "10.0.0.1:20911", on_change=lambda _peer: None, on_gone=lambda _peer: None
    )
    nursery.start_soon(connection.run)
    await trio.sleep(10)
    listener = await network.listen("10.0.0.1", 20911)
    stream = await listener.accept()
    await trio.sleep(10)
    stream.close()
    with trio.fail_after(0.1):
        await listener.accept()


async def test_what_was_under_way_to_who_is_gone_is_asked_again_at_once(autojump_clock: MockClock) -> None:
    """A follower that is back after a moment waits for no answer that is lost."""
    store = leader(SimDisk(latency_s=(0, 0)).mount())
    put(store, b"one")
    pusher = DLedgerEntryPusher[Any](store, PEERS, options=pusher_options(acks_flushed=False))
    assert pusher.begin_leading()
    rpc: Any = SimpleNamespace(connected=frozenset())
    dispatcher, now = pusher.dispatchers["n1"], trio.current_time()
    assert [len(dispatcher.poll(now=now)) for _ in range(2)] == [1, 0]
    PushService(pusher, rpc, []).on_change("n1")
    assert len(dispatcher.poll(now=now)) == 1


async def test_who_asks_by_no_connection_is_told_that_there_is_no_answer(autojump_clock: MockClock) -> None:
    """Of nobody it hears nothing: a round of votes goes on, and a transfer of leadership has failed."""
    answers = list[bytes | None]()
    connection = PeerConnection(
        MemoryNetwork(), "n1", "10.0.0.1:20911", on_change=lambda _peer: None, on_gone=lambda _peer: None
    )
    connection.ask(DLedgerRequestCode.LEADERSHIP_TRANSFER, b"{}", answers.append)
    assert answers == [None]


@pytest.mark.parametrize(("has", "chosen"), [((2, 1), "n1"), ((1, 2), "n2")])
def test_of_the_preferred_leaders_the_one_that_lacks_least_is_asked(has: tuple[int, int], chosen: str) -> None:
    """Appends are refused until it has the rest."""
    store, asked = leader(SimDisk(latency_s=(0, 0)).mount()), list[str]()
    put(store, b"one", b"two", b"three")
    checker = QuorumAckChecker(PEERS, inherited_index=-1, max_pending_requests_num=10)
    for peer, index in zip(("n1", "n2"), has, strict=True):
        checker.update_peer_water_mark(peer, index)
    pusher: Any = SimpleNamespace(checker=checker)
    transfer = LeadershipTransfer(
        store,
        pusher,
        PEERS,
        options=default(TransferOptions, preferred_leader_ids=("n1", "n2")),
        ask=lambda peer, _request, _answer: asked.append(peer),
        elect=lambda _on_begun: None,
        answering=lambda: PEERS,
        may_take_over=lambda: True,
    )
    transfer.step(now=0.0)
    assert asked == [chosen]


def test_an_answer_that_comes_in_a_later_leadership_ends_no_transfer_of_that() -> None:
    """Appends that are taken meanwhile would be cut by who takes over."""
    store, answers = leader(SimDisk(latency_s=(0, 0)).mount()), list[Callable[[int], None]]()
    pusher: Any = SimpleNamespace(checker=QuorumAckChecker(PEERS, inherited_index=-1, max_pending_requests_num=10))
    transfer = LeadershipTransfer(
        store,
        pusher,
        PEERS,
        options=default(TransferOptions),
        ask=lambda _peer, _request, answer: answers.append(answer),
        elect=lambda _on_begun: None,
        answering=lambda: PEERS,
        may_take_over=lambda: True,
    )
    for term in (1, 3):
        lead(store, term)
        transfer.hand_over_to("n1", lambda _code: None)
    first, second = answers
    first(Code.NETWORK_ERROR)
    assert store.member_state.transferee == "n1"
    second(Code.NETWORK_ERROR)
    assert store.member_state.transferee is None


def test_who_takes_over_already_refuses_another_request() -> None:
    """Both who ask are answered."""
    pusher: Any = SimpleNamespace(checker=None)
    codes = list[int]()
    transfer = LeadershipTransfer(
        follower(SimDisk(latency_s=(0, 0)).mount()),
        pusher,
        frozenset({"n0", LEADER}),
        options=default(TransferOptions),
        ask=lambda _peer, _request, _answer: None,
        elect=lambda _on_begun: None,
        answering=lambda: frozenset({LEADER}),
        may_take_over=lambda: True,
    )
    request = LeadershipTransferRequest(1, LEADER, "n0", 5)
    transfer.handle(request, codes.append, now=0.0)
    assert codes == [], "it lacks what the leader has"
    transfer.handle(request, codes.append, now=0.0)
    assert codes == [Code.TAKE_LEADERSHIP_FAILED]
    transfer.step(now=inf)
    assert codes == [Code.TAKE_LEADERSHIP_FAILED] * 2
