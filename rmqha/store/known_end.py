"""How far a store's log reached, by what is beside it: its checkpoint, and its consume queues."""

from contextlib import closing
from typing import NamedTuple

from rmqha.codec.checkpoint import decode_checkpoint
from rmqha.errors import CorruptLogError
from rmqha.store.consume_queue_table import ConsumeQueueTable
from rmqha.store.disk import Disk
from rmqha.store.open_files import OpenFiles
from rmqha.store.queue_verify import OPEN_FILES_MAX, queue_file_size


class KnownEnd(NamedTuple):
    """A log that ends before lacks something, and a start of its broker refuses it, or asks why."""

    offset: int
    """0: nobody knows."""
    who: str
    """The subject of "up to", in words."""


def known_end(disk: Disk, root: str, *, checkpoint_only: bool = False) -> KnownEnd:
    """The larger of both. Reads only; for a store with or without its broker running, if it is asked before the log is.

    After a crash queues may reach further than the log's last durable byte: with ``checkpoint_only`` they do not count.

    Raises:
        StoreReadError: something cannot be read.
    """
    path = f"{root}/checkpoint"
    durable = decode_checkpoint(disk.read_bytes(path)).master_flushed_offset if disk.exists(path) else 0
    found = KnownEnd(durable, "the checkpoint says that it was durable")
    directory = f"{root}/consumequeue"
    if checkpoint_only or not (size := queue_file_size(disk, directory)):
        return found
    with closing(OpenFiles(OPEN_FILES_MAX)) as open_files:
        table = ConsumeQueueTable(disk, directory, file_size=size, open_files=open_files)
        try:
            table.load(writable=False)
        except CorruptLogError:
            return found
        dispatched = table.max_physic_offset
    return KnownEnd(dispatched, "the consume queues know of records") if dispatched > durable else found
