"""What follows for a broker on a DLedger group: RocketMQ's keys for DLedger's options, and the other way round."""

import re
from typing import Any, Final

from rmqha.choices import BrokerRole
from rmqha.config.broker_config import BrokerConfig

_SELF_ID: Final = re.compile(r"[A-Za-z](\d{1,9})")


def self_number(self_id: str) -> int | None:
    """The number in dLegerSelfId; None if it is not a letter and a number."""
    found = _SELF_ID.fullmatch(self_id)
    return int(found[1]) if found else None


def derive_dledger(given: BrokerConfig, values: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """Attributes that other keys decide here; ``notes`` gets what was set and has no effect."""
    for attribute, name in (("broker_role", "brokerRole"), ("broker_id", "brokerId")):
        if attribute in values and values[attribute] not in (BrokerRole.ASYNC_MASTER, 0):
            notes.append(f"{name} has no effect with enableDLegerCommitLog=true: the group elects its master")
    filled: dict[str, Any] = {
        "broker_role": BrokerRole.ASYNC_MASTER,
        "broker_id": (self_number(given.d_leger_self_id) or 0) + 1,
        "broker_name": given.broker_name or given.d_leger_group,
        "data_store_path": given.store_path_dledger_commit_log or given.data_store_path,
        "preferred_leader_ids": given.preferred_leader_id or given.preferred_leader_ids,
    }
    if "mapped_file_size_for_entry_data" not in values:
        filled["mapped_file_size_for_entry_data"] = given.mapped_file_size_commit_log
    return filled | _cleaning(given, values)


def _cleaning(given: BrokerConfig, values: dict[str, Any]) -> dict[str, Any]:
    """The broker's own cleaning deletes, so that queues go with their messages; it obeys DLedger's names, too."""
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
