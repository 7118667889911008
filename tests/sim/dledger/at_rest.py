"""What holds once everything is healed and nothing is under way."""

from typing import TYPE_CHECKING

import trio

from rmqha.codec.dledger_entry import INDEX_UNIT_SIZE, encode_index
from tests.sim.dledger.held import data_files
from tests.sim.dledger.history import Place
from tests.sim.dledger.machine import Machine, Process

if TYPE_CHECKING:
    from tests.sim.dledger.world import World

_MOMENT_S = 0.5


def check_at_rest(world: "World") -> None:
    """S8, S10, S4: nothing acknowledged or committed is lost; units fit their entries; files are the same."""
    for machine in world.machines.values():
        process = machine.process
        assert process is not None, "all serve"
        for index, entry in (world.checker.committed | world.checker.acknowledged).items():
            if index >= process.begin and process.log.get(index) != entry:
                world.checker.violation("S8", f"{machine.name} has lost {entry}")
                return
        _check_units(world, machine, process)
    _check_files(world)
    _check_transfers(world)


def _check_units(world: "World", machine: Machine, process: Process) -> None:
    size, directory = machine.config.mapped_file_size_for_entry_index, machine.config.index_store_path
    for entry in process.log.values():
        offset = entry.index * INDEX_UNIT_SIZE
        inode = machine.disk.files.get(f"{directory}/{offset - offset % size:020d}")
        unit = encode_index(pos=entry.pos, size=entry.size, magic=entry.magic, index=entry.index, term=entry.term)
        if inode is None or inode.cache[offset % size : offset % size + INDEX_UNIT_SIZE] != unit:
            world.checker.violation("S10", f"{machine.name} has another unit for {entry}, or none")
            return


def _check_transfers(world: "World") -> None:
    """S11: nobody is about to take over for longer than that may take."""
    for machine in world.machines.values():
        server = machine.process.server if machine.process is not None else None
        assert server is not None, "all serve"
        taking = server.transfer._taking
        if taking is not None and taking.until + _MOMENT_S < trio.current_time():
            world.checker.violation("S11", f"{machine.name} was to take over, and waits for it still")


def _check_files(world: "World") -> None:
    """All members have the same bytes in those data files that all have whole."""
    files = [_whole_files(machine) for machine in world.machines.values()]
    for name in sorted(set.intersection(*map(set, files))):
        if any(of_one[name] != files[0][name] for of_one in files):
            world.checker.violation("S4", f"the data files {name} are not the same")


def _whole_files(machine: Machine) -> dict[str, bytes]:
    """By name; the log may begin in the middle of one, which is not among them."""
    process, files = machine.process, machine.disk.files
    first = process.log[process.begin].pos if process and process.log else 0
    return {name: bytes(files[path].cache) for name, path in data_files(machine).items() if int(name) >= first}


def observe(world: "World") -> int:
    """What is in the log in the end is, for the history, as if somebody had read it; returns how much that is."""
    process = next(iter(world.machines.values())).process
    assert process is not None, "all serve"
    for entry in process.log.values():
        read = world.history.get("at rest", entry.index)
        place = Place(entry.index, entry.term, entry.pos)
        world.history.answered(read, 200, place=place, found=bytes(entry.body))
    return len(process.log)
