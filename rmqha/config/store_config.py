"""The keys of the store: files, flush, limits, cleaning (RocketMQ's MessageStoreConfig)."""

from dataclasses import dataclass

from rmqha.choices import FlushDiskType
from rmqha.config.key import MASTER, key
from rmqha.config.kinds import (
    BOOLEAN,
    BYTES,
    DELAY_LEVELS,
    HOURS,
    HOURS_OF_DAY,
    INTEGER,
    MILLISECONDS,
    PATH,
    PERCENT,
    choice,
)

GIB = 1 << 30
INT32_MAX = (1 << 31) - 1
COMMIT_LOG_FILE_SIZE_MIN = 4096
INDEX_HEADER_SIZE = 40


@dataclass(frozen=True, kw_only=True)
class StoreConfig:
    """Source: spec commitlog §14; rocketmq-all-4.9.8 MessageStoreConfig.java for names and defaults."""

    store_path_root_dir: str = key(
        "storePathRootDir",
        PATH,
        "~/store",
        meaning="Directory of the store. One broker, one directory; it is made if it does not exist.",
    )
    store_path_commit_log: str = key(
        "storePathCommitLog",
        PATH,
        "",
        derived="storePathRootDir/commitlog",
        meaning="Directory of the commitlog's files, if it is not inside storePathRootDir; on a DLedger group, of the "
        "old ones.",
    )
    mapped_file_size_commit_log: int = key(
        "mappedFileSizeCommitLog",
        BYTES,
        str(GIB),
        low=COMMIT_LOG_FILE_SIZE_MIN,
        high=INT32_MAX,
        meaning="Size of every commitlog file. Must be equal on a master and all its slaves, and can "
        "never change for an existing store.",
    )
    mapped_file_size_consume_queue: int = key(
        "mappedFileSizeConsumeQueue",
        BYTES,
        "6000000",
        low=20,
        high=INT32_MAX,
        meaning="Size of every consume queue file, rounded up to a multiple of 20 (one unit).",
    )
    max_message_size: int = key(
        "maxMessageSize",
        BYTES,
        "4194304",
        low=1,
        high=64 << 20,
        roles=MASTER,
        meaning="Largest body of a message, or of a whole batch. Larger sends are answered "
        "MESSAGE_ILLEGAL. If it is not set, a small mappedFileSizeCommitLog lowers it. It is for sends alone: larger "
        "messages that are stored already are delivered, committed, asked about and sent back all the same.",
    )
    flush_disk_type: FlushDiskType = key(
        "flushDiskType",
        choice(FlushDiskType),
        "ASYNC_FLUSH",
        meaning="SYNC_FLUSH answers a send after fdatasync of its bytes (group commit); ASYNC_FLUSH answers before.",
    )
    sync_flush_timeout_s: float = key(
        "syncFlushTimeout",
        MILLISECONDS,
        "5000",
        low=1,
        high=600_000,
        roles=MASTER,
        meaning="SYNC_FLUSH: how long a send waits for the disk before it is answered FLUSH_DISK_TIMEOUT.",
    )
    flush_interval_commit_log_s: float = key(
        "flushIntervalCommitLog",
        MILLISECONDS,
        "500",
        low=1,
        high=600_000,
        meaning="ASYNC_FLUSH: pause between two looks at what is not yet on disk.",
    )
    flush_commit_log_least_pages: int = key(
        "flushCommitLogLeastPages",
        INTEGER,
        "4",
        low=0,
        high=1 << 20,
        meaning="ASYNC_FLUSH: flush when so many 4-KiB pages have gathered.",
    )
    flush_commit_log_thorough_interval_s: float = key(
        "flushCommitLogThoroughInterval",
        MILLISECONDS,
        "10000",
        low=1,
        high=3_600_000,
        meaning="ASYNC_FLUSH: flush after this time however little has gathered. This bounds what a power "
        "cut can take.",
    )
    flush_interval_consume_queue_s: float = key(
        "flushIntervalConsumeQueue",
        MILLISECONDS,
        "1000",
        low=1,
        high=600_000,
        meaning="Pause between two looks at consume queues that are not yet on disk. They can always be rebuilt.",
    )
    flush_consume_queue_thorough_interval_s: float = key(
        "flushConsumeQueueThoroughInterval",
        MILLISECONDS,
        "60000",
        low=1,
        high=3_600_000,
        meaning="Flush consume queues after this time however little has gathered; moves the checkpoint.",
    )
    check_crc_on_recover: bool = key(
        "checkCRCOnRecover",
        BOOLEAN,
        "true",
        meaning="Check every body's CRC in the files that recovery scans.",
    )
    message_index_enable: bool = key(
        "messageIndexEnable",
        BOOLEAN,
        "true",
        meaning="Build the index, by which messages are found by their keys (UNIQ_KEY and KEYS).",
    )
    max_hash_slot_num: int = key(
        "maxHashSlotNum",
        INTEGER,
        "5000000",
        low=1,
        high=500_000_000,
        meaning="Hash slots of an index file; each takes 4 bytes there, and in memory while the file grows. Files of "
        "another size are built again.",
    )
    max_index_num: int = key(
        "maxIndexNum",
        INTEGER,
        "20000000",
        low=2,
        high=100_000_000,
        meaning="Entries of an index file, one for each key of a message, of 20 bytes.",
    )
    delete_when: tuple[int, ...] = key(
        "deleteWhen",
        HOURS_OF_DAY,
        "04",
        meaning="Local hours in which expired files are deleted, e.g. 04 or 04;16.",
    )
    file_reserved_time_s: float = key(
        "fileReservedTime",
        HOURS,
        "72",
        low=0,
        high=1_000_000,
        meaning="A commitlog file expires so long after its last write.",
    )
    disk_max_used_space_ratio: int = key(
        "diskMaxUsedSpaceRatio",
        PERCENT,
        "75",
        low=10,
        high=95,
        meaning="Above this use of the disk, expired files are deleted at any hour.",
    )
    disk_space_clean_forcibly_ratio: int = key(
        "diskSpaceCleanForciblyRatio",
        PERCENT,
        "85",
        low=20,
        high=99,
        meaning="Above this use of the disk, the oldest files are deleted even if they have not expired.",
    )
    disk_space_warning_level_ratio: int = key(
        "diskSpaceWarningLevelRatio",
        PERCENT,
        "90",
        low=20,
        high=99,
        meaning="Above this use of the disk, sends are refused with SERVICE_NOT_AVAILABLE.",
    )
    clean_file_forcibly_enable: bool = key(
        "cleanFileForciblyEnable",
        BOOLEAN,
        "true",
        meaning="Whether files that have not expired may be deleted above diskSpaceCleanForciblyRatio.",
    )
    clean_resource_interval_s: float = key(
        "cleanResourceInterval",
        MILLISECONDS,
        "10000",
        low=100,
        high=3_600_000,
        meaning="Pause between two runs of the cleaner.",
    )
    delete_commit_log_files_interval_s: float = key(
        "deleteCommitLogFilesInterval",
        MILLISECONDS,
        "100",
        low=0,
        high=600_000,
        meaning="Pause between two deletions of commitlog files.",
    )
    message_delay_level: tuple[float, ...] = key(
        "messageDelayLevel",
        DELAY_LEVELS,
        "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
        meaning="Delays of level 1, 2, ...; must be the same on a master and its slaves. What waits at a level that is "
        "taken away comes when it is due.",
    )
