"""What a member tells of itself when it is asked for its metadata."""

from typing import Any

from rmqha import __version__
from rmqha.codec.dledger_wire import MemberStatus
from rmqha.dledger.dledger_entry_pusher import DLedgerEntryPusher
from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.embedding import Embedding
from rmqha.dledger.role_log import RoleLog


def own_status(
    store: DLedgerMmapFileStore,
    pusher: DLedgerEntryPusher[Any],
    role_log: RoleLog,
    broker: Embedding | None,
    *,
    refusal: str,
    now: float,
) -> MemberStatus:
    """What its log, its role and its broker are like; ``refusal`` says why nothing would be appended, if so."""
    state, handler = store.member_state, pusher.handler
    error = store.write_error or handler.diverged or refusal or handler.misfit or None
    return MemberStatus(
        role=state.role.value,
        term=state.curr_term,
        begin_index=store.ledger_begin_index,
        end_index=store.ledger_end_index,
        committed_index=store.committed_index,
        flushed_index=store.flushed_index,
        transferee=state.transferee,
        write_error=None if error is None else str(error),
        version=__version__,
        broker_address=None if broker is None else broker.address,
        leader_for_s=int(now - role_log.leader_since),
        uncommitted_for_s=int(now - pusher.waits_since) if pusher.waits_since <= now else None,
        deleted_early_s=store.room.early.last_s_ago(now=now),
        damage=("" if broker is None else broker.damage) or pusher.unreadable or None,
        refused_term=handler.refused_term,
    )
