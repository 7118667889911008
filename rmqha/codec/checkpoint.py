"""The checkpoint file: up to which store time each structure is known to be durable.

    at  size  field
     0     8  commitlog: store time in ms of a durable record
     8     8  consume queues: the same
    16     8  index: the same
    24     8  RocketMQ 5.x: offset up to which the master has flushed; 4.9 neither reads nor writes it
    32     8  RocketMQ 5.x: confirm offset; likewise
    40  4056  zeros

0 always means "not known". The file is written in place by RocketMQ, so any prefix of an update may be found.

Source: spec: commitlog §11; rocketmq-all-4.9.8 StoreCheckpoint.java:35-118.
"""

import struct
from dataclasses import dataclass
from typing import Final

from rmqha.memory import BytesLike

_FIELDS: Final = struct.Struct(">qqqqq")
CHECKPOINT_SIZE: Final = 4096
CLOCK_SLACK_MS: Final = 3_000
"""Recovery starts this much before the checkpoint's times."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Values of the checkpoint file; ``0`` where nothing is known."""

    commit_log_timestamp_ms: int = 0
    consume_queue_timestamp_ms: int = 0
    index_timestamp_ms: int = 0
    master_flushed_offset: int = 0
    confirm_offset: int = 0

    @property
    def min_timestamp_ms(self) -> int:
        """Records stored before this time are in the commitlog and in the queues, for sure."""
        return max(0, min(self.commit_log_timestamp_ms, self.consume_queue_timestamp_ms) - CLOCK_SLACK_MS)


def encode_checkpoint(checkpoint: Checkpoint) -> bytes:
    """All 4096 bytes of the file."""
    fields = _FIELDS.pack(
        checkpoint.commit_log_timestamp_ms,
        checkpoint.consume_queue_timestamp_ms,
        checkpoint.index_timestamp_ms,
        checkpoint.master_flushed_offset,
        checkpoint.confirm_offset,
    )
    return fields.ljust(CHECKPOINT_SIZE, b"\0")


def decode_checkpoint(raw: BytesLike) -> Checkpoint:
    """Read a checkpoint; what a short or empty file lacks, and what is negative, is not known."""
    padded = bytes(raw[: _FIELDS.size]).ljust(_FIELDS.size, b"\0")
    return Checkpoint(*(max(0, value) for value in _FIELDS.unpack(padded)))
