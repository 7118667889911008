"""Somebody removes the tables of a broker that runs: what it has in memory is saved again."""

from typing import Final

import pytest
import trio
from structlog.testing import capture_logs

from rmqha.store.config_files import TOPICS, ConfigFiles
from tests.broker.machines import Machine, ask, send_request
from tests.sim.sim_clock import VirtualClock
from tests.sim.sim_disk import SimDisk

CONFIG: Final = "/store/config"


def tables(disk: SimDisk) -> dict[str, bytes]:
    """All but backups, which are made with the next change."""
    paths = [path for path in disk.files if path.startswith(CONFIG) and path.endswith(".json")]
    return {path: bytes(disk.files[path].durable) for path in paths}


async def saved(machine: Machine) -> dict[str, bytes]:
    """A message was sent, and all is saved."""
    async with machine.client() as client:
        await ask(client, send_request(b"one", topic="T"))
    await trio.sleep(600)
    return tables(machine.disk)


@pytest.mark.parametrize("lost", ["config", "topics.json", "consumerOffset.json", "tablesOrigin.json"])
async def test_tables_that_vanish_are_saved_again(machine: Machine, virtual_clock: VirtualClock, lost: str) -> None:
    """A start without would have begun with what the log tells, or another broker."""
    async with machine.broker():
        before = await saved(machine)
        gone = [path for path in machine.disk.files if path.startswith(CONFIG) and lost in path]
        for path in gone:
            del machine.disk.files[path]
        with capture_logs() as lines:
            await trio.sleep(600)
        after = tables(machine.disk)
    assert after == before
    told = [line["path"] for line in lines if line["event"] == "config_file.vanished"]
    assert told
    assert sorted(told) == sorted(path for path in gone if path.endswith(".json"))


async def test_while_they_cannot_be_saved_it_is_told_once(machine: Machine, virtual_clock: VirtualClock) -> None:
    """And by the status; once they can be, they are."""
    async with machine.broker() as broker:
        before = await saved(machine)
        for path in before:
            del machine.disk.files[path]
        machine.disk.faults.full = True
        with capture_logs() as lines:
            await trio.sleep(600)
        assert not tables(machine.disk)
        told = [line["path"] for line in lines if line["event"] == "config_file.vanished"]
        assert len(told) == len(set(told)) > 0
        assert broker.metadata.trouble
        machine.disk.faults.full = False
        await trio.sleep(600)
        assert tables(machine.disk) == before
        assert not broker.metadata.trouble


@pytest.mark.parametrize("makes_a_topic", [False, True])
async def test_killed_before_they_are_saved_again_the_next_start_misses_them(
    machine: Machine, virtual_clock: VirtualClock, *, makes_a_topic: bool
) -> None:
    """A topic that was made in between was saved with a note that there had been no table."""
    async with trio.open_nursery() as nursery:
        await nursery.start(machine.controller().run)
        await saved(machine)
        await trio.sleep(0.1)
        for path in list(tables(machine.disk)):
            del machine.disk.files[path]
        if makes_a_topic:
            async with machine.client() as client:
                await ask(client, send_request(b"two", topic="U"))
        machine.disk.kill()
        nursery.cancel_scope.cancel()
    async with machine.broker() as broker:
        assert any("consumerOffset.json" in told for told in broker.metadata.lost) or not makes_a_topic
        assert broker.metadata.lost


@pytest.mark.parametrize("instead", [None, b'{"topicConfigTable":{"BACKUP":{}}}'])
async def test_into_what_takes_the_place_of_a_store_that_was_moved_nothing_is_saved(instead: bytes | None) -> None:
    """A restored copy's tables were overwritten, and an empty mountpoint was filled."""
    disk = SimDisk().mount()
    files = ConfigFiles(disk, CONFIG, inside="/store")
    disk.makedirs(CONFIG)
    disk.create("/store/abort", 0, sparse=True)
    await files.save("topics.json", {"a": 1})
    assert not files.has_vanished("topics.json")
    disk.unlink(f"{CONFIG}/topics.json")
    assert files.has_vanished("topics.json")
    disk.unlink("/store/abort")
    if instead is not None:
        disk.replace_bytes(f"{CONFIG}/topics.json", instead)
    assert not files.has_vanished("topics.json")


async def test_one_that_was_put_back_is_told_of_when_it_vanishes_once_more(virtual_clock: VirtualClock) -> None:
    disk = SimDisk()
    mount = disk.mount()
    mount.makedirs(CONFIG)
    files = ConfigFiles(mount, CONFIG)
    await files.save(TOPICS, {})
    for _ in range(2):
        kept = disk.files.pop(f"{CONFIG}/{TOPICS}")
        for told in (1, 0):
            with capture_logs() as lines:
                assert files.has_vanished(TOPICS)
            assert len(lines) == told
        disk.files[f"{CONFIG}/{TOPICS}"] = kept
        assert not files.has_vanished(TOPICS)
