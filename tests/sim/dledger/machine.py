"""One machine of the simulated group: a disk that stays, and processes of a member that come and go."""

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import trio

from rmqha.config.load_dledger import load_dledger_settings
from rmqha.config.same_settings import same_settings
from rmqha.dledger.dledger_config import MULTI_PATH_SPLITTER, DLedgerConfig
from rmqha.dledger.dledger_entry_pusher import PusherOptions
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.dledger_server import DLedgerServer
from rmqha.dledger.elector_options import ElectorOptions
from rmqha.dledger.entry_dispatcher import PushOptions
from rmqha.dledger.leadership_transfer import TransferOptions
from rmqha.dledger.open_store import open_store
from rmqha.dledger.server_options import MEMBER_LIMITS, ServerOptions
from tests.sim.dledger.swarm import Swarm
from tests.sim.journal import NodeDied
from tests.sim.sim_clock import WallClock, stream
from tests.sim.sim_disk import SimDisk

if TYPE_CHECKING:
    from rmqha.codec.dledger_entry import DLedgerEntry
    from tests.sim.dledger.world import World

PORT: Final = 20911
STORE: Final = "/store"
GROUP: Final = "g"
_RESTART_S: Final = 2.0
"""A process that could not start, or has ended, is started again after so long, as systemd would."""
_SETTINGS: Final = load_dledger_settings({})
_LIMITS: Final = replace(MEMBER_LIMITS, receive_size=16 * 1024)


class Process:
    """One life of a member, and what was seen of its log."""

    def __init__(self, life: int) -> None:
        self.life: Final = life
        self.scope: Final = trio.CancelScope()
        self.store: DLedgerMmapFileStore | None = None
        """Once it is recovered."""
        self.server: DLedgerServer | None = None
        """Once it serves."""
        self.dead = False
        self.is_stopping = False
        self.log: dict[int, DLedgerEntry] = {}
        self.begin = self.end = self.committed = self.flushed = -1
        self.seen: tuple[int, ...] = ()
        self.broken_since: float | None = None
        self.handing_over: tuple[int, float] | None = None
        """The term in which it hands its leadership over, and since when."""

    @property
    def leads(self) -> bool:
        """Whether it takes appends."""
        server = self.server
        return server is not None and server.pusher.checker is not None and server.member_state.is_leader


class Machine:
    """Name, disk, network interface, wall clock, and the process that runs on it now, if any."""

    def __init__(self, world: "World", number: int) -> None:
        self.world = world
        self.number: Final = number
        self.name: Final = f"n{number}"
        self.address: Final = f"10.0.0.{number + 1}"
        self.host: Final = world.net.host(self.address)
        self.clock: Final = WallClock()
        self.config: Final = self._config()
        self.disk: Final = self._disk()
        self.process: Process | None = None
        self._lives = 0

    def _config(self) -> DLedgerConfig:
        return store_config(self.world.swarm, self.name)

    def _disk(self) -> SimDisk:
        random, swarm = stream(self.world.seed, f"disk/{self.name}"), self.world.swarm
        disk = SimDisk(random, journal=self.world.journal, name=self.name, now_ms=self.clock)
        disk.latency_s, disk.creation_s, disk.work_s = swarm.disk_latency_s, swarm.creation_s, swarm.recovery_s
        disk.on_crash = self._on_crash_point
        disk.on_term = self.stop
        disk.on_replaced = lambda path, data: self.world.checker.on_replaced(self, path, data)
        return disk

    @property
    def leads(self) -> bool:
        """Whether it takes appends."""
        return self.process is not None and self.process.leads

    @property
    def serves(self) -> bool:
        """Whether it answers."""
        process = self.process
        return process is not None and process.server is not None and not process.is_stopping

    @property
    def is_broken(self) -> bool:
        """Whether only a restart helps."""
        process = self.process
        return process is not None and process.store is not None and process.store.write_error is not None

    # ---- what happens to a machine

    def boot(self) -> None:
        """Start the member, unless it runs."""
        if self.process is None:
            self._lives += 1
            self.disk.crash_at = self.disk.crash_at if (self.disk.crash_at or 0) > self.disk.calls else None
            self.process = process = self._begin_life(self._lives)
            self.world.nursery.start_soon(self._live, process)

    def kill(self) -> None:
        """As kill -9."""
        if self.process is not None:
            self._end_process()
            self.disk.kill()
            self.host.kill()

    def cut_power(self, *, loses: tuple[str, int] | None = None) -> None:
        """The machine loses power; with ``loses`` it loses that sector of a file, and nothing else."""
        self._end_process()
        if loses is None:
            self.disk.power_cut()
        else:
            self.disk.lose_power(lambda path, number, old, new: old if (path, number) == loses else new)
        self.host.power_cut()

    def stop(self) -> None:
        """As SIGTERM; the process ends when it has drained."""
        if self.process is not None and self.process.server is not None:
            self.process.is_stopping = True
            self.process.server.stop()

    def _on_crash_point(self) -> None:
        self.cut_power()
        self.world.later(1.0, self.boot)

    def _end_process(self) -> None:
        process = self.process
        if process is not None:
            self.world.checker.on_death(self, process)
            self.world.died_at[self.name] = trio.current_time()
            self.process = None
            process.dead = True
            process.scope.cancel()

    # ---- a life

    def _begin_life(self, life: int) -> Process:
        return Process(life)

    async def _live(self, process: Process) -> None:
        world = self.world
        world.journal.record("member.started", self.name)
        try:
            with process.scope:
                await self._serve(process)
        except BaseException as error:  # noqa: BLE001 - a simulated process may die of anything
            self._on_crash(process, error)
        if self.process is process:
            world.journal.record("member.ended", self.name)
            self._end_process()
            self.disk.kill()
            self.host.kill()
            world.later(_RESTART_S, self.boot)

    async def _serve(self, process: Process) -> None:
        mount, network = self.disk.mount(), self.host.mount()
        options = server_options(self.world.swarm, self.name, store=self.config)
        process.store = store = await open_store(options.store, mount)
        self.world.checker.on_recovered(self, process)
        server = DLedgerServer(options, store, mount, network, now_ms=self.clock, random=self._chance(process))
        async with trio.open_nursery() as nursery:
            await nursery.start(server.run)
            process.server = server

    def _chance(self, process: Process) -> Callable[[], float]:
        return stream(self.world.seed, f"chance/{self.name}/{process.life}").random

    def _on_crash(self, process: Process, error: BaseException) -> None:
        group = error if isinstance(error, BaseExceptionGroup) else BaseExceptionGroup("", [error])
        cancelled, rest = group.split(trio.Cancelled)
        deaths, rest = rest.split(NodeDied) if rest is not None else (None, None)
        if rest is not None and not process.dead:
            self.world.checker.on_crashed(self, rest)
        if deaths is not None and not process.dead:
            self.world.checker.violation("sim", f"{self.name} used a dead process's disk or network")
        if cancelled is not None and not process.dead:
            raise cancelled


def store_config(swarm: Swarm, name: str) -> DLedgerConfig:
    """Of one member's store."""
    return same_settings(
        DLedgerConfig,
        _SETTINGS,
        store_base_dir=STORE,
        self_id=name,
        data_store_path=_data_paths(swarm.directories, name),
        mapped_file_size_for_entry_data=swarm.data_size,
        mapped_file_size_for_entry_index=swarm.index_size,
        check_point_interval_s=swarm.check_point_s,
        delete_when=tuple(range(24)) if swarm.cleans else (),
        file_reserved_hours=1,
        acks_flushed=swarm.acks_flushed,
    )


def _data_paths(directories: int, name: str) -> str:
    """As an operator writes them; nothing: where they are by default."""
    paths = [f"{STORE}/dledger-{name}/data{number}" for number in range(directories)]
    return MULTI_PATH_SPLITTER.join(paths) if directories > 1 else ""


def server_options(swarm: Swarm, name: str, *, store: DLedgerConfig) -> ServerOptions:
    """Of one member: what the seed draws, and DLedger's defaults."""
    beat_s = swarm.heart_beat_s
    push = same_settings(
        PushOptions,
        _SETTINGS,
        is_enable_batch_push=swarm.batch_size > 0,
        max_batch_push_size=swarm.batch_size or 4096,
    )
    return ServerOptions(
        group=GROUP,
        peers={other: (f"10.0.0.{number + 1}", PORT) for number, other in enumerate(swarm.names)},
        store=store,
        elector=same_settings(
            ElectorOptions,
            _SETTINGS,
            heart_beat_time_interval_s=beat_s,
            min_vote_interval_s=min(0.3, beat_s / 2),
            max_vote_interval_s=min(1.0, 2 * beat_s),
        ),
        pusher=same_settings(PusherOptions, _SETTINGS, push=push, acks_flushed=swarm.acks_flushed),
        transfer=same_settings(
            TransferOptions, _SETTINGS, preferred_leader_ids=(swarm.names[-1],) if swarm.prefers else ()
        ),
        limits=_LIMITS,
    )
