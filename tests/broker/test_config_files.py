"""The broker's tables on disk: whatever the power does, the former content or the new one is there (#5905)."""

import errno
import os
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rmqha.broker.tables.consumer_offset_manager import ConsumerOffsetManager
from rmqha.cli.pages import Page
from rmqha.cli.verdict import judge
from rmqha.codec import java_json
from rmqha.codec.codes import RequestCode
from rmqha.codec.remoting import RemotingCommand
from rmqha.errors import StoreReadError, StoreWriteError
from rmqha.store.config_files import CONSUMER_OFFSET, TOPICS, ConfigFiles, encode_in_turns
from tests.broker.machines import Machine, ask, send_request
from tests.broker.test_pair import status
from tests.sim.journal import NodeDied
from tests.sim.sim_clock import VirtualClock
from tests.sim.sim_disk import SimDisk
from tests.sim.sim_mount import SimMount
from tests.sim.sim_net import SimNet

PATH = f"/store/config/{CONSUMER_OFFSET}"
TABLES = [{"offsetTable": {"t@g": {0: number}}} for number in range(4)]


def offset_in(disk: SimDisk) -> int | None:
    """What a broker that starts now would know."""
    offsets = ConsumerOffsetManager()
    ConfigFiles(disk.mount(), "/store/config").load(CONSUMER_OFFSET, offsets.replace_from_json)
    return offsets.query_offset("g", "t", 0)


async def save_until_the_power_goes(disk: SimDisk) -> int:
    """Save the tables one after the other; returns how many saves came back."""
    files = ConfigFiles(disk.mount(), "/store/config")
    for number, table in enumerate(TABLES):
        try:
            await files.save(CONSUMER_OFFSET, table)
        except NodeDied:
            return number
    return len(TABLES)


async def test_a_power_cut_at_any_call_leaves_the_former_table_or_the_new_one(virtual_clock: VirtualClock) -> None:
    for crash_at in range(2, 100):  # the first call makes the directory
        disk = SimDisk()
        disk.crash_at = crash_at
        saved = await save_until_the_power_goes(disk)
        if saved == len(TABLES):
            assert crash_at == 9, "the power never went"
            return
        found = offset_in(disk)
        assert found in {saved - 1, saved} or (found is None and saved == 0), (crash_at, saved, found)
    raise AssertionError("the saves never ended")


@pytest.mark.parametrize(
    "junk", [b"", b"\0" * 100, b"{", b"[]", b'{"offsetTable":[1]}', b'{"offsetTable":{"t@g":{"0":"x"}}}']
)
async def test_a_file_that_is_no_table_gives_way_to_its_backup(junk: bytes, virtual_clock: VirtualClock) -> None:
    disk = SimDisk()
    await save_until_the_power_goes(disk)
    disk.files[PATH].cache[:] = junk
    disk.files[PATH].size = len(junk)
    assert offset_in(disk) == len(TABLES) - 2


@pytest.mark.parametrize("junk", [b"", b"{", b'{"offsetTable":[1]}'])
async def test_a_file_that_is_no_table_never_takes_the_place_of_its_backup(
    junk: bytes, virtual_clock: VirtualClock
) -> None:
    for crash_at in range(1, 100):
        disk = SimDisk()
        await save_until_the_power_goes(disk)
        disk.files[PATH].cache[:] = disk.files[PATH].durable[:] = junk
        disk.files[PATH].size = len(junk)
        files, offsets = ConfigFiles(disk.mount(), "/store/config"), ConsumerOffsetManager()
        files.load(CONSUMER_OFFSET, offsets.replace_from_json)
        disk.crash_at = disk.calls + crash_at
        offsets.commit_offset("g", "t", 0, offset=7)
        try:
            await files.save(CONSUMER_OFFSET, offsets.to_json())
        except NodeDied:
            assert offset_in(disk) in {len(TABLES) - 2, 7}, crash_at
        else:
            disk.crash_at = None
            await files.save(CONSUMER_OFFSET, TABLES[0])
            assert offset_in(disk) == 0
            disk.files[PATH].cache[:] = junk
            assert offset_in(disk) == 7, "what was saved since is a good backup"
            return


@pytest.mark.parametrize("name", [TOPICS, CONSUMER_OFFSET])
@pytest.mark.parametrize(
    "junk",
    [b"", b'{"topicConfigTable":[1],"offsetTable":[1]}', b'{"topicConfigTable":{"t":1},"offsetTable":{"t":1}}',
     b'{"topicConfigTable":{"t":{"perm":"x"}},"offsetTable":{"t":{"x":1}}}', b'{"dataVersion":7,"offsetTable":7}'],
)  # fmt: skip
async def test_no_table_prevents_the_start(name: str, junk: bytes, virtual_clock: VirtualClock) -> None:
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker(), machine.client() as client:
        await ask(client, send_request(b"x"))
        commit = {"consumerGroup": "g", "topic": "t", "queueId": "0", "commitOffset": "1"}
        await ask(client, RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=commit))
        await trio.sleep(20)
    for suffix in ("", ".bak"):
        path = f"/store/config/{name}{suffix}"
        if path in machine.disk.files:
            machine.disk.files[path].cache[:] = junk
    async with machine.broker() as broker, machine.client() as client:
        assert broker.topics.select("t") is not None, "the log has it"
        verdict = judge(await status(client))
        (told,) = [reason for reason in verdict.reasons if "was no table" in reason]
        assert (verdict.level, name in told, Page.LOST_TABLES in told) == ("degraded", True, True)
        broker.offsets.commit_offset("g", "t", 0, offset=1)
    async with machine.broker(), machine.client() as client:
        assert judge(await status(client)).level == "ok", "another was saved since"


class Locked(SimMount):
    """The system lets nobody look at a directory, or read its files."""

    what = "stat"
    error = errno.EACCES

    def exists(self, path: str) -> bool:
        self._refuse("stat", path)
        return super().exists(path)

    def read_bytes(self, path: str) -> bytes:
        self._refuse("open", path)
        return super().read_bytes(path)

    def _refuse(self, operation: str, path: str) -> None:
        if operation == self.what and path.startswith("/store/config/"):
            raise StoreReadError(OSError(self.error, os.strerror(self.error)), operation=operation, path=path)


@pytest.mark.parametrize("is_missing", [False, True])
async def test_what_a_backup_gave_is_told(virtual_clock: VirtualClock, *, is_missing: bool) -> None:
    """It lacks the last change: a commit, a prohibition, a deletion."""
    disk = SimDisk()
    await save_until_the_power_goes(disk)
    if is_missing:
        disk.files.pop(PATH)
    else:
        disk.files[PATH].cache[:] = b"{" * disk.files[PATH].size
    files = ConfigFiles(disk.mount(), "/store/config")
    assert files.load(CONSUMER_OFFSET) == java_json.loads(java_json.dumps(TABLES[-2]).encode())
    (told,) = files.lost.values()
    assert PATH in told
    assert "its backup was taken instead, which lacks the last change" in told
    assert ("it is missing" in told) == is_missing


class LockedTable(Locked):
    """The system lets nobody read a table, but its backup, which is another file."""

    def _refuse(self, operation: str, path: str) -> None:
        if not path.endswith(".bak"):
            super()._refuse(operation, path)


@pytest.mark.parametrize("mount", [Locked, LockedTable])
@pytest.mark.parametrize("what", ["stat", "open"])
@pytest.mark.parametrize("error", [errno.EACCES, errno.EIO])
async def test_a_table_that_may_not_be_read_is_not_taken_for_none(
    what: str, error: int, mount: type[Locked], virtual_clock: VirtualClock
) -> None:
    """It was replaced by the empty one, or the backup's, with the first save after its owner was set right."""
    disk = SimDisk()
    await save_until_the_power_goes(disk)
    locked = mount(disk, disk.mount().epoch)
    locked.what, locked.error = what, error
    with pytest.raises(StoreReadError, match=f"{what} failed on {PATH}"):
        ConfigFiles(locked, "/store/config").load(CONSUMER_OFFSET)


async def test_offsets_beyond_the_end_of_a_log_that_lost_its_tail_are_cut(virtual_clock: VirtualClock) -> None:
    """#4771: the lost offsets are given again; a group that went on behind them would never see what gets them."""
    machine = Machine(SimNet(), "10.0.0.1")
    async with machine.broker(), machine.client() as client:
        for _ in range(10):
            await ask(client, send_request(b"old"))
        for topic, offset in (("t", 10), ("other", 7)):
            commit = {"consumerGroup": "g", "topic": topic, "queueId": "0", "commitOffset": str(offset)}
            await ask(client, RemotingCommand(RequestCode.UPDATE_CONSUMER_OFFSET, ext_fields=commit))
    for path in [path for path in machine.disk.files if "config" not in path]:
        del machine.disk.files[path]
    async with machine.broker() as broker, machine.client() as client:
        assert broker.offsets.query_offset("g", "t", 0) == 0
        assert broker.offsets.query_offset("g", "other", 0) == 0
        for _ in range(10):
            await ask(client, send_request(b"new"))
        query = {"consumerGroup": "g", "topic": "t", "queueId": "0"}
        answer = await ask(client, RemotingCommand(RequestCode.QUERY_CONSUMER_OFFSET, ext_fields=query))
        assert answer.ext_fields["offset"] == "0"


async def test_a_large_table_is_made_in_turns_and_may_grow_meanwhile(mock_clock: MockClock) -> None:
    """To make a quarter of a million offsets at once would keep everybody else waiting for seconds."""
    table = {f"t@g{number}": {0: number} for number in range(5000)}
    turns = 0

    async def commit() -> None:
        nonlocal turns
        while True:
            await trio.lowlevel.checkpoint()
            turns += 1
            table[f"t@new{turns}"] = {0: 1}
            table["t@g4999"][turns] = 1

    async with trio.open_nursery() as nursery:
        nursery.start_soon(commit)
        data = await encode_in_turns({"offsetTable": table})
        nursery.cancel_scope.cancel()
    saved = java_json.loads(data)["offsetTable"]
    assert turns > 5
    assert {key: saved[key][0] for key in list(table)[:5000]} == {f"t@g{number}": number for number in range(5000)}


async def test_a_large_table_is_made_for_as_long_as_everybody_else_takes(mock_clock: MockClock) -> None:
    """Of a busy broker, whose passes took 40 ms, the offsets took 13 s; and it said that its disk did not answer."""
    table, passes = {f"t@g{number}": {0: number} for number in range(50_000)}, 0

    async def work() -> None:
        nonlocal passes
        while True:
            mock_clock.jump(0.04)
            passes += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        await encode_in_turns({"offsetTable": table})
        nursery.cancel_scope.cancel()
    assert passes < 5


async def test_a_group_is_removed_while_the_offsets_are_saved(virtual_clock: VirtualClock) -> None:
    """By an operator (207), of a broker that has many offsets: the save is another task, and its end the broker's."""
    disk, offsets = SimDisk(), ConsumerOffsetManager()
    for number in range(2000):
        for group in ("gone", "kept"):
            offsets.commit_offset(group, f"t{number}", 0, offset=number)
    files = ConfigFiles(disk.mount(), "/store/config")
    removed_at: list[int] = []

    async def save() -> None:
        await files.save(CONSUMER_OFFSET, await offsets.to_json_in_turns())
        removed_at.append(len(await offsets.topics_of_in_turns("gone")))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(save)
        nursery.start_soon(offsets.remove_offset_in_turns, "gone")
    saved = files.load(CONSUMER_OFFSET)
    assert saved is not None
    assert {key for key in saved["offsetTable"] if key.endswith("@kept")} == {f"t{n}@kept" for n in range(2000)}
    assert len(saved["offsetTable"]) < 4000
    assert removed_at == [0]


def test_what_goes_while_the_parts_of_a_table_are_made_is_left_out() -> None:
    """Also the first, the last and all, and queues of what stays."""
    for gone in ({"a"}, {"c"}, {"a", "b"}, {"a", "b", "c"}):
        table = {name: {0: 1, 1: 2} for name in ("a", "b", "c")}
        parts = java_json.dump_parts(table)
        text = next(parts)
        for name in gone:
            del table[name]
        assert java_json.loads(text + "".join(parts)) == table
    queues = {0: 1, 1: 2}
    parts = java_json.dump_parts({"t@g": queues})
    text = "".join([next(parts), next(parts), next(parts)])
    del queues[1]
    assert java_json.loads(text + "".join(parts)) == {"t@g": {0: 1}}


@pytest.mark.parametrize(
    "value",
    [{}, {"a": {}}, {"t": {"x@y": {}, "z@y": {0: 5, 1: 6}}, "n": None, "l": [1, {2: 3}]}, {"a": {"b": {"c": 1}}}],
)
def test_the_parts_of_a_table_are_the_table(value: dict[str, Any]) -> None:
    assert "".join(java_json.dump_parts(value)) == java_json.dumps(value)


async def test_a_table_that_is_saved_unchanged_costs_no_backup() -> None:
    """The backup would be the same table, and with that damage what was before it gone."""
    disk = SimDisk()
    files = ConfigFiles(disk.mount(), "/store/config")
    for table in (TABLES[1], TABLES[2], TABLES[2]):
        await files.save(CONSUMER_OFFSET, table)
    assert offset_in(disk) == 2
    disk.mount().unlink(PATH)
    assert offset_in(disk) == 1


async def test_a_store_that_was_moved_is_not_made_again_for_its_tables() -> None:
    """It would be put back into that one, and the next start would tell to move both away."""
    disk = SimDisk()
    mount = disk.mount()
    files = ConfigFiles(mount, "/store/config", inside="/store")
    mount.makedirs("/store")
    await files.save(CONSUMER_OFFSET, {"offsetTable": {}})
    for path in [path for path in [*disk.directories, *disk.files] if path.startswith("/store")]:
        disk.directories.pop(path, None)
        disk.files.pop(path, None)
    with pytest.raises(StoreWriteError, match="find failed on /store: No such file or directory"):
        await files.save(CONSUMER_OFFSET, {"offsetTable": {"t@g": {"0": 1}}})
    assert not mount.exists("/store")


async def test_when_a_table_was_written_is_known_of_the_file_that_was_taken() -> None:
    now = [5]
    disk = SimDisk(now_ms=lambda: now[0])
    disk.mount().makedirs("/store/config")
    files = ConfigFiles(disk.mount(), "/store/config")
    assert files.modified_ms(CONSUMER_OFFSET) == 0
    await files.save(CONSUMER_OFFSET, TABLES[0])
    now[0] = 9
    await files.save(CONSUMER_OFFSET, TABLES[1])
    assert files.modified_ms(CONSUMER_OFFSET) == 9
    now[0] = 20
    disk.mount().replace_bytes(PATH, b"{")
    again = ConfigFiles(disk.mount(), "/store/config")
    again.load(CONSUMER_OFFSET)
    assert again.modified_ms(CONSUMER_OFFSET) == 9
