"""Of which group a store is, and who its members were: with others a majority need not have what was acknowledged."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rmqha.broker.dledger.dledger_options import server_options
from rmqha.config.load_dledger import load_dledger_settings
from rmqha.dledger.membership import find_other_group, note_members
from rmqha.dledger.other_members import OtherMembers
from rmqha.dledger.server_options import ServerOptions
from rmqha.store.os_disk import OsDisk


def options_of(base: Path, *members: str, group: str = "g") -> ServerOptions:
    (base / "dledger-n0").mkdir(parents=True, exist_ok=True)
    peers = {member: f"127.0.0.1:{20911 + number}" for number, member in enumerate(members)}
    return server_options(load_dledger_settings({}), group, "n0", peers=peers, store_base_dir=str(base))


async def found_after(base: Path, before: str, now: str) -> OtherMembers | None:
    await note_members(options_of(base, *before.split()), OsDisk())
    return find_other_group(options_of(base, *now.split()), OsDisk())


@pytest.mark.parametrize(
    ("before", "now"),
    [
        ("n0", "n0 n1"),
        ("n0 n1", "n0 n1 n2"),
        ("n0 n1 n2", "n2 n1 n0"),
        ("n0 n1 n2", "n0 n1 n2 n3"),
        ("n0 n1 n2 n3", "n0 n1 n2 n3 n4"),
        ("n0 n1 n2 n3", "n0 n1 n2"),
        ("n0 n1 n2", "n0 n1"),
    ],
)
async def test_one_member_may_come_or_go(before: str, now: str, tmp_path: Path) -> None:
    assert await found_after(tmp_path, before, now) is None


@pytest.mark.parametrize(
    ("before", "now"),
    [("n0 n1 n2", "n0 n1 n2 n3 n4"), ("n0 n1 n2 n3 n4", "n0 n1 n2"), ("n0 n1 n2", "n0"), ("n0 n1 n2", "n0 n1 n3")],
)
async def test_not_so_many_that_majorities_need_not_meet(before: str, now: str, tmp_path: Path) -> None:
    """Sixty acknowledged messages were out of service, and their places given again."""
    others = await found_after(tmp_path, before, now)
    assert others is not None
    assert f"the members were {', '.join(before.split())} and are to be {', '.join(now.split())}" in others.what
    assert f"remove {tmp_path}/dledger-n0/members" in others.next


async def test_the_store_of_another_group_is_refused(tmp_path: Path) -> None:
    """It led a healthy group, by what it had of the other one."""
    await note_members(options_of(tmp_path, "n0", "n1", "n2"), OsDisk())
    others = find_other_group(options_of(tmp_path, "n0", "n1", "n2", group="h"), OsDisk())
    assert others is not None
    assert "is the store of a member of group g, and this is group h" in others.what


@pytest.mark.parametrize("noted", [None, "", "[]", "{}", '{"group": 7, "members": "n0"}'])
async def test_where_nothing_is_noted_nothing_is_refused(noted: str | None, tmp_path: Path) -> None:
    """As in a store of Java's; then it is noted."""
    options = options_of(tmp_path, "n0", "n1", "n2")
    path = tmp_path / "dledger-n0" / "members"
    if noted is not None:
        path.write_text(noted)
    with capture_logs():
        assert find_other_group(options, OsDisk()) is None
        await note_members(options, OsDisk())
    assert "n1" in path.read_text()
    assert find_other_group(options_of(tmp_path, "n0"), OsDisk()) is not None
