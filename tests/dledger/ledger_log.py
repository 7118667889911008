"""A DLedgerCommitLog alone, with a test in place of its group."""

from dataclasses import replace
from typing import Any

import trio

from rmqha.codec.checkpoint import Checkpoint
from rmqha.dledger.dledger_commit_log import DLedgerCommitLog
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.member_state import MemberState
from rmqha.store.disk import Disk
from rmqha.store.log_recovery import DurableKnowledge
from rmqha.store.recovery_progress import RecoveryProgress
from rmqha.store.status import PutMessageStatus
from rmqha.store.store_log import StoreGround
from tests.dledger.members import CONFIG, LEADER, lead
from tests.sim.sim_disk import SimDisk
from tests.store.helpers import Clock, message, options

NOTHING_KNOWN = DurableKnowledge(clean=True, checkpoint=Checkpoint())


class LedgerLog(DLedgerCommitLog):
    """A leader's of term 1, unless the test says otherwise."""

    def __init__(
        self, disk: Disk, *, ground: StoreGround | None = None, pending_max: int = 10_000, **changes: Any
    ) -> None:
        self.state = MemberState("n0", curr_term=1)
        ledger = DLedgerMmapFileStore(replace(CONFIG, **changes), self.state, disk)
        super().__init__(
            ledger,
            ground or StoreGround(options(), disk, now_ms=Clock()),
            startup=ledger.startup,
            pending_max=pending_max,
        )

    def lead(self, term: int = 1) -> None:
        lead(self.ledger, term)

    def follow(self, term: int) -> None:
        self.state.curr_term = term
        self.state.change_to_follower(term, LEADER)

    def append(self, body: bytes, *, queue_id: int = 0) -> None:
        (result,) = self.put_messages([message(body, queue_id=queue_id)])
        assert result.status is PutMessageStatus.PUT_OK, result.remark

    async def commit(self) -> None:
        """A majority has all of it, on its disks."""
        assert await self.ledger.flush_in_thread()
        self.ledger.update_committed_index(self.state.curr_term, self.ledger.ledger_end_index)
        self.refresh()

    def confirm_all(self) -> None:
        """The same, for tests without an event loop."""
        trio.run(self.commit)

    def cut(self, offset: int) -> None:
        """As its leader of the next term has it cut; then it leads itself."""
        self.follow(self.state.curr_term + 1)
        self.truncate(offset)
        self.lead(self.state.curr_term + 1)


def ledger_log(disk: Disk | None = None, **changes: Any) -> LedgerLog:
    """Opened."""
    log = LedgerLog(disk or SimDisk(latency_s=(0, 0)).mount(), **changes)
    log.load()
    log.recover(NOTHING_KNOWN, check_crc=True, progress=RecoveryProgress())
    log.lead(max(log.state.curr_term, 1))
    return log
