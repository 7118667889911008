"""The two articles that this project was made from: every point of theirs is named by a test.

A test names one in its docstring, behind "Seed checklist:" (spec: dledger §9). What had no test elsewhere is here.
"""

import ast
import inspect
import re
from functools import cache
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from rmqha.codec.dledger_wire import (
    AppendEntryRequest,
    AppendEntryResponse,
    Base,
    DLedgerRequestCode,
    GetEntriesRequest,
    GetEntriesResponse,
    decode,
    encode,
)
from rmqha.codec.remoting import RemotingCommand
from rmqha.config.load_dledger import load_dledger_settings
from rmqha.dledger.dledger_entry_pusher import DLedgerEntryPusher, PusherOptions
from rmqha.dledger.dledger_exception import DLedgerResponseCode
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.multi_path_mmap_file_list import MultiPathMmapFileList
from rmqha.dledger.push_entry import PushEntryResponse, PushType
from rmqha.errors import ConfigError
from rmqha.remoting.client import open_remoting_client
from tests.dledger.defaults import default, pusher_options
from tests.dledger.members import DATA_SIZE, INDEX_SIZE, all_of, cut_to, follower, lead, leader, opened, put, take
from tests.dledger.servers import PORT, ServerGroup
from tests.sim.sim_disk import SimDisk

TESTS = Path(__file__).parents[1]
Code = DLedgerResponseCode

POINTS: dict[str, tuple[str, ...]] = {
    "A: the protocol": ("two phases", "only the leader serves", "majority before success"),
    "A: protocol classes": ("protocol classes", "group, remoteId, localId, code, leaderId, term, body"),
    "A: handleAppend": ("handleAppend", "UNKNOWN_MEMBER", "UNKNOWN_GROUP", "NOT_LEADER"),
    "A: pending is full": ("LEADER_PENDING_FULL", "newCompletedFuture(-1)", "appendAsLeader", "asynchronous"),
    "A: pending": (
        *("isPendingFull", "checkTermForPendingMap", "pendingAppendResponsesByTerm", "maxPendingRequestsNum"),
        "maxPendingRequestsNum 10000",
    ),
    "A, B: stores": ("memory and file store", "DLedgerMmapFileStore", "DLedgerStore operations"),
    "A, B: step 1": ("leader role", "isDiskFull", "not 85"),
    "A, B: step 2": ("buffers of 4 MB", "of 64 bytes"),
    "A, B: step 3": ("encode", "computeSizeInBytes", "all ten fields"),
    "A, B: step 4": ("again under the lock", "getTransferee", "LEADER_TRANSFERRING"),
    "A, B: step 5": ("nextIndex", "CURRENT_MAGIC", "setIndexTerm", "index unique and ascending"),
    "A, B: steps 6 to 8": ("preAppend", "setPos", "AppendHook.doHook(entry, slice, BODY_OFFSET)", "DISK_ERROR checks"),
    "A, B: step 9": ("encodeIndex(pos, size, magic, index, term, buffer)", "indexPos = index * INDEX_UNIT_SIZE"),
    "A, B: step 10": ("ledgerEndIndex", "ledgerEndTerm", "ledgerBeginIndex", "updateLedgerEndIndexAndTerm"),
    "A: preAppend": ("preAppend(len, useBlank)", "MIN_BLANK_LEN", "BLANK_MAGIC_CODE", "the offset returned"),
    "A: append": (
        *("append()", "appendMessage(data, offset, length)", "wrotePosition", "mapped buffer", "page cache"),
    ),
    "A: waitAck 1, 2": (
        *("updatePeerWaterMark", "peerWaterMarksByTerm", "checkTermForWaterMark", "single node answer"),
    ),
    "A: waitAck 3, 4": (
        *("waitAck", "AppendFuture", "maxWaitAckTimeMs", "put by index", "wakeUpDispatchers", "dispatcherMap"),
        "EntryDispatcher",
    ),
    "B: constants": (
        *("CHECK_POINT_FILE", "END_INDEX_KEY", "COMMITTED_INDEX_KEY", "MAGIC_1", "CURRENT_MAGIC", "INDEX_UNIT_SIZE"),
    ),
    "B: constructor": (
        *("member variables", "constructor", "MULTI_PATH_SPLITTER", "single and multi-path lists", "file sizes"),
    ),
    "B: FlushDataService": (
        *("FlushDataService", "flush(0) twice", "500 ms log", "checkpoint interval", "flush interval"),
        "200 ms on error",
    ),
    "B: CleanSpaceService": (
        *("CleanSpaceService", "both ratios", "hour floor", "isNeedForbiddenWrite", "isTimeToDelete"),
        *("isNeedCheckExpired", "isNeedForceClean", "enableDiskForceClean", "intervalForcibly"),
        *("deleteExpiredFileByTime", "reviseLedgerBeginIndex", "retryDeleteFirstFile"),
        *("calcDataStorePathPhysicRatio", "fullStorePaths", "wait 100"),
    ),
    "B: startup": ("startup = load, recover, two services", "load failure exits"),
    "B: truncate": (
        *("truncate", "existedEntry", "rebuildWithPos", "revised flushedWhere", "NOT_FOLLOWER"),
        *("INCONSISTENT_TERM", "INCONSISTENT_LEADER"),
    ),
    "B: appendAsFollower": (
        *("appendAsFollower", "INCONSISTENT_INDEX", "INCONSISTENT_TERM", "INCONSISTENT_LEADER", "DISK_FULL"),
        "DISK_ERROR",
    ),
    "B: get": ("get(index)", "indexCheck", "index unit", "data slice", "pos check", "release"),
}
"""What the articles speak of, in their words; spec: dledger §9 has the same rows."""


@cache
def _docstrings() -> list[str]:
    """Of tests, and of classes of them."""
    definitions = ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef
    return [
        re.sub(r"\s+", " ", ast.get_docstring(node) or "")
        for path in sorted(TESTS.rglob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, definitions) and node.name.lower().startswith("test")
    ]


@pytest.mark.parametrize("row", POINTS)
def test_tests_name_every_point(row: str) -> None:
    named = "\n".join(text for text in _docstrings() if "seed checklist" in text.lower())
    missing = [word for word in POINTS[row] if not re.search(rf"(?<!\w){re.escape(word)}(?!\w)", named)]
    assert missing == []


class TestStore:
    def test_every_operation_of_a_store_is_there(self) -> None:
        """Seed checklist: memory and file store (DLedgerMmapFileStore), DLedgerStore operations (§1.7).

        DLedger's store in memory commits what it appends, and is for its tests only: ours run on a simulated disk.
        """
        store = DLedgerMmapFileStore
        for operation in ("startup", "shutdown", "append_as_leader", "append_as_follower", "truncate", "get"):
            assert callable(getattr(store, operation))
        assert inspect.iscoroutinefunction(store.flush_in_thread)
        made = opened(SimDisk(latency_s=(0, 0)).mount())
        assert (made.ledger_begin_index, made.ledger_end_index, made.ledger_end_term) == (-1, -1, -1)
        assert (made.committed_index, made.update_committed_index(1, 0)) == (-1, False)
        assert made.member_state.self_id == "n0"
        with pytest.raises(ConfigError, match="storeType: a member's log is always in files"):
            load_dledger_settings({"storeType": "MEMORY"})

    def test_what_a_store_begins_with(self) -> None:
        """Seed checklist: member variables; constructor: single and multi-path lists, file sizes (§1.7)."""
        mount = SimDisk(latency_s=(0, 0)).mount()
        one = opened(mount)
        assert not isinstance(one.data_file_list, MultiPathMmapFileList)
        assert (one.data_file_list.mapped_file_size, one.index_file_list.mapped_file_size) == (DATA_SIZE, INDEX_SIZE)
        assert (one.committed_pos, one.append_hooks, one.room.is_disk_full, one.full_store_paths) == (
            -1,
            [],
            False,
            frozenset(),
        )
        many = opened(SimDisk(latency_s=(0, 0)).mount(), data_store_path="/d1,/d2")
        assert isinstance(many.data_file_list, MultiPathMmapFileList)
        assert many.data_file_list.directories == ["/d1", "/d2"]
        assert many.index_file_list.directories == ["/store/dledger-n0/index"]
        settings = load_dledger_settings({})
        assert (settings.mapped_file_size_for_entry_data, settings.mapped_file_size_for_entry_index) == (
            1 << 30,
            5 * 32 * 1024 * 1024,
        )

    async def test_the_unit_of_an_entry_lies_where_its_index_says(self) -> None:
        """Seed checklist, step 9: indexPos = index * INDEX_UNIT_SIZE (spec: dledger §2.4)."""
        store = leader(SimDisk(latency_s=(0, 0)).mount())
        entries = put(store, *[b"x" * 30] * 25)
        assert await store.flush_in_thread()
        for entry in entries:
            unit = bytes(store.index_file_list.get_data(entry.index * 32, 32) or b"")
            assert int.from_bytes(unit[4:12], "big") == entry.pos
            assert int.from_bytes(unit[16:24], "big") == entry.index

    def test_the_lock_s_second_look_is_the_same_for_followers(self) -> None:
        """Seed checklist: appendAsFollower: what is checked (DISK_ERROR last) is checked when it is written.

        DLedger looks again under the lock; here nothing comes between (spec: dledger §1.10).
        """
        entries = put(leader(SimDisk(latency_s=(0, 0)).mount()), b"one", b"two")
        store = follower(SimDisk(latency_s=(0, 0)).mount())
        cut_to(store, entries[0])
        assert take(store, entries[1]).index == store.ledger_end_index == 1
        assert all_of(store) == entries
        assert not inspect.iscoroutinefunction(store.append_as_follower)


class TestPending:
    NAMES = frozenset({"n0", "n1", "n2"})

    def pusher(self, store: DLedgerMmapFileStore) -> DLedgerEntryPusher[None]:
        made = DLedgerEntryPusher[None](store, self.NAMES, options=pusher_options())
        assert made.begin_leading()
        return made

    def test_a_new_term_begins_with_nobody_waiting_and_nothing_counted(self) -> None:
        """Seed checklist: checkTermForPendingMap, pendingAppendResponsesByTerm, checkTermForWaterMark.

        And put by index (spec: dledger §2.3, §2.6): who waited in the old term is told TERM_CHANGED.
        """
        store = leader(SimDisk(latency_s=(0, 0)).mount())
        pusher, told = self.pusher(store), list[tuple[int, Code]]()
        for number in range(3):
            pusher.append(b"%d" % number, lambda entry, code: told.append((entry.index, code)), now=0)
        pusher.advance(now=0)
        assert pusher.checker is not None
        old = pusher.checker
        old.update_peer_water_mark("n1", 2)
        lead(store, 2)
        assert pusher.end_leading()
        assert told == [(index, Code.TERM_CHANGED) for index in range(3)]
        assert pusher.begin_leading()
        assert pusher.checker is not old
        assert [pusher.checker.water_mark(name) for name in sorted(self.NAMES)] == [-1, -1, -1]
        assert pusher.checker.times_out_at == float("inf")

    def test_so_many_may_wait(self) -> None:
        """Seed checklist: maxPendingRequestsNum 10000 (spec: dledger §2.3)."""
        assert default(PusherOptions, push=None, acks_flushed=True).max_pending_requests_num == 10_000

    def test_who_replicates_is_woken_at_once(self) -> None:
        """Seed checklist: wakeUpDispatchers, dispatcherMap, EntryDispatcher (spec: dledger §2.6 (4), §3.1)."""
        store = leader(SimDisk(latency_s=(0, 0)).mount())
        pusher = self.pusher(store)
        assert sorted(pusher.dispatchers) == ["n1", "n2"]
        connected = frozenset({"n1"})
        assert pusher.due_at(connected) == float("inf"), "an empty log is not compared"
        pusher.append(b"one", lambda entry, code: None, now=5)
        assert pusher.due_at(connected) <= 5
        [compare] = pusher.dispatchers["n1"].poll(now=5)
        assert (compare.type, compare.first_entry_index) == (PushType.COMPARE, 0)
        equal = PushEntryResponse(Code.SUCCESS, 1, 0, 1, 0, 0)
        pusher.on_answer("n1", compare, equal, now=5)
        pusher.append(b"two", lambda entry, code: None, now=5)
        [push] = pusher.dispatchers["n1"].poll(now=5)
        assert (push.type, push.first_entry_index) == (PushType.APPEND, 1)


class TestHandleAppend:
    @pytest.fixture
    async def group(self, nursery: trio.Nursery, autojump_clock: MockClock) -> ServerGroup:
        group = ServerGroup(nursery, max_pending_requests_num=0)
        await group.start()
        await group.wait_leader()
        return group

    async def ask(
        self, group: ServerGroup, member: str, base: Base, *, of: str = "10.0.1.9"
    ) -> tuple[Base, AppendEntryResponse]:
        network = group.net.host(of).mount()
        async with open_remoting_client(network, f"{group.addresses[member]}:{PORT}") as client:
            body = encode(AppendEntryRequest(b"body"), base)
            answer = await client.invoke(RemotingCommand(DLedgerRequestCode.APPEND, body=body), timeout_s=5)
            return decode(AppendEntryResponse, answer.body)

    async def test_what_is_checked_first(self, group: ServerGroup, autojump_clock: MockClock) -> None:
        """Seed checklist: handleAppend checks UNKNOWN_MEMBER, UNKNOWN_GROUP, NOT_LEADER; only the leader serves.

        Spec: dledger §2.2 (1), §5.6: the leader that is known is named.
        """
        leader = await group.wait_leader()
        other = next(name for name in group.members if name != leader)
        for asked, base, code in [
            (other, Base("another", "n7"), Code.UNKNOWN_MEMBER),
            (other, Base("another", other), Code.UNKNOWN_GROUP),
            (other, Base("g", other), Code.NOT_LEADER),
        ]:
            of, answer = await self.ask(group, asked, base)
            assert (answer.code, answer.leader_id, answer.index, answer.pos) == (code, leader, -1, -1)
            assert (of.group, of.remote_id) == (base.group, base.remote_id)
        network = group.net.host("10.0.1.9").mount()
        async with open_remoting_client(network, f"{group.addresses[other]}:{PORT}") as client:
            body = encode(GetEntriesRequest(0), Base("g", other))
            got = await client.invoke(RemotingCommand(DLedgerRequestCode.GET, body=body), timeout_s=5)
        assert decode(GetEntriesResponse, got.body)[1].code == Code.NOT_LEADER
        assert all(member.running.store.ledger_end_index == -1 for member in group.members.values())

    async def test_more_than_may_wait_are_refused(self, group: ServerGroup, autojump_clock: MockClock) -> None:
        """Seed checklist: LEADER_PENDING_FULL with group, code, term, leaderId, newCompletedFuture(-1).

        Else appendAsLeader, waitAck, asynchronous: the entry is in the leader's log before its answer (spec: dledger
        §2.2 (2, 3)).
        """
        leader = await group.wait_leader()
        server = group.members[leader].running
        for name, member in group.members.items():
            if name != leader:
                member.kill()
        answers = list[AppendEntryResponse]()

        async def append() -> None:
            answers.append((await self.ask(group, leader, Base("g", leader), of="10.0.1.8"))[1])

        group.nursery.start_soon(append)
        await group.wait(lambda: server.store.ledger_end_index == 0)
        assert answers == []
        of, answer = await self.ask(group, leader, Base("g", leader))
        term = server.member_state.curr_term
        assert (of.group, answer.code, answer.term, answer.leader_id) == ("g", Code.LEADER_PENDING_FULL, term, leader)
        assert (answer.index, answer.pos, server.store.ledger_end_index) == (-1, -1, 0)
        await group.wait(lambda: bool(answers))
        assert answers[0].code == Code.WAIT_QUORUM_ACK_TIMEOUT

    async def test_a_member_s_services_run(self, group: ServerGroup, autojump_clock: MockClock) -> None:
        """Seed checklist: startup = load, recover, two services (spec: dledger §1.7)."""
        await group.append(b"one")
        leader = await group.wait_leader()
        store = group.members[leader].running.store
        assert store.flushed_index == 0, "which FlushDataService does"
        for member in group.members.values():  # else the leader gives way to one that has room
            member.disk.faults.crowded = True
        await group.wait(lambda: store.room.is_disk_full)
        assert (await group.client.append(b"two")).code == Code.DISK_FULL
        for member in group.members.values():
            member.disk.faults.crowded = False
        await group.wait(lambda: not store.room.is_disk_full)
        await group.append(b"two")
        for member in group.members.values():
            member.kill()
        for member in group.members.values():
            await member.start()
        assert [entry.body for entry in await group.wait_same()] == [b"one", b"two"]
