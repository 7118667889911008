"""One role, observed: a change is told once, to all who asked."""

import pytest

from rmqha.replication.role import Role, RoleKind


def test_observers_hear_of_a_change_after_it_and_of_nothing_else() -> None:
    role, heard = Role(RoleKind.SLAVE, master="10.0.0.1:10912"), list[tuple[RoleKind, bool, int]]()
    role.subscribe(lambda: heard.append((role.kind, role.is_master, role.term)))
    role.become(RoleKind.SLAVE, master="10.0.0.1:10912")
    assert heard == []
    role.become(RoleKind.CANDIDATE, term=7)
    role.become(RoleKind.MASTER, term=8)
    role.become(RoleKind.MASTER, term=9)
    assert heard == [(RoleKind.CANDIDATE, False, 7), (RoleKind.MASTER, True, 8), (RoleKind.MASTER, True, 9)]
    assert role.master == ""


def test_only_a_master_takes_messages_and_the_others_say_why() -> None:
    assert Role().refusal() == ""
    assert "send to its master" in Role(RoleKind.SLAVE).refusal()
    assert "no master is known" in Role(RoleKind.CANDIDATE).refusal()


def test_a_term_never_falls() -> None:
    role = Role(term=3)
    with pytest.raises(AssertionError, match="fell from 3 to 2"):
        role.become(RoleKind.SLAVE, term=2)
