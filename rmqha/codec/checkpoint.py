"""The checkpoint file: up to which store time each structure is known to be durable.

    at  size  field
     0     8  commitlog: store time in ms of a durable record
     8     8  consume queues: the same
    16     8  index: the same
    24     8  offset up to which the log is durable; where RocketMQ 5.x has the master's flushed offset
    32     8  confirm offset of RocketMQ 5.x, else 0
    40     4  "rmqh": the two offsets are rmqha's, and
    44     4  CRC-32 of everything before 40
    48  4048  zeros

0 always means "not known". The file is written in place by RocketMQ, so any prefix of an update may be found. RocketMQ
4.9 moves the times and nothing else: then the CRC does not fit any more, and of how far that broker's log is durable
the offset before says nothing.

Source: spec: commitlog §11; rocketmq-all-4.9.8 StoreCheckpoint.java:35-118.
"""

import struct
from dataclasses import dataclass
from typing import Final

from rmqha.codec.crc import crc32
from rmqha.memory import BytesLike

_FIELDS: Final = struct.Struct(">qqqqq")
_SEAL: Final = struct.Struct(">4sI")
_SEAL_TAG: Final = b"rmqh"
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
    return (fields + _SEAL.pack(_SEAL_TAG, crc32(fields))).ljust(CHECKPOINT_SIZE, b"\0")


def decode_checkpoint(raw: BytesLike) -> Checkpoint:
    """Read a checkpoint; what a short or empty file lacks, what is negative, and an offset not ours is not known."""
    padded = bytes(raw[: _FIELDS.size + _SEAL.size]).ljust(_FIELDS.size + _SEAL.size, b"\0")
    values = [max(0, value) for value in _FIELDS.unpack_from(padded)]
    if not is_sealed(padded):
        values[3:] = 0, 0
    return Checkpoint(*values)


def is_sealed(raw: BytesLike) -> bool:
    """Whether rmqha was the last to write this file: what it says of offsets is true, also that nothing is known."""
    if len(raw) < _FIELDS.size + _SEAL.size:
        return False
    return _SEAL.unpack_from(raw, _FIELDS.size) == (_SEAL_TAG, crc32(raw[: _FIELDS.size]))
