"""The keys of the observability port, a broker's or a name server's."""

from dataclasses import dataclass

from rmqha.config.key import key
from rmqha.config.kinds import INTEGER, LISTEN_ADDRESS, NETWORKS


@dataclass(frozen=True, kw_only=True)
class MetricsConfig:
    """RocketMQ has no such port: its exporter is a process of its own."""

    metrics_listen: str = key(
        "metricsListen",
        LISTEN_ADDRESS,
        "",
        ours=True,
        meaning="Address ([HOST:]PORT, of loopback without HOST) of /metrics for Prometheus, /livez and /readyz "
        "(docs/metrics.md). Empty: there is none. TLS is that of listenPort (tlsMode). "
        "Needs prometheus-client and h11 (pip install 'rmqha[web]').",
    )
    metrics_allow: tuple[str, ...] = key(
        "metricsAllow",
        NETWORKS,
        "",
        ours=True,
        meaning="Addresses or networks that may connect to metricsListen, separated by commas. Empty: everybody who "
        "reaches the port.",
    )


@dataclass(frozen=True, kw_only=True)
class BrokerMetricsConfig(MetricsConfig):
    """Of a broker."""

    metrics_topics_max: int = key(
        "metricsTopicsMax",
        INTEGER,
        "200",
        low=0,
        high=2000,
        ours=True,
        meaning="Most topics, and most pairs of a group and a topic, that have metrics of their own; those of all "
        "others are summed.",
    )
