"""One machine of a group of brokers: what runs on it is a whole broker, as ``main`` makes it."""

from functools import lru_cache
from typing import TYPE_CHECKING, Final, cast

import trio

from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.dledger.dledger_broker import make_dledger_broker
from rmqha.broker.dledger.dledger_options import member_options
from rmqha.broker.dledger.dledger_replication import DLedgerReplication
from rmqha.broker.tuning import Tuning
from rmqha.config import BrokerConfig, load_config
from rmqha.dledger.dledger_commit_log import DLedgerCommitLog
from rmqha.dledger.dledger_config import DLedgerConfig
from tests.sim.dledger.machine import GROUP, PORT, STORE, Machine, Process
from tests.sim.dledger_broker.swarm import DELAY_LEVELS_S

if TYPE_CHECKING:
    from tests.sim.dledger_broker.world import BrokerWorld

LISTEN_PORT: Final = 10911
_TUNING: Final = Tuning(receive_size=16 * 1024, open_files_max=2)


class BrokerProcess(Process):
    """One life of a broker: a member's, and what is around it."""

    def __init__(self, life: int) -> None:
        super().__init__(life)
        self.made: BrokerController | None = None
        self.blind_since: float | None = None
        """Since when it leads, and can dispatch nothing."""

    @property
    def broker(self) -> BrokerController:
        """Once it is made."""
        assert self.made is not None, "it has begun"
        return self.made

    @property
    def is_master(self) -> bool:
        """Whether it takes sends."""
        return self.server is not None and self.broker.role.is_master

    @property
    def owes(self) -> bool:
        """Whether it has no excuse for an answer that does not come."""
        return not self.dead and not self.is_stopping


class BrokerMachine(Machine):
    """See :class:`Machine`."""

    world: "BrokerWorld"

    @property
    def life(self) -> BrokerProcess | None:
        """The broker that runs here now, if it is made."""
        process = cast(BrokerProcess | None, self.process)
        return process if process is not None and process.made is not None else None

    @property
    def master(self) -> BrokerProcess | None:
        """The same, if it takes sends."""
        life = self.life
        return life if life is not None and life.is_master and not life.is_stopping else None

    @property
    def is_broken(self) -> bool:
        """Whether only a restart helps."""
        life = self.life
        return life is not None and life.broker.store.running_flags.final_error is not None

    def stop(self) -> None:
        """As SIGTERM; the process ends when it has drained."""
        if (life := self.life) is not None:
            life.is_stopping = True
            life.broker.stop()

    def _config(self) -> DLedgerConfig:
        return member_options(self._broker_config()).store

    def _begin_life(self, life: int) -> Process:
        return BrokerProcess(life)

    def _broker_config(self) -> BrokerConfig:
        swarm = self.world.swarm
        beat_ms = int(1000 * swarm.heart_beat_s)
        keys = {
            "enableDLegerCommitLog": "true",
            "dLegerGroup": GROUP,
            "dLegerSelfId": self.name,
            "dLegerPeers": ";".join(f"{name}-10.0.0.{number + 1}:{PORT}" for number, name in enumerate(swarm.names)),
            "brokerIP1": self.address,
            "brokerName": "sim",
            "storePathRootDir": STORE,
            "listenPort": str(LISTEN_PORT),
            "allowInsecure": "true",
            "mappedFileSizeCommitLog": str(swarm.data_size),
            "mappedFileSizeForEntryIndex": str(swarm.index_size),
            "mappedFileSizeConsumeQueue": "2000",
            "maxMessageSize": "2048",
            "maxHashSlotNum": "50",
            "maxIndexNum": "100",
            "heartBeatTimeIntervalMs": str(beat_ms),
            "minVoteIntervalMs": str(min(300, beat_ms // 2)),
            "maxVoteIntervalMs": str(min(1000, 2 * beat_ms)),
            "checkPointInterval": str(int(1000 * swarm.check_point_s)),
            "maxBatchPushSize": str(swarm.batch_size or 4096),
            "isEnableBatchPush": "true" if swarm.batch_size else "false",
            "dledgerAck": "flushed" if swarm.acks_flushed else "written",
            "messageDelayLevel": " ".join(f"{delay_s}s" for delay_s in DELAY_LEVELS_S),
            "flushIntervalConsumeQueue": str(swarm.queue_flush_ms),
            "flushConsumerOffsetInterval": str(swarm.save_ms),
        }
        if swarm.prefers:
            keys["preferredLeaderIds"] = swarm.names[-1]
        return _loaded(tuple(keys.items()))

    async def _serve(self, process: Process) -> None:
        assert isinstance(process, BrokerProcess)
        process.made = broker = make_dledger_broker(
            self._broker_config(),
            disk=self.disk.mount(),
            network=self.host.mount(),
            now_ms=self.clock,
            chance=self._chance(process),
            tuning=_TUNING,
        )
        load, log = broker.store.load, broker.store.commit_log
        assert isinstance(log, DLedgerCommitLog)

        def load_and_check() -> object:
            report = load()
            process.store = log.ledger
            self.world.checker.on_recovered(self, process)
            return report

        broker.store.load = load_and_check  # type: ignore[method-assign, assignment]
        broker.role.subscribe(lambda: self.world.streams.on_role(self, process))
        async with trio.open_nursery() as nursery:
            await nursery.start(broker.run)
            assert isinstance(broker.replication, DLedgerReplication)
            process.server = broker.replication._server


@lru_cache(maxsize=256)
def _loaded(keys: tuple[tuple[str, str], ...]) -> BrokerConfig:
    return load_config(None, dict(keys))
