"""The start of a store: from whatever the last process left to a consistent log and consistent queues.

Order and reasons: spec: commitlog §7. Everything here blocks; nothing is served before it is done.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import Final

import structlog
import trio

from rmqha.codec.consume_queue import QUEUE_OFFSET_MAX
from rmqha.codec.record.layout import enters_queue
from rmqha.errors import CorruptLogError, StoreReadError, StoreWriteError
from rmqha.store.consume_queue_table import ConsumeQueueTable, QueueKey
from rmqha.store.disk import Closable, Disk
from rmqha.store.log import Log
from rmqha.store.log_recovery import DurableKnowledge, LogRecovery
from rmqha.store.passing import is_lack
from rmqha.store.queue_recovery import empty_queues_of, read_pieces, recover_consume_queues
from rmqha.store.recovery_progress import RecoveryProgress
from rmqha.store.reput_message_service import ReputMessageService
from rmqha.store.store_checkpoint import StoreCheckpoint
from rmqha.store.store_log import StoreLog
from rmqha.store.store_options import StoreOptions

logger = structlog.get_logger()

_PAGE: Final = 1000
_CHECKPOINT_LATE_MS: Final = 600_000
"""Messages came for longer, behind a checkpoint, than any of this store's waits: it is written each minute."""


def lock_store(disk: Disk, root: str, *log_directories: str) -> Closable:
    """Take a store for the life of the process, and its log, which another store's storePathCommitLog may name, too.

    Raises:
        StoreLockedError: another process uses one of them.
        StoreWriteError: the disk does not let us.
    """
    with ExitStack() as taken:
        disk.makedirs(root)
        taken.callback(disk.lock(f"{root}/lock").close)
        for directory in log_directories:
            disk.makedirs(directory)
            taken.callback(disk.lock_directory(directory).close)
        return taken.pop_all()


def load_and_recover(
    disk: Disk,
    options: StoreOptions,
    *,
    log: StoreLog,
    queues: ConsumeQueueTable,
    checkpoint: StoreCheckpoint,
    reput: ReputMessageService,
    progress: RecoveryProgress,
    on_older_root: Callable[[], None],
) -> LogRecovery:
    """Load, repair and dispatch.

    Calls ``on_older_root`` where that is known, before the queues are made as late as the log.

    Raises:
        CorruptLogError: it needs a human: nothing was cut.
        StoreReadError, StoreWriteError: the disk does not let us.
    """
    clean = mark_in_use(disk, options, log_directory=log.files.directory)
    try:
        log.load()
        queues.load()
        checkpoint.load()
        known = durable_knowledge(queues, checkpoint, clean=clean)
        recovery = log.recover(known, check_crc=options.check_crc_on_recover, progress=progress)
        _log_repairs(recovery)
        if _is_root_older(log, known, recovery):
            recovery = replace(recovery, root_as_of=known.queues_end)
            on_older_root()
        if not log.extents():
            checkpoint.begin()
        rebuild_from = log.max_offset if clean else recovery.scanned_from
        _recover_queues(queues, log, reput=reput, rebuild_from=rebuild_from, progress=progress)
        next_offsets = next_queue_offsets(log, queues, dispatched=reput.reput_from_offset)
        log.learn_queue_offsets(next_offsets)
    except (CorruptLogError, StoreReadError):
        if clean:  # nothing new was written: the next start, too, must know that the last stop was clean
            mark_unused(disk, options)
        raise
    log.note_records(recovery.end, recovery.last_store_timestamp_ms)
    logger.info(
        "store.loaded",
        min_offset=log.min_offset,
        max_offset=log.max_offset,
        verified_from=recovery.scanned_from,
        queues=len(next_offsets),
    )
    return recovery


def _is_root_older(log: StoreLog, known: DurableKnowledge, recovery: LogRecovery) -> bool:
    """Whether storePathRootDir was put back, or was not mounted for a while, beside a log that went on elsewhere.

    After a crash some records are behind the checkpoint; of a clean stop of ours none is. RocketMQ's has no offset.
    """
    is_told = known.durable_offset > 0 or known.is_blank
    if not is_told or known.queues_end >= log.max_offset:  # what holds the last record was there
        return False
    first_ms = _first_store_time_from(log, max(known.durable_offset, known.queues_end, log.min_offset))
    return first_ms is not None and (known.clean or recovery.last_store_timestamp_ms - first_ms > _CHECKPOINT_LATE_MS)


def _first_store_time_from(log: StoreLog, offset: int) -> int | None:
    """That of the first record at or behind the end of another one; None: none can be read there."""
    with suppress(CorruptLogError, StoreReadError):
        while offset < log.max_offset:
            records, behind = log.records(offset, log.max_offset)
            if records:
                return records[0].store_timestamp_ms
            if behind == offset:
                break
            offset = behind
    return None


def durable_knowledge(queues: ConsumeQueueTable, checkpoint: StoreCheckpoint, *, clean: bool) -> DurableKnowledge:
    """What queues and checkpoint, which are loaded, tell of the log."""
    return DurableKnowledge(
        clean=clean,
        checkpoint=checkpoint.durable,
        queues_end=queues.max_physic_offset,
        durable_offset=checkpoint.durable.master_flushed_offset,
        is_blank=checkpoint.is_blank,
    )


def _recover_queues(
    queues: ConsumeQueueTable,
    log: Log,
    *,
    reput: ReputMessageService,
    rebuild_from: int,
    progress: RecoveryProgress,
) -> None:
    progress.begin("checking the consume queues")
    begun_at = recover_consume_queues(queues, log, rebuild_from=rebuild_from)
    reput.begin_at(begun_at)
    progress.begin(
        "dispatching into the consume queues",
        log.max_offset - begun_at,
        done=lambda: reput.reput_from_offset - begun_at,
    )
    try:
        _dispatch_rest(reput, queues, log)
    except StoreWriteError as error:
        if not is_lack(error):
            raise
        reput.hold_from_start(error, finish=queues.finish_erasing_in_turns)
    else:
        queues.finish_erasing()
    queues.correct_min_offset(log.min_offset)
    for key in queues.stopped.due(log.min_offset):
        queues.build_again(key)
    while queues.take_out_missing():
        pass  # before a consumer takes its end for where it begins


def describe_dropped(recovery: LogRecovery) -> str:
    """Which whole records went with a cut, in a sentence; empty if none did."""
    if not recovery.dropped_records:
        return ""
    return (
        f"its start cut the log at offset {recovery.end} ({recovery.reason}), and with it {recovery.dropped_records} "
        "whole records behind, of which nothing told that they had been flushed"
    )


def _log_repairs(recovery: LogRecovery) -> None:
    if recovery.reason:
        logger.warning(
            "commit_log.cut", end=recovery.end, reason=recovery.reason, dropped_records=recovery.dropped_records
        )
    if recovery.repaired_blanks:
        logger.warning("commit_log.blanks_repaired", offsets=recovery.repaired_blanks)


def _dispatch_rest(reput: ReputMessageService, queues: ConsumeQueueTable, log: Log) -> None:
    """Dispatch what the queues lack. What does not fit damaged queues fits empty ones, if only the log is sound."""
    try:
        reput.catch_up()
    except CorruptLogError as error:
        reput.begin_at(log.min_offset)  # first: if some queues only can be emptied now, dispatch makes them whole
        if not empty_queues_of(queues, log):
            raise
        queues.hidden.clear()
        queues.stopped.clear()
        logger.warning("consume_queues.rebuilt", reason=str(error))
        reput.catch_up()


def mark_in_use(disk: Disk, options: StoreOptions, *, log_directory: str) -> bool:
    """Make the directories and the ``abort`` file, durably and before anything else is written.

    Returns:
        Whether the last process shut down cleanly, that is whether there was no ``abort``.
    """
    for directory in (log_directory, options.consume_queue_dir, options.config_dir):
        disk.makedirs(directory)
    if disk.exists(_abort_path(options)):
        return False
    disk.create(_abort_path(options), 0, sparse=True)
    return True


def mark_unused(disk: Disk, options: StoreOptions) -> None:
    """Take back :func:`mark_in_use`, unless somebody else has done so. Raises StoreWriteError."""
    if disk.exists(_abort_path(options)):
        disk.unlink(_abort_path(options))


def _abort_path(options: StoreOptions) -> str:
    return f"{options.store_path_root_dir}/abort"


def next_queue_offsets(log: Log, queues: ConsumeQueueTable, *, dispatched: int) -> dict[QueueKey, int]:
    """The queues' ends, and past them what is in the log but may not be dispatched yet."""
    table: dict[QueueKey, int] = {}
    for _ in _learn_offsets(table, log, queues, dispatched=dispatched):
        pass
    return table


async def next_queue_offsets_in_turns(log: Log, queues: ConsumeQueueTable, *, dispatched: int) -> dict[QueueKey, int]:
    """As :func:`next_queue_offsets`, while everybody else goes on; but nobody may append to the log meanwhile."""
    table: dict[QueueKey, int] = {}
    for _ in _learn_offsets(table, log, queues, dispatched=dispatched):
        await trio.lowlevel.checkpoint()
    return table


def _learn_offsets(
    table: dict[QueueKey, int], log: Log, queues: ConsumeQueueTable, *, dispatched: int
) -> Iterator[None]:
    """Fill ``table``; between two steps queues may grow by dispatch. Each takes some milliseconds."""
    start = 0
    while page := queues.next_offsets(start, _PAGE):
        table.update(page)
        start += len(page)
        yield
    for extent in log.extents(dispatched):
        with suppress(CorruptLogError):
            for requests in read_pieces(log, extent, dispatched):
                for request in requests:
                    if enters_queue(request.sys_flag) and 0 <= request.queue_offset <= QUEUE_OFFSET_MAX:
                        key, end = (request.topic, request.queue_id), request.queue_offset + 1
                        if end > 1 or queues.deleted.holds(request):
                            end = max(table.get(key, 0), end)  # a deleted one ends behind it
                        table[key] = end
                yield
