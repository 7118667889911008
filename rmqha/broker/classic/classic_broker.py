"""The classic broker: a master or a slave on the classic log, which it copies byte by byte."""

from collections.abc import Callable

from rmqha.broker import options
from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.classic.classic_replication import ClassicReplication
from rmqha.broker.tables.metadata import MetadataService
from rmqha.broker.tuning import Tuning
from rmqha.config import BrokerConfig
from rmqha.ha.ha_client import ProbeMaster
from rmqha.ha.replicated_store import ReplicatedStore
from rmqha.store.classic_log import make_classic_log
from rmqha.store.disk import Disk
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.parts import make_parts
from rmqha.store.store_log import StoreGround
from rmqha.transport import Network


def make_classic_broker(
    config: BrokerConfig,
    *,
    disk: Disk,
    network: Network,
    now_ms: Callable[[], int],
    chance: Callable[[], float],
    probe: ProbeMaster | None = None,
    tuning: Tuning | None = None,
) -> BrokerController:
    """Choose its log and its replication; nothing is opened yet.

    Args:
        config: the operator's decisions.
        disk: the door to files.
        network: the door to peers.
        now_ms: the door to wall-clock time.
        chance: a random number in [0, 1), for pauses between attempts.
        probe: asks other brokers what their logs hold; None: by remoting.
        tuning: what no operator decides.
    """
    tuning = tuning or Tuning()
    ground = StoreGround(options.store_options(config, tuning), disk, now_ms=now_ms)
    log = make_classic_log(ground)
    store = DefaultMessageStore(make_parts(ground, log, role=options.role(config)))

    def replicate(metadata: MetadataService) -> ClassicReplication:
        return ClassicReplication(
            config,
            store,
            metadata,
            log=ReplicatedStore(store, log),
            network=network,
            chance=chance,
            probe=probe,
            tuning=tuning,
            address=lambda: controller.address,
        )

    controller = BrokerController(config, store, replicate=replicate, network=network, now_ms=now_ms, tuning=tuning)
    return controller
