"""Membership: a leader with a list whose majorities need not meet this member's has committed, and then another."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import trio
from trio.testing import MockClock

from rmqha.broker.dledger.dledger_options import server_options
from rmqha.codec.dledger_wire import MetadataResponse
from rmqha.config.load_dledger import load_dledger_settings
from rmqha.dledger.membership import Membership
from tests.sim.sim_disk import SimDisk

FIVE = ("n0", "n1", "n2", "n3", "n4")


async def test_whoever_commits_by_such_a_list_keeps_this_member_from_leading(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    """The list is noted by then, and was so for the leader before, who may have been corrected since."""
    peers = {member: f"127.0.0.1:{20911 + number}" for number, member in enumerate(FIVE[:3])}
    options = server_options(load_dledger_settings({}), "g", "n0", peers=peers, store_base_dir=str(tmp_path))
    disk = SimDisk(latency_s=(0, 0))
    disk.mount().makedirs(options.store.default_path)
    state, entry = SimpleNamespace(self_id="n0", leader_id="n1", curr_term=2), SimpleNamespace(term=2)
    store: Any = SimpleNamespace(
        member_state=state, committed_index=5, ledger_begin_index=0, ledger_end_index=5, get=lambda _index: entry
    )

    def ask(member: str, on_answer: Callable[[MetadataResponse | None], None]) -> None:
        on_answer(MetadataResponse(leader_id=state.leader_id, peers=dict.fromkeys(FIVE, "h:1")))

    nobody: Any = SimpleNamespace(checker=None)
    membership = Membership(
        options, disk.mount(), store, nobody, "1", connections={}, ask=ask, append_barrier=lambda: None
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(membership.run)
        for leader, term in (("n1", 2), ("n2", 3), ("n1", 4)):
            state.leader_id, state.curr_term, entry.term = leader, term, term
            await trio.sleep(3)
            assert f"its leader {leader} has committed with n0, n1, n2, n3, n4: " in membership.not_to_lead
            assert not membership.may_lead
        nursery.cancel_scope.cancel()
