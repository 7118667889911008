"""Of which group a member's store is, and which members committed last: others make other majorities.

dledger-ID/members   a JSON object: group, and the ids of its members. rmqha's own; DLedger does not look at it.
"""

import json
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import structlog
import trio

from rmqha.codec.dledger_wire import MetadataResponse
from rmqha.dledger.dledger_entry_pusher import DLedgerEntryPusher
from rmqha.dledger.dledger_exception import DLedgerException
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.giving_way import AskMetadata
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
        "start with the list before this one until all are in sync ('rmqha dledger status --wait in-sync'), and add or "
        "take away one member at a time (docs/dledger.md, 'Other members'). A member that alone was away while the "
        "list changed more than once starts with an empty directory. If what was acknowledged may be lost, "
        f"remove {path} on all",
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

    Until then the note stays as it is. A list that was tried in vain says nothing of what its members have. What is
    committed in a term is so by the list of its leader, which is asked: in a rolling restart it may be another one.
    A leader whose term has no entry appends one where a member, itself or another, has yet to note the list.
    """

    def __init__(
        self,
        options: ServerOptions,
        disk: Disk,
        store: DLedgerMmapFileStore,
        pusher: DLedgerEntryPusher[Any],
        *,
        ask: AskMetadata,
        append_barrier: Callable[[], None],
    ) -> None:
        """Of a member that begins to run; ``append_barrier`` appends an entry of its term while it leads."""
        self._disk: Final = disk
        self._store: Final = store
        self._state: Final = store.member_state
        self._pusher: Final = pusher
        self._ask: Final = ask
        self._append_barrier: Final = append_barrier
        self._peers: Final = sorted(options.peers)
        self._path: Final = f"{options.store.default_path}/{MEMBERS_FILE}"
        self._present: Final = {"group": options.group, "members": self._peers}
        self._known_of: tuple[str, int] | None = None
        """Of which leader, in which term, it is known whether it has these members."""
        self._is_leaders = False
        self._asked_in = -1
        """The last term in which the others were asked what they have noted."""
        self._silent = set[str]()
        """Those of them who have not told."""
        self._is_awaited = False
        """One of them has yet to note these members."""
        noted = self._look()
        self._is_noted = noted == self._present
        members = noted.get("members")
        self._noted_before: Final = tuple(map(str, members)) if isinstance(members, list) else ()

    @property
    def former(self) -> tuple[str, ...] | None:
        """The members that are noted, if these are not the present ones: empty if none are.

        None: the present ones are, or there is no entry yet, which others could miss.
        """
        is_at_stake = self._noted_before or self._store.ledger_end_index >= 0
        return self._noted_before if is_at_stake and not self._is_noted else None

    def _look(self) -> dict[str, Any]:
        try:
            return _read(self._disk, self._path)
        except StoreReadError as error:
            logger.warning("dledger_store.members_not_noted", reason=str(error))
            return {}

    async def run(self) -> None:
        """Until cancelled. That they cannot be noted is logged, and tried again."""
        told = ""
        while True:
            if self._pusher.checker is not None and self._store.ledger_end_term < self._state.curr_term:
                self._commit_for_notes()
            if not self._is_noted and self._has_committed():
                try:
                    await self._disk.replace_bytes_in_thread(self._path, json.dumps(self._present).encode())
                    self._is_noted = True
                except StoreWriteError as error:
                    if str(error) != told:
                        told = str(error)
                        logger.warning("dledger_store.members_not_noted", reason=told)
            await trio.sleep(_LOOKS_AGAIN_S)

    def _commit_for_notes(self) -> None:
        """As a leader whose term has no entry: where all have noted their members, there is none to be appended.

        Who runs with another list, or has no entry, is asked until it has this one, and some: then it has yet to note.
        """
        if self._store.ledger_end_index < 0:
            return
        if self._asked_in != self._state.curr_term:
            self._asked_in, self._is_awaited = self._state.curr_term, False
            self._silent = {peer for peer in self._peers if peer != self._state.self_id}
        if self.former is not None or self._is_awaited:
            self._append_barrier()
            return
        for peer in sorted(self._silent):
            self._ask(peer, partial(self._on_told, peer, self._asked_in))

    def _on_told(self, peer: str, term: int, response: MetadataResponse | None) -> None:
        if response is None or self._asked_in != term:
            return
        status = response.rmqha_status
        has_list = not response.peers or sorted(response.peers) == self._peers
        if has_list and (status is None or status.end_index >= 0):
            self._silent.discard(peer)
        if status is not None and status.former_members is not None:
            self._is_awaited = True

    def _has_committed(self) -> bool:
        """Whether an entry of the present term is committed: a majority of these members has it, and all before it."""
        store = self._store
        if not self._is_leaders_list() or store.committed_index < max(0, store.ledger_begin_index):
            return False
        try:
            return store.get(store.committed_index).term == self._state.curr_term
        except DLedgerException:
            return False

    def _is_leaders_list(self) -> bool:
        """Whether the present leader has these members; it is asked once in its term."""
        leader, term = self._state.leader_id, self._state.curr_term
        if self._pusher.checker is not None:
            return True
        if leader not in self._peers or leader == self._state.self_id:
            return False

        def on_answer(response: MetadataResponse | None) -> None:
            if response is not None and response.leader_id == leader and response.peers:
                self._known_of, self._is_leaders = (leader, term), sorted(response.peers) == self._peers

        if self._known_of != (leader, term):
            self._ask(leader, on_answer)
        return self._known_of == (leader, term) and self._is_leaders
