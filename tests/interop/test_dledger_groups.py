"""Live groups of DLedger 0.3.1.2's servers and rmqha's: who leads appends, all have the same bytes, nothing is lost."""

import subprocess
from pathlib import Path

import pytest
import trio

from rmqha.codec.dledger_entry import encode_blank
from tests.e2e.dledger_groups import DATA_SIZE, NAME, Group, running
from tests.interop.dledger_groups import JAVA, OURS, MixedGroup, java_argv
from tests.interop.feature_table import DLEDGER
from tests.interop.peers import JAVA_OPTIONS, QUICK_START, compiled, rocketmq_libs

GOLDEN = Path(__file__).parent.parent / "golden" / "dledger" / "wire.txt"
GROUPS = [[JAVA, JAVA, JAVA], [JAVA, JAVA, OURS], [JAVA, OURS, OURS], [OURS, OURS, OURS]]
NAMES = [" ".join(kinds) for kinds in GROUPS]
pytestmark = pytest.mark.timeout(900)


@pytest.mark.tries(DLEDGER, "write the recorded frames")
def test_java_writes_what_is_recorded() -> None:
    classes = f"{compiled('Wire.java', rocketmq_libs())}:{rocketmq_libs()}/*"
    argv = ["java", *QUICK_START, *JAVA_OPTIONS, "-cp", classes, "Wire"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines() == GOLDEN.read_text().splitlines()


async def handed_over(group: Group, member_id: str) -> list[int]:
    """Answers until that member leads: of Java's members, too, another one may be faster (418)."""
    codes = []
    with trio.fail_after(240):
        while True:
            exit_code, lines, err = await group.command("transfer", "-t", member_id)
            codes += [line["code"] for line in lines]
            assert exit_code in {0, 1}, err
            if (await group.healthy())["leader"] == member_id and exit_code == 0:
                return codes


@pytest.mark.tries(DLEDGER, "lead or follow in a group")
@pytest.mark.parametrize("kinds", GROUPS, ids=NAMES)
async def test_each_member_leads_in_turn_and_all_have_the_same(tmp_path: Path, kinds: list[str]) -> None:
    written: dict[int, str] = {}
    with running(MixedGroup(tmp_path, kinds)) as group:
        group.start()
        await group.healthy()
        for member_id in [*group.ids, "n0"]:
            if JAVA not in kinds:
                await group.wait_verdict("ok")  # all know who leads
            codes = await handed_over(group, member_id)
            assert set(codes) == {200} or JAVA in kinds, "only Java's transfers fail for nothing"
            written |= dict.fromkeys(await group.append(count=20, text=f"by {member_id}"), f"by {member_id}")
        code, lines, err = await group.command("get", "-i", 0, "-c", max(written) + 1)
        assert code == 0, err
        assert {line["index"]: line["body"] for line in lines if line["index"] in written} == written
        await group.wait_same(max(written))
        await group.stop()
        first, *others = [await group.dump(member_id) for member_id in group.ids]
        assert all(other == first for other in others)
        assert {line["index"] for line in first if "index" in line} >= written.keys()


@pytest.mark.tries(DLEDGER, "go on when a leader is killed")
@pytest.mark.parametrize("kinds", GROUPS, ids=NAMES)
async def test_after_a_leader_was_killed_nothing_acknowledged_is_lost(tmp_path: Path, kinds: list[str]) -> None:
    with running(MixedGroup(tmp_path, kinds)) as group:
        group.start()
        leader = (await group.healthy())["leader"]
        before = await group.append(count=50, text="before")
        await group.children[leader].kill()
        code, _, _ = await group.command("append")
        assert code in {0, 1}, "somebody is reachable"
        await group.healthy(at_least=2, not_led_by=leader)
        after = await group.append(count=50, text="after")
        group.start(leader)
        await group.healthy()
        code, lines, err = await group.command("get", "-i", 0, "-c", max(after) + 1)
        assert code == 0, err
        bodies = {line["index"]: line["body"] for line in lines}
        assert {bodies[index] for index in before} == {"before"}
        assert {bodies[index] for index in after} == {"after"}


@pytest.mark.tries(DLEDGER, "be repaired by our leader")
async def test_a_leader_of_ours_repairs_a_java_member(tmp_path: Path) -> None:
    """It was killed when it had ended a data file, and written nothing yet into the next.

    A leader of Java's sends it the same again and again, until by chance one of its threads disturbs another.
    """
    with running(MixedGroup(tmp_path, [JAVA, JAVA, OURS])) as group:
        group.start()
        await group.healthy()
        await led_by_ours(group)
        await group.wait_same((await group.append(count=5, text="before"))[-1])
        await group.children["n1"].kill()
        last = (await group.dump("n1"))[-1]
        end = last["pos"] + last["size"]
        with (tmp_path / "dledger-n1" / "data" / f"{0:020d}").open("r+b") as file:
            file.seek(end)
            file.write(encode_blank(DATA_SIZE - end))
        group.start("n1")
        await group.healthy()
        await led_by_ours(group)
        await group.wait_same((await group.append(count=5, text="after"))[-1])


async def led_by_ours(group: MixedGroup) -> None:
    if (await group.healthy())["leader"] != "n2":
        await handed_over(group, "n2")


@pytest.mark.tries(DLEDGER, "append and read as a client")
async def test_java_s_client_appends_to_our_group_and_reads(tmp_path: Path) -> None:
    with running(Group(tmp_path)) as group:
        group.start()
        await group.healthy()
        argv = java_argv("Client.java", NAME, group.peers, 20, directory=tmp_path)
        done = await trio.run_process(argv, capture_stdout=True, check=False)
        output = done.stdout.decode()
        words = [line.split() for line in output.splitlines()]
        appended = [line[1:3] for line in words if line[:1] == ["append"]]
        assert appended == [["200", str(index)] for index in range(20)], output[-3000:]
        read = [line[1:] for line in words if line[:1] == ["get"]]
        assert read == [["200", "java", str(number)] for number in range(20)]
