"""StoreOptions: what a store has to know; broker/ makes it from the configuration. Times are seconds."""

from dataclasses import dataclass, field

from rmqha.codec.delay_level import DELAY_LEVELS_MS
from rmqha.store.cleaner import CleanOptions
from rmqha.store.open_files import FILES_MAX


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """Defaults are RocketMQ's (spec: commitlog §14)."""

    store_path_root_dir: str
    store_path_commit_log: str = ""
    """Directory of the segments; empty: ``ROOT/commitlog``."""
    mapped_file_size_commit_log: int = 1 << 30
    """Must be the same on master and slave."""
    mapped_file_size_consume_queue: int = 6_000_000
    """Bytes; rounded down to whole units."""
    max_message_size: int = 4 << 20
    """Bytes of a body."""
    sync_flush: bool = False
    """flushDiskType=SYNC_FLUSH: group commit, and nothing is dispatched before it is durable."""
    flush_interval_commit_log_s: float = 0.5
    flush_commit_log_least_pages: int = 4
    flush_commit_log_thorough_interval_s: float = 10.0
    flush_interval_consume_queue_s: float = 1.0
    flush_consume_queue_least_pages: int = 2
    flush_consume_queue_thorough_interval_s: float = 60.0
    check_crc_on_recover: bool = True
    in_memory_bytes: int = 1 << 30
    """How much of the log's end is taken to be in the page cache (accessMessageInMemoryMaxRatio of the memory)."""
    delay_levels_ms: tuple[int, ...] = DELAY_LEVELS_MS
    open_files_max: int = FILES_MAX
    """So many segments and queue files are open at one time; a segment takes two descriptors and a map."""
    clean: CleanOptions = field(default_factory=CleanOptions)

    @property
    def commit_log_dir(self) -> str:
        """Where the segments are."""
        return self.store_path_commit_log or f"{self.store_path_root_dir}/commitlog"

    @property
    def consume_queue_dir(self) -> str:
        """Where the queues are."""
        return f"{self.store_path_root_dir}/consumequeue"

    @property
    def config_dir(self) -> str:
        """Where the broker's JSON files are."""
        return f"{self.store_path_root_dir}/config"
