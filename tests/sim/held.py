"""Which disk holds an acknowledged message."""

from dataclasses import dataclass
from typing import Final

from rmqha.store.mapped_file import file_name
from tests.sim.node import STORE
from tests.sim.sim_disk import SimDisk
from tests.sim.workload import Message

COMMIT_LOG: Final = f"{STORE}/commitlog/"


@dataclass(frozen=True, slots=True)
class Acked:
    """A message somebody was told SEND_OK for, as it lies in the log."""

    message: Message
    offset: int
    queue_offset: int
    record: bytes


def holds(disk: SimDisk, acked: Acked, size: int, *, durable: bool) -> bool:
    """Whether the device (or at least the kernel) of a disk has this record at its place in segments of ``size``."""
    base = acked.offset - acked.offset % size
    inode = disk.files.get(COMMIT_LOG + file_name(base))
    if inode is None:
        return False
    at = acked.offset - base
    data = inode.durable if durable else inode.cache
    return data[at : at + len(acked.record)] == acked.record
