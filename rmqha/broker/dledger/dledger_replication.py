"""DLedgerReplication: a broker whose log is a DLedger group's, which elects who takes messages.

The member replicates, votes and serves the other members (:class:`~rmqha.dledger.dledger_server.DLedgerServer`). Here
its role becomes the broker's: a leader is master once all that it inherited is committed and dispatched, a follower is
a slave that has its tables from the leader's broker.

Source: spec: dledger §6.5, §6.6; rocketmq-all-4.9.8 DLedgerRoleChangeHandler.java, BrokerController.java.
"""

from collections.abc import Callable
from dataclasses import asdict
from math import inf
from typing import Any, Final

import structlog
import trio

from rmqha.broker.dledger.dledger_tables import DLedgerTables
from rmqha.broker.dledger.member_facts import member_facts
from rmqha.broker.group import ReplicationGroup
from rmqha.broker.identity import Identity
from rmqha.broker.name_servers import NameServers
from rmqha.broker.puts.durability import ReplicaPromise
from rmqha.broker.tables.metadata import MetadataService
from rmqha.codec.host import join_address
from rmqha.codec.route import MASTER_ID
from rmqha.config import BrokerConfig
from rmqha.dledger.dledger_commit_log import DLedgerCommitLog
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.dledger_server import DLedgerServer
from rmqha.dledger.member_state import Role as MemberRole
from rmqha.dledger.server_options import ServerOptions
from rmqha.errors import StoreError, StoreReadError, StoreWriteError
from rmqha.log_limit import LogLimit
from rmqha.replication.role import RoleKind
from rmqha.replication.watermark import Watermark
from rmqha.store.confirm_offset import NO_LIMIT
from rmqha.store.disk import Disk
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.status import PutMessageStatus
from rmqha.transport import Network
from rmqha.waiting import DeadlineService

logger = structlog.get_logger()

_NOT_HANDED_OVER: Final = "no member took what came since it asked last: start this one again before it is taken away"
_LOOKS_AGAIN_S: Final = 0.01
_SLOW_S: Final = 10.0
"""A leader that is not yet master after this time logs what it waits for, and again each time it has passed."""

_HANDS_OVER_S: Final = 5.0
"""So long a master that stops waits for another."""


class DLedgerReplication:
    """See :class:`~rmqha.broker.replication.Replication`, and :class:`~rmqha.dledger.embedding.Embedding`.

    Invariant: this broker is master only while its member leads, and only once all that was in the log before the first
    put of that term is committed and dispatched. Puts that wait when the leadership ends are answered then.

    Attributes:
        group: who this broker is; others introduce themselves to the member.
        acked: what a majority has, as the leader knows.
    """

    acked_from = 0
    due_at = inf

    def __init__(
        self,
        config: BrokerConfig,
        member: ServerOptions,
        store: DefaultMessageStore,
        metadata: MetadataService,
        *,
        log: DLedgerCommitLog,
        disk: Disk,
        network: Network,
        now_ms: Callable[[], int],
        chance: Callable[[], float],
        address: Callable[[], str],
    ) -> None:
        """Nothing is opened yet.

        Args:
            config: the operator's decisions.
            member: the same for this member of the group.
            store: on ``log``.
            metadata: the tables that go with it.
            log: the group's.
            disk: where it is.
            network: the door to other nodes.
            now_ms: the door to wall-clock time.
            chance: a random number in [0, 1), which spreads votes.
            address: where clients find this broker.
        """
        self._config: Final = config
        self._member: Final = member
        self._store: Final = store
        self._log: Final = log
        self._ledger: Final = log.ledger
        self._state: Final = log.ledger.member_state
        self._disk: Final = disk
        self._network: Final = network
        self._now_ms: Final = now_ms
        self._chance: Final = chance
        self._server: DLedgerServer | None = None
        self.opened: Final = trio.Event()
        self.opened.set()
        self.group: Final = ReplicationGroup(config, slave_addresses=lambda: (), name_slave=lambda *_: None)
        self._names: Final = NameServers(config, metadata.topics, network=network, identity=self._identity)
        self._tables: Final = DLedgerTables(
            config,
            member,
            store,
            metadata,
            network=network,
            group=self.group,
            names=self._names,
            beginnings=lambda: log.beginnings,
        )
        self.acked: Final = Watermark()
        self.promise: Final = ReplicaPromise(self, config.max_wait_ack_time_s, late=PutMessageStatus.OS_PAGECACHE_BUSY)
        self._address: Final = address
        self._lines: Final = LogLimit(burst=3)
        self._changed = trio.Event()
        self._present: tuple[bool, MemberRole, str | None, int] | None = None
        """Whether this member leads, its role, its leader and its term, as :meth:`on_role` last found them."""

    @property
    def address(self) -> str:
        """As :attr:`Embedding.address`."""
        return self._address()

    def _identity(self) -> Identity:
        """A name server forgets who leads now when it hears of a former leader that stood still, and does not know."""
        server, now = self._server, trio.current_time()
        is_master = self._store.role.is_master and server is not None and server.elector.is_surely_leading(now=now)
        broker_id = MASTER_ID if is_master else self._config.broker_id
        return Identity(self._config.broker_name, broker_id, self.address, self.ha_address)

    @property
    def ha_address(self) -> str:
        """As :attr:`Replication.ha_address`: RocketMQ's brokers want one, and nobody connects to it."""
        return self.address

    @property
    def port(self) -> int:
        """As :attr:`Replication.port`: the member's."""
        return self._member.peers[self._state.self_id][1]

    @property
    def final_error(self) -> StoreError | None:
        """As :attr:`Replication.final_error`: a leader would cut away what is committed here."""
        return None if self._server is None else self._server.pusher.handler.diverged

    @property
    def follows_tables(self) -> bool:
        """As :attr:`Replication.follows_tables`: there may be no leader right now."""
        return not self._store.role.is_master and self._tables.are_expected

    def broker_addrs(self, own: str) -> dict[int, str]:
        """As :meth:`Replication.broker_addrs`: a leader's brokerId is 0."""
        role = self._store.role
        if role.is_master:
            return {MASTER_ID: own}
        return {self._config.broker_id: own} | ({MASTER_ID: role.master} if role.master else {})

    def confirmed_offset(self) -> int:
        """As :meth:`Replication.confirmed_offset`."""
        return self._log.confirmed

    def is_held_by(self, broker_id: int, offset: int) -> bool:  # noqa: ARG002 - which member has it is not known here
        """As :meth:`Replication.is_held_by`: it is committed, and all members have nearly all of that."""
        return self._server is not None and self._server.pusher.have_all_nearly_all and offset < self._log.confirmed

    def is_slave_ok(self, next_offset: int) -> bool:
        """See :class:`~rmqha.broker.puts.durability.Acknowledgements`: whether there is a majority, time tells."""
        del next_offset
        return True

    def refusal(self) -> str:
        """As :meth:`Replication.refusal`."""
        role = self._store.role
        return role.refusal() if role.kind is not RoleKind.CANDIDATE else "the group has no leader yet: try again"

    def kept_from(self) -> int:
        """As :meth:`Replication.kept_from`: a follower that lacks what is deleted begins anew."""
        return NO_LIMIT

    def is_far_behind(self) -> bool:
        """As :meth:`Replication.is_far_behind`."""
        return False

    def doubt(self) -> str:
        """As :meth:`Replication.doubt`: a member without its store has what its group committed from the others."""
        return ""

    async def hand_over(self) -> None:
        """As :meth:`Replication.hand_over`: the next master asks this one for its tables before it is master.

        What came since a follower had asked would be lost with this process, and when it is back it takes over theirs.
        """
        assert self._server is not None, "it runs"
        codes, answered = list[int](), trio.Event()

        def on_answer(code: int) -> None:
            codes.append(code)
            answered.set()

        with trio.move_on_after(_HANDS_OVER_S):
            self._server.transfer.leave(on_answer)
            await answered.wait()
            has_successor = DLedgerResponseCode.SUCCESS in codes or self._state.is_follower
            while has_successor and not self._tables.are_told:  # noqa: ASYNC110 - a link tells nobody
                await trio.sleep(_LOOKS_AGAIN_S)
        if not self._tables.are_told and len(self._member.peers) > 1:
            logger.warning("dledger_tables.not_handed_over", next=_NOT_HANDED_OVER)

    async def take_leave(self) -> None:
        """As :meth:`Replication.take_leave`: what was acknowledged is with a majority."""

    async def open(self) -> None:
        """As :meth:`Replication.open`: what others hold comes from the leader."""

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """As :meth:`Replication.run`."""
        self._server = DLedgerServer(
            self._member,
            self._ledger,
            self._disk,
            self._network,
            now_ms=self._now_ms,
            random=self._chance,
            broker=self,
        )
        self._log.on_put = self._server.on_appended
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(DeadlineService(self.acked.deadlines).run)
                nursery.start_soon(self._act, self._server)
                nursery.start_soon(self._names.run)
                await nursery.start(self._server.serve)
                task_status.started()
        finally:
            with trio.CancelScope(shield=True):
                await self._save()

    async def _save(self) -> None:
        """What is written becomes durable; a checkpoint that cannot be written only costs the next start time."""
        try:
            if await self._ledger.flush_in_thread():
                await self._ledger.persist_check_point_in_thread()
        except StoreWriteError as error:
            logger.warning("dledger_broker.checkpoint_failed", reason=str(error))

    # ---- what the member tells

    @property
    def _leads(self) -> bool:
        return self._server is not None and self._server.pusher.checker is not None

    @property
    def may_lead(self) -> bool:
        """As :attr:`Embedding.may_lead`: nobody would see messages that this broker cannot dispatch."""
        return self._store.running_flags.final_error is None

    @property
    def store_refusal(self) -> str:
        """As :attr:`Embedding.store_refusal`."""
        return self._store.running_flags.refusal()

    @property
    def damage(self) -> str:
        """As :attr:`Embedding.damage`."""
        return self._store.damaged_records.describe(self._store.min_offset)

    def on_role(self) -> None:
        """As :meth:`Embedding.on_role`."""
        role, state = self._store.role, self._state
        present = (self._leads, state.role, state.leader_id, state.curr_term)
        if present == self._present:
            return
        self._present, was_master, former_term = present, role.is_master, role.term
        role.become(RoleKind.SLAVE if state.is_follower else RoleKind.CANDIDATE, term=state.curr_term)
        if was_master:
            logger.info("dledger_broker.no_master", term=former_term, acked=self.acked.value)
            self.acked.cut(self.acked.value)  # whether the rest is ever committed the next leader decides
        self._changed.set()

    def step(self, *, now: float) -> None:
        """As :meth:`Embedding.step`."""
        del now
        self._ledger.room.set_disk_full(self._store.is_disk_full)
        is_more = self._log.refresh()
        self.acked.advance(self._ledger.committed_pos)
        if is_more:
            self._store.confirm()

    # ---- what comes of it

    async def _act(self, server: DLedgerServer) -> None:
        """Do what the present role demands; whenever it changes, end that and begin what the new one demands."""
        while True:
            self._changed = changed = trio.Event()
            async with trio.open_nursery() as nursery:
                if self._leads and not self._store.role.is_master:
                    nursery.start_soon(self._take_over, server)
                elif (leader_id := self._state.leader_id) is not None and self._state.is_follower:
                    nursery.start_soon(self._follow, leader_id)
                await changed.wait()
                nursery.cancel_scope.cancel()

    async def _take_over(self, server: DLedgerServer) -> None:
        """Become master when all that this leader inherited is committed, and in the queues."""
        begun_at, term = trio.current_time(), self._state.curr_term
        warns_at = begun_at + _SLOW_S
        await self._tables.learn_as_leader()
        while not (self._is_ready(server) and await self._learn_queue_ends()):
            if trio.current_time() >= warns_at:
                warns_at += _SLOW_S
                self._tell_waiting()
            await trio.sleep(_LOOKS_AGAIN_S)
        if not self._leads or self._state.curr_term != term:
            return
        self._store.role.become(RoleKind.MASTER, term=term)
        self._tables.note_is_master(term)
        self._names.look_again()
        logger.info(
            "dledger_broker.master",
            term=term,
            max_offset=self._log.max_offset,
            took_s=round(trio.current_time() - begun_at, 3),
        )

    def _is_ready(self, server: DLedgerServer) -> bool:
        ledger, checker = self._ledger, server.pusher.checker
        if checker is None:
            return False
        if self._log.lacks_first_entry:
            server.barrier.append()
            return False
        if ledger.committed_index < ledger.ledger_end_index:
            if ledger.ledger_end_index == checker.inherited_index:
                server.barrier.append()
            return False
        return self._log.confirmed == self._log.max_offset == self._store.reput_from_offset

    async def _learn_queue_ends(self) -> bool:
        """Learn which offset comes next in each queue; False if the log cannot be read, at present or at all.

        With a log that is damaged this broker gives up leadership, as when it cannot dispatch.
        """
        try:
            await self._store.recover_topic_queue_table()
        except StoreReadError as error:
            self._lines.log(logger.warning, "dledger_broker.not_read", reason=str(error), next="tried again")
            return False
        except StoreError as error:
            self._store.running_flags.fail_dispatch(error)
            return False
        return True

    def _tell_waiting(self) -> None:
        logger.warning(
            "dledger_broker.takes_long",
            term=self._state.curr_term,
            end_index=self._ledger.ledger_end_index,
            committed_index=self._ledger.committed_index,
            confirmed=self._log.confirmed,
            max_offset=self._log.max_offset,
            dispatched=self._store.reput_from_offset,
            refused_because=self._store.running_flags.refusal() or None,
        )

    async def _follow(self, leader_id: str) -> None:
        """Learn where the leader's broker is, tell clients, and have the tables from it."""
        address = await self._tables.find_broker(leader_id)
        if not self._state.is_follower or self._state.leader_id != leader_id:
            return
        self._store.role.become(RoleKind.SLAVE, master=address, term=self._state.curr_term)
        logger.info("dledger_broker.slave", leader=leader_id, master=address, term=self._state.curr_term)
        await self._tables.follow(leader_id, address, term=self._state.curr_term)

    def facts(self) -> dict[str, Any]:
        """What the status document says of the group and this member (rmqha/cli/dledger_verdict.py)."""
        state, server, is_master = self._state, self._server, self._store.role.is_master
        return self._names.facts() | {
            "role": state.role.value,
            "broker_id": MASTER_ID if is_master else self._config.broker_id,
            "is_master": is_master,
            "not_learned": self._tables.not_learned() if state.is_follower else [],
            "tables": asdict(self._tables.origin),
            "credentials_kept": self._tables.credentials_kept or None,
            "dledger": {"group": self._member.group, "id": state.self_id, "leader": state.leader_id}
            | {"peers": {peer: join_address(*address) for peer, address in self._member.peers.items()}}
            | {"master": self._store.role.master or None, "silent_after_s": self._member.elector.leak_s}
            | {"diverged": None if self.final_error is None else str(self.final_error)}
            | ({} if server is None else member_facts(server)),
        }
