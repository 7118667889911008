"""ClassicReplication: RocketMQ's master and slaves. HAService serves slaves, HAClient follows a master.

Beside the log go the tables that a slave has from its master (topics, consumers' offsets, where queues end), and at a
master's start the catch-up with what only its slaves still hold.
"""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from math import inf
from typing import Any, Final

import structlog
import trio

from rmqha.broker import options
from rmqha.broker.classic.followed_tables import FollowedTables
from rmqha.broker.classic.known_master import KnownMaster
from rmqha.broker.classic.own_group import own_group
from rmqha.broker.classic.take_back_notes import TakeBackNotes
from rmqha.broker.classic.taken_tables import TakenTables
from rmqha.broker.classic.takes_tables_back import TakesTablesBack
from rmqha.broker.group import ReplicationGroup
from rmqha.broker.identity import Identity
from rmqha.broker.master_link import MasterLink
from rmqha.broker.name_servers import FoundMaster, NameServers
from rmqha.broker.plain import plain
from rmqha.broker.puts.durability import ReplicaPromise
from rmqha.broker.slave_synchronize import SlaveSynchronize
from rmqha.broker.tables.metadata import MetadataService
from rmqha.broker.tables.queue_ends_client import QueueEndsClient
from rmqha.broker.tables.tables_origin import TablesOrigin
from rmqha.broker.tuning import Tuning
from rmqha.codec.host import join_address
from rmqha.codec.route import MASTER_ID
from rmqha.config import BrokerConfig, split_address, split_told_address
from rmqha.errors import StoreError
from rmqha.ha.catch_up_reasons import why_unheard
from rmqha.ha.catch_up_service import CatchUpHooks, CatchUpService
from rmqha.ha.ha_client import HAClient, MasterAddress, ProbeMaster
from rmqha.ha.ha_service import HAService
from rmqha.ha.longer_peers import LongerPeers
from rmqha.ha.replicated_log import ReplicatedLog
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.store_note import StoreNote
from rmqha.tls import secured
from rmqha.transport import Network

logger = structlog.get_logger()


class ClassicReplication:
    """See :class:`~rmqha.broker.replication.Replication`.

    Attributes:
        ha_service: serves slaves (a slave's own slaves too).
        ha_client: follows the master; None on a master.
        catch_up: asks the peers what this master may have lost, and has sends refused meanwhile.
        master_link: asks other brokers by remoting.
        slave_synchronize: takes over the master's tables.
        group: who belongs together, as far as nodes have said who they are.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: DefaultMessageStore,
        metadata: MetadataService,
        *,
        log: ReplicatedLog,
        network: Network,
        chance: Callable[[], float],
        probe: ProbeMaster | None = None,
        tuning: Tuning,
        address: Callable[[], str],
    ) -> None:
        """Nothing is opened yet.

        Args:
            config: the operator's decisions.
            store: of the log that is copied.
            metadata: the tables that go with it.
            log: what is copied; a :class:`~rmqha.ha.replicated_store.ReplicatedStore` of ``store``.
            network: the door to other nodes; TLS is put before it here.
            chance: a random number in [0, 1), for pauses between attempts.
            probe: asks other brokers what their logs hold; None: by remoting.
            tuning: what no operator decides.
            address: where clients find this broker.
        """
        self._config: Final = config
        self._store: Final = store
        self._log: Final = log
        self._metadata: Final = metadata
        self._tuning: Final = tuning
        self._network: Final = secured(network, *options.client_tls(config))
        self._ha_network: Final = secured(network, *options.ha_tls(config))
        self.ha_service: Final = HAService(log, self._ha_network, options.ha_options(config))
        self._master: Final = KnownMaster(config)
        self.group: Final = self._make_group()
        self.master_link: Final = self._make_master_link()
        self.slave_synchronize: Final = SlaveSynchronize(self.master_link, metadata)
        self._probe: Final = probe or self.master_link.probe
        self._introduce: Final = None if probe else self.master_link.introduce
        self.ha_client: Final = self._make_ha_client(chance) if config.is_slave else None
        self._followed: Final = self._make_followed(self.ha_client) if self.ha_client is not None else None
        self._takes_back: Final = self._make_takes_back()
        self._taken_tables: Final = self._make_taken_tables()
        self.catch_up: Final = self._make_catch_up(chance)
        self._address: Final = address
        self._names: Final = NameServers(
            config, metadata.topics, network=network, identity=self._identity, on_master=self._on_master
        )
        metadata.why_withheld, metadata.why_awaited = self._why_tables_withheld, self._takes_back.why_awaited
        metadata.why_withheld_from, metadata.origin = self._why_withheld_from, self._tables_origin
        followed = self._followed
        metadata.offsets.why_unknown = self._why_offsets_unknown if followed is None else followed.why_offsets_unknown
        for table in (metadata.offsets, metadata.topics, metadata.groups):
            table.made_since.are_awaited = lambda: self._takes_back.are_awaited
        self._waits_for_slaves: Final = options.is_sync_master(config) and config.in_sync_replicas > 1
        promise = ReplicaPromise(self.ha_service.group_transfer, config.slave_timeout_s)
        if self._waits_for_slaves:
            self.ha_service.group_transfer.acked.subscribe(store.confirm)
        self.promise: Final = promise if self._waits_for_slaves else None
        """As :attr:`Replication.promise`."""
        self.ha_service.in_sync_watch.count_unsafe = lambda: promise.unreplicated
        self.catch_up.watch_slaves(self.ha_service)

    def _make_group(self) -> ReplicationGroup:
        begin, error = (lambda: self.master_link.asked_min_offset), (lambda: self.final_error)
        return own_group(self._config, self._store, self.ha_service, final_error=error, master_min_offset=begin)

    def _make_master_link(self) -> MasterLink:
        ha_master, is_joined = (lambda: self._master.ha_address), self._is_joined
        return MasterLink(self._network, self._config, self.group, ha_master=ha_master, is_joined=is_joined)

    def _make_taken_tables(self) -> TakenTables:
        root, is_slave = self._config.store_path_root_dir, self._config.is_slave
        return TakenTables(root, self._store, self._metadata, self.slave_synchronize, is_slave=is_slave)

    def _make_ha_client(self, chance: Callable[[], float]) -> HAClient:
        client = HAClient(
            self._log,
            self._ha_network,
            options=options.ha_client_options(self._config, self._tuning),
            chance=chance,
            probe_master=self._probe,
            introduce=self._introduce,
            meet=self.group.meet,
        )
        if self._config.ha_master_address:
            client.update_master_address(*split_address(self._config.ha_master_address))
        self.master_link.show_face = client.show_face
        return client

    def _make_followed(self, client: HAClient) -> FollowedTables:
        followed = FollowedTables(
            self.slave_synchronize,
            self._store,
            self._metadata,
            master_address=lambda: self._master.address,
            queue_ends_client=self._queue_ends_client,
        )
        client.on_link = partial(followed.on_link, client)
        return followed

    def _make_takes_back(self) -> TakesTablesBack:
        return TakesTablesBack(
            TakeBackNotes.of(self._store),
            self._store,
            self._metadata,
            peers=[str(MasterAddress(*split_address(peer))) for peer in options.peers_to_ask(self._config)],
            tables=self.slave_synchronize,
            queue_ends_client=self._queue_ends_client,
            why_untold=self.master_link.why_untold,
            is_required=options.catch_up_answers_needed(self._config) > 0,
        )

    def _make_catch_up(self, chance: Callable[[], float]) -> CatchUpService:
        self.ha_service.is_begin_awaited = lambda: self._is_empty and bool(self.catch_up.refusal)
        return CatchUpService(
            self._log,
            self._ha_network,
            [MasterAddress(*split_address(peer)) for peer in options.peers_to_ask(self._config)],
            answers_needed=options.catch_up_answers_needed(self._config),
            options=options.ha_client_options(self._config, self._tuning),
            probe_peer=self._probe,
            chance=chance,
            why_apart=self.group.why_apart,
            hooks=CatchUpHooks(
                refuse_puts=self._store.running_flags.refuse_puts,
                on_taken=self._on_log_taken,
                on_open=self._cut_consumer_offsets,
                take_tables=self._takes_back.take,
                tables_from=lambda: self._takes_back.told_by,
                do_peers_follow=self._do_all_follow,
            ),
            began_empty=StoreNote(self._store.disk, f"{self._config.store_path_root_dir}/beganEmpty"),
            longer_peers=LongerPeers(self._store.disk, f"{self._config.store_path_root_dir}/longerPeers"),
        )

    @property
    def opened(self) -> trio.Event:
        """As :attr:`Replication.opened`."""
        return self.catch_up.opened

    @property
    def port(self) -> int:
        """As :attr:`Replication.port`."""
        return self.ha_service.port

    @property
    def final_error(self) -> StoreError | None:
        """As :attr:`Replication.final_error`: no master can be followed."""
        return None if self.ha_client is None else self.ha_client.final_error

    @property
    def ha_address(self) -> str:
        """As :attr:`Replication.ha_address`."""
        return join_address(self._config.broker_ip2, self.port)

    def _identity(self) -> Identity:
        return Identity(self.group.broker_name, self._config.broker_id, self._address(), self.ha_address)

    @property
    def follows_tables(self) -> bool:
        """As :attr:`Replication.follows_tables`: of a slave that knows where its master serves clients."""
        return bool(self._config.is_slave and self._master.address and not self.slave_synchronize.failure)

    def broker_addrs(self, own: str) -> dict[int, str]:
        """As :meth:`Replication.broker_addrs`: a slave's master if it is known, and slaves that follow this broker."""
        found = self._names.master
        address = self._config.master_address or (found.address if found else "")
        master = {MASTER_ID: address} if self._config.is_slave and address else {}
        return self.group.following() | master | {self._config.broker_id: own}

    def _is_joined(self) -> bool:
        return self.ha_client is not None and self.ha_client.is_joined

    def _on_master(self, found: FoundMaster) -> None:
        """A name server has named a slave's master."""
        self._master.found = found
        if self._followed is not None:
            self._followed.on_master()
        if self.ha_client is not None and not self._config.ha_master_address:
            self.ha_client.update_master_address(*split_told_address(found.ha_address))

    def confirmed_offset(self) -> int:
        """What is flushed here, or what enough live slaves hold (decision 4)."""
        return self.ha_service.group_transfer.held_offset if self._waits_for_slaves else self._store.flushed.value

    def is_held_by(self, broker_id: int, offset: int) -> bool:
        """As :meth:`Replication.is_held_by`: that slave has reported it, and its log does not begin later."""
        reported = self.ha_service.reported_of(f"{self.group.broker_name}/{broker_id}")
        return offset < reported and self.group.begin_of(broker_id) <= offset

    def refusal(self) -> str:
        """As :meth:`Replication.refusal`: too few replicas are there."""
        needed = self._config.min_in_sync_replicas
        if needed == 1 or needed <= (live := 1 + self.ha_service.live_slaves):
            return ""
        return f"{live} of the {needed} replicas that minInSyncReplicas asks for are there"

    def doubt(self) -> str:
        """As :meth:`Replication.doubt`: this log began empty, and peers are away, and not among those that follow."""
        unheard = self.catch_up.unheard
        return "" if self._do_all_follow() or not unheard else why_unheard(unheard)

    def _do_all_follow(self) -> bool:
        """Whether as many slaves follow as there are peers.

        Of an empty log that shows nothing where another one has reported more: who follows is empty, and not that one.
        """
        is_another_ahead = self._is_empty and self.catch_up.slave_ahead_at > -inf
        return not is_another_ahead and self.ha_service.live_slaves >= len(self._config.ha_peers)

    def kept_from(self) -> int:
        """As :meth:`Replication.kept_from`; the log's end if no slave is connected."""
        needed = self.ha_service.oldest_needed_offset()
        return self._store.max_offset if needed is None else needed

    def is_far_behind(self) -> bool:
        """As :meth:`Replication.is_far_behind`."""
        return self.ha_client is not None and self.ha_client.is_far_behind()

    async def open(self) -> None:
        """As :meth:`Replication.open`."""
        is_noted = await self._taken_tables.begin(were_lost=self._takes_back.look())
        if options.peers_to_ask(self._config):
            await self._takes_back.note_loss()
        elif is_noted:
            await self._takes_back.forget_loss()
        await self._taken_tables.settle()
        await self.catch_up.run()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """As :meth:`Replication.run`."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.ha_service.run)
            nursery.start_soon(self._names.run)
            nursery.start_soon(self._taken_tables.run, self._is_joined)
            if self.ha_client is not None and self._followed is not None:
                nursery.start_soon(self.ha_client.run)
                nursery.start_soon(self._followed.run, self.ha_client)
            else:
                nursery.start_soon(self._finish_taking_back)
            task_status.started()

    async def hand_over(self) -> None:
        """As :meth:`Replication.hand_over`: an operator promotes."""

    async def take_leave(self) -> None:
        """As :meth:`Replication.take_leave`. A slave's own slaves find what it has at its master."""
        if self._store.role.is_master:
            await self.ha_service.take_leave()

    def _queue_ends_client(self, address: str) -> QueueEndsClient:
        return QueueEndsClient(
            self._network,
            address,
            store=self._store,
            queue_ends=self._metadata.queue_ends,
            check_group=self.master_link.check_group,
            credentials=self.master_link.credentials,
        )

    @property
    def _begins_in_doubt(self) -> bool:
        """Whether peers that are away may hold all of this group: what is sent and told after that is its, too."""
        return self._is_empty and bool(self.doubt())

    @property
    def _is_empty(self) -> bool:
        return self._store.min_offset == self._store.max_offset

    def _why_tables_withheld(self) -> str:
        """As :attr:`MetadataService.why_withheld`."""
        if self._begins_in_doubt:
            return self._takes_back.why_withheld(may_be_older=True)
        return self._why_offsets_unknown()

    def _why_withheld_from(self, host: str) -> str:
        """As :attr:`MetadataService.why_withheld_from`."""
        return self._taken_tables.lack if self._config.is_slave else self._takes_back.why_withheld_from(host)

    def _why_offsets_unknown(self) -> str:
        """As :attr:`ConsumerOffsetManager.why_unknown`. A master that goes on in doubt begins with what it has.

        Once its log has begun a peer may have lost its own tables since, and have to be told them to tell them.
        """
        is_waiting = self._is_empty and bool(self.catch_up.refusal)
        is_over = self._config.is_slave or (self.catch_up.opened.is_set() and not is_waiting)
        if is_over:
            return self._takes_back.why_offsets_unknown
        return self._takes_back.why_withheld(may_be_older=is_waiting)

    async def _finish_taking_back(self) -> None:
        catch_up = self.catch_up
        finish = partial(
            self._takes_back.finish,
            on_saved=catch_up.on_tables_saved,
            is_in_doubt=lambda: self._begins_in_doubt or bool(catch_up.refusal),
        )
        await catch_up.opened.wait()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(finish)
            nursery.start_soon(self._takes_back.ask_late, catch_up.settled, self._probe)

    async def _on_log_taken(self) -> None:
        await self._store.recover_topic_queue_table()
        self._metadata.queue_ends.go_on_later()

    def _cut_consumer_offsets(self) -> None:
        """What was committed beyond the end of a log that lost its tail."""
        if self._followed is not None:
            self._followed.doubt()
        elif cut := self._metadata.offsets.cut(self._store.next_queue_offset):
            logger.warning("consumer_offsets.cut", count=len(cut), queues=cut[:10])

    def _tables_origin(self) -> TablesOrigin:
        return (self._taken_tables if self._config.is_slave else self._takes_back).origin

    def facts(self) -> dict[str, Any]:
        """Of the status document (rmqha/cli/verdict.py) what tells of other nodes, and of name servers."""
        return {
            "catch_up": self.catch_up.info(),
            "doubt": self.doubt() or None,
            "tables_not_taken": self._taken_tables.lack or None,
            "begins_later": self.group.later() or None,
            "tables": asdict(self._tables_origin()),
            "peers_unheard": self.catch_up.silent_peers() if self._do_all_follow() else [],
            "unnamed_slaves": self.group.unnamed(self.catch_up.peer_ids()),
            "ha": plain(self.ha_service.info()),
            "ha_client": plain(self.ha_client.info()) if self.ha_client is not None else None,
            "circle": (self._config.is_slave and self.group.circle()) or None,
            "log_master": self.master_link.log_source.master or None,
            "not_learned": self._followed.not_learned() if self._followed is not None else [],
            "topics_awaited": self._config.is_slave and self.slave_synchronize.has_news,
            **self._names.facts(),
            "credentials_kept": self.master_link.credentials_kept or None,
        }
