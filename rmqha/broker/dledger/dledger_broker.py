"""The broker on a DLedger group: master while its member leads, and else a slave."""

from collections.abc import Callable

from rmqha.broker import options
from rmqha.broker.broker_controller import BrokerController
from rmqha.broker.dledger.dledger_options import member_options
from rmqha.broker.dledger.dledger_replication import DLedgerReplication
from rmqha.broker.tables.metadata import MetadataService
from rmqha.broker.tuning import Tuning
from rmqha.config import BrokerConfig
from rmqha.dledger.dledger_commit_log import DLedgerCommitLog
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.member_state import MemberState
from rmqha.dledger.membership import find_other_group
from rmqha.dledger.open_store import start_store
from rmqha.dledger.other_members import find_other_members, find_others_data
from rmqha.dledger.server_options import ServerOptions
from rmqha.errors import ConfigError
from rmqha.store.disk import Disk
from rmqha.store.message_store import DefaultMessageStore
from rmqha.store.parts import make_parts
from rmqha.store.store_log import StoreGround
from rmqha.transport import Network


def make_dledger_broker(
    config: BrokerConfig,
    *,
    disk: Disk,
    network: Network,
    now_ms: Callable[[], int],
    chance: Callable[[], float],
    tuning: Tuning | None = None,
) -> BrokerController:
    """Choose its log and its replication; nothing is opened yet. Arguments as of ``make_classic_broker``.

    Raises:
        ConfigError: its store, or its data, is another member's, or another group's; nothing was changed.
        StoreReadError: that cannot be looked at.
    """
    tuning, member = tuning or Tuning(), member_options(config)
    ledger = member.store
    if others := (find_other_members(ledger, disk) or find_others_data(ledger, disk) or find_other_group(member, disk)):
        raise ConfigError(f"{others.what}. Nothing was changed. Next: {others.next}")
    ground = StoreGround(options.store_options(config, tuning), disk, now_ms=now_ms)
    log = _make_log(member, ground)
    store = DefaultMessageStore(make_parts(ground, log, role=options.role(config)))
    log.check_taken = store.damaged_records.check_all
    log.ledger.room.early = store.cleaner.early

    def replicate(metadata: MetadataService) -> DLedgerReplication:
        return DLedgerReplication(
            config,
            member,
            store,
            metadata,
            log=log,
            disk=disk,
            network=network,
            now_ms=now_ms,
            chance=chance,
            address=lambda: controller.address,
        )

    controller = BrokerController(config, store, replicate=replicate, network=network, now_ms=now_ms, tuning=tuning)
    return controller


def _make_log(member: ServerOptions, ground: StoreGround) -> DLedgerCommitLog:
    ledger = DLedgerMmapFileStore(member.store, MemberState(member.store.self_id), ground.disk)

    return DLedgerCommitLog(
        ledger,
        ground,
        startup=lambda: start_store(ledger, member.store, ground.disk),
        pending_max=member.pusher.max_pending_requests_num,
    )
