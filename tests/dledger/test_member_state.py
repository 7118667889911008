"""MemberState: who leads, and to whom it hands over, go with the role."""

import pytest

from rmqha.dledger.member_state import MemberState, Role


@pytest.mark.parametrize(("role", "leader_id"), [(Role.LEADER, "n0"), (Role.FOLLOWER, "n1"), (Role.CANDIDATE, None)])
def test_no_role_keeps_what_the_one_before_knew(role: Role, leader_id: str | None) -> None:
    for former in Role:
        state = MemberState("n0", curr_term=3, role=former, leader_id="n2", transferee="n2")
        match role:
            case Role.LEADER:
                state.change_to_leader(3)
            case Role.FOLLOWER:
                state.change_to_follower(3, "n1")
            case Role.CANDIDATE:
                state.change_to_candidate()
        assert (state.role, state.leader_id, state.transferee, state.curr_term) == (role, leader_id, None, 3)
