"""The classic log: segments of one size in storePathCommitLog, and what makes them ahead of their need."""

from rmqha.store.allocate_service import AllocateMappedFileService
from rmqha.store.commit_log import CommitLog
from rmqha.store.mapped_file_queue import MappedFileQueue
from rmqha.store.store_log import StoreGround


def make_classic_log(ground: StoreGround) -> CommitLog:
    """The log of a store on ``ground``; nothing is opened yet."""
    options, flags = ground.options, ground.running_flags
    segments = MappedFileQueue(
        ground.disk,
        options.store_path_commit_log,
        file_size=options.mapped_file_size_commit_log,
        open_files=ground.open_files,
    )
    return CommitLog(
        segments,
        AllocateMappedFileService(segments, flags=flags),
        now_ms=ground.now_ms,
        fail=flags.fail,
        delay_levels_ms=options.delay_levels_ms,
    )
