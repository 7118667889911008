"""Planted bugs of the store: recovery, checkpoints, queues and what consumers see of them."""

from dataclasses import replace
from typing import Any, Final

from rmqha.codec import transfer
from rmqha.codec.record import scan
from rmqha.codec.record.scan import scan_records
from rmqha.ha import catch_up, ha_connection
from rmqha.replication import catch_up_plan
from rmqha.store import (
    commit_log,
    confirm_offset,
    flush_consume_queue_service,
    log_recovery,
    mapped_file,
    message_store,
    reput_message_service,
    start,
    store_checkpoint,
)
from tests.sim.mutant import always, mutant, nothing, nothing_async

Store: Final = message_store.DefaultMessageStore
FlushQueues: Final = flush_consume_queue_service.FlushConsumeQueueService


def _cut_in_memory(self: Any, position: int) -> None:
    self.wrote_position = position


def _cut_without_sync(self: Any, position: int) -> None:
    self.file.pwrite([bytes(self.size - position)], position)
    self.wrote_position = position


def _walk_taking_back_blanks(files: Any, *args: Any, **kwargs: Any) -> Any:
    found = _walk(files, *args, **kwargs)
    if found.end == files[-1].end_offset:
        last = scan_records(
            files[-1].view, 0, files[-1].size, phy_offset_base=files[-1].file_from_offset, file_end=files[-1].size
        )
        return replace(found, end=files[-1].file_from_offset + last.end)
    return found


def _recover_without_crc(queue: Any, **kwargs: Any) -> Any:
    return _recover(queue, **kwargs | {"check_crc": False})


def _checkpoint_too_early(self: Any, **kwargs: Any) -> Any:
    return _update_checkpoint(self, **kwargs | {"flushed_offset": kwargs["flushed_offset"] + 400})


async def _flush_all_then_read_times(self: Any) -> bool:
    log = self._flush_service
    boundary, log_timestamp_ms = log.flushed_boundary, log.flushed_timestamp_ms
    if not await self._flush(least_pages=0):
        return False
    await self._checkpoint.update_in_thread(
        commit_log_timestamp_ms=log_timestamp_ms,
        consume_queue_timestamp_ms=self._reput.dispatched_timestamp_ms,
        flushed_offset=boundary,
    )
    return True


async def _no_queue_offsets(*_: Any, **__: Any) -> Any:
    return {}


async def _give_the_last_offset_again(*args: Any, **kwargs: Any) -> Any:
    return {queue: max(offset - 1, 0) for queue, offset in (await _next_queue_offsets(*args, **kwargs)).items()}


def _header_with_16_bits(offset: int, size: int) -> bytes:
    return _encode_frame_header(offset, size & 0xFFFF)


def _decide_only_at_the_start(self: Any, *, own_end: int, now: float) -> None:
    self.refusal = "" if self.is_open else self._why_closed(now)
    self.is_open = self.is_open or not self.refusal


_next_queue_offsets = start.next_queue_offsets_in_turns
_encode_frame_header = transfer.encode_frame_header
_walk = log_recovery._walk
_recover = log_recovery.recover_commit_log
_update_checkpoint = store_checkpoint.StoreCheckpoint.update_in_thread


def plant() -> None:
    """Register them all."""
    mutant("the tail is cut in memory only", "#10666", (mapped_file.MappedFile, "cut", _cut_in_memory))
    mutant("the cut is not durable", "D8", (mapped_file.MappedFile, "cut", _cut_without_sync))
    mutant("recovery believes the page cache", "found here", (log_recovery, "_write_again", nothing))
    mutant("recovery does not check the CRC", "§7.2", (commit_log, "recover_commit_log", _recover_without_crc))
    mutant("torn properties are kept", "found here", (scan, "_are_torn", always(value=False)))
    mutant("a blank at the end is taken back", "§7.2", (log_recovery, "_walk", _walk_taking_back_blanks))
    mutant("every stop counts as clean", "§7.1", (start, "mark_in_use", always(value=True)))
    mutant(
        "the checkpoint runs ahead of the flush", "#678",
        (store_checkpoint.StoreCheckpoint, "update_in_thread", _checkpoint_too_early),
    )  # fmt: skip

    mutant(
        "queue offsets start over after a restart", "#8539",
        (start, "next_queue_offsets", always(value={})),
        (message_store, "next_queue_offsets_in_turns", _no_queue_offsets),
    )  # fmt: skip
    mutant(
        "queue offsets are not learned from a peer", "found here", (Store, "recover_topic_queue_table", nothing_async)
    )
    mutant(
        "consumers see what is not durable",
        "#2830, #8239",
        (confirm_offset.ConfirmOffset, "value", lambda self: self._log.max_offset),
    )
    mutant(
        "queues are not cut with the log", "#4771",
        (start, "recover_consume_queues", lambda _table, log, **_: log.max_offset),
    )  # fmt: skip
    mutant(
        "the checkpoint's times are read after the queues' flush", "an outsider",
        (FlushQueues, "flush_all", _flush_all_then_read_times),
    )  # fmt: skip
    mutant(
        "the last queue offset is given again after a restart", "found by hand",
        (message_store, "next_queue_offsets_in_turns", _give_the_last_offset_again),
    )  # fmt: skip
    mutant("a longer peer is passed over", "found by hand", (catch_up.PeerAsker, "_take", nothing_async))
    mutant(
        "sends go on though a peer that came back has said that it holds more", "found by hand",
        (catch_up_plan.CatchUpPlan, "_decide", _decide_only_at_the_start),
    )  # fmt: skip
    mutant("what lacks space ends dispatch", "found by hand", (reput_message_service, "may_pass", always(value=False)))
    mutant("a frame's size has 16 bits", "large frames", (ha_connection, "encode_frame_header", _header_with_16_bits))
