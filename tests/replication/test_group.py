"""What keeps two brokers apart that are told to replicate."""

import pytest

from rmqha.replication.group import GroupMember, why_apart

HERE = GroupMember("a", 1, 1 << 30)


@pytest.mark.parametrize(
    ("there", "reason"),
    [
        (GroupMember("a", 0, 1 << 30), ""),
        (GroupMember("b", 0, 1 << 30), "brokerName=b"),
        (GroupMember("a", 0, 1 << 20), "mappedFileSizeCommitLog=1048576"),
        (GroupMember("a", 1, 1 << 30), "both have brokerId=1"),
        (GroupMember(None, None, None), ""),
        (GroupMember("a"), ""),
    ],
)
def test_only_what_is_known_to_differ_keeps_them_apart(there: GroupMember, reason: str) -> None:
    assert reason in why_apart(HERE, there)
    assert bool(why_apart(HERE, there)) == bool(reason)


def test_a_broker_without_a_name_of_its_own_takes_any() -> None:
    assert why_apart(GroupMember(None, 1, 1 << 30), GroupMember("b", 0, 1 << 30)) == ""


def test_no_master_is_told_to_empty_its_store() -> None:
    master, slave = GroupMember("a", 0, 1 << 30), GroupMember("a", 1, 1 << 20)

    for here, there in ((master, slave), (slave, master)):
        assert "a slave whose store has the wrong size starts with an empty one" in why_apart(here, there)
