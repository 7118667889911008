"""Which disk holds an entry."""

from typing import TYPE_CHECKING

from rmqha.codec.dledger_entry import (
    INDEX_UNIT_SIZE,
    DLedgerEntry,
    EntryHeader,
    encode_header,
    encode_index,
    read_record,
    start_position,
)
from rmqha.store.mapped_file import file_name, parse_file_name

if TYPE_CHECKING:
    from tests.sim.dledger.machine import Machine


def holds(machine: "Machine", entry: DLedgerEntry, *, durable: bool) -> bool:
    """Whether the device has this entry and its unit of the index; with ``durable=False``: the kernel the entry."""
    config = machine.config
    data = encode_header(entry) + bytes(entry.body)
    path = data_path(machine, entry.pos)
    if not durable:
        return _has(machine, path, entry.pos, config.mapped_file_size_for_entry_data, data, False)
    unit = encode_index(pos=entry.pos, size=entry.size, magic=entry.magic, index=entry.index, term=entry.term)
    at, size = entry.index * INDEX_UNIT_SIZE, config.mapped_file_size_for_entry_index
    index_path = f"{config.index_store_path}/{file_name(at - at % size)}"
    return _has(machine, path, entry.pos, config.mapped_file_size_for_entry_data, data, True) and _has(
        machine, index_path, at, size, unit, True
    )


def data_path(machine: "Machine", pos: int) -> str:
    """The data file that holds a position of the log, in the directory in which it lies; or where it might lie."""
    config = machine.config
    name = file_name(pos - pos % config.mapped_file_size_for_entry_data)
    paths = [f"{directory}/{name}" for directory in config.data_store_paths]
    return next((path for path in paths if path in machine.disk.files), paths[0])


def data_files(machine: "Machine") -> dict[str, str]:
    """The paths of all data files, by their names, in the log's order."""
    directories = {*machine.config.data_store_paths}
    named = (path.rpartition("/") for path in machine.disk.files)
    return dict(sorted((name, f"{parent}/{name}") for parent, _, name in named if parent in directories))


def has_deleted(machine: "Machine", entry: DLedgerEntry, *, durable: bool) -> bool:
    """Whether the device has a log that begins behind this entry: only what is committed is deleted there."""
    files = data_files(machine)
    if not files:
        return False
    name, path = next(iter(files.items()))
    inode, base = machine.disk.files[path], parse_file_name(name)
    assert base is not None, "members make no other files there"
    content = bytes(inode.durable if durable else inode.cache)
    first = read_record(content, start_position(content), base=base, previous=None)
    return isinstance(first, EntryHeader) and first.index > entry.index


def _has(machine: "Machine", path: str, offset: int, file_size: int, data: bytes, durable: bool) -> bool:
    at, inode = offset % file_size, machine.disk.files.get(path)
    if inode is None:
        return False
    content = inode.durable if durable else inode.cache
    return content[at : at + len(data)] == data
