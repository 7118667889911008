"""What follows for a broker on a DLedger group: RocketMQ's keys for DLedger's options, and the other way round."""

import re
from dataclasses import fields
from typing import Any, Final

from rmqha.config.broker_config import BrokerConfig
from rmqha.config.ha_config import HAConfig
from rmqha.config.key import METADATA
from rmqha.config.tls_config import TlsConfig

_SELF_ID: Final = re.compile(r"[A-Za-z](\d{1,9})")
_WITHOUT_EFFECT: Final = frozenset(
    {"broker_id"}
    | {declared.name for declared in fields(HAConfig) if declared.name != "max_ha_connections"}
    | {declared.name for declared in fields(TlsConfig) if declared.name.startswith("ha_tls_")}
)
"""Of the classic replication; ``max_ha_connections`` limits a member's port as well."""
_SAME: Final = (
    ("store_path_dledger_commit_log", "data_store_path"),
    ("preferred_leader_id", "preferred_leader_ids"),
    ("file_reserved_hours", "file_reserved_time_s"),
    ("disk_space_ratio_to_check_expired", "disk_max_used_space_ratio"),
    ("disk_space_ratio_to_force_clean", "disk_space_clean_forcibly_ratio"),
    ("disk_space_ratio_to_force_clean", "disk_space_warning_level_ratio"),
    ("enable_disk_force_clean", "clean_file_forcibly_enable"),
)
"""Attributes of which the first decides about the second, if both are set."""
_NAMES: Final = {
    declared.name: declared.metadata[METADATA].name for declared in fields(BrokerConfig) if declared.metadata
}


def self_number(self_id: str) -> int | None:
    """The number in dLegerSelfId; None if it is not a letter and a number."""
    found = _SELF_ID.fullmatch(self_id)
    return int(found[1]) if found else None


def derive_dledger(given: BrokerConfig, values: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """The values that hold on a group; ``notes`` gets what was set and has no effect there."""
    _note_ineffective(values, notes)
    kept = {attribute: value for attribute, value in values.items() if attribute not in _WITHOUT_EFFECT}
    derived: dict[str, Any] = {
        "broker_id": (self_number(given.d_leger_self_id) or 0) + 1,
        "broker_name": given.broker_name or given.d_leger_group,
        "data_store_path": given.store_path_dledger_commit_log or given.data_store_path,
        "preferred_leader_ids": given.preferred_leader_id or given.preferred_leader_ids,
    }
    if "mapped_file_size_for_entry_data" not in values:
        derived["mapped_file_size_for_entry_data"] = given.mapped_file_size_commit_log
    elif "mapped_file_size_commit_log" not in values:
        derived["mapped_file_size_commit_log"] = given.mapped_file_size_for_entry_data
    return kept | derived | _cleaning(given, values)


def _note_ineffective(values: dict[str, Any], notes: list[str]) -> None:
    """One that was set to its default says nothing."""
    for declared in fields(BrokerConfig):
        if declared.name in _WITHOUT_EFFECT and values.get(declared.name, declared.default) != declared.default:
            name = _NAMES[declared.name]
            notes.append(f"{name} has no effect with enableDLegerCommitLog=true: the group elects and replicates")
    for deciding, other in _SAME:
        if deciding in values and other in values:
            notes.append(
                f"{_NAMES[other]} has no effect beside {_NAMES[deciding]}, which says the same to a DLedger member"
            )


def _cleaning(given: BrokerConfig, values: dict[str, Any]) -> dict[str, Any]:
    """DLedger's limits for the broker's own cleaning, which deletes in its place, so that queues go with messages."""
    found: dict[str, Any] = {}
    if "file_reserved_hours" in values:
        found["file_reserved_time_s"] = given.file_reserved_hours * 3600.0
    if "disk_space_ratio_to_check_expired" in values:
        found["disk_max_used_space_ratio"] = round(given.disk_space_ratio_to_check_expired * 100)
    if "disk_space_ratio_to_force_clean" in values:
        percent = round(given.disk_space_ratio_to_force_clean * 100)
        found["disk_space_clean_forcibly_ratio"] = percent
        found["disk_space_warning_level_ratio"] = min(percent + 5, 99)
    if "enable_disk_force_clean" in values:
        found["clean_file_forcibly_enable"] = given.enable_disk_force_clean
    return found
