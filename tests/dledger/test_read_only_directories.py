"""What lies in readOnlyDataStoreDirs goes when it has expired, and not by force: that gives a full disk no room."""

from dataclasses import replace

import pytest

from rmqha.dledger.clean_space_service import CleanSpaceService
from tests.dledger.test_services import HOUR_MS, NOON, Member
from tests.sim.sim_disk import SimDisk


@pytest.fixture
def sim() -> SimDisk:
    return SimDisk(latency_s=(0, 0))


async def filled(sim: SimDisk) -> Member:
    """Its oldest files lie in a directory that is read-only since."""
    for path in ("/d1", "/d2"):
        sim.directories[path] = None
    member = Member(sim, data_store_path="/d1,/d2")
    await member.fill()
    config = replace(member.config, read_only_data_store_dirs="/d2")
    member.service = CleanSpaceService(member.store, config, member.disk, now_ms=lambda: member.now_ms)
    assert [file.path[:3] for file in member.store.data_file_list.mapped_files[:3]] == ["/d1", "/d2", "/d1"]
    return member


async def test_force_stops_at_the_first_of_them(sim: SimDisk) -> None:
    member = await filled(sim)
    member.disk.used = {"/d1": 96, "/d2": 96}
    assert await member.service.clean() == 1
    assert await member.service.clean() == 0
    assert member.store.data_file_list.mapped_files[0].path.startswith("/d2/")
    refusal = member.store.room.refusal
    assert refusal.startswith("the disk is too full")
    assert "readOnlyDataStoreDirs" in refusal
    member.disk.used = {"/d1": 10}
    await member.service.clean()
    assert not member.store.room.refusal


async def test_what_has_expired_goes(sim: SimDisk) -> None:
    member = await filled(sim)
    member.disk.used = {"/d1": 96, "/d2": 96}
    member.now_ms = NOON + 73 * HOUR_MS
    assert await member.service.clean() == 6
