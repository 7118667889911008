"""The options of a DLedger member, under the names of DLedgerConfig.

Group, id, peers and directory of a member are options of the command line.
"""

from dataclasses import dataclass

from rmqha.choices import DLedgerAck
from rmqha.config.key import key
from rmqha.config.kinds import (
    BOOLEAN,
    BYTES,
    HOURS_OF_DAY,
    INTEGER,
    MILLISECONDS,
    RATIO,
    SEMICOLON_NAMES,
    TEXT,
    choice,
)

_MINUTE_MS = 60_000
_INT_MAX = (1 << 31) - 1


@dataclass(frozen=True, kw_only=True)
class DLedgerSettings:
    """Source: spec dledger §8; dledger-all-0.3.1.2 DLedgerConfig.java for names and defaults."""

    dledger_ack: DLedgerAck = key(
        "dledgerAck",
        choice(DLedgerAck),
        "flushed",
        ours=True,
        meaning="flushed: an append is answered once its entry is on the disks of a majority; written: once a majority "
        "has written it, as with DLedger: a power cut of all of them may take it back.",
    )
    heart_beat_time_interval_s: float = key(
        "heartBeatTimeIntervalMs",
        MILLISECONDS,
        "2000",
        low=10,
        high=_MINUTE_MS,
        meaning="Pause between two heartbeats.",
    )
    max_heart_beat_leak: int = key(
        "maxHeartBeatLeak",
        INTEGER,
        "3",
        low=1,
        high=1000,
        meaning="After so many intervals without its leader a member asks for votes, and without a quorum a leader "
        "steps down.",
    )
    min_vote_interval_s: float = key(
        "minVoteIntervalMs",
        MILLISECONDS,
        "300",
        low=1,
        high=_MINUTE_MS,
        meaning="Shortest pause between two rounds of votes.",
    )
    max_vote_interval_s: float = key(
        "maxVoteIntervalMs",
        MILLISECONDS,
        "1000",
        low=1,
        high=_MINUTE_MS,
        meaning="Longest pause between two rounds of votes.",
    )
    min_take_leadership_vote_interval_s: float = key(
        "minTakeLeadershipVoteIntervalMs",
        MILLISECONDS,
        "30",
        low=1,
        high=_MINUTE_MS,
        meaning="Shortest pause of a preferred leader that is taking over.",
    )
    max_take_leadership_vote_interval_s: float = key(
        "maxTakeLeadershipVoteIntervalMs",
        MILLISECONDS,
        "100",
        low=1,
        high=_MINUTE_MS,
        meaning="Longest pause of a preferred leader that is taking over.",
    )
    preferred_leader_ids: tuple[str, ...] = key(
        "preferredLeaderIds",
        SEMICOLON_NAMES,
        "",
        meaning="Members that are to lead, with ';' between them: another leader hands over once one of them is there.",
    )
    max_leadership_transfer_wait_index: int = key(
        "maxLeadershipTransferWaitIndex",
        INTEGER,
        "1000",
        low=1,
        high=_INT_MAX,
        meaning="Leadership is transferred only to a member that lacks fewer entries.",
    )
    leadership_transfer_wait_timeout_s: float = key(
        "leadershipTransferWaitTimeout",
        MILLISECONDS,
        "1000",
        low=1,
        high=_MINUTE_MS,
        meaning="So long who takes over may take to get them.",
    )
    max_pending_requests_num: int = key(
        "maxPendingRequestsNum",
        INTEGER,
        "10000",
        low=0,
        high=1_000_000,
        meaning="Appends that wait for a majority; further ones are answered LEADER_PENDING_FULL.",
    )
    max_wait_ack_time_s: float = key(
        "maxWaitAckTimeMs",
        MILLISECONDS,
        "2500",
        low=1,
        high=_MINUTE_MS,
        meaning="So long an append waits for a majority.",
    )
    max_push_time_out_s: float = key(
        "maxPushTimeOutMs",
        MILLISECONDS,
        "1000",
        low=1,
        high=_MINUTE_MS,
        meaning="A follower that does not answer a push for so long is asked what it has.",
    )
    peer_push_throttle_point: int = key(
        "peerPushThrottlePoint",
        BYTES,
        str(300 << 20),
        low=0,
        high=1 << 50,
        meaning="A follower that lacks more bytes gets no more than peerPushQuota.",
    )
    peer_push_quota: int = key(
        "peerPushQuota", BYTES, str(20 << 20), low=1, high=1 << 40, meaning="Bytes a second for a follower far behind."
    )
    is_enable_batch_push: bool = key(
        "isEnableBatchPush",
        BOOLEAN,
        "true",
        meaning="Push entries that wait together in one request (DLedger: `false`).",
    )
    max_batch_push_size: int = key(
        "maxBatchPushSize",
        BYTES,
        str(64 << 10),
        low=1,
        high=4 << 20,
        meaning="Bytes of entries at which such a request is full (DLedger: 4,096).",
    )
    mapped_file_size_for_entry_data: int = key(
        "mappedFileSizeForEntryData",
        BYTES,
        str(1 << 30),
        low=128,
        high=_INT_MAX,
        meaning="Size of the data files; the same on all members.",
    )
    mapped_file_size_for_entry_index: int = key(
        "mappedFileSizeForEntryIndex",
        BYTES,
        str(160 << 20),
        low=32,
        high=_INT_MAX,
        meaning="Size of the index files; a multiple of 32.",
    )
    data_store_path: str = key(
        "dataStorePath",
        TEXT,
        "",
        derived="DIR/dledger-ID/data",
        meaning="Directories of the data files, with ',' between them.",
    )
    read_only_data_store_dirs: str = key(
        "readOnlyDataStoreDirs",
        TEXT,
        "",
        meaning="Directories of data files in which no new ones are made, with ',' between them.",
    )
    flush_file_interval_s: float = key(
        "flushFileInterval",
        MILLISECONDS,
        "10",
        low=1,
        high=_MINUTE_MS,
        meaning="Pause between two flushes with dledgerAck=written; with flushed there is none.",
    )
    check_point_interval_s: float = key(
        "checkPointInterval", MILLISECONDS, "3000", low=1, high=_MINUTE_MS, meaning="Pause between two checkpoints."
    )
    file_reserved_hours: int = key(
        "fileReservedHours",
        INTEGER,
        "72",
        low=1,
        high=1_000_000,
        meaning="Data files are kept at least so long after their last write, if the disk is not too full.",
    )
    delete_when: tuple[int, ...] = key(
        "deleteWhen", HOURS_OF_DAY, "04", meaning="Hours of the day in which expired data files are deleted."
    )
    disk_space_ratio_to_check_expired: float = key(
        "diskSpaceRatioToCheckExpired", RATIO, "0.70", meaning="Above it they are deleted at any hour."
    )
    disk_space_ratio_to_force_clean: float = key(
        "diskSpaceRatioToForceClean",
        RATIO,
        "0.85",
        meaning="Above it data files are deleted before they have expired; 0.05 higher, nothing is appended.",
    )
    enable_disk_force_clean: bool = key("enableDiskForceClean", BOOLEAN, "true", meaning="Whether they are.")
