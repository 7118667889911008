"""StoreOptions: what a store has to know; broker/ makes it from the configuration. Times are seconds."""

from dataclasses import dataclass

from rmqha.store.cleaner import CleanOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """Under the names and with the defaults of the keys (config/store_config.py)."""

    store_path_root_dir: str
    store_path_commit_log: str
    """Directory of the segments."""
    mapped_file_size_commit_log: int
    """Must be the same on master and slave."""
    mapped_file_size_consume_queue: int
    """Bytes; rounded down to whole units."""
    sync_flush: bool
    """flushDiskType=SYNC_FLUSH: group commit, and nothing is dispatched before it is durable."""
    flush_interval_commit_log_s: float
    flush_commit_log_least_pages: int
    flush_commit_log_thorough_interval_s: float
    flush_interval_consume_queue_s: float
    flush_consume_queue_least_pages: int = 2
    flush_consume_queue_thorough_interval_s: float
    check_crc_on_recover: bool
    in_memory_bytes: int
    """How much of the log's end is taken to be in the page cache (accessMessageInMemoryMaxRatio of the memory)."""
    message_index_enable: bool
    """Whether messages are found by their keys."""
    max_hash_slot_num: int
    max_index_num: int
    delay_levels_ms: tuple[int, ...]
    open_files_max: int
    """So many segments and queue files are open at one time; a segment takes two descriptors and a map."""
    clean: CleanOptions

    @property
    def consume_queue_dir(self) -> str:
        """Where the queues are."""
        return f"{self.store_path_root_dir}/consumequeue"

    @property
    def index_dir(self) -> str:
        """Where the index is."""
        return f"{self.store_path_root_dir}/index"

    @property
    def config_dir(self) -> str:
        """Where the broker's JSON files are."""
        return f"{self.store_path_root_dir}/config"
