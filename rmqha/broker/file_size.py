"""Which of a broker's files are larger than its process may make any. Pure."""

from rmqha.config import BrokerConfig
from rmqha.config.store_config import INDEX_HEADER_SIZE


def why_too_small(config: BrokerConfig, limit: int | None) -> str:
    """Which files cannot be made, in a sentence; empty if all can. ``limit``: bytes; None: there is none."""
    if limit is None:
        return ""
    index = INDEX_HEADER_SIZE + 4 * config.max_hash_slot_num + 20 * config.max_index_num
    log = {"mappedFileSizeCommitLog": config.mapped_file_size_commit_log}
    if config.enable_dleger_commit_log:
        log = {
            "mappedFileSizeForEntryData": config.mapped_file_size_for_entry_data,
            "mappedFileSizeForEntryIndex": config.mapped_file_size_for_entry_index,
        }
    sizes = log | {
        "mappedFileSizeConsumeQueue": config.mapped_file_size_consume_queue,
        "files of maxHashSlotNum and maxIndexNum": index,
    }
    if not (larger := [f"{size:,} ({name})" for name, size in sizes.items() if size > limit]):
        return ""
    return (
        f"this process may make no file larger than {limit:,} bytes (ulimit -f, LimitFSIZE=), and needs files of "
        f"{', '.join(larger)}: the first write to one will fail"
    )
