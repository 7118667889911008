"""The parts of a store, made and wired: what each has to know of the others is said here and nowhere else."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import trio

from rmqha.codec.index_file import IndexLayout
from rmqha.replication.role import Role
from rmqha.store.build_consume_queue import CommitLogDispatcherBuildConsumeQueue
from rmqha.store.build_index import CommitLogDispatcherBuildIndex
from rmqha.store.cleaner import CleanCommitLogService
from rmqha.store.commit_log_dispatcher import CommitLogDispatcher
from rmqha.store.confirm_offset import ConfirmOffset
from rmqha.store.consume_queue_table import ConsumeQueueTable
from rmqha.store.damaged_records import DamagedRecords
from rmqha.store.disk import Disk
from rmqha.store.flush_consume_queue_service import FlushConsumeQueueService
from rmqha.store.flush_service import FlushCommitLogService, make_flush_service
from rmqha.store.index_query import IndexQuery
from rmqha.store.index_service import IndexService
from rmqha.store.log import Log
from rmqha.store.message_reader import MessageReader
from rmqha.store.queue_rebuild import QueueRebuildService
from rmqha.store.reput_message_service import ReputMessageService
from rmqha.store.running_flags import RunningFlags
from rmqha.store.store_checkpoint import StoreCheckpoint
from rmqha.store.store_log import Service, StoreGround, StoreLog
from rmqha.store.store_options import StoreOptions
from rmqha.store.store_stats_service import StoreStatsService
from rmqha.waiting import DeadlineService


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreParts:
    """What :class:`~rmqha.store.message_store.DefaultMessageStore` is made of."""

    options: StoreOptions
    role: Role
    disk: Disk
    running_flags: RunningFlags
    checkpoint: StoreCheckpoint
    commit_log: StoreLog
    flush_service: FlushCommitLogService
    flush_deadlines: DeadlineService
    confirm_offset: ConfirmOffset
    queues: ConsumeQueueTable
    reput: ReputMessageService
    queue_rebuild: QueueRebuildService
    damaged_records: DamagedRecords
    index: IndexService
    index_query: IndexQuery
    flush_queues: FlushConsumeQueueService
    reader: MessageReader
    cleaner: CleanCommitLogService
    stats: StoreStatsService

    @property
    def services(self) -> tuple[Service, ...]:
        """What runs while the store serves."""
        return (
            *self.commit_log.services,
            self.flush_service,
            self.flush_deadlines,
            self.reput,
            self.queue_rebuild,
            self.damaged_records,
            *([self.index] if self.options.message_index_enable else []),
            self.flush_queues,
            self.cleaner,
            self.stats,
        )


def make_parts(ground: StoreGround, log: StoreLog, *, role: Role) -> StoreParts:
    """Make them for one life; nothing is opened yet.

    Args:
        ground: what ``log`` was made on.
        log: of whatever kind; only its maker knows.
        role: of this broker; it may change.
    """
    options, disk, flags = ground.options, ground.disk, ground.running_flags
    checkpoint = StoreCheckpoint(disk, f"{options.store_path_root_dir}/checkpoint")
    confirm_offset = ConfirmOffset(log, sync_flush=options.sync_flush)
    queues = ConsumeQueueTable(
        disk, options.consume_queue_dir, file_size=options.mapped_file_size_consume_queue, open_files=ground.open_files
    )
    index = _make_index(ground, log, checkpoint)
    builders: list[CommitLogDispatcher] = [CommitLogDispatcherBuildConsumeQueue(log, queues)]
    if options.message_index_enable:
        builders.append(CommitLogDispatcherBuildIndex(index, lambda: reput.reput_from_offset))
    reput = ReputMessageService(log, builders, flags=flags, confirm_offset=confirm_offset.value)
    seen = partial(_seen, reput, confirm_offset)
    queue_rebuild = QueueRebuildService(disk, log, queues, reput=reput, flags=flags)
    flush = make_flush_service(log, flags, options=options, on_flushed=reput.wakeup)
    given = DamagedRecords(log)
    queues.heal_with(queue_rebuild.take, on_missing=reput.wakeup)
    stats = StoreStatsService(log, role, clock=trio.current_time)
    queues.on_counted.append(stats.note_dispatched)
    return StoreParts(
        options=options,
        role=role,
        disk=disk,
        running_flags=flags,
        checkpoint=checkpoint,
        commit_log=log,
        flush_service=flush,
        flush_deadlines=DeadlineService(log.flushed.deadlines),
        confirm_offset=confirm_offset,
        queues=queues,
        reput=reput,
        queue_rebuild=queue_rebuild,
        damaged_records=given,
        index=index,
        index_query=IndexQuery(lambda: index.files, log, visible_offset=seen),
        flush_queues=_make_flush_queues(
            options, queues, checkpoint, flush=flush, reput=reput, index=index, flags=flags
        ),
        reader=_make_reader(log, queues, options=options, role=role, seen=seen, rebuild=queue_rebuild, given=given),
        cleaner=CleanCommitLogService(
            disk,
            log.files,
            queues=queues,
            flags=flags,
            options=options.clean,
            now_ms=ground.now_ms,
            done_offset=lambda: min(log.confirmed, reput.reput_from_offset),
        ),
        stats=stats,
    )


def _make_index(ground: StoreGround, log: Log, checkpoint: StoreCheckpoint) -> IndexService:
    options = ground.options
    return IndexService(
        ground.disk,
        options.index_dir,
        IndexLayout(options.max_hash_slot_num, options.max_index_num),
        log=log,
        open_files=ground.open_files,
        now_ms=ground.now_ms,
        checkpoint_ms=lambda: checkpoint.durable.index_timestamp_ms,
    )


def _seen(reput: ReputMessageService, confirm_offset: ConfirmOffset) -> int:
    """The end of what may be seen."""
    return max(reput.reput_from_offset, confirm_offset.value())


def _make_reader(
    log: Log,
    queues: ConsumeQueueTable,
    *,
    options: StoreOptions,
    role: Role,
    seen: Callable[[], int],
    rebuild: QueueRebuildService,
    given: DamagedRecords,
) -> MessageReader:
    return MessageReader(
        log,
        queues,
        visible_offset=seen,
        in_memory_bytes=options.in_memory_bytes,
        role=role,
        on_damaged=rebuild.suspect,
        on_given=given.note_given,
    )


def _make_flush_queues(
    options: StoreOptions,
    queues: ConsumeQueueTable,
    checkpoint: StoreCheckpoint,
    *,
    flush: FlushCommitLogService,
    reput: ReputMessageService,
    index: IndexService,
    flags: RunningFlags,
) -> FlushConsumeQueueService:
    return FlushConsumeQueueService(
        queues,
        checkpoint,
        flush_service=flush,
        reput=reput,
        index_timestamp_ms=lambda: index.durable_timestamp_ms,
        flags=flags,
        interval_s=options.flush_interval_consume_queue_s,
        least_pages=options.flush_consume_queue_least_pages,
        thorough_interval_s=options.flush_consume_queue_thorough_interval_s,
    )
