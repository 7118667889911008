"""The keys of a broker on a DLedger group: RocketMQ's, beside DLedgerConfig's own names."""

from dataclasses import dataclass

from rmqha.config.dledger_config import DLedgerSettings
from rmqha.config.key import key
from rmqha.config.kinds import BOOLEAN, SEMICOLON_NAMES, TEXT


@dataclass(frozen=True, kw_only=True)
class DLedgerBrokerConfig(DLedgerSettings):
    """Source: spec dledger §6.4; rocketmq-all-4.9.8 MessageStoreConfig.java."""

    enable_dleger_commit_log: bool = key(
        "enableDLegerCommitLog",
        BOOLEAN,
        "false",
        meaning="The log is a DLedger group's (Raft), which elects who is master: see docs/dledger.md. Started by "
        "`rmqha broker`. The keys of this section have no effect without it.",
    )
    d_leger_group: str = key("dLegerGroup", TEXT, "", derived="brokerName", meaning="Name of the group.")
    d_leger_peers: str = key(
        "dLegerPeers",
        TEXT,
        "",
        meaning="All members, the same list on each: n0-host:port;n1-host:port;n2-host:port. The ports are the "
        "group's own, beside listenPort.",
    )
    d_leger_self_id: str = key(
        "dLegerSelfId",
        TEXT,
        "",
        meaning="Which of them this broker is: a letter and a number. Clients know it as brokerId 0 while it leads, "
        "and else as the number + 1.",
    )
    preferred_leader_id: tuple[str, ...] = key(
        "preferredLeaderId", SEMICOLON_NAMES, "", meaning="RocketMQ's name of preferredLeaderIds."
    )
    store_path_dledger_commit_log: str = key(
        "storePathDLedgerCommitLog", TEXT, "", meaning="RocketMQ's name of dataStorePath."
    )
