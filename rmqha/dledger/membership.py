"""Of which group a member's store is, and which members committed last: others make other majorities.

dledger-ID/members   a JSON object: group, and the ids of its members. rmqha's own; DLedger does not look at it.
"""

import json
from collections.abc import Callable
from typing import Any, Final

import structlog
import trio

from rmqha.dledger.dledger_entry_pusher import DLedgerEntryPusher
from rmqha.dledger.dledger_exception import DLedgerException
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.other_members import OtherMembers
from rmqha.dledger.server_options import ServerOptions
from rmqha.errors import StoreReadError, StoreWriteError
from rmqha.store.disk import Disk

logger = structlog.get_logger()

MEMBERS_FILE: Final = "members"
_LOOKS_AGAIN_S: Final = 1.0


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


class Membership:
    """Notes these members once a majority of them has committed anything: the note is the last list that has.

    Until then the note stays as it is. A list that was tried in vain says nothing of what its members have.
    """

    def __init__(
        self,
        options: ServerOptions,
        disk: Disk,
        store: DLedgerMmapFileStore,
        pusher: DLedgerEntryPusher[Any],
        *,
        append_barrier: Callable[[], None],
    ) -> None:
        """Of a member that begins to run; ``append_barrier`` appends an entry of its term while it leads."""
        self._disk: Final = disk
        self._store: Final = store
        self._pusher: Final = pusher
        self._append_barrier: Final = append_barrier
        self._path: Final = f"{options.store.default_path}/{MEMBERS_FILE}"
        self._members: Final = {"group": options.group, "members": sorted(options.peers)}
        self._began_in_term: Final = store.member_state.curr_term

    async def run(self) -> None:
        """Return when they are noted. That they cannot be is logged: the store says itself if its disk fails."""
        try:
            noted = _read(self._disk, self._path)
            if noted == self._members:
                return
            while not self._has_committed():
                if noted and self._pusher.checker is not None and self._store.ledger_end_term <= self._began_in_term:
                    self._append_barrier()
                await trio.sleep(_LOOKS_AGAIN_S)
            await self._disk.replace_bytes_in_thread(self._path, json.dumps(self._members).encode())
        except (StoreReadError, StoreWriteError) as error:
            logger.warning("dledger_store.members_not_noted", reason=str(error))

    def _has_committed(self) -> bool:
        """Whether an entry of a term that began since is committed: a majority of these has it, and all before it."""
        store = self._store
        if store.ledger_end_term <= self._began_in_term or store.committed_index < store.ledger_begin_index:
            return False
        try:
            return store.get(store.committed_index).term > self._began_in_term
        except DLedgerException:
            return False
