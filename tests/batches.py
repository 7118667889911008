"""What a batch's body holds, for those who play a broker."""

from rmqha.codec.batch import BATCH_MESSAGES_MAX, BatchEntry, cut_batch


def decode_batch(body: bytes) -> list[BatchEntry]:
    """All messages of a batch. Raises RemoteProtocolError, as :func:`~rmqha.codec.batch.cut_batch` does."""
    portions = cut_batch(body, messages_max=BATCH_MESSAGES_MAX, portion_bytes=max(1, len(body)))
    return [BatchEntry(*entry) for portion in portions for entry in zip(*portion[:3], strict=True)]
