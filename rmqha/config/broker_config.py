"""The keys of the broker itself, and the whole configuration."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rmqha.choices import BrokerRole
from rmqha.config.acl_config import AclConfig
from rmqha.config.dledger_broker_config import DLedgerBrokerConfig
from rmqha.config.ha_config import HAConfig
from rmqha.config.key import MASTER, key
from rmqha.config.kinds import BOOLEAN, INTEGER, MILLISECONDS, PERCENT, TEXT
from rmqha.config.listener_config import ListenerConfig
from rmqha.config.metrics_config import BrokerMetricsConfig
from rmqha.config.name_servers_config import NameServersConfig
from rmqha.config.store_config import StoreConfig
from rmqha.config.tls_config import TlsConfig
from rmqha.config.transaction_config import TransactionConfig


@dataclass(frozen=True, kw_only=True)
class BrokerConfig(
    StoreConfig,
    HAConfig,
    ListenerConfig,
    BrokerMetricsConfig,
    TlsConfig,
    AclConfig,
    NameServersConfig,
    DLedgerBrokerConfig,
    TransactionConfig,
):
    """Everything an operator can decide, checked. Made by :func:`rmqha.config.load_config` alone.

    Source: spec commitlog §14; rocketmq-all-4.9.8 BrokerConfig.java and NettyServerConfig.java.

    Attributes:
        notes: sentences to say once at the start: keys accepted without effect, values that were adjusted.
        origins: where each key was set, e.g. ``broker.conf:7`` or ``command line``; absent for defaults.
    """

    broker_name: str = key(
        "brokerName",
        TEXT,
        "",
        derived="the host's name",
        meaning="Name of the replication group; the same on a master and its slaves. A slave with another name does "
        "not follow; one without takes its master's.",
    )
    broker_cluster_name: str = key(
        "brokerClusterName",
        TEXT,
        "DefaultCluster",
        meaning="Name of the cluster; stored with every message as its property CLUSTER.",
    )
    broker_id: int = key(
        "brokerId",
        INTEGER,
        "",
        low=0,
        high=(1 << 63) - 1,
        derived="0 for a master, 1 for a slave",
        meaning="0 for the master, a number of its own above 0 for each slave.",
    )
    broker_ip1: str = key(
        "brokerIP1",
        TEXT,
        "",
        derived="127.0.0.1",
        meaning="Address told to clients, stored with every message as its store host, and listened on "
        "unless bindAddress is set.",
    )
    broker_ip2: str = key(
        "brokerIP2",
        TEXT,
        "",
        derived="brokerIP1",
        meaning="Address told to slaves, and listened on unless haBindAddress is set.",
    )
    bind_address: str = key(
        "bindAddress",
        TEXT,
        "",
        derived="brokerIP1, or 127.0.0.1",
        ours=True,
        meaning="Address on which listenPort listens.",
    )
    listen_port: int = key(
        "listenPort",
        INTEGER,
        "10911",
        low=0,
        high=65535,
        meaning="Port for producers and consumers; listenPort - 2 serves the same for Java slaves and VIP "
        "clients. 0 takes any free port.",
    )
    broker_permission: int = key(
        "brokerPermission",
        INTEGER,
        "6",
        low=0,
        high=7,
        roles=MASTER,
        meaning="Sum of 4 (may be read) and 2 (may be written).",
    )
    auto_create_topic_enable: bool = key(
        "autoCreateTopicEnable",
        BOOLEAN,
        "true",
        roles=MASTER,
        meaning="Make a topic at the first send to it.",
    )
    default_topic_queue_nums: int = key(
        "defaultTopicQueueNums",
        INTEGER,
        "8",
        low=1,
        high=1024,
        roles=MASTER,
        meaning="Most queues of a topic made at the first send to it.",
    )
    max_queues: int = key(
        "maxQueues",
        INTEGER,
        "100000",
        low=1,
        high=10_000_000,
        roles=MASTER,
        ours=True,
        meaning="Most queues, of all topics together, that sends may make: each costs some memory, a file, and its "
        "share of a start's time. Topics beyond it are not made; those there are go on. Of one address no more are "
        "made, from a start on, than are left for all others.",
    )
    trace_topic_enable: bool = key(
        "traceTopicEnable",
        BOOLEAN,
        "false",
        meaning="Have the topic msgTraceTopicName from the start on, with one queue, for what clients with a message "
        "trace tell of their sends and deliveries. Without it, it is made as any topic is.",
    )
    msg_trace_topic_name: str = key(
        "msgTraceTopicName",
        TEXT,
        "RMQ_SYS_TRACE_TOPIC",
        meaning="The topic of traceTopicEnable; nobody may change or delete it.",
    )
    auto_create_subscription_group: bool = key(
        "autoCreateSubscriptionGroup",
        BOOLEAN,
        "true",
        meaning="Make a group of consumers at the first heartbeat of a member. Without it, pulls of groups that nobody "
        "made (mqadmin updateSubGroup) are refused.",
    )
    notify_consumer_ids_changed_enable: bool = key(
        "notifyConsumerIdsChangedEnable",
        BOOLEAN,
        "true",
        meaning="Tell consumers at once when members of their group come and go; otherwise they find out within 20 s.",
    )
    store_reply_message_enable: bool = key(
        "storeReplyMessageEnable",
        BOOLEAN,
        "true",
        roles=MASTER,
        meaning="Also store the replies to messages that were sent as requests, in <brokerClusterName>_REPLY_TOPIC.",
    )
    slave_read_enable: bool = key(
        "slaveReadEnable",
        BOOLEAN,
        "false",
        meaning="Suggest consumers that are far behind to read from a slave, if that one has what they read. (A slave "
        "serves any consumer that asks it.)",
    )
    access_message_in_memory_max_ratio: int = key(
        "accessMessageInMemoryMaxRatio",
        PERCENT,
        "40",
        low=0,
        high=100,
        meaning="A consumer is far behind when more than this share of the memory lies between it and the "
        "end of the log; a new group whose queue begins that far behind begins where its members choose.",
    )
    long_polling_enable: bool = key(
        "longPollingEnable",
        BOOLEAN,
        "true",
        meaning="Hold a pull that finds nothing until a message arrives or its own time is over.",
    )
    short_polling_time_s: float = key(
        "shortPollingTimeMills",
        MILLISECONDS,
        "1000",
        low=1,
        high=600_000,
        meaning="How long a pull that finds nothing is held with longPollingEnable=false.",
    )
    flush_consumer_offset_interval_s: float = key(
        "flushConsumerOffsetInterval",
        MILLISECONDS,
        "5000",
        low=100,
        high=3_600_000,
        meaning="Pause between two writes of config/consumerOffset.json.",
    )

    notes: tuple[str, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def is_slave(self) -> bool:
        """Whether this broker copies a master and refuses sends."""
        return self.broker_role is BrokerRole.SLAVE
