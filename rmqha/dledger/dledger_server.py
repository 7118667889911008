"""DLedgerServer: one member of a group, put together of its parts.

    DLedgerServer            answers the requests, and owns the lifetimes
      DLedgerMmapFileStore   the log; FlushDataService, CleanSpaceService
      DLedgerLeaderElector   who leads; run by StateMaintainer, with TermFile
      DLedgerEntryPusher     replication; run by PushService
      ProvenReads            reads that only a leader can answer
      LeadershipTransfer     handing over, and taking over; GivingWay: when there is no room
      Standing               when it does not stand, though its log may be the longest
      DLedgerRpcService      requests and answers; a PeerConnection to each other member

Source: dledger-all-0.3.1.2 DLedgerServer.java.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import structlog
import trio

from rmqha.codec.dledger_entry import DLedgerEntry
from rmqha.codec.dledger_wire import (
    AppendEntryRequest,
    AppendEntryResponse,
    Base,
    GetEntriesRequest,
    GetEntriesResponse,
    LeadershipTransferRequest,
    LeadershipTransferResponse,
    MemberStatus,
    MetadataRequest,
    MetadataResponse,
)
from rmqha.codec.host import join_address
from rmqha.dledger.clean_space_service import CleanSpaceService
from rmqha.dledger.dledger_entry_pusher import DLedgerEntryPusher
from rmqha.dledger.dledger_exception import DLedgerException, DLedgerResponseCode
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.dledger_rpc_service import DLedgerRpcService, Question
from rmqha.dledger.embedding import Embedding
from rmqha.dledger.flush_data_service import FlushDataService
from rmqha.dledger.giving_way import GivingWay
from rmqha.dledger.laggards import Laggards
from rmqha.dledger.leader_elector import DLedgerLeaderElector
from rmqha.dledger.leadership_transfer import LeadershipTransfer
from rmqha.dledger.member_view import MemberView, view_members
from rmqha.dledger.membership import Membership
from rmqha.dledger.outvoted_note import OutvotedNote
from rmqha.dledger.own_status import own_status
from rmqha.dledger.peer_connection import PeerConnection
from rmqha.dledger.proven_reads import ProvenReads
from rmqha.dledger.push_entry import PushEntryRequest
from rmqha.dledger.push_service import PushService, Waiting
from rmqha.dledger.role_log import RoleLog
from rmqha.dledger.server_options import ServerOptions
from rmqha.dledger.standing import Standing
from rmqha.dledger.state_maintainer import StateMaintainer
from rmqha.dledger.term_barrier import TermBarrier
from rmqha.dledger.term_file import TermFile
from rmqha.dledger.vote import HeartBeatRequest, HeartBeatResponse, Outgoing, VoteRequest, VoteResponse
from rmqha.errors import RemoteProtocolError, StoreWriteError
from rmqha.listening import listening_by
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.remoting.server import RemotingServer
from rmqha.store.disk import Disk
from rmqha.transport import Network

logger = structlog.get_logger()

_DRAIN_S: Final = 3.0
_LISTENS_LEAKS: Final = 2
"""Who may have another group's log lets others go first for so long as two of their leaders may be missed."""
_Code = DLedgerResponseCode


class DLedgerServer:
    """Serves until :meth:`stop`, or as a broker's member until it is cancelled. One object, one life."""

    def __init__(
        self,
        options: ServerOptions,
        store: DLedgerMmapFileStore,
        disk: Disk,
        network: Network,
        *,
        now_ms: Callable[[], int],
        random: Callable[[], float],
        broker: Embedding | None = None,
    ) -> None:
        """Make the parts; inside trio.

        Args:
            options: what the operator decided.
            store: from :func:`open_store`.
            disk: where it is.
            network: the door to the other members and the clients.
            now_ms: the wall clock.
            random: the next of numbers from 0 to 1.
            broker: the broker whose log this is, if any: then it alone appends and deletes.
        """
        self._options: Final = options
        self._disk: Final = disk
        self._network: Final = network
        self._now_ms: Final = now_ms
        self._broker: Final = broker
        self.member_state: Final = store.member_state
        self.store: Final = store
        self._id: Final = store.member_state.self_id
        ids, now = frozenset(options.peers), trio.current_time()
        self.elector: Final = DLedgerLeaderElector(
            self.member_state, ids, options=options.elector, random=random, now=now, may_lead=self._may_lead
        )
        self.pusher: Final = DLedgerEntryPusher[Question](store, ids, options=options.pusher)
        directory = options.store.default_path
        self._outvoted_note: Final = OutvotedNote(disk, directory, store, self.pusher.handler)
        self.barrier: Final = TermBarrier(store, self.pusher, now_ms=now_ms, on_appended=self.on_appended)
        self.reads: Final = ProvenReads(store, self.elector, self.pusher, append_barrier=self.barrier.append)
        self.rpc: Final = DLedgerRpcService(group=options.group, self_id=self._id, handler=self)
        self.transfer: Final = self._make_transfer()
        self._giving_way: Final = GivingWay(
            store,
            self.pusher,
            self.transfer,
            quorum=self.elector.quorum,
            refusal=self._refusal,
            ask=self.rpc.ask_metadata,
            connected=lambda: self.rpc.connected,
        )
        self._maintainer: Final = StateMaintainer(self.elector, TermFile(disk, directory), store, self)
        self._laggards: Final = Laggards(store, self.pusher)
        self._standing: Final = Standing(store, self.pusher, ask=self.rpc.ask_metadata, wakeup=self._maintainer.wakeup)
        brokers = [] if broker is None else [broker]
        waiting: list[Waiting] = [self.reads, self.transfer, self._giving_way, self._laggards, self._standing, *brokers]
        self._push_service: Final = PushService(self.pusher, self.rpc, waiting)
        self.membership: Final = self._make_membership()
        if self.membership.former == () and len(ids) > 1:
            self._standing.listen_first(_LISTENS_LEAKS * options.elector.leak_s, ids - {self._id}, now=now)
        self._role_log: Final = RoleLog(self._id)
        self._stopping: Final = trio.Event()

    def _make_transfer(self) -> LeadershipTransfer:
        parts = (self.store, self.pusher, frozenset(self._options.peers))
        return LeadershipTransfer(
            *parts,
            options=self._options.transfer,
            ask=self.rpc.ask_to_take_over,
            elect=self._take_leadership,
            answering=self._answering,
            may_take_over=self._may_take_over,
        )

    def _make_membership(self) -> Membership:
        rpc, parts = self.rpc, (self._options, self._disk, self.store, self.pusher, str(self._now_ms()))
        append, wakeup = self.barrier.append, self._maintainer.wakeup
        return Membership(
            *parts, connections=rpc.connections, ask=rpc.ask_metadata, append_barrier=append, on_told=wakeup
        )

    def _answering(self) -> frozenset[str]:
        """Who is connected, and has sent something since a leader would have been given up: none that stands still."""
        since = trio.current_time() - self._options.elector.leak_s
        return frozenset(peer for peer in self.rpc.connected if self.rpc.connections[peer].heard_at >= since)

    def _may_lead(self) -> bool:
        is_able = self.store.write_error is None and (self._broker is None or self._broker.may_lead)
        is_standing = self._standing.may_stand(now=trio.current_time()) and not self.pusher.handler.is_outvoted
        return is_able and is_standing and self.membership.may_lead

    def _may_take_over(self) -> bool:
        return self._may_lead() and self._giving_way.may_take_over(now=trio.current_time())

    def _refusal(self) -> str:
        """Why nothing would be appended here at present."""
        refusal = self._maintainer.refusal or self.store.room.refusal
        return refusal or ("" if self._broker is None else self._broker.store_refusal)

    def stop(self) -> None:
        """Begin to end: :meth:`run` returns when what is due is answered, and everything is durable."""
        self._stopping.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve, and close the store. Raises OSError: this member's port cannot be listened on."""
        try:
            await self.serve(task_status=task_status)
        finally:
            with trio.CancelScope(shield=True):
                await self._close()

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Be a member, and leave the store open. Raises OSError: this member's port cannot be listened on."""
        dispatcher = RequestDispatcher()
        self.rpc.register(dispatcher)
        server = RemotingServer(dispatcher, limits=self._options.limits)
        host, port = self._options.peers[self._id]
        try:
            with listening_by("dLegerPeers", what=f"the address of member {self._id} in dLegerPeers"):
                listener = await self._network.listen(host, port)
            logger.info("dledger.started", id=self._id, group=self._options.group, listen=f"{host}:{port}")
            async with trio.open_nursery() as nursery:
                for task in (*self._services(), self._push_service.run, self._maintainer.run):
                    nursery.start_soon(task)
                self._connect(nursery)
                nursery.start_soon(server.serve, listener)
                task_status.started()
                await self._stopping.wait()
                await server.close(grace_s=_DRAIN_S)
                nursery.cancel_scope.cancel()
        finally:
            self.member_state.change_to_candidate()
            self.on_role(is_durable=False)

    def _services(self) -> list[Callable[[], Awaitable[None]]]:
        """What flushes, tells who leads, and deletes old files: those of a broker's log its own cleaning deletes."""
        flush = FlushDataService(self.store, self._options.store, on_flushed=self._on_flushed)
        watching = self._role_log.watch, self.membership.run, self._outvoted_note.run
        services: list[Callable[[], Awaitable[None]]] = [flush.run, *watching]
        if self._broker is not None:
            return services
        return [*services, CleanSpaceService(self.store, self._options.store, self._disk, now_ms=self._now_ms).run]

    def _connect(self, nursery: trio.Nursery) -> None:
        connect = partial(PeerConnection, self._network, on_change=self._on_change, on_gone=self._on_gone)
        for peer, (host, port) in self._options.peers.items():
            if peer != self._id:
                self.rpc.connections[peer] = connection = connect(peer, join_address(host, port))
                nursery.start_soon(connection.run)

    async def _close(self) -> None:
        """What is written becomes durable; a checkpoint that cannot be written only costs the next start time."""
        try:
            await self.store.shutdown()
        except StoreWriteError as error:
            logger.warning("dledger.checkpoint_failed", reason=str(error))
        logger.info("dledger.stopped", id=self._id, end_index=self.store.ledger_end_index)

    # What happens here

    def on_appended(self) -> None:
        """A broker that leads has appended: it is to be pushed."""
        self._push_service.wakeup()

    def _on_flushed(self) -> None:
        self._push_service.wakeup()
        if self.store.write_error is not None:
            self._maintainer.wakeup()

    def _on_change(self, peer: str) -> None:
        self._push_service.on_change(peer)
        self.membership.lists.ask(peer)
        self._standing.on_change(peer, now=trio.current_time())
        if self.pusher.checker is not None:
            self.elector.prove()  # who has come learns at once whom to follow
            self._maintainer.wakeup()

    def _on_gone(self, peer: str) -> None:
        self._maintainer.do(lambda now: self.elector.on_leader_gone(peer, now=now))

    def _take_leadership(self, on_begun: Callable[[], None]) -> None:
        def work(now: float) -> None:
            self.elector.take_leadership(now=now)
            on_begun()

        self._maintainer.do(work)

    def on_role(self, *, is_durable: bool) -> None:
        """See :class:`~rmqha.dledger.state_maintainer.Observer`."""
        if self.pusher.end_leading():
            self.reads.step(now=trio.current_time())
            self.rpc.answers.send()
        if is_durable:
            self.pusher.begin_leading()
            self._role_log.tell(self.store)
        if self._broker is not None:
            self._broker.on_role()
        self._push_service.wakeup()

    def send(self, outgoing: Outgoing) -> None:
        """See :class:`~rmqha.dledger.state_maintainer.Observer`."""

        def on_answer(response: VoteResponse | HeartBeatResponse | None) -> None:
            self._maintainer.do(partial(self._on_answer, outgoing, response))

        if isinstance(outgoing.request, VoteRequest) and not self.membership.lists.may_vote_for_this(outgoing.peer):
            on_answer(None)
        else:
            self.rpc.ask(outgoing, on_answer)

    def _on_answer(self, outgoing: Outgoing, response: VoteResponse | HeartBeatResponse | None, now: float) -> None:
        if isinstance(outgoing.request, VoteRequest):
            assert not isinstance(response, HeartBeatResponse), "a vote was asked for"
            self.elector.on_vote_answer(outgoing.peer, outgoing.number, response, now=now)
        else:
            assert not isinstance(response, VoteResponse), "a heartbeat was sent"
            self.elector.on_heart_beat_answer(outgoing.peer, outgoing.number, response, now=now)

    # What is asked: see DLedgerProtocolHandler

    @property
    def leader_id(self) -> str | None:
        """Who leads, as far as this member knows."""
        return self.member_state.leader_id

    def handle_metadata(self, _request: MetadataRequest, question: Question) -> None:
        """In every role."""
        peers = {peer: join_address(*address) for peer, address in self._options.peers.items()}
        response = MetadataResponse(_Code.SUCCESS, self.leader_id, peers, self.status())
        question.answer(response, Base(self._options.group))

    def status(self) -> MemberStatus:
        """What this member tells of itself."""
        status = own_status(
            self.store, self.pusher, self._role_log, self._broker, refusal=self._refusal(), now=trio.current_time()
        )
        return self.membership.told_in(status)

    def view_members(self) -> list[MemberView]:
        """Return how this member sees the others."""
        committed = self.store.committed_index
        return view_members(self.rpc.connections, self.pusher.checker, self._laggards, committed_index=committed)

    def handle_append(self, request: AppendEntryRequest, question: Question) -> None:
        """Spec: dledger §2.2. Raises RemoteProtocolError: no body."""
        if request.body is None:
            raise RemoteProtocolError("an append has a body")
        if self._broker is not None:  # its dispatch would stop for good at an entry that is no message
            question.refuse(_Code.UNSUPPORTED, leader_id=self.leader_id)
            return

        def tell(entry: DLedgerEntry, code: DLedgerResponseCode) -> None:
            pos = entry.pos if code is _Code.SUCCESS else -1
            term = -1 if code is _Code.TERM_CHANGED else entry.term
            question.answer_append(AppendEntryResponse(code, term, self._id, entry.index, pos))

        try:
            self.pusher.append(request.body, tell, now=trio.current_time())
        except DLedgerException as error:
            if error.code is _Code.LEADER_PENDING_FULL:
                question.answer_append(AppendEntryResponse(error.code, self.member_state.curr_term, self._id))
            else:
                question.refuse(error.code, leader_id=self.leader_id)
        self._push_service.wakeup()

    def handle_get(self, request: GetEntriesRequest, question: Question) -> None:
        """Answers SUCCESS and INDEX_OUT_OF_RANGE only as a leader that knows; see :class:`ProvenReads`."""
        base = Base(self._options.group)

        def tell(code: DLedgerResponseCode, entry: DLedgerEntry | None) -> None:
            if code is _Code.NOT_LEADER:
                question.refuse(_Code.NOT_LEADER, leader_id=self.leader_id)
            else:
                question.answer(GetEntriesResponse(code, None, () if entry is None else (entry,)), base)

        connection, now = question.connection, trio.current_time()
        self.reads.ask(request.begin_index, tell, now=now, is_wanted=lambda: connection.takes_answers)
        self._maintainer.wakeup()

    def handle_vote(self, request: VoteRequest, question: Question) -> None:
        """Answered once the vote is durable."""

        def work(now: float) -> Callable[[], None]:
            vote = self.elector.handle_vote(request, now=now, asker=question.connection)
            return partial(question.answer, vote, question.base)

        self._maintain(work, question)

    def handle_heart_beat(self, request: HeartBeatRequest, question: Question) -> None:
        """Answered once the term is durable."""

        def work(now: float) -> Callable[[], None]:
            return partial(question.answer, self.elector.handle_heart_beat(request, now=now), Base())

        self._maintain(work, question)

    def _maintain(self, work: Callable[[float], Callable[[], None]], question: Question) -> None:
        if self._maintainer.is_mute:
            question.refuse(_Code.DISK_ERROR, leader_id=self.leader_id)
        else:
            self._maintainer.do(work)

    def handle_push(self, request: PushEntryRequest, question: Question) -> None:
        """Answered once its entries are stored as this member promises."""
        self._push_service.on_push(request, question)

    def handle_leadership_transfer(self, request: LeadershipTransferRequest, question: Question) -> None:
        """Answered once the transfer has succeeded, or failed."""

        def answer(code: int) -> None:
            question.answer(LeadershipTransferResponse(code, self.member_state.curr_term), Base())

        self.transfer.handle(request, answer, now=trio.current_time())
        self._push_service.wakeup()
