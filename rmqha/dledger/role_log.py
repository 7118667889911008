"""RoleLog: a line whenever a member's role, its term or its leader is another, and a warning while nobody leads."""

from typing import Final

import structlog
import trio

from rmqha.dledger.dledger_mmap_file_store import DLedgerMmapFileStore
from rmqha.dledger.member_state import Role
from rmqha.log_limit import LogLimit

logger = structlog.get_logger()

LEADERLESS_S: Final = 5.0
"""An election takes a second or two; if nobody leads for longer, members are away."""


class RoleLog:
    """Of one member. Elections that lead to nothing fill no log.

    Attributes:
        leader_since: when who leads, as far as this member knows, was last another.
    """

    def __init__(self, self_id: str) -> None:
        self._id: Final = self_id
        self._told: tuple[Role, int, str | None] | None = None
        self._lines = LogLimit()
        self.leader_since = trio.current_time()
        self._led = trio.Event()
        self._leaderless = trio.Event()
        self._leaderless.set()

    def tell(self, store: DLedgerMmapFileStore) -> None:
        """Say what the role is, unless it was said."""
        state = store.member_state
        role = (state.role, state.curr_term, state.leader_id)
        if role == self._told:
            return
        if self._told is None or self._told[2] != state.leader_id:
            self._on_leader(state.leader_id)
        self._told = role
        self._lines.log(
            logger.info,
            "dledger.role_changed",
            id=self._id,
            role=state.role.value,
            term=state.curr_term,
            leader=state.leader_id,
            end_index=store.ledger_end_index,
            committed_index=store.committed_index,
            write_error=None if store.write_error is None else str(store.write_error),
        )

    def _on_leader(self, leader_id: str | None) -> None:
        self.leader_since = trio.current_time()
        if leader_id is not None:
            self._led.set()
            self._leaderless = trio.Event()
        elif self._led.is_set():
            self._led = trio.Event()
            self._leaderless.set()

    async def watch(self) -> None:
        """Warn once nobody has led for :data:`LEADERLESS_S`, and say when somebody does again; until cancelled."""
        while True:
            await self._leaderless.wait()
            began_at, led = self.leader_since, self._led
            with trio.move_on_after(LEADERLESS_S):
                await led.wait()
            if led.is_set():
                continue
            logger.warning(
                "dledger.no_leader",
                id=self._id,
                consequence="if others know none either, the group takes no messages: a majority of its members has to "
                "run and to reach each other",
                next="rmqha dledger status; docs/dledger.md, 'Nobody leads'",
            )
            await led.wait()
            logger.info("dledger.led_again", id=self._id, leaderless_s=round(trio.current_time() - began_at, 1))
