"""The keys of replication: RocketMQ's, and ours where its protocol left a choice open."""

from dataclasses import dataclass

from rmqha.choices import BrokerRole, HaAck, HaCatchUp, HaStartFrom
from rmqha.config.key import MASTER, SLAVE, key
from rmqha.config.kinds import (
    ADDRESS,
    ADDRESSES,
    BOOLEAN,
    BYTES,
    INTEGER,
    MILLISECONDS,
    NETWORKS,
    TEXT,
    choice,
)

FRAME_SIZE_MAX = 4_194_292  # the largest body a Java slave's 4 MiB buffer takes


@dataclass(frozen=True, kw_only=True)
class HAConfig:
    """Source: spec ha §17; rocketmq-all-4.9.8 MessageStoreConfig.java for names and defaults."""

    broker_role: BrokerRole = key(
        "brokerRole",
        choice(BrokerRole),
        "ASYNC_MASTER",
        meaning="SYNC_MASTER answers a send when enough replicas hold it; ASYNC_MASTER does not wait; "
        "SLAVE copies a master.",
    )
    ha_listen_port: int = key(
        "haListenPort",
        INTEGER,
        "",
        low=0,
        high=65535,
        derived="listenPort + 1",
        meaning="Port from which slaves copy the log. RocketMQ ignores this key and always takes "
        "listenPort + 1; 0 takes any free port.",
    )
    ha_bind_address: str = key(
        "haBindAddress",
        TEXT,
        "",
        derived="brokerIP2, or 127.0.0.1",
        ours=True,
        meaning="Address on which the HA port listens.",
    )
    ha_master_address: str = key(
        "haMasterAddress",
        ADDRESS,
        "",
        roles=SLAVE,
        meaning="host:port of the HA port to copy from: the master's, or another slave's (a chain).",
    )
    master_address: str = key(
        "masterAddress",
        ADDRESS,
        "",
        roles=SLAVE,
        ours=True,
        meaning="host:port of the master's listenPort, for topics and consumer offsets. Without it and "
        "namesrvAddr the port below haMasterAddress is asked.",
    )
    ha_send_heartbeat_interval_s: float = key(
        "haSendHeartbeatInterval",
        MILLISECONDS,
        "5000",
        low=10,
        high=600_000,
        meaning="A connection that sent nothing for so long sends a heartbeat.",
    )
    ha_housekeeping_interval_s: float = key(
        "haHousekeepingInterval",
        MILLISECONDS,
        "20000",
        low=20,
        high=3_600_000,
        meaning="A connection that received nothing for so long is closed.",
    )
    ha_transfer_batch_size: int = key(
        "haTransferBatchSize",
        BYTES,
        "32768",
        low=1,
        high=FRAME_SIZE_MAX,
        meaning="Most bytes in one frame to a slave that keeps up.",
    )
    ha_transfer_size_max: int = key(
        "haTransferSizeMax",
        BYTES,
        str(FRAME_SIZE_MAX),
        low=1,
        high=FRAME_SIZE_MAX,
        ours=True,
        meaning="Most bytes in one frame to a slave that catches up; the default is the most that a RocketMQ "
        "slave can take.",
    )
    ha_slave_fallbehind_max: int = key(
        "haSlaveFallbehindMax",
        BYTES,
        "268435456",
        low=1,
        high=1 << 40,
        roles=MASTER,
        meaning="A slave that is further behind than this does not count as available.",
    )
    slave_timeout_s: float = key(
        "slaveTimeout",
        MILLISECONDS,
        "3000",
        low=1,
        high=600_000,
        roles=MASTER,
        meaning="SYNC_MASTER: how long a send waits for replicas before it is answered FLUSH_SLAVE_TIMEOUT.",
    )
    in_sync_replicas: int = key(
        "inSyncReplicas",
        INTEGER,
        "",
        low=1,
        high=100,
        derived="2 for SYNC_MASTER, otherwise 1",
        roles=MASTER,
        ours=True,
        meaning="SYNC_MASTER: a send is answered SEND_OK when so many replicas hold it, the master counted.",
    )
    min_in_sync_replicas: int = key(
        "minInSyncReplicas",
        INTEGER,
        "1",
        low=1,
        high=100,
        roles=MASTER,
        ours=True,
        meaning="With fewer live replicas than this, the master counted, a send is refused before anything is stored.",
    )
    ha_ack: HaAck = key(
        "haAck",
        choice(HaAck),
        "durable",
        roles=SLAVE,
        ours=True,
        meaning="What a slave acknowledges: bytes received, written to the file, or forced to the disk. "
        "Always whole records whose CRC holds.",
    )
    ha_send_durable_only: bool = key(
        "haSendDurableOnly",
        BOOLEAN,
        "",
        derived="true with SYNC_FLUSH, otherwise false",
        roles=MASTER,
        ours=True,
        meaning="Send slaves only what this broker has forced to its own disk, so no slave can ever be ahead of it.",
    )
    ha_start_from: HaStartFrom = key(
        "haStartFrom",
        choice(HaStartFrom),
        "min",
        ours=True,
        meaning="What a slave gets that says to hold nothing, as RocketMQ's do: the whole log (min), or the last file "
        "only, as from RocketMQ (last). rmqha's slaves ask for the whole log by its first offset, whatever this says.",
    )
    ha_peers: tuple[str, ...] = key(
        "haPeers",
        ADDRESSES,
        "",
        roles=MASTER,
        ours=True,
        meaning="HA ports of the other replicas, host:port separated by commas. A master asks them what it may have "
        "lost, at its start and for as long as it runs; they say where their logs end on the port below.",
    )
    ha_catch_up_at_start: HaCatchUp = key(
        "haCatchUpAtStart",
        choice(HaCatchUp),
        "try",
        roles=MASTER,
        ours=True,
        meaning="Accept sends only when nothing that haPeers hold is missing here: off (ask nobody); try (a peer that "
        "holds more is waited for; one that is not there, or was silent for 20 s, is not); require (enough peers must "
        "have shown what they hold, however long that takes). Reads are served meanwhile.",
    )
    ha_allow: tuple[str, ...] = key(
        "haAllow",
        NETWORKS,
        "",
        ours=True,
        meaning="Addresses or networks (10.0.0.0/8) that may copy the log, separated by commas. Empty: "
        "everybody who reaches the port.",
    )
    ha_first_report_timeout_s: float = key(
        "haFirstReportTimeout",
        MILLISECONDS,
        "10000",
        low=10,
        high=600_000,
        ours=True,
        meaning="A new connection on the HA port must report within this time. A RocketMQ slave takes up to 6 s.",
    )
    max_ha_connections: int = key(
        "maxHaConnections",
        INTEGER,
        "64",
        low=1,
        high=10_000,
        ours=True,
        meaning="Most connections on the HA port at one time, or on that of a DLedger member. At the limit, the "
        "connection that has acknowledged nothing for the longest time gives way.",
    )
    max_ha_connections_per_address: int = key(
        "maxHaConnectionsPerAddress",
        INTEGER,
        "8",
        low=1,
        high=10_000,
        ours=True,
        meaning="Most connections on the HA port from one address.",
    )
