"""DLedgerCommitLog after its member's leader has cut the log: nothing counts any more of what was there."""

from rmqha.store.status import PutMessageStatus
from tests.dledger.ledger_log import LedgerLog, ledger_log
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
