"""Of which group a member's store is, and which members committed last: others make other majorities.

dledger-ID/members   a JSON object: group, and the ids of its members. rmqha's own; DLedger does not look at it.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, Final

import structlog
import trio

from rmqha.codec.dledger_wire import MemberStatus, MetadataResponse
from rmqha.codec.host import join_address
from rmqha.dledger.dledger_entry_pusher import DLedgerEntryPusher
from rmqha.dledger.dledger_exception import DLedgerException
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.member_lists import AskMetadata, MemberLists, Members, majorities_meet, members_of
from rmqha.dledger.other_members import OtherMembers
from rmqha.dledger.peer_connection import PeerConnection
from rmqha.dledger.server_options import ServerOptions
from rmqha.errors import StoreReadError, StoreWriteError
from rmqha.store.disk import Disk

logger = structlog.get_logger()

MEMBERS_FILE: Final = "members"
_LOOKS_AGAIN_S: Final = 1.0
_ASKED_AGAIN_TURNS: Final = 10
_SEE: Final = "see docs/dledger.md, 'A member with another list'"
_NEXT: Final = f"correct dLegerPeers (--peers) where it is wrong, and start that member again; {_SEE}"


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
    if majorities_meet(before, now):
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
    """Notes the last list of members by which anything was committed, whether or not this member runs with it.

    A list that was tried in vain says nothing of what its members have. What is committed in a term is so by the list
    of its leader, which is asked: in a rolling restart, or where a file was forgotten, it may be another one.
    A leader whose term has no entry appends one where a member, itself or another, has yet to note the list.
    """

    def __init__(
        self,
        options: ServerOptions,
        disk: Disk,
        store: DLedgerMmapFileStore,
        pusher: DLedgerEntryPusher[Any],
        process: str,
        *,
        connections: Mapping[str, PeerConnection],
        ask: AskMetadata,
        append_barrier: Callable[[], None],
        on_told: Callable[[], None] = lambda: None,
    ) -> None:
        """Of a member that begins to run.

        ``append_barrier`` appends an entry of its term while it leads; ``on_told``: whether it may lead may be another.
        """
        self._disk: Final = disk
        self._store: Final = store
        self._state: Final = store.member_state
        self._pusher: Final = pusher
        self._ask: Final = ask
        self._append_barrier: Final = append_barrier
        self._peers: Final[Members] = tuple(sorted(options.peers))
        self._group: Final = options.group
        self._path: Final = f"{options.store.default_path}/{MEMBERS_FILE}"
        self._addresses: Final = {peer: join_address(*address) for peer, address in options.peers.items()}
        self._process: Final = process
        self.lists: Final = MemberLists(
            options.store.self_id, self._addresses, connections, ask, process=process, on_told=on_told
        )
        self._known_of: tuple[str, int] | None = None
        """Of which leader, in which term, it is known which members it has."""
        self._leaders: Members | None = None
        self._denied: tuple[tuple[str, int], float] | None = None
        """Which leader, in which term, did not lead as who is found at its address has it, and since when."""
        self._leak_s: Final = options.elector.leak_s
        self._committed_by: tuple[str, Members] | None = None
        """The leader that committed last by a list whose majorities need not meet this member's, and that list."""
        self._asked_in = -1
        """The last term in which the others were asked what they have noted."""
        self._is_awaited = False
        """One of them has yet to note these members."""
        self._told = list[str]()
        noted = self._look()
        members = noted.get("members")
        self._noted: Members = tuple(map(str, members)) if isinstance(members, list) else ()
        self._is_of_group = noted.get("group") == self._group

    @property
    def former(self) -> Members | None:
        """The members that are noted, if these are not the present ones: empty if none are.

        None: the present ones are, or there is no entry yet, which others could miss.
        """
        is_at_stake = self._noted or self._store.ledger_end_index >= 0
        return self._noted if is_at_stake and not self._has_noted(self._peers) else None

    def _has_noted(self, members: Members) -> bool:
        return self._is_of_group and self._noted == members

    @property
    def not_to_lead(self) -> str:
        """Why this member must not lead: by its own list it would acknowledge without those who have what is committed.

        A restart does not lift this: the leader's list is noted, and what goes out from it may not start with this one.
        """
        if self._committed_by is None:
            return ""
        leader, members = self._committed_by
        if self.lists.of(leader) == self._peers:  # started again, with the list that is to be
            return ""
        return (
            f"it runs with {', '.join(self._peers)}, and its leader {leader} has committed with {', '.join(members)}: "
            f"majorities of these lists need not meet, so it does not lead, and is not elected: {_NEXT}"
        )

    @property
    def may_lead(self) -> bool:
        """Not by a list whose majorities may miss what is committed, nor while another process is known with its id."""
        return not self.not_to_lead and self.lists.rivals.of(self._state.self_id) is None

    def troubles(self) -> list[str]:
        """What is wrong with the lists of members, as this member knows.

        A follower compares its own with its leader's; a leader, and who knows none, with those of all who tell.
        """
        if self.not_to_lead:
            return [self.not_to_lead]
        state, found, rivals = self._state, self.lists.differences(), self._rivals()
        if self._pusher.checker is not None:
            return rivals + [
                f"{peer} {its}, and {state.self_id}, which leads, {own}: {_NEXT}" for peer, its, own in found
            ]
        named = {state.leader_id: f"its leader {state.leader_id}"}
        return rivals + [
            f"it {own}, and {named.get(peer, peer)} {its}: {_NEXT}"
            for peer, its, own in found
            if state.leader_id in {peer, None}
        ]

    def _rivals(self) -> list[str]:
        """Of whom two processes are known, in words.

        A process that ended its leadership sends no heartbeats: who follows for longer than it does without them, hears
        another one's.
        """
        found = self.lists.rivals.troubles(self.lists.counted())
        if self._denied is None or self._denied[0] != (self._state.leader_id, self._state.curr_term):
            return found
        (leader, _), since = self._denied
        if trio.current_time() <= since + self._leak_s + _LOOKS_AGAIN_S:
            return found
        trouble = (
            f"two processes are {leader}: it follows one, and that at {self._addresses[leader]}, where it looks for "
            f"{leader}, says that it does not lead: stop the one that is not to be; {_SEE}"
        )
        return [*found, trouble]

    def told_in(self, status: MemberStatus) -> MemberStatus:
        """What this member tells of itself, with what is known here."""
        return replace(
            status,
            former_members=self.former,
            not_to_lead=self.not_to_lead or None,
            process=self._process,
            counted=self.lists.counted(),
            rivals=tuple(self._rivals()) or None,
        )

    def _look(self) -> dict[str, Any]:
        try:
            return _read(self._disk, self._path)
        except StoreReadError as error:
            logger.warning("dledger_store.members_not_noted", reason=str(error))
            return {}

    async def run(self) -> None:
        """Until cancelled. That they cannot be noted is logged, and tried again."""
        told = ""
        for turn in count(1):
            self.lists.ask_all(again=turn % _ASKED_AGAIN_TURNS == 0)
            if self._pusher.checker is not None and self._store.ledger_end_term < self._state.curr_term:
                self._commit_for_notes()
            if (members := self._committing_members()) is not None:
                self._judge(members)
                if not self._has_noted(members):
                    told = await self._note(members, told)
            self._tell_troubles()
            await trio.sleep(_LOOKS_AGAIN_S)

    def _tell_troubles(self) -> None:
        troubles = self.troubles()
        for trouble in troubles:
            if trouble not in self._told:
                logger.warning("dledger_membership.other_list", reason=trouble)
        self._told = troubles

    def _judge(self, members: Members) -> None:
        """The present leader has committed by this list: whether a leader with this member's could miss that."""
        leader = self._state.leader_id
        may_miss = not majorities_meet(members, self._peers)
        self._committed_by = (leader, members) if may_miss and leader is not None else None

    async def _note(self, members: Members, told: str) -> str:
        """Returns why that failed, which was ``told`` the last time."""
        noted = json.dumps({"group": self._group, "members": members}).encode()
        try:
            await self._disk.replace_bytes_in_thread(self._path, noted)
        except StoreWriteError as error:
            if str(error) != told:
                logger.warning("dledger_store.members_not_noted", reason=str(error))
            return str(error)
        self._noted, self._is_of_group = members, True
        return told

    def _commit_for_notes(self) -> None:
        """As a leader whose term has no entry: where all have noted their members, there is none to be appended.

        All are asked again and again: any may be emptied, or started with another list, and then has yet to note.
        """
        if self._store.ledger_end_index < 0:
            return
        if self._asked_in != self._state.curr_term:
            self._asked_in, self._is_awaited = self._state.curr_term, False
        if self.former is not None or self._is_awaited:
            self._append_barrier()
            return
        for peer in self._peers:
            if peer != self._state.self_id:
                self._ask(peer, partial(self._on_told, self._asked_in))

    def _on_told(self, term: int, response: MetadataResponse | None) -> None:
        status = None if response is None else response.rmqha_status
        if status is not None and status.former_members is not None and self._asked_in == term:
            self._is_awaited = True

    def _committing_members(self) -> Members | None:
        """The leader's list, if by it an entry of the present term is committed, and so all before it; else None."""
        store, members = self._store, self._leaders_list()
        if members is None or store.committed_index < max(0, store.ledger_begin_index):
            return None
        try:
            return members if store.get(store.committed_index).term == self._state.curr_term else None
        except DLedgerException:
            return None

    def _leaders_list(self) -> Members | None:
        """With whom the present leader runs; it is asked once in its term. None: that is not known."""
        leader, term = self._state.leader_id, self._state.curr_term
        if self._pusher.checker is not None:
            return self._peers
        if leader not in self._peers or leader == self._state.self_id:
            return None

        def on_answer(response: MetadataResponse | None) -> None:
            if response is None or response.code != MetadataResponse().code:
                return
            if response.leader_id != leader:
                if self._denied is None or self._denied[0] != (leader, term):
                    self._denied = (leader, term), trio.current_time()
            elif members_of(response):
                self._known_of, self._leaders, self._denied = (leader, term), members_of(response), None

        if self._known_of != (leader, term):
            self._ask(leader, on_answer)
        return self._leaders if self._known_of == (leader, term) else None
