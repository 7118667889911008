"""From the operator's configuration to the few values each part needs."""

import os
from typing import Final

from rmqha.broker.acl.plain_access_validator import PlainAccessValidator
from rmqha.broker.acl.plain_permission_manager import PlainPermissionManager
from rmqha.broker.credentials_file import CredentialsFile
from rmqha.broker.processors.pull_rules import PullRules
from rmqha.broker.puts.sent_records import SendRules
from rmqha.broker.tables.system_topics import TopicRules
from rmqha.broker.transaction.rules import TransactionRules
from rmqha.broker.tuning import Tuning
from rmqha.certificates import TlsOptions
from rmqha.choices import BrokerRole, FlushDiskType, HaCatchUp, TlsMode
from rmqha.codec.dledger_entry import BODY_OFFSET, ENTRY_SIZE_MAX
from rmqha.codec.record.layout import BLANK_SIZE_MIN
from rmqha.codec.route import PERM_READ, PERM_WRITE
from rmqha.config import BrokerConfig
from rmqha.config.same_settings import same_settings
from rmqha.ha.options import HAClientOptions, HAOptions
from rmqha.remoting.dispatcher import RequestGuard
from rmqha.remoting.limits import RemotingLimits
from rmqha.replication.role import Role, RoleKind
from rmqha.store.cleaner import CleanOptions
from rmqha.store.store_options import StoreOptions
from rmqha.tls import secured
from rmqha.transport import Network

_PERCENT: Final = 100


def memory_share_bytes(percent: int) -> int:
    """A share of the machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * percent // _PERCENT


def store_options(config: BrokerConfig, tuning: Tuning) -> StoreOptions:
    """What the store has to know."""
    return same_settings(
        StoreOptions,
        config,
        tuning,
        sync_flush=config.flush_disk_type is FlushDiskType.SYNC_FLUSH,
        in_memory_bytes=memory_share_bytes(config.access_message_in_memory_max_ratio),
        delay_levels_ms=tuple(round(delay_s * 1000) for delay_s in config.message_delay_level),
        clean=clean_options(config, tuning),
    )


def clean_options(config: BrokerConfig, tuning: Tuning) -> CleanOptions:
    """When old files go."""
    return same_settings(CleanOptions, config, tuning)


def ha_options(config: BrokerConfig) -> HAOptions:
    """The serving side of replication."""
    return same_settings(HAOptions, config)


def ha_client_options(config: BrokerConfig, tuning: Tuning) -> HAClientOptions:
    """The receiving side of replication."""
    return same_settings(HAClientOptions, config, tuning)


def send_rules(config: BrokerConfig, *, store_host: bytes) -> SendRules:
    """What sends may be, and what is made of them at the broker with that address."""
    record_size_max = config.mapped_file_size_commit_log - BLANK_SIZE_MIN
    if config.enable_dleger_commit_log:
        record_size_max = min(record_size_max, ENTRY_SIZE_MAX) - BODY_OFFSET
    return SendRules(
        config.broker_cluster_name,
        store_host,
        config.max_message_size,
        writable=bool(config.broker_permission & PERM_WRITE),
        rejects_transactions=config.reject_transaction_message,
        stores_replies=config.store_reply_message_enable,
        delay_levels=len(config.message_delay_level),
        record_size_max=record_size_max,
    )


def pull_rules(config: BrokerConfig) -> PullRules:
    """How pulls are answered."""
    return PullRules(
        readable=bool(config.broker_permission & PERM_READ),
        slave_read_enable=config.slave_read_enable,
        far_behind_bytes=memory_share_bytes(config.access_message_in_memory_max_ratio),
        long_polling_enable=config.long_polling_enable,
        short_polling_s=config.short_polling_time_s,
    )


def permissions(config: BrokerConfig) -> PlainPermissionManager | None:
    """The accounts; None if requests are not looked at. Raises ConfigError: they cannot be read."""
    return PlainPermissionManager(config.rocketmq_home) if config.acl_enable else None


def guard(config: BrokerConfig, permissions: PlainPermissionManager | None) -> RequestGuard | None:
    """Who lets requests in; None if all are let in."""
    return PlainAccessValidator(permissions, cluster=config.broker_cluster_name).validate if permissions else None


def credentials(config: BrokerConfig) -> CredentialsFile | None:
    """By which this broker signs what it asks other brokers. Raises ConfigError: they cannot be read."""
    return CredentialsFile(config.acl_credentials_path) if config.acl_credentials_path else None


def remoting_limits(config: BrokerConfig, tuning: Tuning) -> RemotingLimits:
    """What clients are granted."""
    return same_settings(RemotingLimits, config, tuning)


def topic_rules(config: BrokerConfig) -> TopicRules:
    """What topics may be made here."""
    return same_settings(TopicRules, config)


def transaction_rules(config: BrokerConfig, *, store_host: bytes) -> TransactionRules:
    """When producers are asked about their transactions."""
    return same_settings(TransactionRules, config, store_host=store_host)


def peers_to_ask(config: BrokerConfig) -> tuple[str, ...]:
    """The replicas that a master asks for what it may have lost."""
    asks = not config.is_slave and config.ha_catch_up_at_start is not HaCatchUp.OFF
    return config.ha_peers if asks else ()


def catch_up_answers_needed(config: BrokerConfig) -> int:
    """An acknowledged message is on some slaves: so many peers must answer that one of those is among them."""
    peers = peers_to_ask(config)
    if config.ha_catch_up_at_start is not HaCatchUp.REQUIRE or not peers:
        return 0
    if config.in_sync_replicas <= 1:
        return 1
    return max(1, len(peers) - config.in_sync_replicas + 2)


def client_tls(config: BrokerConfig) -> tuple[TlsOptions, TlsMode]:
    """TLS on the clients' ports, and to other brokers' ports of this kind."""
    options = TlsOptions(
        cert=config.tls_cert_path,
        key=config.tls_key_path,
        trust=config.tls_trust_cert_path,
        peer_names=config.tls_peer_names,
        require_peer_cert=config.tls_need_client_auth,
    )
    return options, config.tls_mode


def ha_tls(config: BrokerConfig) -> tuple[TlsOptions, TlsMode]:
    """TLS between brokers; always mutual."""
    options = TlsOptions(
        cert=config.ha_tls_cert_path,
        key=config.ha_tls_key_path,
        trust=config.ha_tls_trust_cert_path,
        peer_names=config.ha_tls_peer_names,
    )
    return options, config.ha_tls_mode


def tls_in_use(config: BrokerConfig) -> list[TlsOptions]:
    """Of which certificates a start reads the files."""
    (clients, mode), (ha, ha_mode) = client_tls(config), ha_tls(config)
    is_client_tls = mode is not TlsMode.DISABLED or config.namesrv_tls_enable
    is_ha_tls = ha_mode is not TlsMode.DISABLED and not config.enable_dleger_commit_log
    return [clients] * is_client_tls + [ha] * is_ha_tls


def namesrv_network(config: BrokerConfig, network: Network) -> Network:
    """The door to name servers. Raises ConfigError: a certificate or key cannot be used."""
    tls, _mode = client_tls(config)
    return secured(network, tls, TlsMode.ENFORCING if config.namesrv_tls_enable else TlsMode.DISABLED)


def is_sync_master(config: BrokerConfig) -> bool:
    """Whether a send waits for replicas."""
    return config.broker_role is BrokerRole.SYNC_MASTER


def role(config: BrokerConfig) -> Role:
    """The role that the configuration gives this broker; on a DLedger group elections give it one later."""
    if config.enable_dleger_commit_log:
        return Role(RoleKind.CANDIDATE)
    return Role(RoleKind.SLAVE, master=config.ha_master_address) if config.is_slave else Role()
