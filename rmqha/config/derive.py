"""Defaults that follow from other keys."""

import os
from collections.abc import Iterator
from dataclasses import replace
from socket import gethostname
from typing import Any, Final

from rmqha.choices import BrokerRole, FlushDiskType, TlsMode
from rmqha.config.broker_config import BrokerConfig
from rmqha.config.derive_dledger import derive_dledger

CONSUME_QUEUE_UNIT_SIZE: Final = 20
RECORD_OVERHEAD_MAX: Final = 1024
"""Room kept in a file beside the largest body: header, IPv6 hosts, topic, blank, some properties."""


def derive(values: dict[str, Any], notes: list[str]) -> BrokerConfig:
    """Fill in what was not set and depends on what was; ``notes`` gets what was adjusted."""
    given = BrokerConfig(**values)
    filled: dict[str, Any] = {}
    if given.enable_dleger_commit_log:
        values = derive_dledger(given, values, notes)
        given = BrokerConfig(**values)
    notes.extend(_doubtful(given))

    def default(attribute: str, value: object) -> None:
        filled[attribute] = values[attribute] if values.get(attribute) not in (None, "") else value

    default("store_path_commit_log", f"{given.store_path_root_dir}/commitlog")
    default("broker_name", gethostname())
    default("d_leger_group", filled["broker_name"])
    default("broker_id", 1 if given.is_slave else 0)
    default("broker_ip1", "127.0.0.1")
    default("broker_ip2", filled["broker_ip1"])
    default("bind_address", filled["broker_ip1"])
    default("ha_bind_address", filled["broker_ip2"])
    default("ha_listen_port", given.listen_port + 1 if given.listen_port else 0)
    default("in_sync_replicas", 2 if given.broker_role is BrokerRole.SYNC_MASTER else 1)
    default("ha_send_durable_only", given.flush_disk_type is FlushDiskType.SYNC_FLUSH)
    default("rocketmq_home", os.environ.get("ROCKETMQ_HOME", ""))
    default("namesrv_tls_enable", given.tls_mode is TlsMode.ENFORCING)
    filled["mapped_file_size_consume_queue"] = _round_up(given.mapped_file_size_consume_queue)
    filled["max_message_size"] = _max_message_size(given, values, notes)
    return replace(given, **filled)


def _doubtful(given: BrokerConfig) -> Iterator[str]:
    """What a file that is being edited may hold, and is good."""
    roads = {"haMasterAddress": given.ha_master_address, "masterAddress": given.master_address}
    for name, value in roads.items():
        if value and not given.is_slave and not given.enable_dleger_commit_log:
            role = given.broker_role.value
            yield f"{name} has no effect with brokerRole={role}: set SLAVE to follow that master, or take the line out"
    for name, path in {
        "storePathRootDir": given.store_path_root_dir,
        "storePathCommitLog": given.store_path_commit_log,
    }.items():
        if path and path[0] in "\"'$%":
            yield f"{name}={path} is taken as it stands, with its {path[0]}: no quotes and variables here"


def _round_up(size: int) -> int:
    return -(-size // CONSUME_QUEUE_UNIT_SIZE) * CONSUME_QUEUE_UNIT_SIZE


def _max_message_size(given: BrokerConfig, values: dict[str, Any], notes: list[str]) -> int:
    room = given.mapped_file_size_commit_log - RECORD_OVERHEAD_MAX
    if "max_message_size" in values or given.max_message_size <= room:
        return given.max_message_size
    notes.append(
        f"maxMessageSize is lowered from {given.max_message_size} to {room}, "
        f"since a record must fit in a file (mappedFileSizeCommitLog={given.mapped_file_size_commit_log})"
    )
    return room
