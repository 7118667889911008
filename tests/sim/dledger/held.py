"""Which disk holds an entry."""

from typing import TYPE_CHECKING

from rmqha.codec.dledger_entry import INDEX_UNIT_SIZE, DLedgerEntry, encode_header, encode_index
from rmqha.store.mapped_file import file_name

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


def _has(machine: "Machine", directory: str, offset: int, file_size: int, data: bytes, durable: bool) -> bool:
    at = offset % file_size
    inode = machine.disk.files.get(f"{directory}/{file_name(offset - at)}")
    if inode is None:
        return False
    content = inode.durable if durable else inode.cache
    return content[at : at + len(data)] == data
