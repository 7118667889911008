"""SubscriptionGroupManager: which groups are made, and which table counts."""

import pytest
from structlog.testing import capture_logs
from trio.testing import MockClock

from rmqha.broker.tables import subscription_group_manager
from rmqha.broker.tables.subscription_group_manager import (
    SubscriptionGroupConfig,
    SubscriptionGroupManager,
    SubscriptionGroupTable,
)
from rmqha.codec import java_json
from rmqha.errors import RemoteProtocolError
from rmqha.replication.role import Role, RoleKind


def manager(*, role: Role | None = None, auto_create: bool = True, now_ms: int = 7) -> SubscriptionGroupManager:
    return SubscriptionGroupManager(role or Role(), auto_create=auto_create, now_ms=lambda: now_ms)


async def names(groups: SubscriptionGroupManager) -> set[str]:
    return set((await groups.to_json_in_turns())["subscriptionGroupTable"])


async def test_a_member_makes_its_group_and_a_pull_makes_none() -> None:
    groups = manager()
    built_in = await names(groups)
    assert groups.select("g") is not None
    assert await names(groups) == built_in
    made = groups.find("g")
    assert made == SubscriptionGroupConfig("g")
    assert await names(groups) == built_in | {"g"}
    assert groups.dirty


async def test_a_slave_goes_by_its_masters_groups_and_makes_none() -> None:
    groups = manager(role=Role(RoleKind.SLAVE))
    built_in = await names(groups)
    assert groups.find("g") is not None
    assert await names(groups) == built_in


def test_without_leave_only_rocketmqs_parts_make_groups() -> None:
    groups = manager(auto_create=False)
    assert groups.find("g") is None
    assert groups.find("CID_RMQ_SYS_TRANS") == SubscriptionGroupConfig("CID_RMQ_SYS_TRANS")
    assert groups.find("TOOLS_CONSUMER") is not None
    groups.update(SubscriptionGroupConfig("g", retry_max_times=3))
    assert groups.find("g") == SubscriptionGroupConfig("g", retry_max_times=3)
    groups.delete("g")
    assert groups.find("g") is None


@pytest.mark.parametrize("goes", ["deleted", "replaced"])
async def test_what_a_host_made_and_is_gone_takes_none_of_its_share(goes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription_group_manager, "TABLE_SIZE_MAX", 8000)
    groups = manager()
    for number in range(200):
        groups.find(f"g{number}", peer="10.0.0.1:1")
        assert f"g{number}" in await names(groups), "there is room again"
        if goes == "deleted":
            groups.delete(f"g{number}")
        else:
            groups.replace(
                SubscriptionGroupTable((number + 9, number), {"operators": SubscriptionGroupConfig("operators")})
            )


def fill(groups: SubscriptionGroupManager) -> None:
    for number in range(100):
        groups.update(SubscriptionGroupConfig(f"operators{number}"))


async def test_who_finds_no_room_for_its_group_consumes_all_the_same(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """Nobody is turned away, and no host takes what others need."""
    monkeypatch.setattr(subscription_group_manager, "TABLE_SIZE_MAX", 20_000)
    groups = manager()
    with capture_logs() as logs:
        for number in range(100):
            assert groups.find(f"mine{number}", peer="10.0.0.1:1") is not None
    assert {line["event"] for line in logs} == {"subscription_group.not_kept"}
    assert 10 < len([name for name in await names(groups) if name.startswith("mine")]) < 40
    groups.find("theirs", peer="10.0.0.2:1")
    assert "theirs" in await names(groups)
    with pytest.raises(RemoteProtocolError, match="that slaves can fetch"):
        fill(groups)
    groups.update(SubscriptionGroupConfig("mine0", retry_max_times=1))


async def test_names_that_no_client_of_rocketmqs_has_are_not_kept(autojump_clock: MockClock) -> None:
    groups = manager()
    before = await names(groups)
    for name in ("", "a b", "é", "g" * 256):
        assert groups.find(name) is not None
    assert await names(groups) == before


async def test_a_table_that_is_taken_over_counts_from_then_on() -> None:
    master, slave = manager(now_ms=8), manager(role=Role(RoleKind.SLAVE))
    master.update(SubscriptionGroupConfig("g", consume_enable=False, retry_queue_nums=2, broker_id=3))
    told = java_json.loads(java_json.dumps(await master.to_json_in_turns()))
    slave.replace(SubscriptionGroupTable.from_json(told))
    assert slave.select("g") == master.select("g")
    assert (slave.data_version, slave.dirty) == (master.data_version, True)
    slave.dirty = False
    slave.replace(SubscriptionGroupTable.from_json(told))
    slave.replace(SubscriptionGroupTable.from_json({}))
    assert (slave.select("g"), slave.dirty) == (master.select("g"), False)


@pytest.mark.parametrize(
    "text",
    [
        '{"subscriptionGroupTable":[1]}',
        '{"subscriptionGroupTable":{"g":7}}',
        '{"subscriptionGroupTable":{"g":{"retryMaxTimes":"x"}}}',
        '{"subscriptionGroupTable":{"g":{"retryQueueNums":99999999999}}}',
        '{"subscriptionGroupTable":{7:{}}}',
        '{"dataVersion":7,"subscriptionGroupTable":{"g":{}}}',
    ],
)
def test_what_is_no_table_is_refused(text: str) -> None:
    groups = manager()
    with pytest.raises(RemoteProtocolError, match="do not parse"):
        groups.replace_from_json(java_json.loads(text))
    assert not groups.dirty


async def test_a_table_of_the_same_version_is_another_one_where_something_was_made_since() -> None:
    """Two members that each had led, and made one group, kept different tables until the next change."""
    ours, theirs = manager(), manager()
    ours.find("of ours")
    theirs.find("of theirs")
    assert ours.data_version == theirs.data_version
    told = SubscriptionGroupTable.from_json(java_json.loads(java_json.dumps(await theirs.to_json_in_turns())))
    ours.replace(told)
    assert await names(ours) == await names(theirs)
    ours.dirty = False
    ours.replace(told)
    assert not ours.dirty


async def test_what_an_operator_made_of_a_built_in_group_is_there_after_a_start_and_on_slaves() -> None:
    """Every broker has that group before it reads a table."""
    master, slave, restarted = manager(now_ms=8), manager(role=Role(RoleKind.SLAVE)), manager(now_ms=9)
    forbidden = SubscriptionGroupConfig("TOOLS_CONSUMER", consume_enable=False)
    master.update(forbidden)
    told = java_json.loads(java_json.dumps(await master.to_json_in_turns()))
    slave.replace(SubscriptionGroupTable.from_json(told))
    restarted.replace_from_json(told)
    for groups in (slave, restarted):
        assert groups.select("TOOLS_CONSUMER") == forbidden
        assert await names(groups) == await names(master)
