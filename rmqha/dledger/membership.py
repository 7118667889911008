"""Of which group a member's store is, and with which members it was started last: others make other majorities.

dledger-ID/members   a JSON object: group, and the ids of its members. rmqha's own; DLedger does not look at it.
"""

import json
from typing import Any, Final

import structlog

from rmqha.dledger.other_members import OtherMembers
from rmqha.dledger.server_options import ServerOptions
from rmqha.errors import StoreWriteError
from rmqha.store.disk import Disk

logger = structlog.get_logger()

MEMBERS_FILE: Final = "members"


def find_other_group(options: ServerOptions, disk: Disk) -> OtherMembers | None:
    """Why this member may not start with its store; None: it may, or nobody noted whose it is.

    What a majority of the former members has, a majority of the present ones has to contain. So it does where the two
    must have a member in common.

    Raises:
        StoreReadError: the note cannot be read.
    """
    path = f"{options.store.default_path}/{MEMBERS_FILE}"
    noted = _read(disk, path)
    group, members = noted.get("group"), noted.get("members")
    if isinstance(group, str) and group != options.group:
        return OtherMembers(
            f"{options.store.default_path} is the store of a member of group {group}, and this is group "
            f"{options.group}: it would lead that one by what it has of another",
            f"correct storePathRootDir or the volume, or the group's name; if the group was renamed, remove {path}",
        )
    if not isinstance(members, list) or not members:
        return None
    before, now = set(map(str, members)), set(options.peers)
    if len(before) // 2 + len(now) // 2 + 2 > len(before | now):
        return None
    return OtherMembers(
        f"the members were {', '.join(sorted(before))} and are to be {', '.join(sorted(now))}: a majority of these "
        "need not have what a majority of those has acknowledged",
        "add or take away one member at a time, and wait until all are in sync (docs/dledger.md, 'Other members'); if "
        f"what was acknowledged may be lost, remove {path} on all",
    )


def _read(disk: Disk, path: str) -> dict[str, Any]:
    if not disk.exists(path):
        return {}
    try:
        noted = json.loads(disk.read_bytes(path))
    except (ValueError, RecursionError):
        noted = None
    if not isinstance(noted, dict):
        logger.warning("dledger_store.members_unreadable", path=path)
        return {}
    return noted


async def note_members(options: ServerOptions, disk: Disk) -> None:
    """With these this member is started. That it cannot be noted is logged: the store says itself if its disk fails."""
    path = f"{options.store.default_path}/{MEMBERS_FILE}"
    noted = {"group": options.group, "members": sorted(options.peers)}
    if _read(disk, path) == noted:
        return
    try:
        await disk.replace_bytes_in_thread(path, json.dumps(noted).encode())
    except StoreWriteError as error:
        logger.warning("dledger_store.members_not_noted", reason=str(error))
