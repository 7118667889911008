"""DLedgerCommitLog after its member's leader has cut the log: nothing counts any more of what was there."""

import trio
import trio.testing

from rmqha.codec.dledger_entry import BODY_OFFSET, DLedgerEntry
from rmqha.store.status import PutMessageStatus
from tests.dledger.ledger_log import LedgerLog, ledger_log
from tests.dledger.members import DATA_SIZE, cut_to
from tests.sim.sim_disk import SimDisk, SimMount
from tests.store.helpers import message


async def cut_log() -> tuple[LedgerLog, int]:
    """One message that is committed, and one that was durable and cut; and where the log ends now."""
    log = ledger_log()
    log.append(b"one")
    await log.commit()
    end = log.max_offset
    log.append(b"two")
    assert await log.ledger.flush_in_thread()
    log.refresh()
    assert log.flushed.value > end
    log.cut(end)
    return log, end


async def test_what_came_instead_is_not_durable_yet() -> None:
    log, end = await cut_log()
    assert (log.wrote.value, log.flushed.value, log.boundary_offset) == (end, end, end)
    log.append(b"new")
    log.ledger.update_committed_index(log.state.curr_term, log.ledger.ledger_end_index)
    log.refresh()
    assert (log.confirmed, log.flushed.value) == (end, end), "committed, and not durable here"
    await log.commit()
    assert log.confirmed == log.max_offset


async def test_a_put_that_is_refused_brings_back_no_end() -> None:
    log, end = await cut_log()
    log.follow(log.state.curr_term + 1)
    (result,) = log.put_messages([message(b"no")])
    assert result.status is PutMessageStatus.SERVICE_NOT_AVAILABLE
    assert log.boundary_offset == end


async def test_a_log_that_begins_anew_while_its_oldest_file_goes_keeps_the_new_one(nursery: trio.Nursery) -> None:
    """A follower far behind whose disk is being cleaned: what the leader sent would be there, and never found again."""
    is_gone = trio.Event()

    class Slow(SimMount):
        async def unlink_in_thread(self, path: str) -> None:
            self.unlink(path)
            await is_gone.wait()

    disk = SimDisk(latency_s=(0, 0))
    log = ledger_log(Slow(disk, disk.epoch))
    for _ in range(5):
        log.append(b"x" * 200)
    await log.commit()
    nursery.start_soon(log.files.delete_first_in_thread)
    await trio.testing.wait_all_tasks_blocked()
    log.follow(2)
    first = DLedgerEntry(b"far on", 100, 2, 20 * DATA_SIZE, size=BODY_OFFSET + len(b"far on"))
    assert cut_to(log.ledger, first) == 100
    is_gone.set()
    await trio.testing.wait_all_tasks_blocked()
    assert [file.file_from_offset for file in log.ledger.data_file_list.mapped_files] == [first.pos]
    assert log.ledger.get(100) == first
    assert log.min_offset == first.pos
