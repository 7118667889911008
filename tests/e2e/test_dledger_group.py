"""A group of three `rmqha dledger server` processes, as its operator and its clients see it."""

import json
import signal
import sys
from pathlib import Path
from subprocess import PIPE

import pytest
import trio

from tests.e2e.commands import rmqha
from tests.e2e.dledger_groups import NAME, Group, running
from tests.e2e.processes import IN_A_TERMINAL


async def test_members_that_were_stopped_in_order_have_the_same_files(tmp_path: Path) -> None:
    with running(Group(tmp_path)) as group:
        group.start()
        await group.healthy()
        _, out, _ = await rmqha(
            "dledger", "append", "-g", NAME, "-p", group.peers, "-d", "-", stdin="eins\nzwei\nGrüße\n"
        )
        indexes = [json.loads(line)["index"] for line in out.splitlines()]
        await group.at_rest()
        assert await group.stop() == [0, 0, 0]
        first, *others = [await group.dump(member_id) for member_id in group.ids]
        assert all(other == first for other in others)
        assert set(indexes) <= {line.get("index") for line in first}


async def test_a_member_that_hangs_is_told_of(tmp_path: Path) -> None:
    with running(Group(tmp_path)) as group:
        group.start()
        leader = (await group.healthy())["leader"]
        follower = next(member_id for member_id in group.ids if member_id != leader)
        group.children[follower].signal(signal.SIGSTOP)
        await group.append(count=3, text="two are enough")
        status = await group.wait_verdict("degraded")
        assert {member["role"] for member in status["members"] if member["alive"]} == {"LEADER", "FOLLOWER"}
        assert [member["id"] for member in status["members"] if not member["alive"]] == [follower]
        group.children[follower].signal(signal.SIGCONT)
        await group.wait_verdict("ok")


async def test_without_a_majority_nothing_is_appended(tmp_path: Path) -> None:
    with running(Group(tmp_path)) as group:
        group.start("n0")
        await group.children["n0"].wait_output("dledger.started")
        code, lines, _ = await group.command("append")
        assert (code, lines[0]["code"]) == (1, 301)
        code, [status], _ = await group.command("status", "--format", "json")
        assert (code, status["verdict"], status["leader"]) == (1, "failed", None)


async def test_a_group_of_one_leads_itself(tmp_path: Path) -> None:
    with running(Group(tmp_path, 1)) as group:
        group.start()
        await group.healthy()
        [index] = await group.append(count=1, text="alone")
        code, [line], _ = await group.command("get", "-i", index)
        assert (code, line["body"]) == (0, "alone")


async def test_members_may_share_a_directory_and_say_so(tmp_path: Path) -> None:
    with running(Group(tmp_path, 1)) as group:
        (tmp_path / "dledger-n7").mkdir()
        (tmp_path / "dledger-n7" / "currterm").write_text("currTerm=3\nvoteLeader=n7\n")
        group.start()
        await group.healthy()
        assert "dledger_store.of_others" in group.children["n0"].output()


async def test_a_command_that_waits_for_stdin_is_interrupted(tmp_path: Path) -> None:
    with running(Group(tmp_path, 1)) as group:
        group.start()
        await group.healthy()
        argv = [sys.executable, "-m", "rmqha", "dledger", "append", "-g", NAME, "-p", group.peers, "-d", "-"]
        command = await trio.lowlevel.open_process(argv, stdin=PIPE, stdout=PIPE, stderr=PIPE)
        assert command.stdin is not None
        assert command.stdout is not None
        assert command.stderr is not None
        async with command.stdin, command.stdout, command.stderr:
            await command.stdin.send_all(b"first\n")
            assert json.loads(await command.stdout.receive_some())["code"] == 200
            await trio.sleep(0.5)  # until it reads again, which nothing tells
            command.send_signal(signal.SIGINT)
            code = await command.wait()
            told = (await command.stderr.receive_some()).decode().strip()
        assert (code, told) == (130, "Interrupted.")


@pytest.mark.parametrize("command", ["append", "get", "status"])
async def test_nobody_is_reachable(tmp_path: Path, command: str) -> None:
    with running(Group(tmp_path)) as group:
        code, lines, err = await group.command(command)
        assert (code, lines) == (3, [])
        assert f"no member of the group {NAME} can be reached" in err


async def test_a_terminal_that_closes_stops_it_in_order(tmp_path: Path) -> None:
    with running(Group(tmp_path, 1)) as group:
        group.prefix = IN_A_TERMINAL
        group.start()
        await group.healthy()
        child = group.children["n0"]
        child.signal(signal.SIGHUP)
        assert await child.wait_exit() == 0
