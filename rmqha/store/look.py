"""Look at a store as a start takes it in, and change nothing."""

from contextlib import closing

from rmqha.store.consume_queue_table import ConsumeQueueTable
from rmqha.store.disk import Disk
from rmqha.store.log_recovery import refuse_lost_log
from rmqha.store.mapped_file import parse_file_name
from rmqha.store.mapped_file_queue import MappedFileQueue
from rmqha.store.open_files import OpenFiles
from rmqha.store.queue_verify import OPEN_FILES_MAX
from rmqha.store.start import durable_knowledge
from rmqha.store.store_checkpoint import StoreCheckpoint
from rmqha.store.store_options import StoreOptions


def look_at_store(disk: Disk, options: StoreOptions, *, is_member: bool) -> None:
    """Names, sizes and places of segments and queue files, and whether the log is one that was lost.

    Args:
        disk: where the store is.
        options: of its broker, which does not run.
        is_member: of a DLedger group: an old commitlog may be there, and its queues lead into the group's entries.

    Raises:
        CorruptLogError: a start refuses.
        StoreReadError: something cannot be read.
    """
    with closing(OpenFiles(OPEN_FILES_MAX)) as open_files:
        directory = options.store_path_commit_log
        size = options.mapped_file_size_commit_log
        segments = MappedFileQueue(disk, directory, file_size=size, open_files=open_files)
        if not is_member or any(parse_file_name(name) is not None for name in disk.listdir(directory)):
            segments.load(writable=False)
        queues = ConsumeQueueTable(
            disk,
            options.consume_queue_dir,
            file_size=options.mapped_file_size_consume_queue,
            open_files=open_files,
        )
        queues.load(writable=False)
        checkpoint = StoreCheckpoint(disk, f"{options.store_path_root_dir}/checkpoint")
        checkpoint.load()
        if not is_member:
            refuse_lost_log(segments, durable_knowledge(queues, checkpoint, clean=False))
