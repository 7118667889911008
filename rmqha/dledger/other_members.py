"""Whose store a directory is: that of a member is ``dledger-ID``, with its term, its vote and its log."""

import re
from typing import Final, NamedTuple

from rmqha.codec.dledger_properties import TERM_FILE
from rmqha.dledger.dledger_config import DLedgerConfig
from rmqha.store.disk import Disk

_DIRECTORY: Final = re.compile(r"dledger-([A-Za-z][0-9]+)")
"""Of other names are those that an operator moved away."""


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


def _is_used(disk: Disk, directory: str) -> bool:
    """A member that has ever followed or voted has a term, under one of these names also after a crash."""
    return any(disk.exists(f"{directory}/{TERM_FILE}{suffix}") for suffix in ("", ".tmp", ".bak"))
