"""RoleLog: a line whenever a member's role, its term or its leader is another."""

import structlog
import trio

from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.member_state import Role
from rmqha.log_limit import LogLimit

logger = structlog.get_logger()


class RoleLog:
    """Of one member. Elections that lead to nothing fill no log."""

    def __init__(self) -> None:
        self._told: tuple[Role, int, str | None] | None = None
        self._lines = LogLimit()
        self.leader_since = trio.current_time()
        """When who leads, as far as this member knows, was last another."""

    def tell(self, store: DLedgerMmapFileStore) -> None:
        """Say what the role is, unless it was said."""
        state = store.member_state
        role = (state.role, state.curr_term, state.leader_id)
        if role == self._told:
            return
        if self._told is None or self._told[2] != state.leader_id:
            self.leader_since = trio.current_time()
        self._told = role
        self._lines.log(
            logger.info,
            "dledger.role_changed",
            id=state.self_id,
            role=state.role.value,
            term=state.curr_term,
            leader=state.leader_id,
            end_index=store.ledger_end_index,
            committed_index=store.committed_index,
            write_error=None if store.write_error is None else str(store.write_error),
        )
