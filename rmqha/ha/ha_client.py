"""HAClient: the slave's side. It connects, replicates, and comes back when that ends."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from itertools import chain, repeat
from typing import Final, NamedTuple, assert_never

import structlog
import trio

from rmqha.codec.host import join_address
from rmqha.codec.transfer import encode_report
from rmqha.errors import DivergedLogError, RemoteProtocolError, StoreError, StoreReadError
from rmqha.ha.log_receiver import own_tail
from rmqha.ha.options import HAClientOptions
from rmqha.ha.replicated_log import ReplicatedLog
from rmqha.ha.runtime_info import ClientState, HAClientInfo
from rmqha.ha.slave_connection import SlaveConnection, UnfitMasterError
from rmqha.log_limit import LogLimit
from rmqha.replication.backoff import Backoff
from rmqha.replication.group import GroupMember
from rmqha.replication.master_session import LogRange
from rmqha.replication.overlap import SlaveAhead, SlaveBelowMin, StreamStart, choose_start
from rmqha.replication.slave_session import CorruptStreamError
from rmqha.transport import Network

logger = structlog.get_logger()

_MEET_AFTER_S: Final = 2.0
_MEET_AGAIN_S: Final = 30.0
_SAY_AGAIN_S: Final = 10.0
_BEGIN_KNOWN_WITHIN_S: Final = 20.0
"""RocketMQ's HA port opens before its remoting port, and by itself gives an empty slave the last file alone."""
_UNFIT_STATES: Final = frozenset({ClientState.AHEAD, ClientState.BELOW_MIN, ClientState.MISCONFIGURED})
_KEPT_STATES: Final = _UNFIT_STATES | {ClientState.DISK_FULL}
"""They stay what an operator sees while it is tried again."""
_FINAL_STATES: Final = frozenset({ClientState.DIVERGED, ClientState.FAILED})


class MasterAddress(NamedTuple):
    """Where a broker's HA port is."""

    host: str
    port: int

    def __str__(self) -> str:
        return join_address(self.host, self.port)


class BrokerStartingError(RemoteProtocolError):
    """The broker that was probed is there, and cannot say yet what its log holds: ask again."""


ProbeMaster = Callable[[MasterAddress], Awaitable[LogRange | None]]
"""Asks the broker with this HA address, by remoting (code 28), what its log holds; None if it does not say.

Raises BrokerStartingError.
"""


Introduce = Callable[[MasterAddress, int], Awaitable[LogRange | None]]
"""As :data:`ProbeMaster`, and tells the broker that the HA connection from this local port is ours."""


async def ask_nobody(_address: MasterAddress) -> LogRange | None:
    """A :data:`ProbeMaster` for where no remoting address is known."""
    return None


Meet = Callable[[GroupMember], str]
"""Says why not to follow this master; empty if there is no reason."""


def trust_anybody(_master: GroupMember) -> str:
    """A :data:`Meet` for where nothing is known of the group."""
    return ""


async def choose_start_at(log: ReplicatedLog, master: LogRange | None, *, overlap_size: int) -> StreamStart:
    """Where to begin a stream that continues ``log``.

    Raises:
        UnfitMasterError: the master is shorter, or begins later.
        CorruptLogError: the local log does not end with a whole record.
    """
    start = choose_start(await own_tail(log, overlap_size=overlap_size), master)
    match start:
        case StreamStart():
            return start
        case SlaveAhead(by):
            raise UnfitMasterError(
                ClientState.AHEAD,
                f"the master's log ends {by} bytes before this one, which ends at {log.max_offset}: it lost its tail. "
                "Nothing is cut here; let the master catch up from this slave (haPeers) before it takes messages",
            )
        case SlaveBelowMin(min_offset):
            raise UnfitMasterError(
                ClientState.BELOW_MIN,
                f"the master's log begins at {min_offset} by now, but this one ends at {log.max_offset}: nothing "
                "of it is left there to compare with. Move this store away and start empty",
            )
        case _:
            assert_never(start)


async def show_face(network: Network, address: MasterAddress, *, limit_s: float) -> None:
    """Come to the HA port of a broker of ours, and report nothing."""
    with suppress(OSError, RemoteProtocolError, trio.BrokenResourceError), trio.move_on_after(limit_s):
        stream = await network.connect(address.host, address.port, timeout_s=limit_s)
        try:
            await stream.send_all(bytes(1))  # less than a report
        finally:
            stream.close()


class HAClient:
    """Follows one master at a time, for the life of a slave.

    Start: ``nursery.start_soon(client.run)``, and tell it the master with :meth:`update_master_address`.
    :meth:`run` returns when replication is over for good because the logs diverged or the local store failed;
    ``final_error`` says why. Stop: cancel it.

    Source: rocketmq-all-4.9.8 HAService.java:342-600; spec: ha §3, §8-§11.
    """

    def __init__(
        self,
        log: ReplicatedLog,
        network: Network,
        *,
        options: HAClientOptions,
        chance: Callable[[], float],
        probe_master: ProbeMaster = ask_nobody,
        introduce: Introduce | None = None,
        meet: Meet = trust_anybody,
    ) -> None:
        self._log: Final = log
        self._network: Final = network
        self._options: Final = options
        self._probe_master: Final = probe_master
        self._introduce: Final = introduce or (lambda address, _port: probe_master(address))
        self._meet: Final = meet
        self._backoff: Final = Backoff(chance)
        self._address: MasterAddress | None = None
        self._address_known: Final = trio.Event()
        self._is_masters_ours = False
        """Whether it said so when it was asked last that it is no broker of RocketMQ's."""
        self._attempt = trio.CancelScope()
        self._state = ClientState.NO_MASTER
        self._last_error = self._told_error = ""
        self._is_told_connected = False
        self._lines: Final = LogLimit()
        """Who gives a little and closes is followed by the next connection at once."""
        self._has_warned = False
        self.final_error: StoreError | None = None
        """Why replication is over for good, if it is: the process's exit code tells of it."""
        self.on_link: Callable[[], None] = lambda: None
        """Called when :attr:`is_joined` begins to be true, and when it does not hold any more."""
        self._connection: SlaveConnection | None = None
        self._reported_offset = -1
        self._connections = 0
        self._corrupt_streams = 0
        self._diverged_at: int | None = None
        self._untold_since: float | None = None
        """Since when an empty log waits for this master to say where its own begins."""
        self._has_told_of_begin = False
        self._apart_since: float | None = None
        """Since when no master is followed, once :meth:`run` has begun; this is made before there is an event loop."""

    def update_master_address(self, host: str, port: int) -> None:
        """Follow the master at this address; a connection to another one is closed (spec: ha §15 row 20)."""
        address = MasterAddress(host, port)
        if address != self._address:
            self._address, self._untold_since, self._has_told_of_begin = address, None, False
            self._state = ClientState.NO_MASTER if self._state in _UNFIT_STATES else self._state
            self._address_known.set()
            self._attempt.cancel()

    async def run(self) -> None:
        """Follow the master until cancelled, or until that can never go on."""
        self._apart_since = trio.current_time()
        try:
            await self._address_known.wait()
            while self._state not in _FINAL_STATES:
                with trio.CancelScope() as self._attempt:
                    await self._attempt_once()
                    if self._state not in _FINAL_STATES:
                        await trio.sleep(self._backoff.next_pause_s())
        finally:
            if self._state not in _FINAL_STATES:
                self._state = ClientState.STOPPED

    async def _attempt_once(self) -> None:
        """Connect and replicate until that ends; afterwards the state says how it stands."""
        assert self._address is not None, "run() waits for an address first"
        if self._state not in _KEPT_STATES:
            self._state = ClientState.CONNECTING
        try:
            await self._follow(self._address)
        except DivergedLogError as error:
            self._diverged_at = error.offset
            self._give_up(ClientState.DIVERGED, error)
        except StoreReadError as error:  # nothing is broken by it, and the next attempt may find it there
            self._pause(ClientState.WAITING, error)
        except StoreError as error:
            self._give_up(ClientState.FAILED, error)
        except UnfitMasterError as error:
            self._pause(error.state, error)
        except (RemoteProtocolError, OSError, trio.BrokenResourceError) as error:
            self._corrupt_streams += isinstance(error, CorruptStreamError)
            is_ahead = self._state is ClientState.AHEAD  # still, with a master that is gone: what lies here alone is
            self._pause(self._state if is_ahead else ClientState.WAITING, error)

    def _give_up(self, state: ClientState, error: StoreError) -> None:
        self._state, self._last_error, self.final_error = state, str(error), error
        logger.error("ha_client.stopped", state=state.value, master=str(self._address), reason=str(error))

    def _pause(self, state: ClientState, error: Exception) -> None:
        """Note why to wait; logged when that changes, not at every attempt (spec: ha §15 row 15), or all went well."""
        if str(error) != self._told_error and self._lines.take(now=trio.current_time()):
            self._told_error, self._is_told_connected = str(error), False
            logger.warning("ha_client.disconnected", state=state.value, master=str(self._address), reason=str(error))
        self._state, self._last_error = state, str(error)

    async def _follow(self, address: MasterAddress) -> None:
        options = self._options
        master = await self._ask(self._probe_master(address))
        self._is_masters_ours = master is not None and master.checks_reports
        try:
            is_known = self._check_group(master)
        except UnfitMasterError:
            await self.show_face()
            raise
        if not is_known:
            self._meet(GroupMember())
        if master is None and self._log.min_offset == self._log.max_offset and self._probe_master is not ask_nobody:
            await self._await_begin(address)
        try:
            start = await choose_start_at(self._log, master, overlap_size=options.overlap_size)
        except UnfitMasterError:
            if master is not None and master.checks_reports:
                await self._show_up(address)
            raise
        if lack := self._log.lack_of_room:  # a master counts on who connects, and gives up on one that does not read
            await self.show_face()
            raise UnfitMasterError(ClientState.DISK_FULL, f"nothing can be taken here: {lack}")
        stream = await self._network.connect(address.host, address.port, timeout_s=options.connect_timeout_s)
        started_at, end = trio.current_time(), self._log.max_offset
        self._connections += 1
        connection = self._connection = SlaveConnection(
            self._log,
            stream,
            start=start,
            options=options,
            silence_max_s=options.ha_housekeeping_interval_s,
            beside=partial(self._meet_master, address, stream.local_port),
            on_joined=self.on_link,
        )
        log = logger.debug if self._is_told_connected else logger.info
        log("ha_client.connected", master=str(address), first_report=start.first_report)
        self._is_told_connected = True
        try:
            await connection.run()
        finally:
            stream.close()
            self._connection = None
            self._reported_offset = connection.reported_offset
            has_lasted = trio.current_time() - started_at >= options.ha_housekeeping_interval_s
            if self._log.max_offset > end or (has_lasted and not connection.session.is_comparing):
                self._backoff.on_progress()
                self._told_error = ""
            if not connection.session.is_comparing:
                self._state, self._apart_since = ClientState.WAITING, trio.current_time()
                self.on_link()

    async def _ask(self, question: Awaitable[LogRange | None]) -> LogRange | None:
        try:
            return await question
        except BrokerStartingError:
            return None  # perhaps a neighbour is starting; the broker with this HA port answers there

    def _check_group(self, master: LogRange | None) -> bool:
        """Whether the master has said who it is. Raises UnfitMasterError if it is of another group."""
        if master is None or master.member is None:
            return False
        if why := self._meet(master.member):
            raise UnfitMasterError(ClientState.MISCONFIGURED, f"this master is not followed: {why}")
        return True

    async def _await_begin(self, address: MasterAddress) -> None:
        """Raises RemoteProtocolError while the master may be starting, and say later where its log begins.

        That counts from when its HA port takes connections, and anew once it does not: what connect raises is raised.
        """
        since, self._untold_since = self._untold_since, None
        stream = await self._network.connect(address.host, address.port, timeout_s=self._options.connect_timeout_s)
        stream.close()
        now = trio.current_time()
        self._untold_since = now if since is None else since
        if self._untold_since + _BEGIN_KNOWN_WITHIN_S > now:
            reason = "this log is empty, and the master does not say by remoting (request 28) where its own begins"
            raise RemoteProtocolError(f"{reason}: it is asked again, for {_BEGIN_KNOWN_WITHIN_S:g} s in all")
        if not self._has_told_of_begin:
            self._has_told_of_begin = True
            what = "a RocketMQ master gives an empty slave that cannot ask where its log begins the last file alone"
            facts = {"master": str(address), "waited_s": round(now - self._untold_since)}
            logger.warning("ha_client.begin_unknown", **facts, reason=what, next="let it answer, and begin anew, empty")

    async def _meet_master(self, address: MasterAddress, local_port: int) -> None:
        """Tell a master that is followed whose connection this is, one of RocketMQ's until it says who it is.

        At first it may not say so, nor serve this connection yet: it is told twice at least. One of ours may forget it.
        """
        is_known = is_ours = False
        for pause_s in chain((0.0, _MEET_AFTER_S), repeat(_MEET_AGAIN_S)):
            await trio.sleep(_SAY_AGAIN_S if is_ours and pause_s == _MEET_AGAIN_S else pause_s)
            master = await self._ask(self._introduce(address, local_port))
            is_known = self._check_group(master) or is_known
            is_ours = is_known and (is_ours or (master is not None and master.checks_reports))
            self._is_masters_ours = self._is_masters_ours or is_ours
            if is_known and pause_s and not is_ours:
                break
            if pause_s and not is_known and not self._has_warned:
                self._has_warned = True
                reason = "it does not say by remoting what its brokerName, brokerId and mappedFileSizeCommitLog are"
                logger.warning("ha_client.group_unknown", master=str(address), reason=reason)
        await trio.sleep_forever()

    async def _show_up(self, address: MasterAddress) -> None:
        """Let a master turn this log away, so that its operator sees it, too (spec: ha §10, rule 1)."""
        limit_s = self._options.connect_timeout_s
        with suppress(OSError, trio.BrokenResourceError), trio.move_on_after(limit_s):
            stream = await self._network.connect(address.host, address.port, timeout_s=limit_s)
            try:
                await stream.send_all(encode_report(self._log.max_offset))
                await stream.receive_into(memoryview(bytearray(1)))  # until it ends the connection
            finally:
                stream.close()

    async def show_face(self) -> None:
        """Come to the master's HA port, and report nothing: what others tell it of themselves (28) does not count."""
        if self._address is not None and self._is_masters_ours:
            await show_face(self._network, self._address, limit_s=self._options.connect_timeout_s)

    @property
    def is_joined(self) -> bool:
        """Whether a master is connected whose log goes on with this one: its end was compared."""
        return self._connection is not None and not self._connection.session.is_comparing

    @property
    def is_apart(self) -> bool:
        """Whether the master's log is known not to go on with this one: nothing of the master's belongs to it."""
        return self._state_now(self._connection) in _UNFIT_STATES | _FINAL_STATES

    def is_far_behind(self) -> bool:
        """Whether the local log lacks a lot of what the master has, and is getting it."""
        return self._connection is not None and self._connection.is_far_behind

    def info(self) -> HAClientInfo:
        """Replication as an operator sees it."""
        log, connection = self._log, self._connection
        session = None if connection is None else connection.session
        return HAClientInfo(
            state=self._state_now(connection),
            master=None if self._address is None else str(self._address),
            last_error=self._last_error,
            received_offset=log.max_offset if session is None else max(session.position, log.max_offset),
            verified_offset=log.max_offset,
            durable_offset=log.flushed.value,
            reported_offset=self._reported_offset if connection is None else connection.reported_offset,
            heard_s_ago=None if connection is None else connection.heard_s_ago,
            connections=self._connections,
            corrupt_streams=self._corrupt_streams,
            diverged_at=self._diverged_at,
            apart_s=self._apart_s,
        )

    @property
    def _apart_s(self) -> float | None:
        since = self._apart_since
        return None if since is None or self.is_joined else trio.current_time() - since

    def _state_now(self, connection: SlaveConnection | None) -> ClientState:
        if connection is None:
            return self._state
        is_unfit = self._state in _UNFIT_STATES
        return self._state if is_unfit and connection.session.is_comparing else connection.state
