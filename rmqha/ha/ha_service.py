"""HAService: what a broker does for the slaves that connect to it. A slave runs one too, for slaves of its own."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Final

import structlog
import trio

from rmqha.codec.host import address_of, host_of
from rmqha.ha.accept_socket_service import AcceptSocketService
from rmqha.ha.departed_replicas import DepartedReplicas
from rmqha.ha.group_transfer_service import GroupTransferService
from rmqha.ha.ha_connection import HAConnection
from rmqha.ha.in_sync_watch import InSyncWatch
from rmqha.ha.options import HAOptions
from rmqha.ha.refused_peers import RefusedPeers
from rmqha.ha.replicated_log import ReplicatedLog
from rmqha.ha.runtime_info import ConnectionInfo, DepartedInfo, HAServiceInfo
from rmqha.listening import listening_by
from rmqha.log_limit import LogLimit
from rmqha.replication.in_sync import InSyncReplicas
from rmqha.replication.master_session import Refusal, RefusedSlaveError
from rmqha.replication.progress import EndHistory
from rmqha.replication.slave_identity import SlaveIdentity
from rmqha.replication.watermark import Watermark
from rmqha.transport import Network, Stream

logger = structlog.get_logger()

_HOSTS_MAX: Final = 256
_HEARD_FOR_S: Final = 30.0
"""A slave that cannot follow comes every ten seconds, or more often."""
_WENT_BAD: Final = frozenset({Refusal.SILENT, Refusal.STUCK})
"""Said of a connection, not of a slave or its log."""
_LEAVE_TAKING_S: Final = 1.0
_LOOKS_AGAIN_S: Final = 0.02
_LACKS_ALONE: Final = (
    "no slave is known to hold all of this log: what they lack is on this disk alone, and is lost to consumers if one "
    "of them becomes master. Start this broker again, and wait for 'rmqha status --wait in-sync', before that"
)
_LACKS_BESIDE_OTHERS: Final = "{} other slave(s) hold all of this log: if one becomes master, take one of those"


async def _send_at_once(_connection: HAConnection) -> None:
    """Nobody is looked at first."""


class HAService:
    """Serves the log to slaves and counts their acknowledgements.

    Start: ``await nursery.start(service.run)`` returns once slaves are accepted. Stop: :meth:`stop` or cancel it.
    Sends that still wait for replication are then answered, and all connections are closed.

    Source: rocketmq-all-4.9.8 HAService.java:40-158.
    """

    def __init__(self, log: ReplicatedLog, network: Network, options: HAOptions) -> None:
        self.log: Final = log
        self.options: Final = options
        self.settings: Final = options.session_settings(log.file_size)
        self.sendable: Final[Watermark] = log.flushed if options.ha_send_durable_only else log.wrote
        """Slaves get what is below it: a slave never knows what this master may still forget, if so wished."""
        self.history: Final = EndHistory()
        self.connections: Final[dict[Stream, HAConnection]] = {}
        """By what they run on: two of them may have the same peer, or none that is known."""
        self.port = options.ha_listen_port
        self._network: Final = network
        self._in_sync: Final = InSyncReplicas(options.in_sync_replicas, options.ha_slave_fallbehind_max)
        self.in_sync_watch: Final = InSyncWatch(self._in_sync.slaves_needed)
        self.group_transfer: Final = GroupTransferService(self._in_sync, log.flushed)
        self.log_limit: Final = LogLimit()
        self._refused: Final = RefusedPeers(self.log_limit)
        self._hosts: Final[dict[str, None]] = {}
        """Those of peers, and the last ones from which slaves came, and acknowledged what they were sent."""
        self._heard: Final[dict[str, float]] = {}
        """The last ones from which a connection came on which something was said, and when that ended."""
        self.on_slave_ahead: Callable[[], None] = lambda: None
        """Told of each slave that was turned away since it reports more than the log here holds."""
        self.before_sending: Callable[[HAConnection], Awaitable[None]] = _send_at_once
        """Awaited once a slave has reported; RefusedSlaveError: it is sent nothing, and turned away."""
        self.is_begin_awaited: Callable[[], bool] = lambda: False
        """Whether the log is empty, and a peer's is to be taken, which may begin at any offset."""
        self.departed: Final = DepartedReplicas()
        self._bug_limit: Final = LogLimit()
        self.bugs = 0
        """How many connections ended by an error that nobody raises on purpose."""
        log.wrote.on_cut(self._on_cut)
        self._scope: Final = trio.CancelScope()
        self._accepting: Final = AcceptSocketService(
            self._serve,
            allow=options.ha_allow,
            connections_max=options.max_ha_connections,
            per_address_max=options.max_ha_connections_per_address,
            refused=self._refused,
            is_proven=self._is_proven,
            knows=self._hosts.__contains__,
            on_bug=self.on_bug,
        )

    async def run(self, *, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED) -> None:
        """Listen and serve until stopped; reports the bound port when it listens.

        Raises:
            OSError: the address cannot be bound.
        """
        self.in_sync_watch.begin(now=trio.current_time())
        with self._scope:
            with listening_by("haListenPort", "haBindAddress"):
                listener = await self._network.listen(self.options.ha_bind_address, self.options.ha_listen_port)
            self.port = listener.port
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self.group_transfer.run)
                nursery.start_soon(self._accepting.run, listener)
                logger.info("ha_service.started", host=self.options.ha_bind_address, port=self.port)
                task_status.started(self.port)
        logger.info("ha_service.stopped", port=self.port)

    def stop(self) -> None:
        """Close the port and all connections; answer the sends that wait."""
        self._scope.cancel()

    async def _serve(self, stream: Stream) -> None:
        connection = HAConnection(self, stream)
        peer, address = connection.peer, host_of(connection.peer)
        self.connections[stream] = connection
        self._in_sync.add(connection.replica)
        logger.debug("ha_connection.opened", peer=peer)  # a stranger's is not worth a line; see transfer_started
        try:
            await connection.run()
        finally:
            del self.connections[stream]
            self._in_sync.remove(connection.replica)
            if connection.has_spoken:
                self._heard.pop(address, None)
                self._heard[address] = trio.current_time()
            if len(self._heard) > _HOSTS_MAX:
                del self._heard[next(iter(self._heard))]
        if not connection.is_held:
            self._on_left(connection)
        if connection.refusal is not None:
            self._on_refused(connection, connection.refusal)
        elif not connection.is_held:
            self._refused.forget(address)

    def _on_refused(self, connection: HAConnection, error: RefusedSlaveError) -> None:
        """A connection was ended from here. A slave whose connection went bad is departed, or back; not turned away."""
        went_bad, now = error.refusal in _WENT_BAD and connection.session.is_transferring, trio.current_time()
        if went_bad and self._is_back(connection):
            return
        if error.refusal is Refusal.AHEAD:
            self.on_slave_ahead()
        is_news = (
            self.log_limit.take(now=now) if went_bad else self._refused.note(host_of(connection.peer), error, now=now)
        )
        if is_news:
            logger.warning(
                "ha_connection.refused", peer=connection.peer, refusal=error.refusal.value, reason=str(error)
            )

    def _is_back(self, connection: HAConnection) -> bool:
        """Whether the slave of a connection that ended has another one."""
        who = connection.replica.who
        return any(not other.is_held and other.replica.who.may_be(who) for other in self.connections.values())

    async def take_leave(self) -> None:
        """Give the slaves that follow a moment to take the end of the log; warn of each that lacks some of it."""
        end = self.log.max_offset
        with trio.move_on_after(_LEAVE_TAKING_S):
            while any(not one.is_held and one.session.slave_ack_offset < end for one in self.connections.values()):  # noqa: ASYNC110
                await trio.sleep(_LOOKS_AGAIN_S)
        info = self.info()
        present = [one for one in info.connections if one.slave_ack_offset >= 0]
        slaves: list[ConnectionInfo | DepartedInfo] = [*present, *info.departed]
        whole = [one.name for one in slaves if one.slave_ack_offset >= end]
        for one in slaves:
            if one.slave_ack_offset < end and not (one.name and one.name in whole):
                logger.warning(
                    "ha_service.slave_left_behind",
                    slave=one.name or one.peer,
                    peer=one.peer,
                    away_s=round(one.last_s_ago, 3) if isinstance(one, DepartedInfo) else None,
                    lacks_bytes=end - max(one.slave_ack_offset, 0),
                    slave_ack_offset=one.slave_ack_offset,
                    max_offset=end,
                    meaning=_LACKS_BESIDE_OTHERS.format(len(whole)) if whole else _LACKS_ALONE,
                )

    def on_joined(self, connection: HAConnection) -> None:
        """A slave has reported for the first time over this connection."""
        connection.on_returned(self.departed.forget(connection.replica.who))
        self._refused.on_back(host_of(connection.peer))
        self.in_sync_watch.on_joined(self.live_slaves, now=trio.current_time())

    def on_taken(self, connection: HAConnection) -> None:
        """A slave has acknowledged what it was sent over this connection, for the first time."""
        self.know_host(host_of(connection.peer))

    def know_host(self, host: str) -> None:
        """Slaves come from there, and give way to strangers last while they have yet to prove themselves."""
        self._hosts.pop(host, None)
        self._hosts[host] = None
        if len(self._hosts) > _HOSTS_MAX:
            del self._hosts[next(iter(self._hosts))]

    def _on_cut(self, end: int) -> None:
        """The log's tail is gone. Who was sent any of it has to compare again, and has acknowledged nothing here."""
        for connection in self.connections.values():
            if connection.session.next_transfer_from_where > end:
                self._in_sync.remove(connection.replica)
                connection.end(f"the log here was cut at {end}, and this slave was sent more")
        self.group_transfer.cut(end)

    def _on_left(self, connection: HAConnection) -> None:
        """A slave's connection has ended by itself; it may have another one already.

        Of a slave, one that never said its name was its master's, which has caught up: it is no slave that is missed.
        """
        is_master = self.options.is_slave and not connection.replica.who.name
        if is_master or self._is_back(connection):
            return
        now = trio.current_time()
        who, peer, acked = connection.replica.who, connection.peer, connection.session.slave_ack_offset
        reason = connection.ended
        if not connection.session.has_taken:
            reason += "; it took nothing: if it does not come back, its own status says what it found"
        lag_s = connection.lag_s(now=now)
        self.departed.note(who, peer=peer, slave_ack_offset=acked, reason=reason, now=now, lag_s=lag_s)
        self.in_sync_watch.on_left(
            self.live_slaves, peer=peer, name=who.name, slave_ack_offset=acked, reason=reason, now=now
        )

    def _is_proven(self, stream: Stream) -> bool:
        connection = self.connections.get(stream)
        return connection is not None and connection.session.is_following(now=trio.current_time())

    def on_bug(self, error: Exception, peer: str) -> str:
        """Count an error that is a bug here, log it with its traceback, and return why its connection ends."""
        self.bugs += 1
        if self._bug_limit.take(now=trio.current_time()):
            logger.error("ha_connection.broken", peer=peer, reason=repr(error), exc_info=error)
        return f"a bug of this broker, see ha_connection.broken in its log: {error!r}"

    @property
    def push2_slave_max_offset(self) -> int:
        """The largest acknowledgement of any live connection; 0 without one."""
        return self._in_sync.push2_slave_max_offset()

    def reported_of(self, name: str) -> int:
        """What the slave of that name, ``brokerName/brokerId``, holds; 0 if none that may be it is connected."""
        return self._in_sync.reported_of(name)

    def name_slave(self, host: str, port: int, name: str) -> None:
        """The slave whose connection comes from ``port`` of ``host`` is called ``name``, as somebody there says.

        What was said last counts: others there might make two slaves one by it, until the slave says its own again.
        """
        where = SlaveIdentity(host).host, str(port)
        for connection in self.connections.values():
            who = connection.replica.who
            if who.name != name and (who.host, address_of(connection.peer)[1]) == where:
                connection.replica.who = replace(who, name=name)
                if not connection.is_held:
                    self._on_known(connection)

    def _on_known(self, connection: HAConnection) -> None:
        """A slave that follows has said its name: it counts from now on, or turns out to be one with another."""
        who, now = connection.replica.who, trio.current_time()
        connection.on_returned(self.departed.forget(who))
        self.in_sync_watch.on_joined(self.live_slaves, now=now)
        self.in_sync_watch.on_left(
            self.live_slaves,
            peer=connection.peer,
            name=who.name,
            slave_ack_offset=connection.session.slave_ack_offset,
            reason="it has said its name, which another connection has, too: they are one slave",
            now=now,
        )
        self.group_transfer.notify_transfer_some()

    def slave_addresses(self) -> list[tuple[str, str]]:
        """Host and port of each slave's connection."""
        return [address_of(one.peer) for one in self.connections.values() if one.session.is_transferring]

    def hosts_heard(self) -> set[str]:
        """From where connections come on which something was said, or came half a minute ago at most."""
        since = trio.current_time() - _HEARD_FOR_S
        heard = {host for host, ended_at in self._heard.items() if ended_at > since}
        return heard | {host_of(one.peer) for one in self.connections.values() if one.has_spoken}

    @property
    def live_slaves(self) -> int:
        """How many distinct slaves are connected and have reported."""
        return self._in_sync.live_slaves

    def is_slave_ok(self, next_offset: int) -> bool:
        """Whether enough slaves are there, and close enough, to wait for them to acknowledge ``next_offset``."""
        return self.group_transfer.is_slave_ok(next_offset)

    def notify_transfer_some(self, connection: HAConnection) -> None:
        """Hot path: a live connection reported more, or the same again."""
        session = connection.session
        self._in_sync.acknowledge(connection.replica, session.slave_ack_offset, begins_at=session.proves_from)
        self.group_transfer.notify_transfer_some()

    def oldest_needed_offset(self) -> int | None:
        """The lowest offset a connected slave has not acknowledged; cleaning should spare it. None: no slave."""
        acked = [c.session.slave_ack_offset for c in self.connections.values() if c.session.is_transferring]
        return min(acked, default=None)

    def info(self) -> HAServiceInfo:
        """Replication as an operator sees it."""
        return HAServiceInfo(
            port=self.port,
            heartbeat_s=self.settings.heartbeat_s,
            connections=tuple(connection.info() for connection in self.connections.values()),
            connections_broken=self.bugs,
            refused=self._refused.info(now=trio.current_time()),
            departed=self.departed.info(now=trio.current_time()),
            push2_slave_max_offset=self.push2_slave_max_offset,
            live_slaves=self.live_slaves,
            below_needed_s=self.in_sync_watch.below_s(now=trio.current_time()),
            replicated_offset=self._in_sync.value(),
            proven_offset=self.group_transfer.proven_offset,
            refusals={refusal.value: count for refusal, count in self._refused.counts.items()},
        )
