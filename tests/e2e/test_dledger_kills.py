"""A DLedger group of three processes, by the command line: its leader is killed, and nothing that was said is lost."""

import resource
from pathlib import Path

from rmqha.exit_codes import EXIT_STORE_FAILED
from tests.e2e.dledger_groups import Group, running

APPENDS = 1000
FILE_SIZE_MAX = 30_000
"""A write behind it fails, as on a disk that does."""


async def files_of(group: Group) -> list[dict[str, bytes]]:
    directories = [group.directory / f"dledger-{member_id}" for member_id in group.ids]
    return [{path.name: path.read_bytes() for path in (directory / "data").iterdir()} for directory in directories]


async def test_a_thousand_entries_and_a_leader_that_is_killed(tmp_path: Path) -> None:
    with running(Group(tmp_path)) as group:
        group.start()
        leader = (await group.healthy())["leader"]
        before = await group.append(count=APPENDS, text="before")
        await group.children[leader].kill()
        await group.healthy(at_least=2, not_led_by=leader)
        [after] = await group.append(count=1, text="after")
        group.start(leader)
        status = await group.healthy()
        code, lines, err = await group.command("get", "-i", 0, "-c", after + 1)
        assert code == 0, err
        bodies = {line["index"]: line["body"] for line in lines}
        assert {bodies[index] for index in before} == {"before"}
        assert bodies[after] == "after"
        assert len(status["members"]) == 3
        await group.at_rest()
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


async def test_a_leader_that_cannot_write_steps_down_and_says_why(tmp_path: Path) -> None:
    """It serves on as a member without a log, is not elected again, and its exit code tells of it."""
    with running(Group(tmp_path)) as group:
        group.start()
        leader = (await group.healthy())["leader"]
        child = group.children[leader]
        resource.prlimit(child.pid, resource.RLIMIT_FSIZE, (FILE_SIZE_MAX, FILE_SIZE_MAX))
        for _ in range(2):
            await group.command("append", "-d", "x" * 5000, "-c", 6)
        status = await group.healthy(not_led_by=leader)
        [failed] = [member for member in status["members"] if member["id"] == leader]
        assert "File too large" in failed["writeError"]
        await group.append(count=5, text="after")
        assert await child.stop() == EXIT_STORE_FAILED
        assert "dledger.store_failed" in child.output()
