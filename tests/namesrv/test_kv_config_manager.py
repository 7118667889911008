"""What operators keep in a name server survives its end, and one of them cannot fill it."""

import random
from contextlib import suppress
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from rmqha.errors import RemoteProtocolError
from rmqha.namesrv import kv_config_manager
from rmqha.namesrv.kv_config_manager import KVConfigManager
from rmqha.store.config_files import ConfigFiles
from rmqha.waiting import wait_reached
from tests.sim.sim_clock import WallClock
from tests.sim.sim_disk import SimDisk

PATH = "/namesrv/kvConfig.json"


@pytest.fixture
def disk() -> SimDisk:
    return SimDisk(random.Random(1), now_ms=WallClock())


def manager(disk: SimDisk) -> KVConfigManager:
    made = KVConfigManager(ConfigFiles(disk.mount(), "/namesrv"))
    made.load()
    return made


async def save(kept: KVConfigManager) -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(kept.run)
        assert await wait_reached(kept.saved, kept.changes)
        nursery.cancel_scope.cancel()


async def test_what_was_saved_is_there_after_a_power_cut(disk: SimDisk) -> None:
    kept = manager(disk)
    kept.put_kv_config("n", "k", value="v", host="h")
    kept.put_kv_config("n", "gone", value="v", host="h")
    await save(kept)
    kept.delete_kv_config("n", "gone")
    kept.delete_kv_config("n", "never there")
    await save(kept)
    assert disk.mount().read_bytes(PATH) == b'{"configTable":{"n":{"k":"v"}}}'
    disk.power_cut()
    kept = manager(disk)
    assert kept.get_kv_list_by_namespace("n") == {"k": "v"}
    assert (kept.get_kv_config("n", "k"), kept.get_kv_config("n", "x"), kept.get_kv_config("m", "k")) == (
        "v",
        None,
        None,
    )


async def test_a_file_that_is_no_table_is_none(disk: SimDisk) -> None:
    mounted = disk.mount()
    mounted.makedirs("/namesrv")
    mounted.replace_bytes(PATH, b'{"configTable":{"n":7}}')
    kept = manager(disk)
    assert kept.get_kv_list_by_namespace("n") == {}
    kept.put_kv_config("n", "k", value="v", host="")
    await save(kept)
    assert manager(disk).get_kv_config("n", "k") == "v"


@pytest.mark.parametrize("name", ["$ref", "@type"])
async def test_a_name_that_is_none_in_json_costs_nobody_else_a_value(disk: SimDisk, name: str) -> None:
    """The file could not be read any more, nor could clients read the table."""
    kept = manager(disk)
    kept.put_kv_config("n", "k", value="v", host="h")
    for namespace, key in (("refers", name), (name, "k")):
        with pytest.raises(RemoteProtocolError, match="no names"):
            kept.put_kv_config(namespace, key, value="$.configTable", host="h")
    await save(kept)
    assert manager(disk).get_kv_config("n", "k") == "v"


async def test_one_host_leaves_room_for_others(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kv_config_manager, "SIZE_MAX", 10_000)
    kept, stored = manager(disk), 0
    with suppress(RemoteProtocolError):
        while True:
            kept.put_kv_config("n", f"k{stored}", value="v" * 10, host="greedy")
            stored += 1
    assert 0 < stored < 100
    kept.put_kv_config("n", "k0", value="w" * 10, host="greedy")
    kept.put_kv_config("n", "honest", value="v", host="other")
    for number in range(stored):
        kept.delete_kv_config("n", f"k{number}")
    kept.put_kv_config("n", "k", value="v" * 1000, host="greedy")


async def test_a_value_is_on_the_account_of_who_stored_it_last(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is another one: of what was forgotten of them, each would have less room for ever."""
    monkeypatch.setattr(kv_config_manager, "SIZE_MAX", 10_000)
    kept = manager(disk)
    for _ in range(20):
        for host in ("one", "other", "other"):
            kept.put_kv_config("n", "k", value="v" * 300, host=host)
        kept.delete_kv_config("n", "k")
    for host in ("one", "other"):
        kept.put_kv_config("n", host, value="v" * 500, host=host)


async def test_what_was_in_the_file_counts(disk: SimDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the file would grow by as much as it may have with each start."""
    monkeypatch.setattr(kv_config_manager, "SIZE_MAX", 1000)
    kept = manager(disk)
    kept.put_kv_config("n", "k", value="v" * 200, host="")
    await save(kept)
    again = manager(disk)
    with pytest.raises(RemoteProtocolError, match="what is stored fills"):
        again.put_kv_config("n", "l", value="v" * 20, host="")
    again.delete_kv_config("n", "k")
    again.put_kv_config("n", "l", value="v" * 200, host="")


async def test_what_cannot_be_saved_is_told_and_saved_later(
    disk: SimDisk, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    kept = manager(disk)
    nursery.start_soon(kept.run)
    disk.faults.full = True
    kept.put_kv_config("n", "k", value="v", host="h")
    assert not await wait_reached(kept.saved, kept.changes)
    assert "No space left" in kept.problem
    disk.faults.full = False
    assert await wait_reached(kept.saved, kept.changes)
    assert (kept.problem, manager(disk).get_kv_config("n", "k")) == ("", "v")


async def test_what_is_put_while_another_value_is_saved_is_saved_next(
    disk: SimDisk, nursery: trio.Nursery, autojump_clock: MockClock
) -> None:
    """Its operator is told of success when it is on the disk."""

    class SlowFiles(ConfigFiles):
        async def save(self, name: str, value: dict[str, Any]) -> None:
            await super().save(name, value)
            await trio.sleep(1)

    kept = KVConfigManager(SlowFiles(disk.mount(), "/namesrv"))
    nursery.start_soon(kept.run)
    kept.put_kv_config("n", "first", value="v", host="h")
    await trio.sleep(0.5)
    kept.put_kv_config("n", "second", value="v", host="h")
    assert await wait_reached(kept.saved, kept.changes)
    disk.power_cut()
    assert manager(disk).get_kv_list_by_namespace("n") == {"first": "v", "second": "v"}
