"""Whether a slave's log begins later than its master's, where that is no expired past: as a master it would lack it."""

from typing import Any

from rmqha.store.message_store import DefaultMessageStore


def later_begin(store: DefaultMessageStore, master_min_offset: int | None) -> dict[str, Any] | None:
    """``{"bytes": 16777216, "expires_in_s": 3600.0}``: so many lack, the last of which would have been kept so long.

    None: nothing lacks that would still be kept here. What lies right before a log's begin was written before its
    first record was: segments are deleted early when the disk is too full, by hand, and by RocketMQ. When exactly is
    not known: where nothing was sent for an hour between the two, it counts as kept for an hour too long at most.

    Args:
        store: the slave's.
        master_min_offset: where its master's log began the last time it said so; None: it has not.
    """
    if master_min_offset is None or (lacking := store.min_offset - max(master_min_offset, 0)) <= 0:
        return None
    first_ms = store.earliest_message_time_ms()
    left_s = store.cleaner.left_s(first_ms)
    return {"bytes": lacking, "expires_in_s": round(left_s, 3)} if first_ms >= 0 and left_s > 0 else None


def begin_if_later(store: DefaultMessageStore, master_min_offset: int | None) -> int:
    """Where a slave's log begins if that is later than its master's, expired or not; else 0. Arguments as above."""
    is_known = master_min_offset is not None and store.min_offset < store.max_offset
    return store.min_offset if is_known and store.min_offset > max(master_min_offset or 0, 0) else 0
