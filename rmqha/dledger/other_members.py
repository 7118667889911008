"""Whose store a directory is: that of a member is ``dledger-ID``, with its term, its vote and its log."""

import re
from typing import Final, NamedTuple

from rmqha.codec.dledger_properties import TERM_FILE
from rmqha.dledger.dledger_config import DLedgerConfig
from rmqha.store.disk import Disk

_DIRECTORY: Final = re.compile(r"dledger-([A-Za-z][0-9]+)")
"""Of other names are those that an operator moved away."""

_DATA_FILE: Final = re.compile(r"[0-9]{20}")


class OtherMembers(NamedTuple):
    """``what`` was found, and why that matters; ``next``: what to do."""

    what: str
    next: str


def find_other_members(config: DLedgerConfig, disk: Disk) -> OtherMembers | None:
    """Stores of others where this member has none yet, as when two have each other's ids, or a copy was not renamed.

    Raises:
        StoreReadError: a directory cannot be looked at.
    """
    base, self_id = config.store_base_dir, config.self_id
    found = [match[1] for name in disk.listdir(base) if (match := _DIRECTORY.fullmatch(name))]
    used = [member for member in found if _is_used(disk, f"{base}/dledger-{member}")]
    if not used or self_id in used:
        return None
    others = ", ".join(used)
    return OtherMembers(
        f"{base} is the store of member {others}, and {self_id} has none there ({config.default_path}): it would begin "
        f"without a log, and as if it had never voted. A group whose members do that loses what it acknowledged",
        f"if the id {self_id} (dLegerSelfId) is a mistake, it is {others}; if this is a copy for {self_id}, rename "
        f"{base}/dledger-{used[0]} to dledger-{self_id}; if {self_id} is to begin empty here, move {others} away",
    )


def find_others_data(config: DLedgerConfig, disk: Disk) -> OtherMembers | None:
    """Data files of a member that has neither index nor term: another's, which is shut down, or its disk was lost.

    It would take them for its own log, as if it had never voted, and write into them.

    Raises:
        StoreReadError: a directory cannot be looked at.
    """
    if disk.exists(config.index_store_path) or _is_used(disk, config.default_path):
        return None
    directories = sorted({*config.data_store_paths, *config.read_only_paths})
    found = [path for path in directories if any(map(_DATA_FILE.fullmatch, disk.listdir(path)))]
    if not found:
        return None
    return OtherMembers(
        f"there are data files in {', '.join(found)}, and {config.default_path} has neither their index nor a term: "
        f"they are another member's, or {config.self_id} lost what it had voted",
        f"name directories of {config.self_id}'s own (dataStorePath, readOnlyDataStoreDirs); if these are, put "
        f"{config.default_path} back from the disk or backup that it was on, or move the data files away: a group "
        f"gives them again to a member that begins empty. Only if no other member has them, write 'currTerm=1' into "
        f"{config.default_path}/{TERM_FILE}: they are indexed anew",
    )


def _is_used(disk: Disk, directory: str) -> bool:
    """A member that has ever followed or voted has a term, under one of these names also after a crash."""
    return any(disk.exists(f"{directory}/{TERM_FILE}{suffix}") for suffix in ("", ".tmp", ".bak"))
