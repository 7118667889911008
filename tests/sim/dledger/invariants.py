"""The invariants of a Raft group (spec: dledger §7.1), looked at whenever a member sends anything, dies, or starts.

The checker sees everything: what each device would hold after a power cut now, and what each process believes.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import trio

from rmqha.codec.dledger_entry import DLedgerEntry
from rmqha.codec.dledger_properties import TERM_FILE, TermVote, decode_term_vote
from rmqha.dledger.dledger_exception import DLedgerException
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.dledger_server import DLedgerServer
from rmqha.dledger.quorum_ack_checker import QuorumAckChecker
from rmqha.errors import StoreReadError, StoreWriteError
from tests.sim.dledger.held import has_deleted, holds
from tests.sim.dledger.machine import Machine, Process

if TYPE_CHECKING:
    from tests.sim.dledger.world import World

_LEADS_BROKEN_S: Final = 1.0
"""So long after its disk has failed a member may lead: it may be about to notice."""
_HANDS_OVER_S: Final = 6.0
"""A transfer has ended by then: its request within 3 s, and what a member does meanwhile takes a moment."""
_TORN: Final = 1
"""Entries that were being written when a process died: they may be there, or not."""


@dataclass(frozen=True, slots=True)
class Remains:
    """What a dead process had."""

    log: dict[int, DLedgerEntry]
    begin: int
    end: int
    flushed: int


@dataclass(eq=False)
class Checker:
    """Watches one run; :attr:`violations` is empty if all is well."""

    world: "World"
    violations: list[str] = field(default_factory=list)
    acknowledged: dict[int, DLedgerEntry] = field(default_factory=dict)
    """What clients were told is committed."""
    committed: dict[int, DLedgerEntry] = field(default_factory=dict)
    """What any member ever took for committed."""
    leaders: dict[int, tuple[str, QuorumAckChecker]] = field(default_factory=dict)
    """Who led a term, and the leadership itself: there is one a term."""
    terms: dict[str, TermVote] = field(default_factory=dict)
    """What each member's device has as its term and vote."""
    term_since: dict[str, float] = field(default_factory=dict)
    """When it got that term."""
    _known: dict[tuple[int, int], tuple[DLedgerEntry, int | None]] = field(default_factory=dict)
    """By index and term: the only entry there is, and the term of the one before it."""
    _remains: dict[str, Remains] = field(default_factory=dict)

    def violation(self, invariant: str, message: str) -> None:
        """Note that an invariant does not hold; the world stops at its next look."""
        self.world.journal.record("violation", invariant, message)
        self.violations.append(f"{invariant}: {message}")
        self.world.stop()

    # ---- at any moment

    def look(self, machine: Machine) -> None:
        """S3 to S7, S9, and that what is called durable is: what has changed since the last look."""
        process = machine.process
        if process is None or process.store is None or process.dead:
            return
        store = process.store
        seen = (store.ledger_begin_index, store.ledger_end_index, store.ledger_end_term, store.committed_index)
        if (*seen, store.flushed_index) != process.seen and store.write_error is None:
            process.seen = (*seen, store.flushed_index)
            self._look_at_log(machine, process, store)
            self._look_at_commit(machine, process, store)
            self._look_at_flush(machine, process, store)
        if process.server is not None and process.server.pusher.handler.diverged is not None:
            self.violation("S7", f"{machine.name} was told to cut: {process.server.pusher.handler.diverged}")
        if process.server is not None and process.leads:
            self._look_at_leader(machine, process, process.server)
        if process.server is not None:
            self._look_at_transfer(machine, process, process.server)

    def _look_at_log(self, machine: Machine, process: Process, store: DLedgerMmapFileStore) -> None:
        begin, end = store.ledger_begin_index, store.ledger_end_index
        same = min(process.end, end)
        while same >= max(begin, process.begin, 0) and process.log.get(same) != store.get(same):
            same -= 1
        if same < process.end:
            self._on_cut(machine, process, same)
        if begin > process.begin:
            for index in range(process.begin, min(begin, process.end + 1)):
                process.log.pop(index, None)
        term = store.member_state.curr_term
        for index in range(max(same + 1, begin, 0), end + 1):
            self._on_entry(machine, process, store.get(index), term=term)
        process.begin, process.end = begin, end
        state = store.member_state
        last = process.log[end].term if end >= 0 else -1
        if (state.ledger_end_index, state.ledger_end_term) != (end, last):
            told = f"index {state.ledger_end_index} and term {state.ledger_end_term}"
            self.violation(
                "S6", f"{machine.name} ends with index {end} and term {last}, and asks for votes with {told}"
            )

    def _on_cut(self, machine: Machine, process: Process, index: int) -> None:
        if index < process.committed:
            self.violation("S7", f"{machine.name} cuts its log behind {index}, and has committed {process.committed}")
        if process.leads and process.server is not None:
            led = self.leaders.get(process.server.member_state.curr_term)
            if led is not None and led[1] is process.server.pusher.checker:
                self.violation("S3", f"{machine.name} leads, and cuts its log behind {index}")
        for gone in range(index + 1, process.end + 1):
            process.log.pop(gone, None)
        process.flushed = min(process.flushed, index)

    def _on_entry(self, machine: Machine, process: Process, entry: DLedgerEntry, *, term: int) -> None:
        before = process.log.get(entry.index - 1)
        process.log[entry.index] = entry
        known, term_before = self._known.setdefault(
            (entry.index, entry.term), (entry, None if before is None else before.term)
        )
        place = f"index {entry.index}, term {entry.term}"
        if known != entry:
            self.violation("S4", f"{machine.name} has another entry at {place}: {entry}, not {known}")
        if before is not None and term_before is None:
            self._known[entry.index, entry.term] = entry, before.term
        elif before is not None and term_before != before.term:
            self.violation("S4", f"before {place} {machine.name} has term {before.term}, others have {term_before}")
        if before is not None and before.term > entry.term:
            self.violation("S5", f"{machine.name} has term {before.term} before {place}")
        if entry.term > term:
            self.violation("S5", f"{machine.name} is in term {term}, and has an entry at {place}")

    def _look_at_commit(self, machine: Machine, process: Process, store: DLedgerMmapFileStore) -> None:
        committed = store.committed_index
        if committed > store.ledger_end_index:
            self.violation(
                "S7", f"{machine.name} has committed {committed}, its log ends with {store.ledger_end_index}"
            )
            return
        is_anew = store.ledger_begin_index > process.committed and committed < process.committed
        if committed < process.committed and not is_anew:
            self.violation("S7", f"what {machine.name} has committed falls from {process.committed} to {committed}")
        for index in range(max(process.committed + 1, store.ledger_begin_index, 0), committed + 1):
            self._on_committed(machine, process.log[index])
        term = store.member_state.curr_term
        if process.leads and term in self.leaders and committed > process.committed:
            self._check_rule(machine, process.log[committed], term=term)
        process.committed = committed
        if committed >= 0 and store.committed_pos != process.log[committed].pos + process.log[committed].size:
            self.violation("S9", f"{machine.name} has committed {committed}, but bytes up to {store.committed_pos}")

    def _check_rule(self, machine: Machine, entry: DLedgerEntry, *, term: int) -> None:
        """Spec: dledger §7.4: an older term's entries are committed by one of this term, or once all have them.

        Or had them, and have deleted them: a leader that was started again may not know that they are committed. What
        one has that was not yet seen to lead, it may have heard of as a follower.
        """
        is_durable = self.world.swarm.acks_flushed
        if entry.term != term and not all(
            holds(one, entry, durable=is_durable) or has_deleted(one, entry, durable=is_durable)
            for one in self.world.machines.values()
        ):
            self.violation("S7", f"{machine.name} commits {entry} in term {term}, and not all have it")

    def _on_committed(self, machine: Machine, entry: DLedgerEntry) -> None:
        known = self.committed.setdefault(entry.index, entry)
        if known != entry:
            self.violation("S7", f"{machine.name} commits {entry}, but committed there is {known}")

    def _look_at_flush(self, machine: Machine, process: Process, store: DLedgerMmapFileStore) -> None:
        for index in range(max(process.flushed + 1, store.ledger_begin_index, 0), store.flushed_index + 1):
            if index in process.log and not holds(machine, process.log[index], durable=True):
                self.violation("durable", f"{machine.name} calls {index} durable, and the device does not have it")
        process.flushed = store.flushed_index

    def _look_at_leader(self, machine: Machine, process: Process, server: DLedgerServer) -> None:
        term, checker = server.member_state.curr_term, server.pusher.checker
        assert checker is not None, "it leads"
        leader = self.leaders.get(term)
        if leader is None:
            self.leaders[term] = machine.name, checker
            self.world.journal.record("led", machine.name, term)
            self._on_elected(machine, process, term)
        elif leader[1] is not checker:
            self.violation("S1", f"{machine.name} begins to lead term {term}, which {leader[0]} has begun to lead")
        if process.store is not None and process.store.write_error is not None:
            now = trio.current_time()
            process.broken_since = now if process.broken_since is None else process.broken_since
            late_s = now - max(process.broken_since, machine.disk.faults.hung_until)
            if late_s > _LEADS_BROKEN_S and machine.disk.faults.slowness == 1.0:
                self.violation("broken", f"{machine.name} leads {late_s:.1f} s after its disk has failed")

    def _look_at_transfer(self, machine: Machine, process: Process, server: DLedgerServer) -> None:
        """S11: a leader that hands over refuses appends, so that has to end, well or not."""
        state, now = server.member_state, trio.current_time()
        if state.transferee is None:
            process.handing_over = None
            return
        if process.handing_over is None or process.handing_over[0] != state.curr_term:
            process.handing_over = state.curr_term, now
        if (lasts_s := now - process.handing_over[1]) > _HANDS_OVER_S:
            self.violation("S11", f"{machine.name} hands over to {state.transferee} for {lasts_s:.1f} s")

    def _on_elected(self, machine: Machine, process: Process, term: int) -> None:
        if self.terms.get(machine.name) != TermVote(term, machine.name):
            self.violation("S2", f"{machine.name} leads term {term}, and its file says {self.terms.get(machine.name)}")
        for index, entry in self.committed.items():
            if index >= process.begin and process.log.get(index) != entry:
                self.violation("S6", f"{machine.name} leads term {term} without {entry}, which is committed")
                return

    # ---- files, deaths and starts

    def on_replaced(self, machine: Machine, path: str, data: bytes) -> None:
        """S2: a term never falls, and a vote never changes."""
        if not path.endswith(f"/{TERM_FILE}"):
            return
        before, now = self.terms.get(machine.name, TermVote(0)), decode_term_vote(data)
        if now is None or now.curr_term < before.curr_term:
            self.violation("S2", f"{machine.name} saves {now}, and had saved {before}")
            return
        if now.curr_term == before.curr_term and before.vote_leader not in {None, now.vote_leader}:
            self.violation("S2", f"{machine.name} votes again: {now}, {before}")
        self.terms[machine.name] = now
        if now.curr_term > before.curr_term:
            self.term_since[machine.name] = trio.current_time()

    def on_death(self, machine: Machine, process: Process) -> None:
        """What it had is looked at for the last time."""
        store = process.store
        if store is None:
            return
        log, begin, end = dict[int, DLedgerEntry](), store.ledger_begin_index, store.ledger_end_index
        for index in range(max(begin, 0), end + 1):
            try:
                log[index] = store.get(index)
            except (DLedgerException, StoreReadError):  # it died in the midst of a cut, or is closed already
                if index in process.log:
                    log[index] = process.log[index]
        self._remains[machine.name] = Remains(log, begin, end, store.flushed_index)

    def on_recovered(self, machine: Machine, process: Process) -> None:
        """S12: the log is a prefix of what was there, with all that was durable."""
        store = process.store
        assert store is not None, "it was opened"
        if store.member_state.curr_term < self.terms.get(machine.name, TermVote(0)).curr_term:
            self.violation("S2", f"{machine.name} starts in term {store.member_state.curr_term}: {self.terms}")
        path = f"{machine.config.default_path}/{TERM_FILE}"
        if path in machine.disk.files:  # the power may have gone when it was replaced, and nobody was told
            self.on_replaced(machine, path, bytes(machine.disk.files[path].cache))
        before = self._remains.get(machine.name)
        if before is not None:
            self._check_prefix(machine, store, before)
        process.flushed = -1
        self.look(machine)

    def _check_prefix(self, machine: Machine, store: DLedgerMmapFileStore, before: Remains) -> None:
        end, name = store.ledger_end_index, machine.name
        is_durable = self.world.swarm.acks_flushed and before.flushed in before.log  # it may have begun behind it
        if is_durable and end < before.flushed:
            self.violation("S12", f"{name} has {end} entries left, and {before.flushed} were durable")
        if end > before.end + _TORN and before.log:
            self.violation("S12", f"{name} had entries up to {before.end}, and comes back with {end}")
        shared = range(max(before.begin, store.ledger_begin_index, 0), min(before.end, end) + 1)
        different = [index for index in shared if index in before.log and store.get(index) != before.log[index]]
        if different and different != [end]:
            self.violation("S12", f"{name} comes back with other entries at {different[:3]}, and ends with {end}")
        if different and before.flushed >= different[0] and is_durable:
            self.violation("S12", f"{name} comes back with another entry at {different[0]}, which was durable")

    def on_crashed(self, machine: Machine, error: BaseExceptionGroup[BaseException]) -> None:
        """A process ended by itself: only a disk that refuses to work is an excuse."""
        for leaf in leaves(error):
            is_refused = machine.disk.refused_in == machine.disk.epoch
            if isinstance(leaf, StoreWriteError | StoreReadError) and is_refused:
                continue
            self.violation("crash", f"{machine.name} ended with {leaf!r}")
            self.world.keep_traceback(leaf)

    # ---- at an answer

    def on_acknowledged(self, machine: Machine, entry: DLedgerEntry) -> None:
        """S8: a majority has it when a client is told."""
        world = self.world
        holders = [one for one in world.machines.values() if holds(one, entry, durable=world.swarm.acks_flushed)]
        if len(holders) < world.swarm.quorum:
            have = ", ".join(one.name for one in holders) or "nobody"
            self.violation("S8", f"{machine.name} acknowledges {entry.index}, which {have} has")
        self.acknowledged[entry.index] = entry
        self._on_committed(machine, entry)


def leaves(group: BaseExceptionGroup[BaseException]) -> list[BaseException]:
    """The errors in a group, and in those in it."""
    found: list[BaseException] = []
    for error in group.exceptions:
        found += leaves(error) if isinstance(error, BaseExceptionGroup) else [error]
    return found
