"""BrokerController: one broker on a store and a replication of any kind. Wires, starts and stops its parts in order.

Start: recover the store, take back from peers what they hold beyond our end, then the services, then the listeners; a
send is accepted only when all of it is there. Stop: no new connections, answer what is due, end replication, flush.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import structlog
import trio

from rmqha.broker import options
from rmqha.broker.acl.client_access import ClientAccess
from rmqha.broker.broker_stats_manager import BrokerStatsManager
from rmqha.broker.broker_status import BrokerStatus
from rmqha.broker.clients.connected_clients import ConnectedClients
from rmqha.broker.clients.consumer_manager import ConsumerManager
from rmqha.broker.clients.producer_manager import ProducerManager
from rmqha.broker.left_by_rocketmq5 import tell_undelivered
from rmqha.broker.own_routes import own_name_service
from rmqha.broker.processors.acl_config_processor import AclConfigProcessor
from rmqha.broker.processors.admin_broker_processor import AdminBrokerProcessor
from rmqha.broker.processors.consume_admin_processor import ConsumeAdminProcessor
from rmqha.broker.processors.metadata_processor import MetadataProcessor
from rmqha.broker.processors.pop_message_processor import PopMessageProcessor
from rmqha.broker.processors.pull_message_processor import PullMessageProcessor
from rmqha.broker.processors.query_message_processor import QueryMessageProcessor
from rmqha.broker.processors.query_processor import QueryProcessor
from rmqha.broker.processors.reply_message_processor import ReplyMessageProcessor
from rmqha.broker.processors.runtime_info_processor import RuntimeInfoProcessor
from rmqha.broker.processors.send_back_processor import SendBackProcessor
from rmqha.broker.processors.send_message_processor import SendMessageProcessor
from rmqha.broker.processors.subscription_group_processor import SubscriptionGroupProcessor
from rmqha.broker.processors.topic_admin_processor import TopicAdminProcessor
from rmqha.broker.processors.topic_stats_processor import TopicStatsProcessor
from rmqha.broker.pull_request_hold_service import PullRequestHoldService
from rmqha.broker.puts.durability import Durability, FlushPromise
from rmqha.broker.puts.internal_puts import InternalPuts
from rmqha.broker.puts.put_service import PutMessageService
from rmqha.broker.puts.unsafe_answers import UnsafeAnswers
from rmqha.broker.replication import Replication
from rmqha.broker.schedule.delay_offsets import DelayOffsets
from rmqha.broker.schedule.schedule_message_service import ScheduleMessageService
from rmqha.broker.starting import Starting
from rmqha.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from rmqha.broker.tables.metadata import MetadataService
from rmqha.broker.tables.queue_ends import QueueEnds
from rmqha.broker.tables.retry_topics import RetryTopics
from rmqha.broker.tables.subscription_group_manager import SubscriptionGroupManager
from rmqha.broker.tables.topic_config_manager import TopicConfigManager
from rmqha.broker.transaction.transactions import Transactions
from rmqha.broker.tuning import Tuning
from rmqha.choices import FlushDiskType
from rmqha.codec.host import parse_host
from rmqha.config import BrokerConfig
from rmqha.errors import StoreError
from rmqha.listening import listening_by
from rmqha.remoting.answers_in_turns import AnswersInTurns
from rmqha.remoting.dispatcher import RequestDispatcher
from rmqha.remoting.fence import Fence
from rmqha.remoting.limits import UNSENT_BYTES_MAX
from rmqha.remoting.server import RemotingServer
from rmqha.replication.role import RoleKind
from rmqha.store.config_files import ConfigFiles
from rmqha.store.message_store import DefaultMessageStore
from rmqha.tls import secured
from rmqha.transport import Listener, Network

logger = structlog.get_logger()

_FAST_PORT_DISTANCE: Final = 2
_SERVE_AFTER_S: Final = 10.0
"""A catch-up that takes longer goes on while reads are served, and sends are refused."""


class BrokerController:
    """One broker, master or slave. One object, one life.

    Attributes:
        store: the log and the queues.
        replication: how the log comes to other nodes and from them.
        access: what accounts may.
        fence: keeps each client's requests from harming anybody else, and counts the bugs it met.
        pops: refuses RocketMQ 5's POP, and counts how often.
        server: serves clients; None before it does.
        stopping: set by :meth:`stop`.
        is_recovering: whether the store is being recovered: nothing is served, and the process may end at any moment.
        address: ``ip:port`` told to clients; the port is the bound one once :meth:`run` has started.
    """

    def __init__(
        self,
        config: BrokerConfig,
        store: DefaultMessageStore,
        *,
        replicate: Callable[[MetadataService], Replication],
        network: Network,
        now_ms: Callable[[], int],
        tuning: Tuning,
    ) -> None:
        """Make all other parts; nothing is opened yet.

        Args:
            config: the operator's decisions.
            store: the log, of whatever kind, and the queues.
            replicate: makes what copies the store's log, given the tables that go with it.
            network: the door to clients.
            now_ms: the door to wall-clock time.
            tuning: what no operator decides.
        """
        self.config: Final = config
        self.server: RemotingServer | None = None
        self._clients: Final = trio.CancelScope()
        self._tuning: Final = tuning
        self.address = f"{config.broker_ip1}:{config.listen_port}"
        self._network = secured(network, *options.client_tls(config))
        self.access: Final = ClientAccess(options.permissions(config))
        self._now_ms = now_ms
        self.stopping = trio.Event()
        self.is_recovering = False
        self.role: Final = store.role
        self.store: Final = store
        self.topics: Final = TopicConfigManager(options.topic_rules(config), now_ms=now_ms)
        self.offsets: Final = ConsumerOffsetManager(now_ms=now_ms)
        self.groups: Final = SubscriptionGroupManager(
            self.role, auto_create=config.auto_create_subscription_group, now_ms=now_ms
        )
        self.queue_ends: Final = QueueEnds(self.store)
        delay_offsets = DelayOffsets(lambda: min(store.confirm_offset(), store.flushed_offset))
        self.schedule: Final = ScheduleMessageService(store, delay_offsets, self.topics, now_ms=now_ms)
        self.metadata: Final = MetadataService(
            ConfigFiles(store.disk, f"{config.store_path_root_dir}/config", inside=config.store_path_root_dir),
            self.topics,
            self.offsets,
            self.groups,
            self.queue_ends,
            delay_offsets=delay_offsets,
            interval_s=config.flush_consumer_offset_interval_s,
        )
        self.holds: Final = PullRequestHoldService()
        self.fence: Final = Fence()
        self.pops: Final = PopMessageProcessor()
        self.consumers: Final = ConsumerManager()
        self.producers: Final = ProducerManager()
        self.replication: Final = replicate(self.metadata)
        self.stats: Final = BrokerStatsManager(
            config.broker_cluster_name, self.store.stats, clock=trio.current_time, now_ms=now_ms
        )
        self._connect_store()

    def _connect_store(self) -> None:
        self.store.connect_replication(
            confirmed=self.replication.confirmed_offset,
            kept_from=self.replication.kept_from,
            is_far_behind=self.replication.is_far_behind,
        )
        self.store.connect_consumers(self._on_arrival, is_awaited=self.holds.is_holding)
        self.topics.deleted.connect(self.store.queues, log_begins_at=lambda: self.store.min_offset)
        self.store.queues.on_counted.append(self.stats.note_put)
        self.store.cleaner.before_deleting = self.metadata.save_ends
        if self.access.permissions is not None:
            self.access.permissions.on_read = self.holds.end_all
            self.replication.group.table_troubles = self.access.permissions.refused_tables.told

    def _on_arrival(self, topic: str, queue_id: int, queue_end: int) -> None:
        if queue_end > self.store.queues.deleted_end(topic, queue_id):
            self.topics.learn_queue(topic, queue_id)
        self.holds.notify_message_arriving(topic, queue_id, queue_end)
        self.schedule.on_arrival(topic, queue_id)

    def stop(self) -> None:
        """Begin the shutdown; :meth:`run` returns when everything is answered and safe."""
        self.stopping.set()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run until :meth:`stop`; reports when clients and slaves are served, or when it was stopped before that.

        Raises:
            StoreError: the store cannot be opened, or a peer's log does not continue it.
            OSError: an address cannot be bound.
        """
        dispatcher = RequestDispatcher(options.guard(self.config, self.access.permissions))
        starting = Starting(self.config, self.store.recovery, clock=trio.current_time)
        starting.register(dispatcher)
        async with trio.open_nursery() as listening:
            server = await self._listen(listening, dispatcher)
            listening.start_soon(starting.tell)
            self.is_recovering = True
            self.metadata.load()  # first: what was deleted with its topic is not dispatched again
            await self.store.load_in_thread()
            self.is_recovering = False
            self.offsets.connect(self.store.queues)
            if self.store.role.kind is not RoleKind.SLAVE and self.store.min_offset < self.store.max_offset:
                self.metadata.check_found()
            await self._learn_queues()
            async with trio.open_nursery() as storing:
                await storing.start(self.store.run)
                async with trio.open_nursery() as catching_up:
                    catching_up.start_soon(self.replication.open)
                    await self._wait_caught_up()
                    if self.stopping.is_set():
                        starting.give_up()
                        task_status.started()  # nothing failed, and nobody is served
                    else:
                        self.server = server
                        await self._serve(dispatcher, starting, task_status)
                    catching_up.cancel_scope.cancel()
                self._clients.cancel()
                with suppress(StoreError):  # what is delivered is settled then, and saved as such
                    await self.store.flush_now(self.store.max_offset)
                await self.metadata.save()
                self.store.stop()
        logger.info("broker.stopped", write_error=str(self.store.write_error or "") or None)

    async def _serve(
        self, dispatcher: RequestDispatcher, starting: Starting, task_status: trio.TaskStatus[None]
    ) -> None:
        async with trio.open_nursery() as services:
            await self._start_services(services)
            async with trio.open_nursery() as serving:
                self._register_processors(dispatcher, serving)
                starting.finish(dispatcher)
                self._log_started()
                task_status.started()
                await self.stopping.wait()
                await self.replication.hand_over()
                await self._drain()
                serving.cancel_scope.cancel()
            await self.replication.take_leave()
            services.cancel_scope.cancel()

    async def _start_services(self, nursery: trio.Nursery) -> None:
        await nursery.start(self.replication.run)
        nursery.start_soon(self.holds.run)
        await nursery.start(self.metadata.run)
        nursery.start_soon(self.stats.run)
        if self.access.permissions is not None:
            nursery.start_soon(self.access.permissions.run)

    def _log_started(self) -> None:
        role = self.role.kind.value if self.config.enable_dleger_commit_log else self.config.broker_role.value
        facts = {"address": self.address, "ha_port": self.replication.port, "store": self.config.store_path_root_dir}
        logger.info("broker.started", role=role, **facts, max_offset=self.store.max_offset)

    async def _learn_queues(self) -> None:
        await self.metadata.learn_queues(self.store.queues)
        if self.role.is_master:
            self.topics.expire_deleted()
        self.topics.deleted.drop_all()
        await self.store.recover_topic_queue_table()
        root = self.config.store_path_root_dir
        await tell_undelivered(self.store.queues, self.offsets, disk=self.store.disk, root=root)

    async def _wait_caught_up(self) -> None:
        """Give the catch-up a while before anybody is served; it may last for hours, for which reads need not wait."""

        async def wait_stopping() -> None:
            await self.stopping.wait()
            nursery.cancel_scope.cancel()

        store, begun_at = self.store, self.store.max_offset
        is_member = self.config.enable_dleger_commit_log
        what = "joining its group" if is_member else "asking haPeers for what this log lacks"
        store.recovery.begin(what, done=lambda: store.max_offset - begun_at)
        with trio.move_on_after(_SERVE_AFTER_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait_stopping)
                await self.replication.opened.wait()
                nursery.cancel_scope.cancel()

    async def _listen(self, nursery: trio.Nursery, dispatcher: RequestDispatcher) -> RemotingServer:
        config = self.config
        listener = await self._listen_on(config.listen_port)
        self.address = f"{config.broker_ip1}:{listener.port}"
        limits = options.remoting_limits(config, self._tuning)
        server = RemotingServer(dispatcher, limits=limits, fence=self.fence)
        listeners = [listener]
        if listener.port > _FAST_PORT_DISTANCE:
            listeners.append(await self._listen_beside(listener))
        nursery.start_soon(self._serve_clients, server, listeners)
        return server

    async def _listen_on(self, port: int, *, what: str | None = None) -> Listener:
        with listening_by("listenPort", "bindAddress (brokerIP1, if that is not set)", what=what):
            return await self._network.listen(self.config.bind_address, port, unsent_bytes_max=UNSENT_BYTES_MAX)

    async def _listen_beside(self, listener: Listener) -> Listener:
        what = f"listenPort - {_FAST_PORT_DISTANCE}, which clients use, too"
        try:
            return await self._listen_on(listener.port - _FAST_PORT_DISTANCE, what=what)
        except OSError:
            listener.close()
            raise

    async def _serve_clients(self, server: RemotingServer, listeners: list[Listener]) -> None:
        with self._clients:
            async with trio.open_nursery() as nursery:
                for listener in listeners:
                    nursery.start_soon(server.serve, listener)

    def _register_processors(self, dispatcher: RequestDispatcher, nursery: trio.Nursery) -> None:
        config = self.config
        puts = PutMessageService(self.store, self.topics, self._durability(), refusal=self.replication.refusal)
        nursery.start_soon(puts.run)
        internal_puts = InternalPuts(puts, fence=self.fence)
        send_rules = options.send_rules(config, store_host=parse_host(self.address))
        nursery.start_soon(self.schedule.run, internal_puts, send_rules.store_host, self.replication.opened)
        retries = RetryTopics(self.topics, self.groups)
        SendMessageProcessor(puts, self.topics, retries, rules=send_rules).register(dispatcher)
        SendBackProcessor(self.store, puts, retries, self.access, rules=send_rules).register(dispatcher)
        rules = options.transaction_rules(config, store_host=send_rules.store_host)
        transactions = Transactions(
            self.store, self.topics, self.offsets, puts, internal_puts, self.producers, self.access,
            rules=rules, now_ms=self._now_ms,
        )  # fmt: skip
        transactions.register(dispatcher)
        nursery.start_soon(transactions.run)
        ReplyMessageProcessor(
            self.producers, self.topics, internal_puts, rules=send_rules, now_ms=self._now_ms
        ).register(dispatcher)
        self._register_pulls(dispatcher)
        QueryProcessor(self.store, self.offsets, self.holds, rules=options.pull_rules(config)).register(dispatcher)
        QueryMessageProcessor(self.store).register(dispatcher)
        clients = ConnectedClients(
            config,
            self.store,
            self.topics,
            self.groups,
            self.consumers,
            self.producers,
            self.access,
            now_ms=self._now_ms,
        )
        clients.register(dispatcher, broker_name=self.replication.group.broker_name)
        nursery.start_soon(clients.run)
        MetadataProcessor(self.metadata, self.producers).register(dispatcher)
        names = own_name_service(
            config, self.topics, self.replication, self.metadata.files, address=lambda: self.address
        )
        names.register(dispatcher)
        nursery.start_soon(names.run)
        self._register_admin(dispatcher)

    def _register_pulls(self, dispatcher: RequestDispatcher) -> None:
        PullMessageProcessor(
            self.store, self.topics, self.groups, self.consumers, self.offsets, self.holds, self.access,
            self.replication, rules=options.pull_rules(self.config), stats=self.stats,
        ).register(dispatcher)  # fmt: skip
        self.pops.register(dispatcher)

    def _register_admin(self, dispatcher: RequestDispatcher) -> None:
        """What mqadmin asks for."""
        assert self.server is not None
        status = BrokerStatus(
            self.config,
            self.store,
            self.replication,
            tables=self.metadata,
            fence=self.fence,
            stats=self.stats,
            address=self.address,
            clock=trio.current_time, now_ms=self._now_ms,
            permissions=self.access.permissions, crowded=self.server.crowded,
        )  # fmt: skip
        status.more.append(self.schedule.running_stats)
        RuntimeInfoProcessor(status, self.stats, self.replication.group, clock=trio.current_time).register(dispatcher)
        broker_name, turns, saves = self.replication.group.broker_name, AnswersInTurns(), AnswersInTurns()
        AdminBrokerProcessor(self.config, self.store, self.topics, self.replication).register(dispatcher)
        AclConfigProcessor(self.config, self.access, broker_name=broker_name, address=self.address,
                           now_ms=self._now_ms).register(dispatcher)  # fmt: skip
        TopicAdminProcessor(self.store, self.topics, self.stats, answers=saves).register(dispatcher)
        SubscriptionGroupProcessor(self.metadata, self.stats, self.role, answers=saves).register(dispatcher)
        TopicStatsProcessor(
            self.store, self.metadata, self.consumers, broker_name=broker_name, answers=turns, now_ms=self._now_ms
        ).register(dispatcher)
        ConsumeAdminProcessor(self.store, self.metadata, self.consumers, self.stats, broker_name=broker_name,
                              address=self.address, answers=turns).register(dispatcher)  # fmt: skip

    def _durability(self) -> Durability:
        config, flush = self.config, None
        if config.flush_disk_type is FlushDiskType.SYNC_FLUSH:
            flush = FlushPromise(self.store.flushed, self.store.request_flush, config.sync_flush_timeout_s)
        stats = self.store.stats
        return Durability(
            self.store, clock=trio.current_time, flush=flush, replica=self.replication.promise,
            note_time=stats.put_times.add,
            note_unsafe=UnsafeAnswers(stats.note_unsafe, clock=trio.current_time).note,
        )  # fmt: skip

    async def _drain(self) -> None:
        """Let everything in flight be answered, held pulls at once."""
        self.holds.release_all()
        assert self.server is not None
        await self.server.close(grace_s=self.config.drain_timeout_s)
