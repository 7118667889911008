"""A DLedger group of three processes, by the command line: its leader is killed, and nothing that was said is lost."""

from pathlib import Path

import trio

from tests.e2e.dledger_groups import Group, running

APPENDS = 1000


async def files_of(group: Group) -> list[dict[str, bytes]]:
    directories = [group.directory / f"dledger-{member_id}" for member_id in group.ids]
    return [{path.name: path.read_bytes() for path in (directory / "data").iterdir()} for directory in directories]


async def test_a_thousand_entries_and_a_leader_that_is_killed(tmp_path: Path) -> None:
    with running(Group(tmp_path)) as group:
        group.start()
        leader = (await group.healthy())["leader"]
        before = await group.append(count=APPENDS, text="before")
        await group.children[leader].kill()
        begun_at = trio.current_time()
        await group.healthy(at_least=2, not_led_by=leader)
        [after] = await group.append(count=1, text="after")
        assert trio.current_time() - begun_at < 10, "nobody waited out a default leak, twice"
        group.start(leader)
        status = await group.healthy()
        code, lines, err = await group.command("get", "-i", 0, "-c", after + 1)
        assert code == 0, err
        bodies = {line["index"]: line["body"] for line in lines}
        assert {bodies[index] for index in before} == {"before"}
        assert bodies[after] == "after"
        assert len(status["members"]) == 3
        for child in group.children.values():
            assert await child.stop() == 0
        first, *others = await files_of(group)
        assert others == [first, first]


async def test_a_member_that_cannot_start_says_why(tmp_path: Path) -> None:
    """The exit code is 2 for what the operator has to correct, 1 for a store that is taken."""
    with running(Group(tmp_path, 1)) as group:
        code, _, err = await group.command("server", "-i", "n7", "-s", tmp_path)
        assert (code, "no member 'n7'" in err) == (2, True)
        code, _, err = await group.command("server", "-s", tmp_path, "--set", "heartbeatTimeIntervalMs=5")
        assert (code, "nearest is heartBeatTimeIntervalMs" in err) == (2, True)
        group.start()
        await group.healthy()
        code, _, err = await group.command("server", "-s", tmp_path)
        assert (code, "dledger.failed" in err) == (1, True)
