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
    if not durable:
        return _has(machine, config.data_store_paths[0], entry.pos, config.mapped_file_size_for_entry_data, data, False)
    unit = encode_index(pos=entry.pos, size=entry.size, magic=entry.magic, index=entry.index, term=entry.term)
    at = entry.index * INDEX_UNIT_SIZE
    return _has(
        machine, config.data_store_paths[0], entry.pos, config.mapped_file_size_for_entry_data, data, True
    ) and _has(machine, config.index_store_path, at, config.mapped_file_size_for_entry_index, unit, True)


def has_deleted(machine: "Machine", entry: DLedgerEntry, *, durable: bool) -> bool:
    """Whether the device has a log that begins behind this entry: only what is committed is deleted there."""
    directory = machine.config.data_store_paths[0]
    paths = sorted(path for path in machine.disk.files if path.startswith(f"{directory}/"))
    if not paths:
        return False
    inode, base = machine.disk.files[paths[0]], parse_file_name(paths[0].rpartition("/")[2])
    assert base is not None, "members make no other files there"
    content = bytes(inode.durable if durable else inode.cache)
    first = read_record(content, start_position(content), base=base, previous=None)
    return isinstance(first, EntryHeader) and first.index > entry.index


def _has(machine: "Machine", directory: str, offset: int, file_size: int, data: bytes, durable: bool) -> bool:
    at = offset % file_size
    inode = machine.disk.files.get(f"{directory}/{file_name(offset - at)}")
    if inode is None:
        return False
    content = inode.durable if durable else inode.cache
    return content[at : at + len(data)] == data
