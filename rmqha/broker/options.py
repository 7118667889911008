"""From the operator's configuration to the few values each part needs."""

import os
from dataclasses import fields
from typing import Any, Final, TypeVar

from rmqha.broker.topic_config_manager import TopicRules
from rmqha.broker.tuning import Tuning
from rmqha.choices import BrokerRole, FlushDiskType, HaCatchUp, TlsMode
from rmqha.config import BrokerConfig
from rmqha.ha.options import HAClientOptions, HAOptions
from rmqha.remoting.limits import RemotingLimits
from rmqha.replication.role import Role, RoleKind
from rmqha.store.cleaner import CleanOptions
from rmqha.store.store_options import StoreOptions
from rmqha.tls import TlsOptions

_PERCENT: Final = 100

_Options = TypeVar("_Options", StoreOptions, CleanOptions)


def memory_share_bytes(percent: int) -> int:
    """A share of the machine's memory."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * percent // _PERCENT


def same_settings(kind: type[_Options], config: BrokerConfig, **others: Any) -> _Options:
    """Options with the settings that the configuration has under the same names, and ``others``."""
    names = [field.name for field in fields(kind) if field.name not in others and hasattr(config, field.name)]
    return kind(**{name: getattr(config, name) for name in names}, **others)


def store_options(config: BrokerConfig, tuning: Tuning) -> StoreOptions:
    """What the store has to know."""
    return same_settings(
        StoreOptions,
        config,
        sync_flush=config.flush_disk_type is FlushDiskType.SYNC_FLUSH,
        in_memory_bytes=memory_share_bytes(config.access_message_in_memory_max_ratio),
        delay_levels_ms=tuple(round(delay_s * 1000) for delay_s in config.message_delay_level),
        open_files_max=tuning.open_files_max,
        clean=clean_options(config, tuning),
    )


def clean_options(config: BrokerConfig, tuning: Tuning) -> CleanOptions:
    """When old files go."""
    return same_settings(
        CleanOptions,
        config,
        delete_when=frozenset(config.delete_when),
        disk_max_used_percent=config.disk_max_used_space_ratio,
        clean_forcibly_percent=config.disk_space_clean_forcibly_ratio,
        disk_full_percent=config.disk_space_warning_level_ratio,
        first_after_s=tuning.clean_first_after_s,
    )


def ha_options(config: BrokerConfig) -> HAOptions:
    """The serving side of replication."""
    return HAOptions(
        listen_host=config.ha_bind_address,
        port=config.ha_listen_port,
        allow=config.ha_allow,
        connections_max=config.max_ha_connections,
        connections_per_address_max=config.max_ha_connections_per_address,
        heartbeat_s=config.ha_send_heartbeat_interval_s,
        housekeeping_s=config.ha_housekeeping_interval_s,
        first_report_s=config.ha_first_report_timeout_s,
        transfer_batch_size=config.ha_transfer_batch_size,
        transfer_size_max=config.ha_transfer_size_max,
        slave_fallbehind_max=config.ha_slave_fallbehind_max,
        in_sync_replicas=config.in_sync_replicas,
        send_durable_only=config.ha_send_durable_only,
        start_from=config.ha_start_from,
    )


def ha_client_options(config: BrokerConfig, tuning: Tuning) -> HAClientOptions:
    """The receiving side of replication."""
    return HAClientOptions(
        ack=config.ha_ack,
        heartbeat_s=config.ha_send_heartbeat_interval_s,
        housekeeping_s=config.ha_housekeeping_interval_s,
        overlap_size=tuning.overlap_size,
        stream_buffer_size=tuning.stream_buffer_size,
    )


def peers_to_ask(config: BrokerConfig) -> tuple[str, ...]:
    """The replicas that a master asks for what it may have lost."""
    asks = not config.is_slave and config.ha_catch_up_at_start is not HaCatchUp.OFF
    return tuple(dict.fromkeys(config.ha_peers)) if asks else ()


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


def remoting_limits(config: BrokerConfig, tuning: Tuning) -> RemotingLimits:
    """What clients are granted."""
    return RemotingLimits(
        allow=config.client_allow,
        connections_max=config.max_connections,
        connections_per_host_max=config.max_connections_per_address,
        in_flight_bytes_max=config.max_in_flight_bytes,
        connection_in_flight_bytes_max=config.max_in_flight_bytes_per_connection,
        receive_size=tuning.receive_size,
        idle_timeout_s=config.server_channel_max_idle_time_s,
    )


def is_sync_master(config: BrokerConfig) -> bool:
    """Whether a send waits for replicas."""
    return config.broker_role is BrokerRole.SYNC_MASTER


def role(config: BrokerConfig) -> Role:
    """What the operator made this broker."""
    return Role(RoleKind.SLAVE, master=config.ha_master_address) if config.is_slave else Role()


def topic_rules(config: BrokerConfig) -> TopicRules:
    """What topics may be made here."""
    return TopicRules(
        cluster_name=config.broker_cluster_name,
        broker_name=config.broker_name,
        auto_create_topic_enable=config.auto_create_topic_enable,
        default_topic_queue_nums=config.default_topic_queue_nums,
        queues_max=config.max_queues,
    )
