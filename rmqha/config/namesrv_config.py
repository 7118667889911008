"""The keys of a name server, under RocketMQ's names."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from rmqha.config.key import key
from rmqha.config.kinds import BOOLEAN, INTEGER, PATH, TEXT
from rmqha.config.listener_config import ListenerConfig
from rmqha.config.metrics_config import MetricsConfig
from rmqha.config.tls_config import ListenerTlsConfig


@dataclass(frozen=True, kw_only=True)
class NamesrvConfig(ListenerConfig, ListenerTlsConfig, MetricsConfig):
    """Everything an operator can decide, checked. Made by :func:`rmqha.config.load_namesrv.load_namesrv` alone.

    Source: rocketmq-all-4.9.8 NamesrvConfig.java.

    Attributes:
        notes: sentences to say once at the start.
        origins: where each key was set; absent for defaults.
    """

    listen_port: int = key(
        "listenPort",
        INTEGER,
        "9876",
        low=0,
        high=65535,
        meaning="Port for brokers and clients. 0 takes any free port.",
    )
    bind_address: str = key(
        "bindAddress",
        TEXT,
        "127.0.0.1",
        ours=True,
        meaning="Address on which listenPort listens; 0.0.0.0 is every one of this machine.",
    )
    kv_config_path: str = key(
        "kvConfigPath",
        PATH,
        "~/namesrv/kvConfig.json",
        meaning="File of what mqadmin's updateKvConfig stored: all that a name server keeps. It is on the disk before "
        "mqadmin is answered.",
    )
    order_message_enable: bool = key(
        "orderMessageEnable",
        BOOLEAN,
        "false",
        meaning="Routes hold the queues that the namespace ORDER_TOPIC_CONFIG gives a topic.",
    )

    notes: tuple[str, ...] = ()
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)
