"""The keys of a port for clients: a broker's listenPort, or a name server's."""

from dataclasses import dataclass

from rmqha.config.key import key
from rmqha.config.kinds import BOOLEAN, BYTES, INTEGER, MILLISECONDS, NETWORKS, SECONDS


@dataclass(frozen=True, kw_only=True)
class ListenerConfig:
    """Source: rocketmq-all-4.9.8 NettyServerConfig.java."""

    allow_insecure: bool = key(
        "allowInsecure",
        BOOLEAN,
        "false",
        ours=True,
        meaning="Listen on an address other than loopback without TLS, although nobody has to prove who they are: "
        "anybody who reaches the ports can read and write everything.",
    )
    client_allow: tuple[str, ...] = key(
        "clientAllow",
        NETWORKS,
        "",
        ours=True,
        meaning="Addresses or networks (10.0.0.0/8) that may connect to listenPort, separated by commas; slaves "
        "belong there too. Empty: everybody who reaches the port.",
    )
    max_connections: int = key(
        "maxConnections",
        INTEGER,
        "4096",
        low=1,
        high=1_000_000,
        ours=True,
        meaning="Most client connections at one time; beyond them one that has proved nothing yet gives way.",
    )
    max_connections_per_address: int = key(
        "maxConnectionsPerAddress",
        INTEGER,
        "1024",
        low=1,
        high=1_000_000,
        ours=True,
        meaning="Most client connections from one address.",
    )
    max_in_flight_bytes: int = key(
        "maxInFlightBytes",
        BYTES,
        str(512 << 20),
        low=1 << 20,
        high=1 << 40,
        ours=True,
        meaning="Most bytes of requests not yet answered, and 2 KiB for each, all connections together; above it "
        "nothing more is read of those with 64 KiB until answers have gone out.",
    )
    max_in_flight_bytes_per_connection: int = key(
        "maxInFlightBytesPerConnection",
        BYTES,
        str(64 << 20),
        low=1 << 20,
        high=1 << 40,
        ours=True,
        meaning="Most of them of one connection; above it nothing more is read of it.",
    )
    server_channel_max_idle_time_s: float = key(
        "serverChannelMaxIdleTimeSeconds",
        SECONDS,
        "120",
        low=1,
        high=86_400,
        meaning="A client connection on which nothing moved for so long is closed.",
    )
    drain_timeout_s: float = key(
        "drainTimeout",
        MILLISECONDS,
        "5000",
        low=0,
        high=600_000,
        ours=True,
        meaning="After SIGTERM: how long to wait for the answers still due, and for clients to leave, before "
        "connections are closed.",
    )
