"""One machine of the simulated cluster: a disk that stays, and processes that come and go."""

from copy import copy
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import trio

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.classic.classic_broker import make_classic_broker
from rmqha.broker.classic.classic_replication import ClassicReplication
from rmqha.broker.tuning import Tuning
from rmqha.config import BrokerConfig, load_config
from rmqha.errors import StoreWriteError
from rmqha.ha.ha_client import MasterAddress
from rmqha.replication.master_session import LogRange
from rmqha.replication.peer_knowledge import PeerState
from tests.sim.journal import NodeDied
from tests.sim.sim_clock import WallClock, stream
from tests.sim.sim_disk import SimDisk
from tests.sim.swarm import DELAY_LEVELS_S, Swarm

if TYPE_CHECKING:
    from tests.sim.world import World

LISTEN_PORT: Final = 10911
HA_PORT: Final = 10912
STORE: Final = "/store"
CHECKPOINT: Final = f"{STORE}/checkpoint"
_BEGAN_EMPTY: Final = f"{STORE}/beganEmpty"
_UNHEARD: Final = frozenset({PeerState.UNASKED.value, PeerState.UNKNOWN.value, PeerState.STARTING.value})
_UNCHECKED: Final = ((12, 28), (36, 84))
"""A record's QUEUEID to QUEUEOFFSET, and SYSFLAG to PREPARED TRANSACTION OFFSET, with IPv4 hosts."""
_FIELDS_END: Final = 88
_RESTART_S: Final = 2.0
"""A process that could not start is started again after so long, as systemd would."""


class Process:
    """One life of a broker on a node."""

    def __init__(
        self, node: "SimNode", broker: BrokerController, *, is_master: bool, previous: "Process | None"
    ) -> None:
        self.node: Final = node
        self._previous = previous
        """The process before, if it ended in order, on a disk that refused nothing, and had the same role."""
        self.broker: Final = broker
        assert isinstance(broker.replication, ClassicReplication)
        self.replication: Final = broker.replication
        self.is_master: Final = is_master
        self.scope: Final = trio.CancelScope()
        self.dead = False
        self.is_stopping = False
        self.recovered = False
        self.has_stored = False
        self.said = 0
        """Where it reported, as a slave, that its log ends, at most; only noted where ``haAck`` is not ``durable``."""
        self.longer_peers: Final[dict[Process, list[tuple[int, int]]]] = {}
        """Peers that have said that they hold more than this process: each time where its log ended, and theirs."""
        self.started = trio.Event()

    def on_told(self, peer: "Process", end: int) -> None:
        """A peer says where its log ends; this counts unless it is what this process has itself, and may have sent."""
        own_end = self.broker.store.max_offset
        told = [one for one in self.longer_peers.get(peer, []) if one[1] <= end]
        self.longer_peers[peer] = [*told, (own_end, end)] if end > own_end else told

    def remembers(self, process: "Process") -> bool:
        """Whether this one knows what that one was told."""
        return process is self or process is self._previous

    @property
    def hides_a_doubt(self) -> bool:
        """Whether this log began empty, peers were not heard, and this process or the next one does not know."""
        catch_up, is_noted = self.replication.catch_up, _BEGAN_EMPTY in self.node.disk.files
        if catch_up.unheard:
            return not is_noted
        peers = catch_up.info()
        return is_noted and bool(peers) and all(peer["state"] in _UNHEARD for peer in peers)

    @property
    def write_error(self) -> StoreWriteError | None:
        """Why this process acknowledges nothing any more."""
        return self.broker.store.write_error

    @property
    def is_broken(self) -> bool:
        """Whether only a restart helps: a write or the dispatch failed, and it was not for lack of space."""
        disk = self.node.disk
        has_ended = self.broker.store.running_flags.dispatch_error is not None and disk.broken_in == disk.epoch
        return self.write_error is not None or has_ended

    @property
    def is_behind(self) -> bool:
        """Whether a master does not take sends yet, because a peer has messages that are to come before them.

        Those of a peer whose log does not continue this one never will.
        """
        peers = self.replication.catch_up.info()
        is_peer_longer = self.broker.store.running_flags.is_peer_longer
        return not self.is_serving or (is_peer_longer and all(peer["state"] != PeerState.UNFIT.value for peer in peers))

    @property
    def is_serving(self) -> bool:
        """Whether sends are taken."""
        return self.started.is_set() and not self.dead and not self.is_stopping


class SimNode:
    """A machine: name, disk, network interface, wall clock, and the process that runs on it now, if any."""

    def __init__(self, world: "World", number: int) -> None:
        self.world: Final = world
        self.name: Final = f"n{number}"
        self.number: Final = number
        self.address: Final = f"10.0.0.{number + 1}"
        self.host: Final = world.net.host(self.address)
        self.clock: Final = WallClock()
        self.disk = self._new_disk()
        self.lost_disks: list[SimDisk] = []
        """Disks that were destroyed or wiped; what they held counted when it was acknowledged."""
        self.process: Process | None = None
        self.last_process: Process | None = None
        """The process that ran here last, if it ended in order on a disk that refused nothing."""
        self.gone = False
        """Destroyed, not to be started again before the chaos is over."""
        self._lives = 0

    def _new_disk(self) -> SimDisk:
        random = stream(self.world.seed, f"disk/{self.name}")
        disk = SimDisk(random, journal=self.world.journal, name=self.name, now_ms=self.clock)
        disk.latency_s, disk.creation_s = self.world.swarm.disk_latency_s, self.world.swarm.creation_s
        disk.work_s = self.world.swarm.recovery_s
        disk.on_crash = self._on_crash_point
        disk.on_term = self.stop
        disk.on_unlink, disk.on_unlink_begun = self._on_unlink, self._on_unlink_begun
        disk.on_replaced = self._on_replaced
        disk.is_noticed = lambda path, start, end: is_noticed(disk, path, start, end)
        return disk

    # ---- what happens to a machine

    def boot(self) -> None:
        """Start the broker, unless one runs or the machine is gone."""
        if self.process is None and not self.gone:
            self._lives += 1
            self.disk.crash_at = self.disk.crash_at if (self.disk.crash_at or 0) > self.disk.calls else None
            self.world.nursery.start_soon(self._live)

    def kill(self) -> None:
        """As kill -9."""
        if self.process is not None:
            self.world.checker.on_death(self, self.process)
            self._end_process()
            self.disk.kill()
            self.host.kill()

    def power_cut(self) -> None:
        """The machine loses power."""
        if self.process is not None:
            self.world.checker.on_death(self, self.process)
        self._end_process()
        self.disk.power_cut()
        self.host.power_cut()

    def stop(self) -> None:
        """As SIGTERM; the process ends when it has drained."""
        if self.process is not None:
            self.process.is_stopping = True
            self.process.broker.stop()

    def wipe(self) -> None:
        """Another, empty disk is in the machine, which is off."""
        self.power_cut()
        self.lost_disks.append(self.disk)
        self.world.checker.on_wiped(self)
        self.last_process = None
        self.disk = self._new_disk()

    def _on_replaced(self, path: str, data: bytes) -> None:
        if path == CHECKPOINT and self.process is not None and self.process.recovered:
            self.world.checker.checkpoints.on_written(self, self.process, data)

    def _on_unlink(self, path: str) -> None:
        if self.process is not None and self.process.recovered:
            self.world.checker.on_unlinked(self, self.process, path)

    def _on_unlink_begun(self, path: str) -> None:
        if self.process is not None and self.process.recovered:
            self.world.checker.on_unlink_begun(self, self.process, path)

    def _on_crash_point(self) -> None:
        self.power_cut()
        self.world.later(1.0, self.boot)

    def _end_process(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            process.dead = True
            process.scope.cancel()

    # ---- a life

    def _previous(self) -> Process | None:
        """The last process, if all it knew is on the disk."""
        last, self.last_process = self.last_process, None
        return last if last is not None and last.is_master == (self.world.master is self) else None

    async def _live(self) -> None:
        if self.process is not None or self.gone:
            return
        world = self.world
        swarm = world.swarm
        broker = make_classic_broker(
            self._config(),
            disk=self.disk.mount(),
            network=self.host.mount(),
            now_ms=self.clock,
            chance=stream(world.seed, f"chance/{self.name}/{self._lives}").random,
            probe=None if swarm.real_probe else self._ask_log_end,
            tuning=Tuning(
                overlap_size=swarm.overlap_size,
                stream_buffer_size=16 * 1024,
                receive_size=16 * 1024,
                clean_first_after_s=1.0 if swarm.cleans else 60.0,
                open_files_max=2,
            ),
        )
        process = self.process = Process(self, broker, is_master=world.master is self, previous=self._previous())
        world.journal.record("node.started", self.name, process.is_master)
        load = broker.store.load

        def load_and_check() -> object:
            report = load()
            process.recovered = True
            world.checker.on_recovered(self, process)
            return report

        broker.store.load = load_and_check  # type: ignore[method-assign, assignment]
        try:
            with process.scope:
                async with trio.open_nursery() as nursery:
                    await nursery.start(broker.run)
                    if broker.server is not None:  # else it was stopped before it could serve
                        process.started.set()
                        world.checker.on_serving(self, process)
                        world.operator.on_serving(process)
            if not process.dead and self.disk.refused_in != self.disk.epoch:
                self.last_process = process
        except BaseException as error:  # noqa: BLE001 - a simulated process may die of anything
            self._on_crash(process, error)
        if self.process is process:
            self.world.journal.record("node.ended", self.name)
            self.world.checker.on_death(self, process)
            self._end_process()
            self.disk.kill()
            self.host.kill()
            self.world.later(_RESTART_S, self.boot)

    def _on_crash(self, process: Process, error: BaseException) -> None:
        group = error if isinstance(error, BaseExceptionGroup) else BaseExceptionGroup("", [error])
        cancelled, rest = group.split(trio.Cancelled)
        deaths, rest = rest.split(NodeDied) if rest is not None else (None, None)
        if rest is not None and not process.dead:
            self.world.checker.on_crashed(self, process, rest)
        if deaths is not None and not process.dead:
            self.world.checker.violation("sim", f"{self.name} used a dead process's disk or network")
        if cancelled is not None and not process.dead:
            raise cancelled

    async def _ask_log_end(self, peer: MasterAddress) -> LogRange | None:
        """What request 28 would bring, in fewer steps."""
        net = self.world.net
        await trio.sleep(2 * net.latency())
        there = next(node for node in self.world.nodes.values() if node.address == peer.host)
        process = there.process
        reachable = net.passes(self.address, there.address) and net.passes(there.address, self.address)
        if process is None or not process.is_serving or not reachable:
            return None
        store = process.broker.store
        if self.process is not None and self.process.is_master:
            self.process.on_told(process, store.max_offset)
        return LogRange(store.min_offset, store.max_offset)

    def _config(self) -> BrokerConfig:
        world = self.world
        base = base_config(world.swarm, is_master=world.master is self)
        others = tuple(f"{node.address}:{HA_PORT}" for node in world.nodes.values() if node is not self)
        if world.master is self:
            return _varied(base, broker_ip1=self.address, ha_peers=others if world.swarm.peers else ())
        master = world.master.address
        return _varied(
            base,
            broker_ip1=self.address,
            broker_id=self.number + 1,
            ha_master_address=f"{master}:{HA_PORT}",
            master_address=f"{master}:{LISTEN_PORT}" if world.swarm.real_probe else "",
        )


def _varied(config: BrokerConfig, **changes: object) -> BrokerConfig:
    """As dataclasses.replace, which takes ten times as long with so many fields."""
    varied = copy(config)
    for name, value in changes.items():
        object.__setattr__(varied, name, value)
    return varied


def base_config(swarm: Swarm, *, is_master: bool) -> BrokerConfig:
    """What all masters, or all slaves, of a configuration share."""
    role = "SLAVE" if not is_master else "SYNC_MASTER" if swarm.sync_master else "ASYNC_MASTER"
    keys = {
        "brokerRole": role,
        "storePathRootDir": STORE,
        "brokerName": "sim",
        "listenPort": str(LISTEN_PORT),
        "flushDiskType": "SYNC_FLUSH" if swarm.sync_flush else "ASYNC_FLUSH",
        "mappedFileSizeCommitLog": str(swarm.segment_size),
        "mappedFileSizeConsumeQueue": "2000",
        "maxHashSlotNum": "50",
        "maxIndexNum": "100",
        "haAck": "durable" if swarm.ack_durable else "written",
    }
    if not is_master:
        keys |= {"haMasterAddress": "10.0.0.1:10912", "brokerId": "1"}
    if swarm.cleans:
        keys |= {
            "deleteWhen": ";".join(f"{hour:02}" for hour in range(24)),
            "fileReservedTime": "0",
            "cleanResourceInterval": "700",
        }
    if is_master and swarm.sync_master:
        keys |= {"inSyncReplicas": str(swarm.in_sync_replicas)}
    if is_master and swarm.master_forgets:
        keys |= {"haPeers": "10.0.0.2:10912", "haCatchUpAtStart": "require"}
    config = _varied(
        _loaded(tuple(keys.items())),
        flush_interval_commit_log_s=swarm.flush_s,
        flush_commit_log_thorough_interval_s=swarm.thorough_s,
        flush_interval_consume_queue_s=swarm.queue_flush_s,
        flush_consume_queue_thorough_interval_s=swarm.queue_thorough_s,
        flush_consumer_offset_interval_s=swarm.save_s,
        ha_send_heartbeat_interval_s=swarm.ha_heartbeat_s,
        slave_timeout_s=swarm.slave_timeout_s,
        ha_transfer_batch_size=swarm.transfer_batch_size,
    )
    if not swarm.takeovers:
        return config
    return _varied(
        config,
        message_delay_level=DELAY_LEVELS_S,
        transaction_check_interval_s=swarm.check_interval_s,
        transaction_time_out_s=swarm.check_after_s,
        transaction_check_max=1000,
    )


@lru_cache(maxsize=1024)
def _loaded(keys: tuple[tuple[str, str], ...]) -> BrokerConfig:
    return load_config(None, dict(keys))


def is_noticed(disk: SimDisk, path: str, start: int, end: int) -> bool:
    """Whether recovery can see that ``[start, end)`` is damaged: some fields of a record no checksum covers."""
    if not path.startswith(f"{STORE}/commitlog/"):
        return True
    cache, at = disk.files[path].cache, 0
    while at + _FIELDS_END <= len(cache):
        size = int.from_bytes(cache[at : at + 4], "big")
        if not _FIELDS_END < size <= len(cache) - at:
            return True
        if start < at + size:
            return not any(at + first <= start and end <= at + behind for first, behind in _UNCHECKED)
        at += size
    return True
